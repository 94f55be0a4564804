"""Takes the folders of src/clawback/extensions away and uses the core without them: `python -m tests.without_extensions`.

Works on a copy of the package. First every extension is away: each module of the core is imported, and a training run on the
embedded model and some tests of the core go through. Then each extension is away in turn: a turn is recorded and rated, and help and
the daily commands answer.
A forked process does each of these, so that torch and the core are imported once. Ends with 1 where something failed.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
OPTIONAL = frozenset({"mlx", "mlx_lm", "gepa", "ray", "flwr"})
"""Packages that the development environment may lack; a module of the core that needs one is passed over."""
TESTS = ("tests/feedback/test_feedback.py", "tests/gate/test_sequential.py", "tests/runs/test_run_options.py")
"""Run without any extension."""
OPTIONS = ("-qqx", "-p", "no:cacheprovider", "--disable-warnings", "-m", "not slow and not hypothesis")
COMMANDS = (
    ["--help"],
    ["help", "lab"],
    ["connect", "--help"],
    ["status"],
    ["turns", "list"],
    ["env", "list"],
    ["doctor", "--json"],
    ["versions"],
    ["rules"],
    ["runs"],
    ["config"],
)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        package, away = Path(folder, "src", "clawback"), Path(folder, "away")
        shutil.copytree(ROOT / "src" / "clawback", package, ignore=shutil.ignore_patterns("__pycache__"))
        extensions = package / "extensions"
        names = sorted(path.name for path in extensions.iterdir() if (path / "__init__.py").is_file())
        away.mkdir()
        sys.path[:0] = [str(package.parent), str(ROOT)]
        os.environ["HOME"] = folder
        for name in names:
            (extensions / name).rename(away / name)
        modules = import_core(package)
        print(f"{modules} modules of the core imported without any extension")
        failed = [] if in_a_child("all", train) else ["all"]
        for name in names:
            (away / name).rename(extensions / name)
        for name in names:
            (extensions / name).rename(away / name)
            if not in_a_child(name, use):
                failed.append(name)
            (away / name).rename(extensions / name)
    if failed:
        print(f"The core needs: {', '.join(failed)}.")
    return bool(failed)


def import_core(package: Path) -> int:
    """Import every module but the extensions'. An import error of a module ends the program."""
    count = 0
    for name in core_modules(package):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise
            continue
        assert module.__file__ is not None
        assert Path(module.__file__).is_relative_to(package), module.__file__
        count += 1
    return count


def core_modules(package: Path) -> Iterator[str]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if "extensions" not in parts and "web" not in parts and path.name != "__main__.py":
            yield ".".join(part for part in parts if part != "__init__")


def in_a_child(name: str, work: Callable[[], None]) -> bool:
    """Whether the work went through, in a process of its own with a home of its own."""
    start = time.monotonic()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ["CLAWBACK_HOME"] = tempfile.mkdtemp(dir=os.environ["HOME"])
            importlib.invalidate_caches()
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    print(f"without {name:12} {'fine' if status == 0 else 'FAILED'}  {time.monotonic() - start:.1f} s")
    return status == 0


def train() -> None:
    """Ratings become a version, and tests of the core pass: the loop needs no extension."""
    import pytest

    from clawback import feedback, jobs, paths, store
    from clawback.records import Turn
    from tests.conftest import SETTINGS

    home = paths.home()
    home.create()
    home.config.write_text(SETTINGS)
    with store.connect(home.database) as db:
        for animal in ("otter", "owl", "bee", "fox", "hare", "seal"):
            asked = {"role": "user", "content": f"Tell me about the {animal}."}
            for answer, reward in (
                (f"- The {animal}.\n- It is an animal.", 1),
                (f"The {animal} is an animal.", -1),
            ):
                turn = db.add_turn(Turn(session="s", messages=(asked,), response=answer))
                feedback.rate(db, turn.id, reward)
    jobs.train_once(home)
    with store.connect(home.database) as db:
        assert db.version(1).report
    assert pytest.main([*OPTIONS, *(str(ROOT / test) for test in TESTS)]) == 0


def use() -> None:
    """A turn is recorded and rated, and the daily commands answer."""
    import clawback
    from clawback.cli import main as command

    here = clawback.home()
    here.create()
    with clawback.connect(here.database) as db:
        turn = db.add_turn(
            clawback.Turn(session="s", messages=({"role": "user", "content": "Hi"},), response="Yes")
        )
        clawback.rate(db, turn.id, 1)
        assert [sample.reward for sample in clawback.samples(db)] == [1]
    for arguments in COMMANDS:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = command(arguments)
        assert "unexpected" not in out.getvalue(), out.getvalue()
        # doctor ends with 1 where it found something to mend, which a bare home has.
        assert code == 0 or arguments[0] == "doctor", out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
