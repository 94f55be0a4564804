"""Tasks and tools of your own in one TOML file: ``tools:my_tasks.toml`` (docs/environments.md has a complete example).

Also ``tools:shop``, which comes with Clawback.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from clawback import plugins
from clawback.environments import world_helpers
from clawback.environments.core import Task, Tool
from clawback.environments.tools.environment import EpisodeRules, ToolSet
from clawback.environments.tools.task_rewards import (
    AnswerReward,
    Calls,
    EndState,
    JudgeReward,
    Own,
    TaskReward,
    Unrewarded,
    Verified,
    Weighted,
)
from clawback.environments.tools.toolbox import DefinedTools, Functions, JointToolbox, Toolbox
from clawback.errors import NotFound, UsageError
from clawback.extensions.tools import shop

if TYPE_CHECKING:
    from clawback.extensions.tools.mcp_toolbox import Mcp

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
        world_helpers.member("tools", rest, ["shop"])
    world_helpers.unknown_settings("tools", settings, ())
    return read(Path(rest))


def read(path: Path) -> ToolSet:
    """The set that a file describes. Raises ``NotFound``, ``UsageError``."""
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    try:
        told = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}.") from error
    world_helpers.unknown_settings(str(path), told, KEYS)
    folder, name = path.parent, f"tools:{told.get('name', path.stem)}"
    rows = [
        *_several(told, "tasks"),
        *(world_helpers.rows(folder / str(told["rows"])) if "rows" in told else ()),
    ]
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
    tasks = world_helpers.split_rows(name, rows, held_out)
    rules = EpisodeRules(turns, calls, str(told.get("system", "")))
    return ToolSet(name, tasks, toolbox(told, folder), reward(told.get("reward", ""), rows, folder), rules)


def toolbox(table: Mapping[str, object], folder: Path) -> Callable[[Task], Toolbox]:
    """What makes a box of all the tools that a file names."""
    functions = [_object_beside(str(place), folder) for place in _several(table, "functions")]
    owner = _object_beside(str(table["object"]), folder) if "object" in table else None
    servers = [_table(server, "[[mcp]]") for server in _several(table, "mcp")]
    described = definitions(table.get("definitions", ()), folder)

    def fresh(task: Task) -> Toolbox:
        boxes: list[Toolbox] = []
        if functions:
            boxes.append(Functions(*functions))
        if owner is not None:
            boxes.append(Functions(owner=_new_owner(owner, task)))
        if table.get("python"):
            boxes.append(plugins.load(plugins.SANDBOXES, "own").PythonTool())
        boxes += [_server(server, folder) for server in servers]
        box = boxes[0] if len(boxes) == 1 else JointToolbox(*boxes)
        return DefinedTools(described, box) if described else box

    return fresh


def _several(table: Mapping[str, object], key: str) -> list[Any]:
    """A list of values; one that stands alone is a list of one."""
    value = table.get(key, [])
    return list(value) if isinstance(value, list) else [value]


def _table(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} must be a table of settings, not {value!r}.")
    return value


def definitions(value: object, folder: Path) -> list[Tool]:
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


def _object_beside(reference: str, folder: Path) -> Any:
    """``file.py:name`` beside the TOML file, or ``module:name``."""
    file, _, name = reference.rpartition(":")
    return world_helpers.load_object(f"{folder / file}:{name}" if file.endswith(".py") else reference)


def _new_owner(owner: Callable[..., Any], task: Task) -> Any:
    """A fresh object for an episode; one whose maker takes an argument is given the task's fields."""
    return owner(dict(task.data)) if inspect.signature(owner).parameters else owner()


def _server(table: Mapping[str, Any], folder: Path) -> Mcp:
    from clawback.extensions.tools.mcp_toolbox import Mcp, McpServer

    world_helpers.unknown_settings("[[mcp]]", table, ("command", "url", "env", "state", "seconds", "box"))
    command = tuple(table.get("command", ()))
    server = McpServer(
        command,
        str(table.get("url", "")),
        table.get("env") or {},
        folder if command else None,
        bool(table.get("box", False)),
    )
    return Mcp(server, state=str(table.get("state", "")), seconds=float(table.get("seconds", 60)))


def reward(entry: object, rows: Sequence[Mapping[str, Any]], folder: Path = Path()) -> TaskReward:
    """``"answer"``, ``"calls"``, ``"end-state"``, ``"judge"``, ``"none"``, ``"file.py:function"``, ``{verifier = "regex", …}``, or a list of these;
    "": by what the tasks name. Raises ``UsageError``, ``NotFound``."""
    from clawback.feedback.endpoint import configured_judge

    if isinstance(entry, list):
        parts = [
            (part, 1.0) if isinstance(part, str) else (dict(part), float(part.get("weight", 1)))
            for part in entry
        ]
        return Weighted([(reward(_without_weight(part), rows, folder), weight) for part, weight in parts])
    if isinstance(entry, Mapping):
        settings = {key: value for key, value in entry.items() if key not in ("verifier", "rubric")}
        if "verifier" in entry and ":" in str(entry["verifier"]):
            return Own(_function(str(entry["verifier"]), folder))
        if "verifier" in entry:
            return _verified(str(entry["verifier"]), settings, rows)
        if "rubric" in entry:
            return JudgeReward(configured_judge(), str(entry["rubric"]))
        raise UsageError("A reward table names a `verifier` or a `rubric`.")
    if entry == "":
        entry = "answer" if all("answer" in row for row in rows) else "end-state"
    if entry == "judge":
        return JudgeReward(configured_judge())
    if entry == "none":
        return Unrewarded()
    if ":" in str(entry):
        return Own(_function(str(entry), folder))
    kinds: dict[str, TaskReward] = {"answer": AnswerReward(), "calls": Calls(), "end-state": EndState()}
    if entry not in kinds:
        raise UsageError(
            f"There is no reward `{entry}`. Choose answer, calls, end-state, judge, none, a function of yours (file.py:name), or a table with `verifier` or `rubric`."
        )
    field = "answer" if entry == "answer" else "actions"
    if lacking := next(
        (row for row in rows if field not in row and (entry == "calls" or "outputs" not in row)), None
    ):
        raise UsageError(
            f"The reward `{entry}` needs `{field}` in each task; one has only {', '.join(lacking)}."
        )
    return kinds[entry]


def _function(reference: str, folder: Path) -> Callable[..., Any]:
    function = _object_beside(reference, folder)
    if not callable(function):
        raise UsageError(f"The reward `{reference}` is no function.")
    if problem := Own(function).mismatch():
        raise UsageError(f"The reward `{reference}` {problem}.")
    return cast("Callable[..., Any]", function)


def _verified(name: str, settings: Mapping[str, object], rows: Sequence[Mapping[str, Any]]) -> Verified:
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


def _without_weight(part: object) -> Any:
    if not isinstance(part, Mapping):
        return part
    rest = {key: value for key, value in part.items() if key != "weight"}
    return rest["kind"] if set(rest) == {"kind"} else rest
