"""The players for ``env run`` and ``env eval``: the known solution, a version of this home, a server, or a function of yours."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clawback.environments import worlds
from clawback.environments.core import EnvironmentFailure, EnvironmentSet, Solvable
from clawback.environments.play import Player, View
from clawback.environments.tools import calls
from clawback.errors import ClawbackError, MissingExtra, NotFound, UsageError
from clawback.records import Message

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy

SECONDS = 300.0
TRIES = 3
PATIENCE, POLL = 1.0, 0.001
_THIS_REQUEST = {400, 413, 422}
"""Answers about one request (too long, not allowed): its task failed, and no other."""
_AGAIN = {408, 409, 425, 429, 500, 502, 503, 504}


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
class Server:
    """An OpenAI-style address. What it answers with is taken as it is, tool calls included."""

    address: str
    model: str = ""
    key: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    seeded: bool = True
    _models: dict[str, str] = field(default_factory=dict)

    async def __call__(self, view: View) -> Message:
        body: dict[str, Any] = {
            "model": self.model or await self._only_model(),
            "messages": list(view.messages),
        }
        body |= {"tools": list(view.tools)} if view.tools else {}
        body |= {"temperature": self.temperature} if self.temperature is not None else {}
        body |= {"max_tokens": self.max_tokens} if self.max_tokens is not None else {}
        body |= {"seed": worlds.mixed(view.task.id, view.seed, view.turn) >> 1} if self.seeded else {}
        answer = await self._ask("POST", "/chat/completions", body, f"env:{view.task.id}:{view.seed}")
        try:
            message = answer["choices"][0]["message"]
        except (KeyError, IndexError, TypeError) as error:
            raise ClawbackError(f"{self.address} sent no answer of the OpenAI kind.") from error
        kept = {name: message[name] for name in ("content", "tool_calls") if message.get(name)}
        return {"role": "assistant", "content": "", **kept}

    async def _only_model(self) -> str:
        if "" not in self._models:
            listed = await self._ask("GET", "/models")
            self._models[""] = next(
                (str(model["id"]) for model in listed.get("data", ()) if "id" in model), ""
            )
        if not self._models[""]:
            raise UsageError(f"{self.address} lists no model: name one with --model.")
        return self._models[""]

    async def _ask(self, method: str, path: str, body: Any = None, session_id: str = "") -> dict[str, Any]:
        """With a second and third try where that can help. A server that is not there ends it all: no world is to blame."""
        aiohttp = worlds.needed("aiohttp", "A server as policy", "serve")
        base = self.address.rstrip("/")
        url = base + ("" if base.endswith("/v1") else "/v1") + path
        # A Clawback server records what it answers: as side turns these are nobody's conversation to rate or to learn from.
        headers = {"X-Turn-Type": "side"} | ({"X-Session-Id": session_id} if session_id else {})
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        said = ""
        for attempt in range(TRIES):
            try:
                async with (
                    aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session,
                    session.request(method, url, json=body, headers=headers, allow_redirects=False) as answer,
                ):
                    text = await answer.text()
                    if answer.status == 200:
                        return dict(json.loads(text))
                    said = f"answered {answer.status}: {' '.join(text.split())[:300]}"
                    if answer.status in _THIS_REQUEST:
                        raise EnvironmentFailure(f"{url} {said}")
                    if answer.status not in _AGAIN:
                        break
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                said = f"cannot be asked: {type(error).__name__}: {error}"
            await asyncio.sleep(0.5 * 2**attempt)
        raise ClawbackError(f"{url} {said}.")


class Local:
    """A model in this process. What is asked at the same time is answered in one batch.

    Environments that answer within ``PATIENCE`` are waited for, so that with fast ones the batches follow from the seed alone.
    """

    under_way = 1
    """Episodes that are being played: ``play`` keeps it."""

    def __init__(self, policy: Policy, max_tokens: int | None = None, seed: int = 0) -> None:
        self.policy, self.max_tokens, self.seed = policy, max_tokens, seed
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
        asked = [calls.in_words(view.messages, view.tools) for view in views]
        seed = worlds.mixed(self.seed, *((view.task.id, view.seed, view.turn) for view in views)) >> 1
        made = self.policy.generate(asked, max_tokens=self.max_tokens, seed=seed)
        return [completion.text for [completion] in made]


def player(
    name: str,
    environments: EnvironmentSet,
    *,
    model: str = "",
    key: str = "",
    temperature: float | None = None,
    max_tokens: int | None = None,
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
        return Local(load(name), max_tokens)
    if urlsplit(name).scheme in ("http", "https"):
        return Server(name, model, key or os.environ.get("OPENAI_API_KEY", ""), temperature, max_tokens)
    if ":" in name:
        found = worlds.loaded(name)
        if not callable(found):
            raise UsageError(f"`{name}` is no function.")
        return Script(found)
    raise UsageError(
        f"There is no policy `{name}`: write reference, live, base, a version, an address, or module:function."
    )
