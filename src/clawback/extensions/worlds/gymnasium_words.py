"""What a Gymnasium environment says about itself in its own code: its goal, its actions' names, and actions of several parts that can be listed."""

from __future__ import annotations

import enum
import inspect
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from clawback.environments.world_helpers import MOST_REPLIES

MOST_GOAL = 400
"""Characters of a goal."""
_HEADING = re.compile(r"^(#+ .*|[=\-~]{3,}|.*\n[=\-~]{3,})$")


def show(seen: object, names: Sequence[str] = ()) -> str:
    """Any observation as short text: numbers rounded, parts named, boards row by row; ``names``: of the numbers, where there are as many."""
    value = plain(seen)
    if names and isinstance(value, list) and len(value) == len(names):
        value = dict(zip(names, value, strict=True))
    if isinstance(value, dict):
        return "\n".join(f"{name}: {show(part)}" for name, part in value.items())
    if (
        isinstance(value, list)
        and len(value) > 1
        and all(_is_row(row) and len(row) == len(value[0]) for row in value)
    ):
        return "\n".join(" ".join(map(str, row)) for row in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_row(value: object) -> bool:
    """Of a board: several whole numbers."""
    return isinstance(value, list) and len(value) > 1 and all(isinstance(cell, int) for cell in value)


def plain(value: object) -> Any:
    """What JSON can hold; decimals to four places."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return round(value, 4) if isinstance(value, float) else value


def goal(inner: object) -> str:
    """The first paragraph of the class's own docstring; "" without one."""
    kind = type(inner)
    if "__doc__" not in vars(kind) or not kind.__doc__:
        return ""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(kind.__doc__)):
        text = " ".join(paragraph.split())
        if text and not _HEADING.match(paragraph.strip()):
            return text if len(text) <= MOST_GOAL else text[:MOST_GOAL].rpartition(" ")[0] + " …"
    return ""


def action_names(inner: object, count: int) -> tuple[str, ...]:
    """Names of ``count`` discrete actions, in order: of the environment's own ``actions`` (MiniGrid), of ``get_action_meanings`` (Atari), or of the
    one class of its package that is named for actions and has a number for each; () where none says so."""
    if names := _named(getattr(inner, "actions", None), count):
        return names
    meanings = getattr(inner, "get_action_meanings", None)
    if callable(meanings):
        found = tuple(str(name).lower() for name in meanings())
        return found if len(set(found)) == count else ()
    several = {names for kind in _action_classes(type(inner)) if (names := _named(kind, count))}
    return tuple(name.lower() for name in several.pop()) if len(several) == 1 else ()


def _action_classes(kind: type) -> Iterator[type]:
    """Classes of the environment's package whose name ends with "action" or "actions"."""
    package = kind.__module__.partition(".")[0]
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for label, value in list(vars(module).items()):
                if isinstance(value, type) and label.lower().endswith(("action", "actions")):
                    yield value


def _named(kind: object, count: int) -> tuple[str, ...]:
    """The names that a class has for the numbers from 0 on, as an enumeration or as plain attributes."""
    if not isinstance(kind, type):
        return ()
    if issubclass(kind, enum.Enum):
        values = {member.value: member.name for member in kind}
    else:
        values = {v: n for n, v in vars(kind).items() if isinstance(v, int) and not n.startswith("_")}
    numbers = range(count)
    return tuple(values[n] for n in numbers) if set(values) == set(numbers) else ()


def listed_actions(space: object) -> list[Any]:
    """All actions of a space of several discrete parts (MultiDiscrete, MultiBinary, Tuple, Dict), as JSON has them; [] where there are more
    than can be listed, or a part is no number."""
    parts = _parts(space)
    if not parts or prod(len(values) for _, values in parts) > MOST_REPLIES:
        return []
    keys = [key for key, _ in parts]
    rows = itertools.product(*(values for _, values in parts))
    return [dict(zip(keys, row, strict=True)) if isinstance(keys[0], str) else list(row) for row in rows]


def _parts(space: Any) -> list[tuple[Any, range]]:
    kind = type(space).__name__
    if kind == "MultiDiscrete" and len(space.shape) == 1:
        starts = getattr(space, "start", [0] * len(space.nvec))
        return [
            (i, range(int(a), int(a) + int(n)))
            for i, (a, n) in enumerate(zip(starts, space.nvec, strict=True))
        ]
    if kind == "MultiBinary" and len(space.shape) == 1:
        return [(i, range(2)) for i in range(int(space.shape[0]))]
    if kind in ("Dict", "Tuple"):
        inner: Mapping[Any, Any] = space.spaces if kind == "Dict" else dict(enumerate(space.spaces))
        if all(type(part).__name__ == "Discrete" for part in inner.values()):
            return [
                (key, range(int(part.start), int(part.start) + int(part.n))) for key, part in inner.items()
            ]
    return []
