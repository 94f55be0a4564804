"""Tasks and tools of your own in one TOML file: ``tools:my_tasks.toml`` (docs/environments.md has a complete example).

Also ``tools:shop``, which comes with Clawback.
"""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clawback.environments import judges, worlds
from clawback.environments.core import Task
from clawback.environments.tools import shop
from clawback.environments.tools.environment import Rules, ToolSet
from clawback.environments.tools.mcp import Mcp
from clawback.environments.tools.python_tool import PythonTool
from clawback.environments.tools.rewards import Answer, Calls, EndState, Judged, Reward, Verified, Weighted
from clawback.environments.tools.toolbox import Functions, Given, Joined, Toolbox
from clawback.errors import NotFound, UsageError

KEYS = (
    "name",
    "system",
    "turns",
    "calls",
    "functions",
    "object",
    "python",
    "mcp",
    "reward",
    "tasks",
    "rows",
    "held_out",
    "definitions",
)


def names() -> list[str]:
    return ["shop", "FILE.toml"]


def make(rest: str, settings: Mapping[str, Any]) -> ToolSet:
    if rest == "shop":
        return shop.make(settings)
    if not rest.endswith(".toml"):
        worlds.member("tools", rest, ["shop"])
    worlds.unknown_settings("tools", settings, ())
    return read(Path(rest))


def read(path: Path) -> ToolSet:
    """The set that a file describes. Raises ``NotFound``, ``UsageError``."""
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    try:
        told = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    worlds.unknown_settings(str(path), told, KEYS)
    folder, name = path.parent, f"tools:{told.get('name', path.stem)}"
    rows = [*told.get("tasks", ()), *(worlds.rows(folder / told["rows"]) if "rows" in told else ())]
    if not rows:
        raise UsageError(f"{path} has no [[tasks]] and names no `rows` file.")
    tasks = worlds.split_rows(name, rows, float(told.get("held_out", 0.2)))
    rules = Rules(int(told.get("turns", 16)), int(told.get("calls", 32)), str(told.get("system", "")))
    return ToolSet(name, tasks, toolbox(told, folder), reward(told.get("reward", ""), rows), rules)


def toolbox(told: Mapping[str, Any], folder: Path) -> Callable[[Task], Toolbox]:
    """What makes a box of all the tools that a file names."""
    functions = [_here(place, folder) for place in told.get("functions", ())]
    owner = _here(told["object"], folder) if "object" in told else None
    servers = list(told.get("mcp", ()))
    given = list(told.get("definitions", ()))

    def fresh(task: Task) -> Toolbox:
        boxes: list[Toolbox] = []
        if functions:
            boxes.append(Functions(*functions))
        if owner is not None:
            boxes.append(Functions(owner=_made(owner, task)))
        if told.get("python"):
            boxes.append(PythonTool())
        boxes += [_server(server, folder) for server in servers]
        if given:
            boxes.append(Given(given))
        return boxes[0] if len(boxes) == 1 else Joined(*boxes)

    return fresh


def _here(place: str, folder: Path) -> Any:
    """``file.py:name`` beside the TOML file, or ``module:name``."""
    file, _, name = place.rpartition(":")
    return worlds.loaded(f"{folder / file}:{name}" if file.endswith(".py") else place)


def _made(owner: Callable[..., Any], task: Task) -> Any:
    """A fresh object for an episode; one whose maker takes an argument is given the task's fields."""
    return owner(dict(task.data)) if inspect.signature(owner).parameters else owner()


def _server(told: Mapping[str, Any], folder: Path) -> Mcp:
    worlds.unknown_settings("[[mcp]]", told, ("command", "url", "env", "state", "seconds", "box"))
    return Mcp(
        tuple(told.get("command", ())),
        url=str(told.get("url", "")),
        env=told.get("env"),
        cwd=folder if told.get("command") else None,
        state=str(told.get("state", "")),
        seconds=float(told.get("seconds", 60)),
        box=bool(told.get("box", False)),
    )


def reward(told: Any, rows: Sequence[Mapping[str, Any]]) -> Reward:
    """``"answer"``, ``"calls"``, ``"end-state"``, ``"judge"``, ``{verifier = "regex", …}``, or a list of these; "": by what the tasks name."""
    if isinstance(told, list):
        parts = [
            (part, 1.0) if isinstance(part, str) else (dict(part), float(part.get("weight", 1)))
            for part in told
        ]
        return Weighted([(reward(_without_weight(part), rows), weight) for part, weight in parts])
    if isinstance(told, Mapping):
        settings = {key: value for key, value in told.items() if key not in ("verifier", "rubric")}
        if "verifier" in told:
            return Verified(str(told["verifier"]), settings)
        if "rubric" in told:
            return Judged(judges.configured(), str(told["rubric"]))
        raise UsageError("A reward table names a `verifier` or a `rubric`.")
    if told == "":
        told = "answer" if all("answer" in row for row in rows) else "end-state"
    if told == "judge":
        return Judged(judges.configured())
    kinds: dict[str, Reward] = {"answer": Answer(), "calls": Calls(), "end-state": EndState()}
    if told not in kinds:
        raise UsageError(
            f"There is no reward `{told}`. Choose answer, calls, end-state, judge, or a table with `verifier` or `rubric`."
        )
    field = "answer" if told == "answer" else "actions"
    if lacking := next(
        (row for row in rows if field not in row and (told == "calls" or "outputs" not in row)), None
    ):
        raise UsageError(
            f"The reward `{told}` needs `{field}` in each task; one has only {', '.join(lacking)}."
        )
    return kinds[told]


def _without_weight(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    rest = {key: value for key, value in part.items() if key != "weight"}
    return rest["kind"] if set(rest) == {"kind"} else rest
