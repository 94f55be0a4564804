"""Measures of the source that have a budget: `python -m tests.house` prints them, `--record` writes lower figures down."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "clawback"
BUDGETS = Path(__file__).parent / "house.toml"
SKIPPED = ("extensions/terminal_tasks/tasks",)
"""Files of tasks: broken on purpose."""
MOST_LINES, LEAST_LINES, MOST_FUNCTION_LINES, MOST_PARAMETERS = 450, 40, 60, 6
ROOM_STEP = 100
"""Budgets of lines are multiples of it, so that a line more is no event."""
NOT_NAMES = frozenset(
    [
        "said",
        "told",
        "heard",
        "asked",
        "made",
        "found",
        "given",
        "kept",
        "taken",
        "drawn",
        "one",
        "own",
        "ours",
        "theirs",
        "beside",
        "whole",
        "place",
        "before",
    ]
)
"""Participles and pronouns: they say what happened to a thing and not what it is."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
DICTATED_SIGNATURES = {
    "extensions/llamagym/agent.py __init__": "LlamaGym's constructor, so that its programs run unchanged",
    "extensions/rlprompt/flow.py __init__": "RLPrompt's constructor, likewise",
    "extensions/rlprompt/refinement_env.py __init__": "RLPrompt's constructor, likewise",
    "scoring/attention.py packed_attention": "transformers calls its attention functions so",
}
"""Functions whose parameters another program decides, with the reason: their number is no choice of ours."""
SHORT_FILES = {
    "extensions/sandbox/offline.py": "a program of its own: it runs inside the box and imports nothing of Clawback",
}
"""Files under ``LEAST_LINES`` that are a file for a reason other than what they hold."""


@dataclass
class Measures:
    """Each measure with the places that count for it."""

    rooms: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Lines of each folder, of each extension by its own name; files at the top are the room ``top``."""
    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Measure → what counts for it."""
    core_lines: int = 0
    """Lines of all that is no extension."""

    def count(self, name: str) -> int:
        """The figure of that name; lines in steps, so that one more is no event."""
        if name == "core_lines":
            return -(-self.core_lines // ROOM_STEP) * ROOM_STEP
        return len(self.places[name])


def measure(root: Path = ROOT) -> Measures:
    """Read every file once."""
    measures = Measures()
    files: dict[str, set[str]] = defaultdict(set)
    classes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith(SKIPPED):
            continue
        text = path.read_text("utf-8")
        room = _room(name)
        lines = text.count("\n")
        measures.rooms[room] += lines
        if not name.startswith("extensions/"):
            measures.core_lines += lines
        if path.name not in ("__init__.py", "__main__.py"):
            files[path.name].add(room)
            if lines < LEAST_LINES and name not in SHORT_FILES:
                measures.places["files_under_40_lines"].append(f"{name} ({lines})")
        if lines > MOST_LINES:
            measures.places["files_over_450_lines"].append(f"{name} ({lines})")
        tree = ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
        _read(tree, name, measures)
    measures.places["file_names_in_several_rooms"] = [f for f, rooms in files.items() if len(rooms) > 1]
    measures.places["class_names_defined_again"] = [
        f"{name} in {where}" for name, places in classes.items() for where in places[1:]
    ]
    return measures


def _room(file: str) -> str:
    """The folder of a file; each extension is a room of its own."""
    folders = file.split("/")[:-1]
    if len(folders) > 1 and folders[0] == "extensions":
        return folders[1]
    return folders[0] if folders else "top"


def _read(tree: ast.Module, file: str, measures: Measures) -> None:
    modules: set[str] = set()
    lines_of_any: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, Function):
            _function(node, file, measures)
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if (
                    isinstance(part, ast.AnnAssign)
                    and isinstance(part.target, ast.Name)
                    and part.target.id in NOT_NAMES
                ):
                    measures.places["names_that_are_no_nouns"].append(
                        f"{file}:{part.lineno} field {part.target.id}"
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("clawback"):
            for alias in node.names:
                modules.add(alias.asname or alias.name)
                if alias.name.startswith("_") and not alias.name.startswith("__"):
                    measures.places["private_names_of_other_modules"].append(
                        f"{file}:{node.lineno} {alias.name}"
                    )
        elif isinstance(node, ast.Name) and node.id == "Any":
            lines_of_any.add(node.lineno)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and isinstance(node.value, ast.Name)
            and node.value.id in modules
            and node.value.id.islower()
        ):
            measures.places["private_names_of_other_modules"].append(
                f"{file}:{node.lineno} {node.value.id}.{node.attr}"
            )
    measures.places["lines_with_any"] += [f"{file}:{line}" for line in sorted(lines_of_any)]


def _function(node: Function, file: str, measures: Measures) -> None:
    parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parameters = [p for p in parameters if p.arg not in ("self", "cls")]
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    where = f"{file}:{node.lineno} {node.name}"
    if length > MOST_FUNCTION_LINES:
        measures.places["functions_over_60_lines"].append(f"{where} ({length})")
    if len(parameters) > MOST_PARAMETERS and f"{file} {node.name}" not in DICTATED_SIGNATURES:
        measures.places["functions_over_6_parameters"].append(f"{where} ({len(parameters)})")
    if node.name.strip("_") in NOT_NAMES:
        measures.places["names_that_are_no_nouns"].append(f"{where} function")
    measures.places["names_that_are_no_nouns"] += [
        f"{where} parameter {p.arg}" for p in parameters if p.arg in NOT_NAMES
    ]


def budgets() -> dict[str, dict[str, int]]:
    return tomllib.loads(BUDGETS.read_text("utf-8"))


def exceeded(measures: Measures) -> Iterator[str]:
    """A sentence for every budget that is exceeded."""
    limits = budgets()
    for room, lines in measures.rooms.items():
        if lines > (most := limits["rooms"].get(room, limits["targets"]["room_lines"])):
            yield f"Room {room} has {lines} lines, its budget is {most}."
    for name, most in limits["figures"].items():
        if measures.count(name) > most:
            places = "; ".join(measures.places[name]) or "the core's files"
            yield f"{name}: {measures.count(name)}, the budget is {most}. All of them: {places}."


def record(measures: Measures, raising: bool = False) -> str:
    """The file of budgets with today's figures where they are lower, or in any case."""
    limits = budgets()
    target = limits["targets"]["room_lines"]
    lines = BUDGETS.read_text("utf-8").partition("[targets]")[0].rstrip().splitlines()
    lines += ["", "[targets]", *(f"{name} = {value}" for name, value in limits["targets"].items())]
    lines += ["", "[rooms]"]
    for room, count in sorted(measures.rooms.items()):
        rounded = -(-count // ROOM_STEP) * ROOM_STEP
        most = rounded if raising else min(rounded, limits["rooms"].get(room, rounded))
        if most > target:
            lines.append(f"{room} = {most}")
    lines += ["", "[figures]"]
    for name, most in limits["figures"].items():
        count = measures.count(name)
        lines.append(f"{name} = {count if raising else min(count, most)}")
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    measures = measure()
    if "--record" in arguments:
        BUDGETS.write_text(record(measures, raising="--raise" in arguments), "utf-8")
    for room, count in sorted(measures.rooms.items()):
        print(f"{room:>32} {count:6}")
    for name in budgets()["figures"]:
        print(f"{name:>32} {measures.count(name):6}")
        if name in arguments:
            print("\n".join(measures.places[name]))
    for sentence in exceeded(measures):
        print(sentence[:200])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
