"""The one client of other people's models, in OpenAI's and Anthropic's dialects, by the standard library alone.

Judges, teachers, prompt searches, rule proposers and ``env eval`` all ask through ``ModelServer``: retries, time limits,
budgets and the form of requests and answers are decided here. Callers turn the errors into sentences of their own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

from clawback import http_client
from clawback.endings import ending_of
from clawback.errors import JudgeError, UsageError
from clawback.http_client import BadReply, RequestLimits, Retry, StatusError, TransportError
from clawback.records import CUT, JsonObject, Message, text_of

Api = Literal["openai", "anthropic"]
T = TypeVar("T")
LARGEST_ANSWER = 4_000_000
"""Bytes that are read of an answer; an honest one has some thousands."""
SETUP_STATUSES = frozenset({401, 403, 404, 405})
"""Statuses that every further request would meet, too."""
OLD_LIMIT, NEW_LIMIT = "max_tokens", "max_completion_tokens"
"""Names of the limit in OpenAI's dialect: newer models of OpenAI know only the second, most other servers only the first."""


class BudgetExceeded(JudgeError):
    """The budget's calls, time or tokens are used up, or the pass was stopped."""


class CallBudget:
    """Calls, seconds and tokens that one pass may use, shared by its threads."""

    def __init__(self, calls: int, seconds: float, tokens: int) -> None:
        self.most_calls, self.most_tokens = calls, tokens
        self.until = time.monotonic() + seconds
        self.calls = self.tokens = 0
        self.stopped = threading.Event()
        self._reserved = 0  # tokens that calls under way may still use
        self._lock = threading.Lock()

    def take(self, tokens: int) -> None:
        """Reserve ``tokens`` before a call. Raises ``BudgetExceeded`` if that could exceed the budget."""
        with self._lock:
            if self.stopped.is_set():
                raise BudgetExceeded("the pass was stopped")
            if self.calls >= self.most_calls:
                raise BudgetExceeded(
                    f"all of the {self.most_calls} calls of this pass are used (`max_calls`)"
                )
            if time.monotonic() >= self.until:
                raise BudgetExceeded("the time of this pass is over (`max_seconds`)")
            if self.tokens + self._reserved + tokens > self.most_tokens:
                raise BudgetExceeded(f"the {self.most_tokens} tokens of this pass are used (`max_tokens`)")
            self.calls += 1
            self._reserved += tokens

    def settle(self, reserved: int, used: int) -> None:
        """Replace a call's reservation by what it really used."""
        with self._lock:
            self._reserved -= reserved
            self.tokens += used

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the pass. Raises ``BudgetExceeded`` when it is stopped meanwhile."""
        left = self.until - time.monotonic()
        if self.stopped.wait(max(0.0, min(seconds, left))):
            raise BudgetExceeded("the pass was stopped")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request, before it is written in a form."""

    model: str
    messages: Sequence[Message]
    max_tokens: int | None = None
    temperature: float | None = None
    """None: the server's own. Some models take no other."""
    tools: Sequence[Mapping[str, Any]] = ()
    seed: int | None = None
    limit: str = OLD_LIMIT
    """The name under which ``max_tokens`` is sent in OpenAI's form."""

    @property
    def text(self) -> str:
        return "".join(text_of(message.get("content")) for message in self.messages)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One answer. The counts of tokens are the server's; 0 where it does not count."""

    text: str
    sent: int = 0
    received: int = 0
    tokens: int = 0
    """Of both together."""
    complete: bool = True
    """False where the answer was cut off at its limit."""
    message: Mapping[str, Any] = field(default_factory=dict)
    """As the server sent it, with its tool calls."""


class ApiFormat(Protocol):
    """How one API wants its requests, and how it answers."""

    path: str

    def headers(self, key: str) -> dict[str, str]: ...

    def body(self, request: ModelRequest) -> JsonObject: ...

    def read(self, reply: object) -> ModelAnswer:
        """Raises ``ValueError``, ``KeyError``, ``TypeError``, ``IndexError`` or ``AttributeError`` for another form."""


class OpenAIFormat:
    """Chat completions."""

    path = "/v1/chat/completions"

    def headers(self, key: str) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def body(self, request: ModelRequest) -> JsonObject:
        values = {
            request.limit: request.max_tokens,
            "temperature": request.temperature,
            "tools": [dict(tool) for tool in request.tools] or None,
            "seed": request.seed,
        }
        messages = [dict(message) for message in request.messages]
        set_values = {name: value for name, value in values.items() if value is not None}
        return {"model": request.model, "messages": messages, **set_values}

    def read(self, reply: Any) -> ModelAnswer:
        usage, choice = reply.get("usage") or {}, reply["choices"][0]
        message = choice["message"]
        content = message.get("content")
        text = text_of(content)
        if content and not text:
            raise ValueError("not a text")
        sent, received = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        total = _count(usage, "total_tokens") or sent + received
        return ModelAnswer(
            text, sent, received, total, ending_of(choice.get("finish_reason")) not in CUT, message
        )


class AnthropicFormat:
    """Messages."""

    path = "/v1/messages"

    def headers(self, key: str) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01"} | ({"x-api-key": key} if key else {})

    def body(self, request: ModelRequest) -> JsonObject:
        system = "\n\n".join(text_of(m.get("content")) for m in request.messages if m.get("role") == "system")
        values = {"system": system or None, "temperature": request.temperature}
        return {
            "model": request.model,
            "max_tokens": request.max_tokens or 4096,
            "messages": [dict(m) for m in request.messages if m.get("role") != "system"],
            **{name: value for name, value in values.items() if value is not None},
        }

    def read(self, reply: Any) -> ModelAnswer:
        usage, blocks = reply.get("usage") or {}, reply["content"]
        text = "".join(block["text"] for block in blocks if block.get("type") == "text")
        sent, received = _count(usage, "input_tokens"), _count(usage, "output_tokens")
        complete = ending_of(reply.get("stop_reason")) not in CUT
        message = {"role": "assistant", "content": blocks}
        return ModelAnswer(text, sent, received, sent + received, complete, message)


FORMATS: Mapping[Api, ApiFormat] = {"openai": OpenAIFormat(), "anthropic": AnthropicFormat()}


@dataclass(frozen=True)
class ModelServer:
    """An address at which a model answers. All requests to it share the retries, the time limit and the budget."""

    api: Api
    url: str
    model: str
    key: str = ""
    timeout: float = 60.0
    """Seconds for one complete answer."""
    retry: Retry = field(default_factory=Retry)
    budget: CallBudget | None = None

    def __post_init__(self) -> None:
        if not http_client.is_address(self.url):
            raise UsageError(
                f"{self.url!r} is no address of a server; one is like http://127.0.0.1:11434/v1."
            )

    @property
    def base(self) -> str:
        """The address without the version of the API."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def _limits(self) -> RequestLimits:
        return RequestLimits(self.timeout, self.timeout, LARGEST_ANSWER)

    def complete(self, request: ModelRequest, headers: Mapping[str, str] | None = None) -> ModelAnswer:
        """Ask for one answer. Raises ``StatusError``, ``TransportError``, ``BadReply``, ``BudgetExceeded``."""
        request, attempt = self._prepared(request), 1
        while True:
            result = self._attempt(request, attempt, headers)
            if isinstance(result, ModelAnswer):
                return result
            request, attempt = result.request, attempt + 1
            (self.budget.pause if self.budget else time.sleep)(result.seconds)

    async def complete_async(
        self, request: ModelRequest, headers: Mapping[str, str] | None = None
    ) -> ModelAnswer:
        """As ``complete``, without holding up the event loop."""
        import asyncio

        request, attempt = self._prepared(request), 1
        while True:
            result = await in_thread(partial(self._attempt, request, attempt, headers))
            if isinstance(result, ModelAnswer):
                return result
            request, attempt = result.request, attempt + 1
            await asyncio.sleep(result.seconds)

    def models(self) -> list[str]:
        """Names of the models that the server lists. Raises ``StatusError``, ``TransportError``, ``BadReply``."""
        known = FORMATS[self.api].headers(self.key)
        reply = http_client.request("GET", f"{self.base}/v1/models", headers=known, limits=self._limits)
        try:
            return [str(entry["id"]) for entry in reply.json()["data"]]
        except (ValueError, KeyError, TypeError):
            raise BadReply(f"{self.url} does not list its models in the form of its API.") from None

    def _prepared(self, request: ModelRequest) -> ModelRequest:
        own = "api.openai.com" in self.url and request.limit == OLD_LIMIT
        return replace(request, limit=NEW_LIMIT) if own else request

    def _attempt(
        self, request: ModelRequest, attempt: int, headers: Mapping[str, str] | None
    ) -> ModelAnswer | _Again:
        reserved = guess(request.text) + (request.max_tokens or 0)
        if self.budget:
            self.budget.take(reserved)
        used = 0
        try:
            answer = self._post(request, headers or {})
            used = answer.tokens or guess(request.text + answer.text)
            return answer
        except (StatusError, TransportError) as error:
            unknown_limit = isinstance(error, StatusError) and error.status == 400 and NEW_LIMIT in error.text
            if unknown_limit and request.limit == OLD_LIMIT:
                return _Again(replace(request, limit=NEW_LIMIT), 0.0)
            seconds = self.retry.seconds(attempt, error)
            if seconds is None:
                raise
            return _Again(request, seconds)
        finally:
            if self.budget:
                self.budget.settle(reserved, used)

    def _post(self, request: ModelRequest, headers: Mapping[str, str]) -> ModelAnswer:
        form = FORMATS[self.api]
        # Through Clawback's own server these requests are no conversation to learn from: they are side turns.
        known = {
            "content-type": "application/json",
            "x-turn-type": "side",
            **form.headers(self.key),
            **headers,
        }
        reply = http_client.request(
            "POST",
            self.base + form.path,
            body=json.dumps(form.body(request)).encode(),
            headers=known,
            limits=self._limits,
        )
        try:
            return form.read(reply.json())
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            raise BadReply(f"{self.url} does not answer in the form of its API.") from None


@dataclass(frozen=True, slots=True)
class _Again:
    """A request that is sent again after some seconds."""

    request: ModelRequest
    seconds: float


def guess(text: str) -> int:
    """Tokens of a text, on the high side (large models take half as many): a cap that is guessed too low is none."""
    return len(text.encode()) // 2 + 16


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work on a thread of its own, which does not hold up the end of the process.

    The event loop's pool of threads is small, and a slow model would keep all others from it.
    """
    import asyncio  # a hook that rates does not need it

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(action: Callable[..., None], value: object) -> None:
        if not future.done():
            action(value)

    def run() -> None:
        try:
            action, value = future.set_result, work()
        except BaseException as error:
            action, value = future.set_exception, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, action, value)

    threading.Thread(target=run, daemon=True).start()
    return await future


def _count(usage: Mapping[str, object], name: str) -> int:
    """A count of tokens; 0 where there is none. Raises ``ValueError`` for what is no count."""
    value = usage.get(name)
    if value is None:
        return 0
    if not isinstance(value, int):
        raise ValueError(f"{name} is no number")
    return max(value, 0)
