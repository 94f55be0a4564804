"""Classes for TRL's ``environment_factory``: ``reset(**row)``, public methods that are tools, ``get_reward()``.

``trl:my_env.py:Game?rows=rows.jsonl``: each row is a task, its fields are the arguments of ``reset``, its
``prompt`` (text or messages) is what the policy reads first. An exception in a tool is reported to the
policy, as in TRL.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clawback.environments import world_helpers
from clawback.environments.core import Observation, Split, Step, Task, Tool
from clawback.environments.tools import calls as reading
from clawback.environments.tools.toolbox import Functions, called
from clawback.errors import UsageError
from clawback.records import JsonObject, Message

TURNS = 32
PATIENCE = 3
"""Unreadable replies in a row after which the episode is over."""
_NO_TOOLS = ("reset", "get_reward")


def names() -> list[str]:
    return ["module:Class", "file.py:Class"]


def make(rest: str, settings: Mapping[str, Any]) -> TrlSet:
    world_helpers.unknown_settings("trl", settings, ("rows", "held_out", "turns", "tasks"))
    factory = world_helpers.load_object(rest)
    if not callable(factory) or not hasattr(factory, "reset"):
        raise UsageError(
            f"{rest} has no reset: TRL's contract is a class with reset(**row) and public methods as tools."
        )
    given = world_helpers.rows(Path(str(settings["rows"]))) if "rows" in settings else None
    return TrlSet(rest, factory, given, settings)


class TrlSet:
    """Rows for a class; without rows, tasks are seeds (``reset(seed=…)`` where it takes one)."""

    def __init__(
        self,
        name: str,
        factory: Callable[[], Any],
        rows: Sequence[Mapping[str, Any]] | None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.name, self.factory, self.rows, self.settings = f"trl:{name}", factory, rows, dict(settings or {})

    def tasks(self, split: Split) -> Sequence[Task]:
        if self.rows is None:
            return world_helpers.seeded_tasks(
                self.name, split, int(self.settings.get("tasks", world_helpers.TRAIN_TASKS))
            )
        return world_helpers.split_rows(self.name, self.rows, float(self.settings.get("held_out", 0.1)))[
            split
        ]

    def make(self) -> Trl:
        return Trl(self)


class Trl:
    """One episode: one object of the class."""

    def __init__(self, of: TrlSet) -> None:
        self.of = of
        self.inner: Any = None
        self.box = Functions()
        self.tools: Sequence[Tool] = ()
        self.turns = self.unread = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self.turns = self.unread = 0
        with world_helpers.faults(self.of.name):
            self.inner = self.of.factory()
            begin = world_helpers.mixed(task.id, seed)
            said = await asyncio.to_thread(
                self.inner.reset, **_accepted(self.inner.reset, {"seed": begin} | dict(task.data))
            )
        found = inspect.getmembers(self.inner, inspect.ismethod)
        self.box = Functions(
            *(method for name, method in found if not name.startswith("_") and name not in _NO_TOOLS)
        )
        self.tools = await self.box.open(seed)
        return Observation(tuple(_opening(task.data.get("prompt", ""), said)), tuple(self.tools))

    async def step(self, message: Message) -> Step:
        self.turns += 1
        reply = reading.read(message, tools=self.tools)
        info: JsonObject = {"unparsable": True} if reply.problems else {}
        self.unread = self.unread + 1 if reply.problems and not reply.calls else 0
        if self.unread >= PATIENCE or not (reply.calls or reply.problems):
            return Step((), await self._reward(), True, info)
        answers: list[Message] = [
            {"role": "user", "content": f"A call cannot be read: {problem}."} for problem in reply.problems
        ]
        for call in reply.calls:
            said, _ = await called(self.box, self.tools, call)
            answers.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": said})
        if self.turns >= int(self.of.settings.get("turns", TURNS)):
            return Step(tuple(answers), await self._reward(), True, info | {"truncated": True})
        return Step(tuple(answers), None, False, info)

    async def close(self) -> None:
        inner, self.inner = self.inner, None
        if callable(end := getattr(inner, "close", None)):
            with world_helpers.faults(self.of.name):
                await asyncio.to_thread(end)

    async def _reward(self) -> float | None:
        """None where the class has no reward of its own: somebody else gives it."""
        if not callable(reward := getattr(self.inner, "get_reward", None)):
            return None
        with world_helpers.faults(self.of.name):
            return float(await asyncio.to_thread(reward))


def _accepted(function: Callable[..., Any], fields: Mapping[str, Any]) -> JsonObject:
    """The fields that a function takes; all of them where it takes any."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(fields)
    return {name: value for name, value in fields.items() if name in parameters}


def _opening(prompt: Any, observation: Any) -> Sequence[Message]:
    """The prompt; what ``reset`` said stands at the end of the last user message."""
    messages: list[JsonObject] = (
        [{"role": "user", "content": prompt}]
        if isinstance(prompt, str)
        else [dict(message) for message in prompt]
    )
    if isinstance(observation, str) and observation:
        last = next((m for m in reversed(messages) if m.get("role") == "user"), None)
        if last is None:
            messages.append({"role": "user", "content": observation})
        else:
            last["content"] = (
                f"{last['content']}\n{observation}".strip()
                if isinstance(last["content"], str)
                else last["content"]
            )
    return messages
