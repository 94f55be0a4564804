"""The tree that is judged: the policy's files, with every file that affects the tests restored."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path, PurePosixPath

from clawback.errors import SandboxError, SandboxRefused
from clawback.extensions.sandbox import tree

_FOLDERS = {"tests", "test", "testing"}
_NAMES = (
    "test_*.py",
    "*_test.py",
    "tests.py",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
)
# Python or pytest runs these by their name alone, or would import them in place of its own.
_ALWAYS = ("conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "*.pyc", "*.egg-link")
_AT_THE_TOP = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "site-packages"}


def decides(path: str, may_change: frozenset[str] | set[str]) -> bool:
    """Whether a file has a say in what tests there are and how they are run. ``may_change``: what the real fix changed."""
    parts = PurePosixPath(path).parts
    if any(fnmatch.fnmatch(parts[-1], name) for name in _ALWAYS) or "__pycache__" in parts or ".git" in parts:
        return True
    if PurePosixPath(parts[0]).stem in _AT_THE_TOP:
        return True
    if path in may_change:
        return False
    return bool(_FOLDERS.intersection(parts[:-1])) or any(fnmatch.fnmatch(parts[-1], name) for name in _NAMES)


def assemble(solution: Path, reference: Path, target: Path, may_change: set[str]) -> None:
    """``solution`` without what decides, and that of ``reference`` (the base, with the tests of the fix) in its place."""
    target.mkdir(mode=0o755)
    tree.copy(solution, target)
    for path in _files(target):
        if decides(path, may_change):
            _drop(target / path)
    for path in _files(reference):
        if decides(path, may_change) and ".git" not in PurePosixPath(path).parts:
            _restore(reference, target, path)


def _files(root: Path) -> list[str]:
    """Plain files and links, and folders that are links, from the root."""
    found = []
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        found += [(here / name).relative_to(root).as_posix() for name in (*names, *links)]
    return sorted(found)


def _drop(path: Path) -> None:
    path.unlink(missing_ok=True)


def _restore(reference: Path, target: Path, path: str) -> None:
    """Write the file by folders that are folders: a link or a file in the way is removed, never followed."""
    for above in reversed(PurePosixPath(path).parents[:-1]):
        place = target / above
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
    place = target / path
    if place.is_dir() and not place.is_symlink():
        tree.remove(place)
    source = reference / path
    if source.is_symlink():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(source.readlink())
        return
    try:
        tree.write(target, path, source.read_bytes(), source.stat().st_mode & 0o777, None)
    except SandboxRefused as error:
        raise SandboxError(f"{path} cannot be put back: {error}") from error
