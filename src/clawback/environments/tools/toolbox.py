"""Tools that an episode may call: Python functions, and several toolboxes as one. A toolbox lives for one episode."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from clawback import installed
from clawback.environments.core import EnvironmentFailure, Tool
from clawback.environments.tools import function_schema
from clawback.environments.tools.calls import Call
from clawback.errors import ClawbackError, MissingExtra, UsageError

MOST_CHARACTERS = 4000
"""Of a result that the policy is shown."""


class ToolError(Exception):
    """The call was wrong: its message goes to the policy as the tool's answer."""


class Toolbox(Protocol):
    """What an episode's tools are. ``open`` comes first, ``close`` may come twice."""

    async def open(self, seed: int) -> Sequence[Tool]:
        """Make it ready; the tools in it."""
        ...

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        """The result as text. Raises ``ToolError`` for a fault of the call, ``EnvironmentFailure`` for any other."""
        ...

    async def state(self) -> Any:
        """What is left behind, as JSON: end states are compared by it. None where there is none."""
        ...

    async def close(self) -> None: ...


async def called(box: Toolbox, tools: Sequence[Tool], call: Call) -> tuple[str, bool]:
    """One call: its result as the policy sees it, and whether the call was right."""
    known = {str(tool["function"]["name"]): tool["function"] for tool in tools}
    if call.name not in known:
        return f"Error: there is no tool {call.name!r}. There are: {', '.join(known) or 'none'}.", False
    if problem := mismatch(call.arguments, known[call.name].get("parameters") or {}):
        return f"Error: {problem}", False
    try:
        return cut(await box.call(call.name, call.arguments)), True
    except ToolError as error:
        return cut(f"Error: {error}"), False


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}… [{len(text) - most} more characters]"


def mismatch(arguments: Mapping[str, object], parameters: Mapping[str, object]) -> str:
    """Where arguments do not fit a tool's schema, in words; "" where they do."""
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match
    except ImportError as error:
        raise MissingExtra(f"Tool calls need jsonschema: {installed.add('train')}") from error
    try:
        problem = best_match(Draft202012Validator(dict(parameters)).iter_errors(dict(arguments)))
    except Exception as error:  # what a schema that is none makes the library raise
        raise UsageError(f"The schema of a tool is none: {error}.") from error
    if problem is None:
        return ""
    where = ".".join(str(part) for part in problem.absolute_path)
    return f"{where}: {problem.message}" if where else str(problem.message)


class Functions:
    """Python functions, or the public methods of an object, as tools.

    What one raises as ``ToolError``, ``ValueError``, ``KeyError`` … is told to the policy: a wrong call is no broken world. The
    state is what the object's ``state`` attribute is or returns.
    """

    def __init__(self, *functions: Callable[..., Any], owner: object = None) -> None:
        self.owner = owner
        named = [*functions, *(_methods(owner) if owner is not None else ())]
        self.functions = {function.__name__: function for function in named}
        self.tools = tuple(function_schema.definition(function) for function in named)

    async def open(self, seed: int) -> Sequence[Tool]:  # noqa: ARG002
        return self.tools

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        return as_text(await _run(self.functions[name], arguments))

    async def state(self) -> Any:
        found = getattr(self.owner, "state", None)
        return found() if callable(found) else found

    async def close(self) -> None:
        if callable(end := getattr(self.owner, "close", None)):
            end()


def _methods(owner: object) -> list[Callable[..., Any]]:
    found = inspect.getmembers(owner, inspect.ismethod)
    return [method for name, method in found if not name.startswith("_") and name not in ("state", "close")]


async def _run(function: Callable[..., Any], arguments: Mapping[str, object]) -> object:
    """Coroutines where they are; other functions in a thread, for nobody knows how long they take."""
    try:
        if inspect.iscoroutinefunction(function):
            return await function(**arguments)
        return await asyncio.to_thread(function, **arguments)
    except (ToolError, ClawbackError):
        raise
    except (OSError, MemoryError) as error:
        raise EnvironmentFailure(
            f"The tool {function.__name__} broke: {type(error).__name__}: {error}."
        ) from error
    except Exception as error:
        raise ToolError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error


def as_text(result: object) -> str:
    """A result as a model reads it: text as it is, else JSON."""
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False, default=str)


class JointToolbox:
    """Several boxes as one. A name in two of them is a mistake of whoever joined them."""

    def __init__(self, *boxes: Toolbox) -> None:
        self.boxes = boxes
        self.owner: dict[str, Toolbox] = {}

    async def open(self, seed: int) -> Sequence[Tool]:
        self.owner = {}
        made: list[Tool] = []
        for box in self.boxes:
            for tool in await box.open(seed):
                name = str(tool["function"]["name"])
                if name in self.owner:
                    raise UsageError(f"Two tools are called {name!r}: give one of them another name.")
                self.owner[name] = box
                made.append(tool)
        return made

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        return await self.owner[name].call(name, arguments)

    async def state(self) -> Any:
        return [await box.state() for box in self.boxes]

    async def close(self) -> None:
        await asyncio.gather(*(box.close() for box in self.boxes))


class DefinedTools:
    """OpenAI-style definitions: one with the name of a tool of ``box`` describes it, others are offered and not carried out."""

    def __init__(self, tools: Sequence[Tool], box: Toolbox | None = None) -> None:
        self.tools, self.box = {str(tool["function"]["name"]): tool for tool in tools}, box
        self.names: set[str] = set()
        """Of the tools that the box carries out."""

    async def open(self, seed: int) -> Sequence[Tool]:
        inner = await self.box.open(seed) if self.box else ()
        tools = {str(tool["function"]["name"]): tool for tool in inner}
        self.names = set(tools)
        return list({**tools, **self.tools}.values())

    async def call(self, name: str, arguments: Mapping[str, object]) -> str:
        return await self.box.call(name, arguments) if self.box and name in self.names else "ok"

    async def state(self) -> Any:
        return await self.box.state() if self.box else None

    async def close(self) -> None:
        if self.box:
            await self.box.close()
