"""Tasks and tools of your own in one TOML file: ``tools:my_tasks.toml`` (docs/environments.md has a complete example).

Also ``tools:shop``, which comes with Clawback.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from clawback import plugins
from clawback.environments import judges, worlds
from clawback.environments.core import Task, Tool
from clawback.environments.tools import shop
from clawback.environments.tools.environment import Rules, ToolSet
from clawback.environments.tools.mcp import Mcp
from clawback.environments.tools.rewards import (
    Answer,
    Calls,
    EndState,
    Judged,
    Own,
    Reward,
    Unrewarded,
    Verified,
    Weighted,
)
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
    rows = [*_several(told, "tasks"), *(worlds.rows(folder / str(told["rows"])) if "rows" in told else ())]
    if wrong := [row for row in rows if not isinstance(row, Mapping)]:
        raise UsageError(f"{path}: a task is a table ([[tasks]]), not {wrong[0]!r}.")
    if not rows:
        raise UsageError(f"{path} has no [[tasks]] and names no `rows` file.")
    try:
        held_out, turns, calls = (
            float(told.get("held_out", 0.2)),
            int(told.get("turns", 16)),
            int(told.get("calls", 32)),
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path}: `turns`, `calls` and `held_out` are numbers ({error}).") from error
    tasks = worlds.split_rows(name, rows, held_out)
    rules = Rules(turns, calls, str(told.get("system", "")))
    return ToolSet(name, tasks, toolbox(told, folder), reward(told.get("reward", ""), rows, folder), rules)


def toolbox(told: Mapping[str, Any], folder: Path) -> Callable[[Task], Toolbox]:
    """What makes a box of all the tools that a file names."""
    functions = [_here(str(place), folder) for place in _several(told, "functions")]
    owner = _here(str(told["object"]), folder) if "object" in told else None
    servers = [_table(server, "[[mcp]]") for server in _several(told, "mcp")]
    described = definitions(told.get("definitions", ()), folder)

    def fresh(task: Task) -> Toolbox:
        boxes: list[Toolbox] = []
        if functions:
            boxes.append(Functions(*functions))
        if owner is not None:
            boxes.append(Functions(owner=_made(owner, task)))
        if told.get("python"):
            boxes.append(plugins.load(plugins.SANDBOXES, "own").PythonTool())
        boxes += [_server(server, folder) for server in servers]
        box = boxes[0] if len(boxes) == 1 else Joined(*boxes)
        return Given(described, box) if described else box

    return fresh


def _several(told: Mapping[str, Any], key: str) -> list[Any]:
    """A list of values; one that stands alone is a list of one."""
    value = told.get(key, [])
    return list(value) if isinstance(value, list) else [value]


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a table of settings, not {value!r}.")
    return value


def definitions(value: Any, folder: Path) -> list[Tool]:
    """Tools as OpenAI's APIs take them: written in the TOML file, or the name of a JSON file with a list of them.

    A definition without its ``{"type": "function", "function": …}`` is taken, too. Raises ``UsageError``, ``NotFound``.
    """
    where = "`definitions`"
    if isinstance(value, str):
        path = folder / value
        if not path.is_file():
            raise NotFound(f"There is no file {path} with definitions of tools.")
        where = str(path)
        try:
            value = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise UsageError(f"{path} is no JSON: {error}.") from error
        value = value.get("tools", [value]) if isinstance(value, Mapping) else value
    tools: list[Tool] = []
    for number, tool in enumerate(value if isinstance(value, list | tuple) else [value], 1):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise UsageError(
                f'{where}: tool {number} has no `name`; a definition is {{"type": "function", "function": …}}.'
            )
        tools.append(
            {
                "type": "function",
                "function": {
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                    **function,
                },
            }
        )
    return tools


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


def reward(told: Any, rows: Sequence[Mapping[str, Any]], folder: Path = Path()) -> Reward:
    """``"answer"``, ``"calls"``, ``"end-state"``, ``"judge"``, ``"none"``, ``"file.py:function"``, ``{verifier = "regex", …}``, or a list of these;
    "": by what the tasks name. Raises ``UsageError``, ``NotFound``."""
    if isinstance(told, list):
        parts = [
            (part, 1.0) if isinstance(part, str) else (dict(part), float(part.get("weight", 1)))
            for part in told
        ]
        return Weighted([(reward(_without_weight(part), rows, folder), weight) for part, weight in parts])
    if isinstance(told, Mapping):
        settings = {key: value for key, value in told.items() if key not in ("verifier", "rubric")}
        if "verifier" in told and ":" in str(told["verifier"]):
            return Own(_function(str(told["verifier"]), folder))
        if "verifier" in told:
            return _verified(str(told["verifier"]), settings, rows)
        if "rubric" in told:
            return Judged(judges.configured(), str(told["rubric"]))
        raise UsageError("A reward table names a `verifier` or a `rubric`.")
    if told == "":
        told = "answer" if all("answer" in row for row in rows) else "end-state"
    if told == "judge":
        return Judged(judges.configured())
    if told == "none":
        return Unrewarded()
    if ":" in str(told):
        return Own(_function(str(told), folder))
    kinds: dict[str, Reward] = {"answer": Answer(), "calls": Calls(), "end-state": EndState()}
    if told not in kinds:
        raise UsageError(
            f"There is no reward `{told}`. Choose answer, calls, end-state, judge, none, a function of yours (file.py:name), or a table with `verifier` or `rubric`."
        )
    field = "answer" if told == "answer" else "actions"
    if lacking := next(
        (row for row in rows if field not in row and (told == "calls" or "outputs" not in row)), None
    ):
        raise UsageError(
            f"The reward `{told}` needs `{field}` in each task; one has only {', '.join(lacking)}."
        )
    return kinds[told]


def _function(place: str, folder: Path) -> Callable[..., Any]:
    function = _here(place, folder)
    if not callable(function):
        raise UsageError(f"The reward `{place}` is no function.")
    if problem := Own(function).mismatch():
        raise UsageError(f"The reward `{place}` {problem}.")
    return cast("Callable[..., Any]", function)


def _verified(name: str, settings: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Verified:
    """A verifier that can be made for the first task, so that a mistake is said once, not task by task."""
    from clawback.rewards import verifiers

    verified = Verified(name, settings)
    try:
        verifiers.make(name, verified.of_task(rows[0]))
    except KeyError as error:
        raise UsageError(
            f"The verifier {name!r} takes the field {error} of each task, and the first has none."
        ) from error
    except TypeError as error:
        raise UsageError(f"The verifier {name!r} cannot be made with these settings: {error}.") from error
    return verified


def _without_weight(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    rest = {key: value for key, value in part.items() if key != "weight"}
    return rest["kind"] if set(rest) == {"kind"} else rest
