"""A judge model on the network, in OpenAI's or Anthropic's dialect, by the standard library alone.

Every call counts against one ``Budget`` (calls, seconds, tokens), is bounded in time and size, and is
repeated with growing pauses where repeating can help. Redirects are not followed: the key must not go to an
address that nobody configured.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from clawback.endings import ending_of
from clawback.errors import JudgeError
from clawback.records import CUT, text_of

TRIES = 3
LONGEST_PAUSE = 30.0
LARGEST_ANSWER = 4_000_000
"""Bytes that are read of a reply; an honest one has some thousands."""
AGAIN = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""Statuses after which the same request may succeed."""
SETUP = {401, 403, 404, 405}
"""Statuses that every further call would meet, too."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a judge model wrote. ``tokens``: sent and received, as its server counts them or, where it does not, guessed."""

    text: str
    tokens: int
    whole: bool = True
    """False where it was cut off at its limit."""


Ask = Callable[[str, str], Answer]
"""(system, user) → the answer. Raises ``NoAnswer``, ``Spent``, ``JudgeError``."""


class NoAnswer(JudgeError):
    """One call returned nothing that can be parsed; another may."""


def unreadable(answer: Answer) -> NoAnswer:
    """The error for an answer without a verdict."""
    if not answer.whole:
        return NoAnswer("the judge's answer was cut off before its verdict (raise [judge] answer_tokens)")
    return NoAnswer("the judge's answer holds no verdict (a larger model may keep to the form)")


class Spent(JudgeError):
    """The pass has used up its calls, its time or its tokens, or was told to stop."""


class Budget:
    """What one pass may use, shared by its threads."""

    def __init__(self, calls: int, seconds: float, tokens: int) -> None:
        self.most_calls, self.most_tokens = calls, tokens
        self.until = time.monotonic() + seconds
        self.calls = self.tokens = 0
        self.stopped = threading.Event()
        self._held = 0  # tokens that calls under way may still use
        self._lock = threading.Lock()

    def take(self, tokens: int) -> None:
        """Reserve ``tokens`` before a call. Raises ``Spent`` if that could exceed the budget."""
        with self._lock:
            if self.stopped.is_set():
                raise Spent("the pass was stopped")
            if self.calls >= self.most_calls:
                raise Spent(f"all of the {self.most_calls} calls of this pass are used (`max_calls`)")
            if time.monotonic() >= self.until:
                raise Spent("the time of this pass is over (`max_seconds`)")
            if self.tokens + self._held + tokens > self.most_tokens:
                raise Spent(f"the {self.most_tokens} tokens of this pass are used (`max_tokens`)")
            self.calls += 1
            self._held += tokens

    def settle(self, held: int, used: int) -> None:
        """Replace a call's reservation by what it really used."""
        with self._lock:
            self._held -= held
            self.tokens += used

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the pass. Raises ``Spent`` when it is stopped meanwhile."""
        left = self.until - time.monotonic()
        if self.stopped.wait(max(0.0, min(seconds, left))):
            raise Spent("the pass was stopped")


@dataclass(frozen=True)
class Endpoint:
    """A server that answers as a judge; calling it asks. ``pause``: seconds before the second try, doubled for the third."""

    api: Literal["openai", "anthropic"]
    url: str
    model: str
    key: str
    budget: Budget
    timeout: float = 60.0
    answer_tokens: int = 512
    pause: float = 1.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:  # a port that is no number, half an IPv6 address
            usable = False
        if not usable:
            raise JudgeError(
                f"[judge] url = {self.url!r} is not like http://127.0.0.1:11434. Correct it in config.toml."
            )
        if not self.model:
            raise JudgeError("[judge] model is not set: name the model that the server is to judge with.")

    def __call__(self, system: str, user: str) -> Answer:
        limit = "max_tokens"
        for attempt in range(1, TRIES + 1):
            held = guess(system + user) + self.answer_tokens
            self.budget.take(held)
            used = 0
            try:
                reply = self._post(self._body(system, user, limit))
                answer = self._read(reply, system + user)
                used = answer.tokens
                return answer
            except urllib.error.HTTPError as error:
                said = words(error)
                if error.code == 400 and "max_completion_tokens" in said and limit == "max_tokens":
                    limit, wait = (
                        "max_completion_tokens",
                        0.0,
                    )  # newer OpenAI models know it by that name alone
                elif error.code in AGAIN and attempt < TRIES:
                    wait = asked_to_wait(error) or self._backoff(attempt)
                elif error.code in SETUP or 300 <= error.code < 400:
                    raise JudgeError(
                        f"The judge at {self.url} answers with {error.code}: {said}. {_remedy(error.code)}"
                    ) from None
                else:
                    raise NoAnswer(f"the judge answers with {error.code}: {said}") from None
            except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
                if attempt == TRIES:
                    raise NoAnswer(f"the judge at {self.url} cannot be reached: {error}") from None
                wait = self._backoff(attempt)
            except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                raise NoAnswer("the judge's reply does not have the form of its API") from None
            finally:
                self.budget.settle(held, used)
            self.budget.pause(wait)
        raise NoAnswer("the judge refuses every form of the request")

    def _backoff(self, attempt: int) -> float:
        return float(self.pause * 2 ** (attempt - 1) * random.uniform(0.75, 1.25))

    def _body(self, system: str, user: str, limit: str) -> dict[str, Any]:
        said = {"role": "user", "content": user}
        if self.api == "anthropic":
            return {
                "model": self.model,
                "max_tokens": self.answer_tokens,
                "system": system,
                "messages": [said],
            }
        # No temperature: some models take none but their own, and what servers do without one suits votes.
        return {
            "model": self.model,
            limit: self.answer_tokens,
            "messages": [{"role": "system", "content": system}, said],
        }

    def _post(self, body: Mapping[str, Any]) -> Any:
        base = self.url.rstrip("/").removesuffix("/v1")
        # Where the judge is asked through Clawback's own server, what is said to it is nobody's conversation.
        headers = {"content-type": "application/json", "user-agent": "clawback", "x-turn-type": "side"}
        if self.api == "anthropic":
            path = "/v1/messages"
            headers["anthropic-version"] = "2023-06-01"
            headers |= {"x-api-key": self.key} if self.key else {}
        else:
            path = "/v1/chat/completions"
            headers |= {"authorization": f"Bearer {self.key}"} if self.key else {}
        return send(base + path, headers, body, self.timeout)

    def _read(self, reply: Any, asked: str) -> Answer:
        usage = reply.get("usage") or {}
        if self.api == "anthropic":
            text = "".join(b["text"] for b in reply["content"] if b.get("type") == "text")
            counted = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
            whole = ending_of(reply.get("stop_reason")) not in CUT
        else:
            choice = reply["choices"][0]
            content, counted = choice["message"].get("content"), usage.get("total_tokens", 0)
            text = text_of(content)
            if content and not text:
                raise ValueError("not a text")
            whole = ending_of(choice.get("finish_reason")) not in CUT
        if not isinstance(counted, int):
            raise ValueError("not a count")
        return Answer(text, counted if counted > 0 else guess(asked + text), whole)


def send(url: str, headers: Mapping[str, str], body: Mapping[str, Any], timeout: float) -> Any:
    """Post JSON and read JSON, bounded in time and size. Raises what ``urllib`` raises, and ``ValueError`` for what is no JSON."""
    request = urllib.request.Request(  # noqa: S310  (callers have checked the scheme)
        url, json.dumps(body).encode(), dict(headers), method="POST"
    )
    until = time.monotonic() + timeout
    with _opener(url).open(request, timeout=timeout) as response:
        read = b""
        # The socket's own limit is per piece: a server that sends a byte a second would never meet it.
        while piece := response.read1(65536):
            read += piece
            if len(read) > LARGEST_ANSWER:
                raise ValueError("the reply is larger than any honest one")
            if time.monotonic() > until:
                raise TimeoutError("it sends too slowly")
    return json.loads(read)


def guess(text: str) -> int:
    """Tokens of a text, on the high side (large models take half as many): a cap that is guessed too low is none."""
    return len(text.encode()) // 2 + 16


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Through the proxy that the environment names, but never for this very machine."""
    here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    proxies = urllib.request.ProxyHandler({} if here else None)
    return urllib.request.build_opener(_Stay, proxies)


def asked_to_wait(error: urllib.error.HTTPError) -> float:
    try:
        return min(max(float(error.headers.get("retry-after", "")), 0.0), LONGEST_PAUSE)
    except ValueError:
        return 0.0


def words(error: urllib.error.HTTPError) -> str:
    """The beginning of what an error says, in one line."""
    try:
        return " ".join(error.read(2000).decode("utf-8", "replace").split())[:300]
    except (OSError, http.client.HTTPException):
        return ""


def _remedy(status: int) -> str:
    if status in (401, 403):
        return "Put the key into an environment variable and its name into [judge] key_env."
    return "Check [judge] url, api and model."
