"""Which functions of Clawback handle tensors, as the source says; and which of them are entered while something runs."""

from __future__ import annotations

import ast
import builtins
import functools
import gc
import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType

import clawback

ROOT = Path(clawback.__file__).parent
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (ast.stmt, ast.ExceptHandler)


def functions() -> set[str]:
    """``devices.py:choose``: every function and method of a module that imports torch, and in other modules those that import it themselves.

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
def entered(files: Iterable[str]) -> Iterator[set[str]]:
    """The functions of these files that are entered within, named as in ``functions``, in any thread.

    Their code is replaced by the same code with a note at its beginning: tracing (``sys.settrace``) would also be called for each
    function of the libraries, which costs a third of the time.
    """
    names: set[str] = set()
    setattr(builtins, _NOTE, names.add)
    replaced = [(function, function.__code__) for function in _loaded(files)]
    try:
        for function, code in replaced:
            function.__code__ = _noted(code.co_filename).get(_place(code), code)
        yield names
    finally:
        for function, code in replaced:
            function.__code__ = code
        delattr(builtins, _NOTE)


_NOTE = "_note_of_entered_functions"


def _loaded(files: Iterable[str]) -> list[FunctionType]:
    """All functions that these files define, wherever they are held (decorators and properties hold some)."""
    for file in files:
        importlib.import_module(
            "clawback." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        )
    paths = {str(ROOT / file) for file in files}
    gc.unfreeze()  # tests/conftest.py freezes what is there once tests are collected: no pass sees that, and `get_objects` does not
    return [
        one for one in gc.get_objects() if type(one) is FunctionType and one.__code__.co_filename in paths
    ]


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


@functools.cache
def _noted(path: str) -> dict[tuple[str, int], CodeType]:
    """The code of a file's functions, each with a note of its name before all else."""
    tree = ast.parse(Path(path).read_text("utf-8"))
    file = Path(path).relative_to(ROOT).as_posix()
    for name, function in _defined(tree):
        note = ast.parse(f"{_NOTE}({f'{file}:{name}'!r})").body[0]
        for part in ast.walk(note):
            ast.copy_location(part, function.body[0])
        function.body.insert(0, note)
    codes = [compile(tree, path, "exec", dont_inherit=True)]
    for code in codes:
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    return {_place(code): code for code in codes}
