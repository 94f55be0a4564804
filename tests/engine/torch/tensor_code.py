"""Which functions of Clawback handle tensors, as the source says; and which of them are entered while something runs."""

from __future__ import annotations

import ast
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import clawback

ROOT = Path(clawback.__file__).parent
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (ast.stmt, ast.ExceptHandler)


def functions() -> set[str]:
    """``engine/devices.py:choose``: every function and method of a module that imports torch, and in other modules those that import it themselves.

    Left out: methods of protocols and what else has no body, functions within functions, and what is computed once a process (``cache``).
    """
    sources = {path: path.read_text("utf-8") for path in ROOT.rglob("*.py")}
    return {
        f"{path.relative_to(ROOT).as_posix()}:{name}"
        for path, text in sources.items()
        if "torch" in text
        for name in _of_module(ast.parse(text))
    }


def _of_module(tree: ast.Module) -> Iterator[str]:
    everywhere = _imports_torch(tree)
    for name, function in _defined(tree):
        if not _bare(function) and not _once(function) and (everywhere or _imports_torch(function)):
            yield name


def _defined(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTION):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            if not any(ast.unparse(base) == "Protocol" for base in child.bases):
                yield from _defined(child, f"{prefix}{child.name}.")
        else:
            yield from _defined(child, prefix)


def _imports_torch(node: ast.AST) -> bool:
    """Whether torch is imported in this very scope, for more than its types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*_FUNCTION, ast.ClassDef)) or not isinstance(child, _BLOCKS):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import) and any(_torch(alias.name) for alias in child.names):
            return True
        if isinstance(child, ast.ImportFrom) and not child.level and _torch(child.module or ""):
            return True
        if _imports_torch(child):
            return True
    return False


def _torch(module: str) -> bool:
    return module.split(".")[0] == "torch"


def _bare(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Nothing but a docstring, ``...``, ``pass`` or ``raise``."""
    return all(
        isinstance(part, (ast.Pass, ast.Raise))
        or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
        for part in function.body
    )


def _once(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(one).split("(")[0] in ("cache", "lru_cache") for one in function.decorator_list)


@contextmanager
def entered() -> Iterator[set[str]]:
    """The functions of Clawback that are entered within, named as in ``functions``, in any thread that starts within."""
    names: set[str] = set()
    seen: set[object] = set()
    root = str(ROOT) + "/"

    def note(frame, event, argument):
        code = frame.f_code
        if code not in seen:
            seen.add(code)
            if code.co_filename.startswith(root):
                names.add(f"{code.co_filename[len(root) :]}:{code.co_qualname}")

    before = sys.gettrace()
    sys.settrace(note)
    threading.settrace(note)
    try:
        yield names
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
