"""LLM backends that answer a prompt or propose a new one: any ``messages -> str``, with calls, tokens and cost counted.

A backend is called with messages and returns text. ``as_backend`` makes one of any callable, so a framework
of your own needs no class. OpenAI's and Anthropic's dialects are implemented with the standard library alone;
``VersionBackend`` is a version of your own.
"""

from __future__ import annotations

import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from clawback.errors import ClawbackError, UsageError
from clawback.http_client import BadReply, StatusError, TransportError
from clawback.models_api import Api, ModelRequest, ModelServer, guess
from clawback.prompts.prompt import Prompt
from clawback.records import JsonObject, Message, text_of

if TYPE_CHECKING:
    from clawback.policy import Policy

OPENAI = "https://api.openai.com/v1"
LM_STUDIO = "http://localhost:1234/v1"
REFINE = "Rewrite the prompt below so that it is clearer and more exact. Answer with the new prompt alone.\n\n{prompt}"


class BackendError(ClawbackError):
    """The model cannot be asked, or answers with what is no answer."""


class Complete(Protocol):
    """Messages in, text out. A backend is one, and so is any function of yours."""

    def __call__(self, messages: Sequence[Message], /) -> str: ...


@dataclass(frozen=True, slots=True)
class Price:
    """Money for a million tokens, in whatever currency; 0 for a model of your own."""

    sent: float = 0.0
    received: float = 0.0

    def of(self, sent: int, received: int) -> float:
        return (self.sent * sent + self.received * received) / 1e6


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used: calls, tokens as the server counts them (guessed on the high side where it does not), and money."""

    calls: int = 0
    sent: int = 0
    received: int = 0
    money: float = 0.0

    @property
    def tokens(self) -> int:
        return self.sent + self.received

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.calls + other.calls, self.sent + other.sent, self.received + other.received, self.money + other.money)  # fmt: skip

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.calls - other.calls, self.sent - other.sent, self.received - other.received, self.money - other.money)  # fmt: skip

    def to_dict(self) -> JsonObject:
        return asdict(self)


NOTHING = Usage()
ONE_CALL = Usage(calls=1)
"""What is entered for a try or a proposal whose cost nobody counted."""


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """One answer. ``complete`` is False where it was cut off at its limit."""

    text: str
    sent: int = 0
    received: int = 0
    complete: bool = True


class LLMBackend(ABC):
    """A model that can be asked, and its running account. A subclass writes ``answer``; threads may share one."""

    together = 1
    """How many are best asked at once: above 1 where they go through one model side by side."""

    def __init__(self, price: Price | None = None) -> None:
        self.price = price or Price()
        self.usage = NOTHING
        self._lock = threading.Lock()

    @abstractmethod
    def answer(self, messages: Sequence[Message], max_tokens: int, temperature: float | None) -> LLMResponse:
        """Ask once. Tokens that it does not know are 0. Raises ``BackendError``."""

    def answers(
        self, many: Sequence[Sequence[Message]], max_tokens: int, temperature: float | None
    ) -> list[LLMResponse]:
        """Ask for several, in order. Raises ``BackendError``."""
        return [self.answer(messages, max_tokens, temperature) for messages in many]

    def complete(
        self, prompt: str | Sequence[Message], *, max_tokens: int = 1024, temperature: float | None = None
    ) -> LLMResponse:
        """One answer to a text or to messages, counted. Raises ``BackendError``."""
        return self.complete_all([prompt], max_tokens=max_tokens, temperature=temperature)[0]

    def complete_all(
        self,
        prompts: Sequence[str | Sequence[Message]],
        *,
        max_tokens: int = 1024,
        temperature: float | None = None,
    ) -> list[LLMResponse]:
        """An answer to each, in order, counted. ``together`` of them are best asked at once. Raises ``BackendError``."""
        asked: list[Sequence[Message]] = [
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt for prompt in prompts
        ]
        made = self.answers(asked, max_tokens, temperature)
        return [self._counted(messages, one) for messages, one in zip(asked, made, strict=True)]

    def _counted(self, messages: Sequence[Message], response: LLMResponse) -> LLMResponse:
        sent = response.sent or sum(guess(text_of(m.get("content"))) for m in messages)
        received = response.received or guess(response.text)
        with self._lock:
            self.usage += Usage(1, sent, received, self.price.of(sent, received))
        return LLMResponse(response.text, sent, received, response.complete)

    def refine_prompt(self, prompt: str | Prompt) -> LLMResponse:
        """Ask for a clearer prompt. Nothing says that it is better: try it (``search``) before it is used."""
        return self.complete(REFINE.format(prompt=str(prompt)))

    def __call__(self, messages: Sequence[Message], /) -> str:
        return self.complete(messages).text


class CallableBackend(LLMBackend):
    """Any ``messages -> str``, counted."""

    def __init__(self, function: Complete, price: Price | None = None) -> None:
        super().__init__(price)
        self.function = function

    def answer(self, messages: Sequence[Message], max_tokens: int, temperature: float | None) -> LLMResponse:  # noqa: ARG002
        text = self.function(messages)
        if not isinstance(text, str):
            raise BackendError(f"The model gave {type(text).__name__}, not text. Return the answer as a str.")
        return LLMResponse(text)


class ScriptedLLM(LLMBackend):
    """Answers by rote, for tests and examples: one text, texts in turn, or what a function makes of the messages."""

    def __init__(
        self, default_response: str | Sequence[str] | Callable[[Sequence[Message]], str] = "OK."
    ) -> None:
        super().__init__()
        if callable(default_response):
            self._say: Callable[[Sequence[Message]], str] = default_response
        else:
            texts = [default_response] if isinstance(default_response, str) else list(default_response)
            turns = itertools.cycle(texts or [""])
            self._say = lambda _: next(turns)

    def answer(self, messages: Sequence[Message], max_tokens: int, temperature: float | None) -> LLMResponse:  # noqa: ARG002
        return LLMResponse(self._say(messages))


MockLLM = ScriptedLLM
"""Its name in RLPrompt."""


class HttpBackend(LLMBackend):
    """A server that is asked over HTTP (``models_api.ModelServer``)."""

    api: ClassVar[Api]

    def __init__(
        self, model: str, url: str, key: str, *, timeout: float = 120.0, price: Price | None = None
    ) -> None:
        super().__init__(price)
        if not model:
            raise UsageError("Name the model to ask.")
        self.server = ModelServer(self.api, url, model, key, timeout)
        self.model, self.url, self.timeout = model, self.server.base, timeout

    def answer(self, messages: Sequence[Message], max_tokens: int, temperature: float | None) -> LLMResponse:
        try:
            answer = self.server.complete(ModelRequest(self.model, messages, max_tokens, temperature))
        except StatusError as error:
            raise BackendError(
                f"{self.model} at {self.url} answers with {error.status}: {error.words}. "
                "Check the key, the model and the address."
            ) from None
        except TransportError as error:
            raise BackendError(
                f"{self.model} at {self.url} cannot be reached: {error.reason}. Is the server running?"
            ) from None
        except BadReply as error:
            raise BackendError(f"{error} Check the address.") from None
        return LLMResponse(answer.text, answer.sent, answer.received, answer.complete)


class OpenAIBackend(HttpBackend):
    """OpenAI's chat completions, or any server that speaks them. ``api_key`` and ``base_url``:
    ``$OPENAI_API_KEY`` and ``$OPENAI_BASE_URL`` where they are not given."""

    api = "openai"

    def __init__(
        self,
        model: str = "gpt-4o-mini",
        api_key: str | None = None,
        base_url: str | None = None,
        *,
        timeout: float = 120.0,
        price: Price | None = None,
    ) -> None:
        key = os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key
        where = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI
        super().__init__(model, where, key, timeout=timeout, price=price)


class LocalLLMBackend(OpenAIBackend):
    """A server on this machine that speaks OpenAI's dialect, without a key: LM Studio, Ollama, vLLM, llama.cpp, Clawback itself."""

    def __init__(
        self,
        model: str = "local-model",
        base_url: str = LM_STUDIO,
        api_key: str = "",
        *,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(model, api_key, base_url, timeout=timeout)


class AnthropicBackend(HttpBackend):
    """Anthropic's messages. ``api_key``: ``$ANTHROPIC_API_KEY`` where none is given."""

    api = "anthropic"

    def __init__(
        self,
        model: str,
        api_key: str | None = None,
        base_url: str = "https://api.anthropic.com",
        *,
        timeout: float = 120.0,
        price: Price | None = None,
    ) -> None:
        key = os.environ.get("ANTHROPIC_API_KEY", "") if api_key is None else api_key
        super().__init__(model, base_url, key, timeout=timeout, price=price)


class VersionBackend(LLMBackend):
    """A version of your own: a policy that ``clawback.load`` gave."""

    together = 16

    def __init__(self, policy: Policy, *, seed: int = 0) -> None:
        super().__init__()
        self.policy = policy
        self._seeds = itertools.count(seed)

    def answer(self, messages: Sequence[Message], max_tokens: int, temperature: float | None) -> LLMResponse:
        return self.answers([messages], max_tokens, temperature)[0]

    def answers(
        self, many: Sequence[Sequence[Message]], max_tokens: int, temperature: float | None
    ) -> list[LLMResponse]:
        own = self.policy.sampling
        sampling = own if temperature is None else replace(own, temperature=temperature)
        made = self.policy.generate(many, sampling=sampling, max_tokens=max_tokens, seed=next(self._seeds))
        return [LLMResponse(one.text, received=len(one.ids), complete=one.finished) for [one] in made]


def as_backend(model: LLMBackend | Complete, price: Price | None = None) -> LLMBackend:
    """A counted backend of anything that can be called with messages; a backend stays itself."""
    if isinstance(model, LLMBackend):
        return model
    if not callable(model):
        raise UsageError(f"A model is something to call with messages, not {type(model).__name__}.")
    return CallableBackend(model, price)
