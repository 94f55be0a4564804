"""Rows of the Berkeley Function-Calling Leaderboard, read from the ``bfcl-eval`` wheel's data and scored by our own code.

``bfcl:simple_python?data=FOLDER``, where FOLDER is ``bfcl_eval/data`` of the unpacked wheel (``pip download
--no-deps bfcl-eval``, then unzip); with the package installed it is found. The wheel is never imported.
Single-turn categories: a call is right if its name is, each argument is one of the accepted values, and none
is missing or made up. Multi-turn, memory and web search rows need to run the wheel's own Python and are
refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clawback.environments import world_helpers
from clawback.environments.core import Task, Tool
from clawback.environments.tools import calls as reading
from clawback.environments.tools.environment import EpisodeRules, ToolSet
from clawback.environments.tools.task_rewards import Finished
from clawback.environments.tools.toolbox import DefinedTools
from clawback.errors import NotFound
from clawback.records import Message

Json = dict[str, Any]
CATEGORIES = (
    "simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple", "irrelevance",
    "live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance",
)  # fmt: skip
_TYPES = {
    "dict": "object", "hashmap": "object", "float": "number", "double": "number", "long": "integer", "short": "integer", "byte": "integer",
    "tuple": "array", "list": "array", "arraylist": "array", "char": "string", "bool": "boolean", "any": "",
}  # fmt: skip
"""Types as their rows name them → JSON Schema's; "" is anything."""
_PUNCTUATION = re.compile(r"[ ,./\-_*^'\"]")


def names() -> list[str]:
    return list(CATEGORIES)


def make(rest: str, settings: Mapping[str, Any]) -> ToolSet:
    world_helpers.unknown_settings("bfcl", settings, ("data", "held_out"))
    category = world_helpers.member("bfcl", rest, list(CATEGORIES))
    folder = data_folder(settings.get("data"))
    rows = _rows(folder / f"BFCL_v4_{category}.json")
    path = folder / "possible_answer" / f"BFCL_v4_{category}.json"
    answers = {row["id"]: row["ground_truth"] for row in _rows(path)} if path.is_file() else {}
    made = [_task(row, answers.get(row["id"]), category) for row in rows]
    tasks = world_helpers.split_rows("bfcl", made, float(settings.get("held_out", 0.2)))
    return BfclSet(
        f"bfcl:{category}",
        tasks,
        lambda task: DefinedTools(task.data["tools"]),
        Matches(),
        EpisodeRules(turns=1, one_reply=True),
    )


def data_folder(setting: object = None) -> Path:
    """Where the rows are. Raises ``NotFound``."""
    if setting:
        folder = Path(str(setting)).expanduser()
    else:
        spec = find_spec("bfcl_eval")
        if spec is None or not spec.submodule_search_locations:
            raise NotFound(
                "BFCL's rows are not here. Get them by `pip download --no-deps bfcl-eval`, unzip the wheel, and name its data folder: "
                "bfcl:simple_python?data=FOLDER/bfcl_eval/data"
            )
        folder = Path(next(iter(spec.submodule_search_locations))) / "data"
    if not any(folder.glob("BFCL_v*_simple_python.json")):
        raise NotFound(f"{folder} holds no BFCL rows (BFCL_v4_simple_python.json and others).")
    return folder


def _rows(path: Path) -> list[Json]:
    if not path.is_file():
        raise NotFound(f"There is no file {path}.")
    return world_helpers.rows(path)


def _task(row: Mapping[str, Any], answer: Any, category: str) -> Json:
    tools = [tool(function) for function in row["function"]]
    none = category.endswith("irrelevance")
    any_call = category.endswith("relevance") and not none
    return {
        "id": row["id"],
        "messages": [dict(message) for turn in row["question"] for message in turn],
        "tools": tools,
        "accepted": [] if answer is None else answer,
        "wanted": "none" if none else "any" if any_call else "these",
    }


def tool(function: Mapping[str, Any]) -> Tool:
    """One of their function descriptions as OpenAI-style APIs write it. Names keep to what those APIs allow."""
    made = {
        "name": safe(function["name"]),
        "description": function.get("description", ""),
        "parameters": _schema(function.get("parameters") or {"type": "dict", "properties": {}}),
    }
    return {"type": "function", "function": made}


def safe(name: str) -> str:
    """``math.gcd`` → ``math_gcd``: APIs take letters, digits, ``_`` and ``-``."""
    return re.sub(r"[^\w-]", "_", name)


def _schema(types: object) -> object:
    """Their types as JSON Schema's, all the way down."""
    if isinstance(types, list):
        return [_schema(part) for part in types]
    if not isinstance(types, Mapping):
        return types
    made: Json = {}
    for key, value in types.items():
        if key == "type" and isinstance(value, str):
            kind = _TYPES.get(value.lower(), value.lower())
            made |= (
                {"type": kind}
                if kind in ("object", "array", "string", "number", "integer", "boolean", "null")
                else {}
            )
        elif key == "properties" and isinstance(value, Mapping):
            made["properties"] = {name: _schema(part) for name, part in value.items()}
        else:
            made[key] = _schema(value) if key in ("items", "additionalProperties") else value
    return made


class BfclSet(ToolSet):
    """One category. A solution takes the first value accepted for each argument, and leaves out what may be."""

    def solution(self, task: Task) -> Sequence[Message]:
        data = task.data
        if data["wanted"] == "any":
            raise NotFound(f"{task.id} accepts any call, and names none.")
        if data["wanted"] == "none":
            return [{"role": "assistant", "content": "None of these tools can do that."}]
        made = [
            reading.Call(
                safe(name), {k: _first(values) for k, values in arguments.items() if not _optional(values)}
            )
            for call in data["accepted"]
            for name, arguments in call.items()
        ]
        return [reading.message(made)]


def _first(values: object) -> object:
    """An accepted value as a call would carry it: what is an object inside is again lists of accepted values."""
    if values == []:
        raise NotFound("This row accepts no value at all for one of its arguments.")
    value = values[0] if isinstance(values, list) else values
    if isinstance(value, Mapping):
        return {key: _first(inner) for key, inner in value.items() if not _optional(inner)}
    if isinstance(value, list):
        return [_first([part]) if isinstance(part, Mapping) else part for part in value]
    return value


def _optional(values: object) -> bool:
    return isinstance(values, list) and "" in [value for value in values if isinstance(value, str)]


class Matches:
    """1 where the reply makes exactly the calls that are accepted, in any order."""

    async def __call__(self, episode: Finished) -> float:
        data = episode.task.data
        if data["wanted"] != "these":
            return float(bool(episode.calls) == (data["wanted"] == "any"))
        left = list(episode.calls)
        if len(left) != len(data["accepted"]):
            return 0.0
        kinds = {t["function"]["name"]: t["function"]["parameters"] for t in data["tools"]}
        for accepted in data["accepted"]:
            [(name, arguments)] = accepted.items()
            found = next(
                (
                    c
                    for c in left
                    if c.name == safe(name) and fits(c.arguments, arguments, kinds.get(c.name, {}))
                ),
                None,
            )
            if found is None:
                return 0.0
            left.remove(found)
        return 1.0


def fits(arguments: Mapping[str, Any], accepted: Mapping[str, Any], parameters: Mapping[str, Any]) -> bool:
    """Is each argument one of the accepted values, and none too many or missing?"""
    if not set(arguments) <= set(accepted):
        return False
    if any(name not in arguments and not _optional(values) for name, values in accepted.items()):
        return False
    kinds = parameters.get("properties") or {}
    return all(_among(value, accepted[name], kinds.get(name) or {}) for name, value in arguments.items())


def _among(value: object, accepted: object, kind: Mapping[str, object]) -> bool:
    return any(
        _same(value, other, kind) for other in (accepted if isinstance(accepted, list) else [accepted])
    )


def _same(value: Any, other: Any, kind: Mapping[str, Any]) -> bool:
    """Equal as their checker has it: text without case, blanks and punctuation; a whole number for a decimal; objects key by key."""
    if isinstance(value, str) and isinstance(other, str):
        return _PUNCTUATION.sub("", value).lower() == _PUNCTUATION.sub("", other).lower()
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, (int, float)) and isinstance(other, (int, float)):
        return value == other and (kind.get("type") != "integer" or isinstance(value, int))
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return fits(value, other, kind)
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        each = kind.get("items") or {}
        return len(value) == len(other) and all(_same(a, b, each) for a, b in zip(value, other, strict=True))
    return bool(value == other)
