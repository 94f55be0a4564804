"""What the benchmarks import of the product is there: most imports stand in functions that no test calls."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


def file_of(module: str) -> Path | None:
    """The file of a module of the product; None where there is no such module."""
    path = ROOT / "src" / module.replace(".", "/")
    return next((one for one in (path / "__init__.py", path.with_suffix(".py")) if one.is_file()), None)


@cache
def words_of(path: Path) -> frozenset[str]:
    """Words of a module: packages name what they import late in a text."""
    return frozenset(re.findall(r"\w+", path.read_text("utf-8")))


def missing(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "clawback"):
            continue
        source = file_of(str(node.module))
        for name in node.names:
            if file_of(f"{node.module}.{name.name}"):
                continue
            if source is None or name.name not in words_of(source):
                yield f"{path.name}:{node.lineno}: {node.module} has no {name.name}"


def test_every_name_that_a_benchmark_imports_is_there() -> None:
    files = sorted((ROOT / "benchmarks").rglob("*.py"))
    assert [found for file in files for found in missing(file)] == []
