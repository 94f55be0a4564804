"""Draws the house from the code: floors (import-linter's contract in pyproject.toml), rooms, their size and what they import.

``docs/reference.py`` puts the picture into architecture.md and checks it. Lines of code are not compared.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "clawback"
START, END = "<!-- house: written by `make docs` -->", "<!-- /house -->"
WIDTH = 128
SKIPPED = "extensions/terminal_tasks/tasks"
"""Files of tasks, which are no part of the program."""


def with_picture(page: str) -> str:
    """The page with a new picture between the two marks."""
    before, _, rest = page.partition(START)
    after = rest.partition(END)[2]
    return f"{before}{START}\n\n```text\n{picture()}```\n\n{END}{after}"


def without_sizes(page: str) -> str:
    """The page as it is compared: a line of code more is no event."""
    return re.sub(r" +[\d,]+ lines", " lines", page)


def picture() -> str:
    sizes, imports = _sizes(), _imports()
    lines = []
    for number, rooms in reversed(list(enumerate(reversed(_floors()), 1))):
        for position, room in enumerate(rooms):
            label = f"{number:2}" if position == 0 else "  "
            lines += _room(label, room, sizes, sorted(imports[room]))
    lines.append("")
    for folder in sorted((SOURCE / "extensions").iterdir()):
        if (folder / "__init__.py").is_file():
            name = f"extensions/{folder.name}"
            lines += _room("  ", name, sizes, [])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _room(label: str, room: str, sizes: dict[str, int], imports: list[str]) -> Iterator[str]:
    size = f"{sizes[room]:,} lines"
    head = f"{label} {room:22} {size:>12}  "
    line = head + _sentence(room)
    yield line if len(line) <= WIDTH else f"{line[: line.rindex(' ', 0, WIDTH - 1)]} …"
    line = ""
    for name in imports:
        if len(line) + len(name) > WIDTH - len(head) - 3:
            yield f"{' ' * len(head)}← {line}"
            line = ""
        line += f" {name}" if line else name
    if line:
        yield f"{' ' * len(head)}← {line}"


def _sentence(room: str) -> str:
    path = SOURCE / room / "__init__.py" if (SOURCE / room).is_dir() else SOURCE / f"{room}.py"
    text = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"\.(?: |$)", text)[0].replace("``", "")


def _floors() -> list[list[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(c["layers"] for c in contracts if c["name"] == "Imports point one way")
    return [[name.strip().removeprefix("clawback.") for name in layer.split("|")] for layer in layers]


def _files() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        if not path.relative_to(SOURCE).as_posix().startswith(SKIPPED):
            room = "/".join(parts[:2]) if parts[0] == "extensions" else parts[0].removesuffix(".py")
            yield room, path


def _sizes() -> dict[str, int]:
    sizes: dict[str, int] = defaultdict(int)
    for room, path in _files():
        sizes[room] += path.read_text("utf-8").count("\n")
    return sizes


def _imports() -> dict[str, set[str]]:
    """Room → the rooms that it imports when it runs. Small files at the top are rooms, too; all may import what is below."""
    rooms = {room for floor in _floors() for room in floor}
    imports: dict[str, set[str]] = defaultdict(set)
    for room, path in _files():
        for node in _running(ast.parse(path.read_text("utf-8"))):
            names = (
                [f"{node.module}.{a.name}" for a in node.names]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
            )
            for name in names:
                parts = name.split(".")
                if (
                    parts[0] == "clawback"
                    and len(parts) > 1
                    and parts[1] in rooms
                    and (SOURCE / parts[1]).is_dir()
                ):
                    imports[room].add(parts[1])
        imports[room].discard(room)
    return imports


def _running(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports but for those that only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        else:
            yield from _running(node)
