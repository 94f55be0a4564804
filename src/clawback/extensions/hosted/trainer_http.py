"""HTTP to a hosted trainer, by the standard library: one request, retried until it is answered or its time is up.

Temporary failures are retried: 429 (too many requests, or no capacity), 425 (weights that are still being
loaded), 408 (not done yet), 5xx, and connections that are refused or cut. Every other status counts as an
answer. Redirects are followed for downloads alone, and without the key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clawback import http_client
from clawback.errors import UsageError
from clawback.extensions.hosted import protobuf
from clawback.extensions.hosted.trainer_records import Forgotten, HostedError, ServiceUnanswered
from clawback.http_client import (
    REDIRECTS,
    RETRIED,
    BadReply,
    RequestLimits,
    Retry,
    StatusError,
    TransportError,
)
from clawback.records import JsonObject

WORKING = 408
"""The status of a request whose work goes on over there: no failure, and the next request waits for it."""
RETRIED_STATUSES = RETRIED - {409}
GONE = {404, 410}
"""The model, or what it promised, is not there any more."""
LARGEST_REPLY = 1 << 30
REQUEST_SECONDS = 60.0
"""After which a request that nobody answers is sent again. Trainers hold one for less while the work is not done."""
PRESENT = 5.0
"""Seconds in which a server that is there has answered."""


@dataclass(frozen=True, slots=True)
class TrainerReply:
    kind: str
    """Content type."""
    body: bytes

    def json(self) -> JsonObject:
        try:
            found = json.loads(self.body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise HostedError("The trainer answers with what is no JSON object. Is that the right address?")
        return found


@dataclass
class Wire:
    """An address that is asked. ``pause``: seconds before a request is sent a second time, doubled each further time."""

    url: str
    key: str = ""
    timeout: float = 600.0
    """Seconds that one request may take with everything that is tried again."""
    pause: float = 1.0
    sleep: Callable[[float], None] = time.sleep
    request_seconds: float = REQUEST_SECONDS
    bearer: bool = False
    """Send the key as ``Authorization: Bearer``, and not as ``x-api-key``."""
    repeated: int = field(default=0, init=False)
    """Requests that had to be sent again."""

    def __post_init__(self) -> None:
        if not http_client.is_address(self.url):
            raise UsageError(f"{self.url!r} is no address of a server; one is like http://127.0.0.1:8753.")
        self.url = self.url.rstrip("/")

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | bytes,
        *,
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> TrainerReply:
        """Raises ``Forgotten`` for what is not there (any more), ``ServiceUnanswered`` when time is up, ``HostedError`` for every other refusal."""
        packed = isinstance(body, bytes)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = protobuf.CONTENT_TYPE if packed else "application/json"
        sent = {"content-type": kind, "accept": accept, **(headers or {})}
        return self._until(lambda: self._once("POST", path, raw, sent))

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> TrainerReply:
        """As ``post``."""
        return self._until(lambda: self._once("GET", path, None, headers or {}))

    def delete(self, path: str) -> TrainerReply:
        """As ``post``."""
        return self._until(lambda: self._once("DELETE", path, None, {}))

    def download(self, url: str) -> bytes:
        """What is at a signed address, which needs no key and gets none. As ``post``."""
        if not http_client.is_address(url):
            raise HostedError(f"{self.url} sends a download to {url[:80]}.")
        return self._until(lambda: self._once("GET", url, None, {})).body

    def _until(self, send: Callable[[], TrainerReply]) -> TrainerReply:
        until, failures, backoff = time.monotonic() + self.timeout, 0, Retry(pause=self.pause)
        while True:
            try:
                return send()
            except StatusError as error:
                words, wait = error.words, error.retry_after
                if error.status in GONE:
                    raise Forgotten(f"{self.url} does not know that: {words or error.status}.") from None
                if error.status not in RETRIED_STATUSES:
                    raise HostedError(self._refusal(error), error.status) from None
                reason = f"{error.status}: {words}" if words else str(error.status)
                working = error.status == WORKING
            except TransportError as error:
                wait, reason, working = None, error.reason, False
            except BadReply as error:
                raise HostedError(str(error)) from None
            failures += 0 if working else 1
            wait = (
                0.0 if working else backoff.backoff(failures) if wait is None else min(wait, backoff.longest)
            )
            if time.monotonic() + wait > until:
                raise ServiceUnanswered(
                    f"{self.url} has not answered for {self.timeout:.0f} seconds ({reason})."
                )
            self.repeated += 0 if working else 1
            self.sleep(wait)

    def _refusal(self, error: StatusError) -> str:
        if error.status in REDIRECTS:
            return f"{self.url} sends a download to another address ({error.status}), which is not followed."
        return f"{self.url} answers with {error.status}: {error.words or 'no reason'}. {_remedy(error.status, bool(self.key))}"

    def _once(self, method: str, path: str, raw: bytes | None, headers: Mapping[str, str]) -> TrainerReply:
        url = path if "://" in path else self.url + path
        known = dict(headers)
        if self.key and url.startswith(self.url + "/"):
            known |= {"authorization": f"Bearer {self.key}"} if self.bearer else {"x-api-key": self.key}
        reply = http_client.request(
            method,
            url,
            body=raw,
            headers=known,
            limits=RequestLimits(self.request_seconds, largest=LARGEST_REPLY),
            follow=lambda *_: True,
        )
        return TrainerReply(reply.content_type, reply.body)


def present(url: str, path: str, key: str = "") -> None:
    """Before a run begins: raises ``HostedError`` where nothing answers. Within a run a server that is away is waited for much longer."""
    try:
        Wire(url, key, PRESENT, pause=0.3).get(path)
    except Forgotten:
        return  # it is there, and has no such route
    except ServiceUnanswered as error:
        raise ServiceUnanswered(
            f"{error} Nothing was begun. Is it running, and is the address right?"
        ) from None


def _remedy(status: int, keyed: bool) -> str:
    if status in (401, 403):
        return (
            "Put the key into an environment variable and its name into [hosted] key_env."
            if keyed
            else "It asks for a key, and none is sent here: start it without one, on this machine or behind a tunnel."
        )
    if status == 402:
        return "The account over there has to be paid for."
    return "Check the address, and the model's name there."
