"""``@clawback.rollout``: a function of your own, in which the policy answers a client of your own, is an environment set.

    @clawback.rollout(tasks=[{"question": "2 + 3", "answer": "5"}, …])
    def sums(task, model):
        client = OpenAI(base_url=model.base_url, api_key=model.api_key)
        said = client.chat.completions.create(model=model.name, messages=[{"role": "user", "content": task["question"]}])
        return float(task["answer"] in said.choices[0].message.content)

``clawback env train sums.py:sums`` trains on what it returns. It runs in this process, on a thread of its own, or on the
event loop where it is ``async``. LangGraph, PydanticAI and other libraries take the same address and key.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawback.environments.core import EnvironmentFailure, Split, Task
from clawback.environments.world_helpers import rows, split_rows
from clawback.errors import UsageError
from clawback.extensions.harness.program_episode import ProgramEpisode, ProgramExit
from clawback.extensions.harness.session import MODEL, HarnessSession

TURNS = 64
"""Requests of one call of the function."""


@dataclass(frozen=True, slots=True)
class PolicyEndpoint:
    """Where a client of yours finds the policy: OpenAI's chat and Responses and Anthropic's messages are spoken there."""

    base_url: str
    """For OpenAI's clients; it ends with ``/v1``."""
    api_key: str
    name: str = MODEL

    @property
    def url(self) -> str:
        """For Anthropic's clients: without ``/v1``."""
        return self.base_url.removesuffix("/v1")


class FunctionTasks:
    """An environment set of one function and its tasks."""

    def __init__(self, function: Callable[..., Any], tasks: Any, turns: int = TURNS) -> None:
        self.function, self.turns = function, turns
        self.name = str(getattr(function, "__name__", "rollout"))
        self.__doc__ = function.__doc__
        items = rows(_path(tasks)) if isinstance(tasks, str) or hasattr(tasks, "__fspath__") else list(tasks)
        if not items:
            raise UsageError(f"@clawback.rollout of {self.name} has no tasks: give at least one.")
        self._tasks = split_rows(
            self.name, [row if isinstance(row, Mapping) else {"task": row} for row in items]
        )

    def tasks(self, split: Split) -> Sequence[Task]:
        return self._tasks[split]

    def make(self) -> ProgramEpisode:
        return _Call(self)

    def __call__(self, *arguments: object, **named: object) -> Any:
        """The function itself, as it was written."""
        return self.function(*arguments, **named)


def rollout(function: Callable[..., Any] | None = None, *, tasks: object = None, turns: int = TURNS) -> Any:
    """Make a function of (task, model) an environment set that `clawback env train` plays.

    Args:
        tasks: rows (mappings; a ``split`` of "train" or "test" and an ``id`` where there are any), or a JSONL file of them.
        turns: requests after which a call is ended, with a reward of 0.

    The function returns its reward, or (reward, figures). What it raises is a failure of the environment, not a reward of 0.
    """

    def decorate(function: Callable[..., Any]) -> FunctionTasks:
        if tasks is None:
            raise UsageError("@clawback.rollout needs its tasks: @clawback.rollout(tasks=[{…}, …]).")
        return FunctionTasks(function, tasks, turns)

    return decorate if function is None else decorate(function)


def _path(tasks: Any) -> Any:
    from pathlib import Path

    return Path(tasks).expanduser()


class _Call(ProgramEpisode):
    """One call of the function."""

    def __init__(self, of: FunctionTasks) -> None:
        super().__init__(of.turns)
        self.of = of
        self._listener: socket.socket | None = None
        self._ended = asyncio.Event()

    async def open(self, task: Task) -> socket.socket:  # noqa: ARG002
        self._ended = asyncio.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        return self._listener

    async def run(self, task: Task, session: HarnessSession) -> ProgramExit:
        assert self._listener is not None
        port = self._listener.getsockname()[1]
        model = PolicyEndpoint(f"http://127.0.0.1:{port}/v1", session.key)
        if inspect.iscoroutinefunction(self.of.function):
            work = asyncio.ensure_future(self.of.function(dict(task.data), model))
        else:
            work = asyncio.ensure_future(asyncio.to_thread(self.of.function, dict(task.data), model))
        ended = asyncio.create_task(self._ended.wait())
        await asyncio.wait([work, ended], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not work.done():  # a thread cannot be ended: its next request is refused
            work.cancel()
            return ProgramExit(0.0)
        return _outcome(self.of.name, work.result())

    async def stop(self) -> None:
        self._ended.set()

    async def release(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()


def _outcome(name: str, returned: Any) -> ProgramExit:
    """Raises ``EnvironmentFailure`` for what is no reward."""
    reward, info = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
    if isinstance(reward, str) or not isinstance(info, Mapping):
        raise EnvironmentFailure(f"{name} returned {returned!r}: return a number, or a number and a mapping")
    try:
        number = float(reward)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise EnvironmentFailure(f"{name} returned {returned!r}, which is no reward")
    return ProgramExit(number, info)
