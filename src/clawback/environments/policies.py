"""The players for ``env run`` and ``env eval``: the known solution, a version of this home, a server, or a function of yours."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from clawback.environments import world_helpers
from clawback.environments.core import EnvironmentFailure, EnvironmentSet, Solvable
from clawback.environments.play import Player, View
from clawback.environments.tools import calls
from clawback.errors import ClawbackError, MissingExtra, NotFound, UsageError
from clawback.http_client import BadReply, Retry, StatusError, TransportError
from clawback.models_api import ModelRequest, ModelServer, in_thread
from clawback.records import Message

if TYPE_CHECKING:
    from clawback.policy import Policy

SECONDS = 300.0
TRIES = 3
PATIENCE, POLL = 1.0, 0.001
_THIS_REQUEST = {400, 413, 422}
"""Answers about one request (too long, not allowed): its task failed, and no other."""
T = TypeVar("T")


class Solution:
    """Says the given messages, one a turn, and then nothing."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages

    async def __call__(self, view: View) -> Message:
        if view.turn < len(self.messages):
            return self.messages[view.turn]
        return {"role": "assistant", "content": ""}


class Reference:
    """Plays each task's known solution. One that has none, or cannot tell it, is a task that failed (``EnvironmentFailure``)."""

    def __init__(self, environments: EnvironmentSet) -> None:
        if not isinstance(environments, Solvable):
            raise UsageError(
                f"{environments.name} knows no solutions, so `--policy reference` has nothing to play."
            )
        self.environments = environments

    async def __call__(self, view: View) -> Message:
        try:
            solution = self.environments.solution(view.task)
        except MissingExtra:
            raise
        except Exception as error:
            why = str(error) if isinstance(error, ClawbackError) else f"{type(error).__name__}: {error}"
            raise EnvironmentFailure(f"its solution is not known: {why}") from error
        return await Solution(solution)(view)


Scripted = Callable[[Sequence[Message], Sequence[Mapping[str, Any]]], Any]


class Script:
    """A function of yours: (messages, tools) → text or a message; a coroutine function is awaited."""

    def __init__(self, function: Scripted) -> None:
        self.function = function

    async def __call__(self, view: View) -> Message:
        try:
            if inspect.iscoroutinefunction(self.function):
                said = await self.function(list(view.messages), list(view.tools))
            else:
                said = await asyncio.to_thread(self.function, list(view.messages), list(view.tools))
        except ClawbackError:
            raise
        except Exception as error:
            raise ClawbackError(
                f"The policy's function failed on {view.task.id}: {type(error).__name__}: {error}."
            ) from error
        return {"role": "assistant", "content": said} if isinstance(said, str) else said


@dataclass
class ServerPolicy:
    """An OpenAI-style address. What it answers with is taken as it is, tool calls included."""

    address: str
    model: str = ""
    key: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    seeded: bool = True
    _models: dict[str, str] = field(default_factory=dict)

    async def __call__(self, view: View) -> Message:
        request = ModelRequest(
            self.model or await self._only_model(),
            view.messages,
            self.max_tokens,
            self.temperature,
            view.tools,
            world_helpers.mixed(view.task.id, view.seed, view.turn) >> 1 if self.seeded else None,
        )
        # A server that records what it answers keeps the episodes apart by this name.
        headers = {"x-session-id": f"env:{view.task.id}:{view.seed}"}
        message = (await self._answered(lambda: self._server().complete_async(request, headers))).message
        parts = {name: message[name] for name in ("content", "tool_calls") if message.get(name)}
        return {"role": "assistant", "content": "", **parts}

    async def _only_model(self) -> str:
        if "" not in self._models:
            models = await self._answered(lambda: in_thread(self._server().models))
            self._models[""] = next(iter(models), "")
        if not self._models[""]:
            raise UsageError(f"{self.address} lists no model: name one with --model.")
        return self._models[""]

    def _server(self) -> ModelServer:
        return ModelServer("openai", self.address, self.model, self.key, SECONDS, Retry(TRIES, 0.5))

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """A refusal of one request fails its task; a server that is not there ends the evaluation, as no world is to blame."""
        try:
            return await ask()
        except StatusError as error:
            words = f"{error.url} answered {error.status}: {error.words}"
            if error.status in _THIS_REQUEST:
                raise EnvironmentFailure(words) from None
            raise ClawbackError(f"{words}.") from None
        except TransportError as error:
            raise ClawbackError(f"{error.url} cannot be asked: {error.reason}.") from None
        except BadReply:
            raise ClawbackError(f"{self.address} sent no answer of the OpenAI kind.") from None


class LocalPolicy:
    """A model in this process. What is asked at the same time is answered in one batch; what was read of an episode is not read again.

    Environments that answer within ``PATIENCE`` are waited for, so that with fast ones the batches follow from the seed alone.
    """

    under_way = 1
    """Episodes that are being played: ``play`` keeps it."""

    def __init__(self, policy: Policy, max_tokens: int | None = None, seed: int = 0) -> None:
        from clawback.sampling import Conversations

        self.policy, self.max_tokens, self.seed = policy, max_tokens or policy.max_tokens, seed
        self.conversations = Conversations(policy, sampling=policy.sampling)
        self.waiting: list[tuple[View, asyncio.Future[Message]]] = []
        self.runner: asyncio.Task[None] | None = None

    async def __call__(self, view: View) -> Message:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.waiting.append((view, answer))
        if self.runner is None or self.runner.done():
            self.runner = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        while self.waiting:
            loop = asyncio.get_running_loop()
            began = loop.time()
            while len(self.waiting) < self.under_way and loop.time() - began < PATIENCE:
                await asyncio.sleep(POLL)
            batch, self.waiting = self.waiting, []
            try:
                said = await asyncio.to_thread(self._answers, [view for view, _ in batch])
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (_, answer), text in zip(batch, said, strict=True):
                if not answer.done():
                    answer.set_result({"role": "assistant", "content": text})
            await asyncio.sleep(0)

    def _answers(self, views: Sequence[View]) -> list[str]:
        from clawback.sampling import TurnRequest

        chat, turns = self.policy.chat, []
        for view in views:
            ids, pixels = chat.looked(calls.in_words(view.messages, view.tools), self.policy.max_prompt)
            seed = world_helpers.mixed(self.seed, view.task.id, view.seed, view.turn) >> 1
            turns.append(TurnRequest((view.task.id, view.seed), ids, seed, self.max_tokens, pixels))
        replies = self.conversations.draw(turns)
        return [chat.text(turn.ids, reply.ids)[1] for turn, reply in zip(turns, replies, strict=True)]


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How a policy answers. ``model``, ``key`` and ``temperature`` are a server's; ``max_tokens``: of a reply."""

    model: str = ""
    key: str = ""
    """"": what OPENAI_API_KEY says."""
    temperature: float | None = None
    max_tokens: int | None = None


DEFAULTS = AnswerOptions()


def player(
    name: str,
    environments: EnvironmentSet,
    options: AnswerOptions = DEFAULTS,
    load: Callable[[str], Policy] | None = None,
) -> Player:
    """Who a name stands for: ``reference``, ``live``/``base``/a number, an address, or ``module:function``.

    ``load`` gives the policy of a version. Raises ``UsageError``, ``NotFound``.
    """
    if name == "reference":
        return Reference(environments)
    if name in ("live", "base") or name.isdecimal():
        if load is None:
            raise NotFound("There are no versions here.")
        return LocalPolicy(load(name), options.max_tokens)
    if urlsplit(name).scheme in ("http", "https"):
        key = options.key or os.environ.get("OPENAI_API_KEY", "")
        return ServerPolicy(name, options.model, key, options.temperature, options.max_tokens)
    if ":" in name:
        found = world_helpers.load_object(name)
        if not callable(found):
            raise UsageError(f"`{name}` is no function.")
        return Script(found)
    raise UsageError(
        f"There is no policy `{name}`: write reference, live, base, a version, an address, or module:function."
    )
