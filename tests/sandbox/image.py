"""A small container image made of this machine's own programs, so that tests need no registry."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

import pytest

from clawback.errors import SandboxRefused
from clawback.extensions.sandbox import choose_for_image, engines

ENGINES = [rung.name for rung in engines() if rung.usable]
NAME = "localhost/clawback-test:latest"
NO_ENGINE = "neither podman nor docker answers on this machine"
_PROGRAMS = "sh bash cat chmod cp cut echo env find grep head id ln ls mkdir mv rm sed sleep sort stat tail tee touch tr true uname unshare wc yes"
_PATH = "/usr/bin:/bin:/usr/local/bin"


def image(engine: str) -> str:
    """The image's name, once it is made and its walls hold. Skips where this machine's engine cannot run it."""
    if engine not in ENGINES:
        pytest.skip(NO_ENGINE)
    why = _made(engine)
    if why:
        pytest.skip(why)
    return NAME


@cache
def _made(engine: str) -> str:
    done = subprocess.run([engine, "import", "-", NAME], input=root(), capture_output=True, check=False)
    if done.returncode:
        return f"{engine} makes no image: {done.stderr.decode(errors='replace').strip()}"
    try:
        choose_for_image(NAME, engine)
    except SandboxRefused as error:
        return str(error)
    return ""


@cache
def root() -> bytes:
    """A root file system: a shell, a few programs, Python, and their libraries."""
    files: dict[str, Path] = {}
    for name in _PROGRAMS.split():
        files[f"usr/bin/{name}"] = Path(str(shutil.which(name, path=_PATH)))
    python = Path(str(shutil.which("python3", path=_PATH)))
    files[f"usr/bin/{python.resolve().name}"] = python
    library = Path(
        json.loads(
            subprocess.check_output(
                [python, "-I", "-S", "-c", "import json, os; print(json.dumps(os.__file__))"]
            )
        )
    ).parent
    left_out = re.compile(
        r"/(test|tests|idlelib|tkinter|ensurepip|site-packages|dist-packages|__pycache__|config-[^/]*)/"
    )
    for path in library.rglob("*"):
        if path.is_file() and not left_out.search(f"{path}/"):
            files[str(path)[1:]] = path
    objects = [path for at, path in files.items() if at.startswith("usr/bin/") or path.suffix == ".so"]
    told = subprocess.run(["ldd", *map(str, objects)], capture_output=True, text=True, check=False).stdout
    files |= {path[1:]: Path(path) for path in re.findall(r"(?:=> |^\s)(/\S+) \(", told, re.M)}

    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w") as tar:
        # docker gives folders that are not named a mode of its own, in which nobody but root finds anything.
        parents = {str(folder) for at in files for folder in Path(at).parents if str(folder) != "."}
        for name in ("app", "tmp", "root", "etc", "proc", "sys", "dev", *sorted(parents)):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, target in (("bin", "usr/bin"), ("usr/bin/python3", python.resolve().name)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        _add(tar, "app/from-the-image.txt", b"here from the start\n")
        for at, path in files.items():
            _add(tar, at, path.read_bytes(), path.stat().st_mode & 0o755)
    return into.getvalue()


def _add(tar: tarfile.TarFile, at: str, data: bytes, mode: int = 0o644) -> None:
    it = tarfile.TarInfo(at)
    it.size, it.mode = len(data), mode
    tar.addfile(it, io.BytesIO(data))
