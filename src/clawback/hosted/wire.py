"""HTTP to a hosted trainer, by the standard library: one request, retried until it is answered or its time is up.

Temporary failures are retried: 429 (too many requests, or no capacity), 425 (weights that are still being
loaded), 408 (not done yet), 5xx, and connections that are refused or cut. Every other status counts as an
answer. Redirects are followed for downloads alone, and without the key.
"""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

from clawback.errors import UsageError
from clawback.hosted import protobuf
from clawback.hosted.types import Forgotten, HostedError, Unanswered

AGAIN = {408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
GONE = {404, 410}
"""The model, or what it promised, is not there any more."""
LONGEST_PAUSE = 30.0
LARGEST_REPLY = 1 << 30
REQUEST_SECONDS = 60.0
"""After which a request that nobody answers is sent again. Trainers hold one for less while the work is not done."""
REDIRECTS = 3
PRESENT = 5.0
"""Seconds in which a server that is there has answered."""


@dataclass(frozen=True, slots=True)
class Reply:
    kind: str
    """Content type."""
    body: bytes

    def json(self) -> dict[str, Any]:
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
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{self.url!r} is no address of a server; one is like http://127.0.0.1:8753.")
        self.url = self.url.rstrip("/")

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | bytes,
        *,
        accept: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Raises ``Forgotten`` for what is not there (any more), ``Unanswered`` when time is up, ``HostedError`` for every other refusal."""
        packed = isinstance(body, bytes)
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = protobuf.CONTENT_TYPE if packed else "application/json"
        sent = {"content-type": kind, "accept": accept, **(headers or {})}
        return self._until(lambda: self._once("POST", path, raw, sent))

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        """As ``post``."""
        return self._until(lambda: self._once("GET", path, None, headers or {}))

    def delete(self, path: str) -> Reply:
        """As ``post``."""
        return self._until(lambda: self._once("DELETE", path, None, {}))

    def download(self, url: str) -> bytes:
        """What is at a signed address, which needs no key and gets none. As ``post``."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise HostedError(f"{self.url} sends a download to {url[:80]}.")
        return self._until(lambda: self._once("GET", url, None, {})).body

    def _until(self, ask: Callable[[], Reply]) -> Reply:
        until, tries = time.monotonic() + self.timeout, 0
        while True:
            try:
                return ask()
            except urllib.error.HTTPError as error:
                said = _words(error)
                if error.code in GONE:
                    raise Forgotten(f"{self.url} does not know that: {said or error.code}.") from None
                if error.code not in AGAIN:
                    raise HostedError(
                        f"{self.url} answers with {error.code}: {said or 'no reason'}. {_remedy(error.code, bool(self.key))}",
                        error.code,
                    ) from None
                # 408 says that the work goes on: that is no failure, and the next request waits for it over there.
                wait = 0.0 if error.code == 408 else _asked_to_wait(error)
                why: object = f"{error.code}: {said}" if said else error.code
                patient = error.code == 408
            except (OSError, http.client.HTTPException) as error:
                wait, why, patient = None, getattr(error, "reason", error), False
            tries += 0 if patient else 1
            if wait is None:
                wait = min(LONGEST_PAUSE, self.pause * 2 ** min(tries - 1, 10)) * random.uniform(0.75, 1.25)
            if time.monotonic() + wait > until:
                raise Unanswered(f"{self.url} has not answered for {self.timeout:.0f} seconds ({why}).")
            self.repeated += 0 if patient else 1
            self.sleep(wait)

    def _once(self, method: str, path: str, raw: bytes | None, headers: Mapping[str, str]) -> Reply:
        url = path if "://" in path else self.url + path
        known = {"user-agent": "clawback", **headers}
        if self.key and url.startswith(self.url + "/"):
            known |= {"authorization": f"Bearer {self.key}"} if self.bearer else {"x-api-key": self.key}
        for _ in range(REDIRECTS + 1):
            request = urllib.request.Request(url, raw, dict(known), method=method)  # noqa: S310
            try:
                with _opener(url).open(request, timeout=self.request_seconds) as response:
                    body = response.read(LARGEST_REPLY + 1)
                    said = response.headers.get("content-length", "")
                    if said.isdecimal() and len(body) < min(int(said), LARGEST_REPLY):
                        # Reading a given number of bytes says nothing of those that are missing.
                        raise http.client.IncompleteRead(body, int(said) - len(body))
                    if len(body) > LARGEST_REPLY:
                        raise HostedError(f"{self.url} sends more than {LARGEST_REPLY >> 20} MiB at once.")
                    return Reply(str(response.headers.get("content-type", "")), body)
            except urllib.error.HTTPError as error:
                where = error.headers.get("location")
                if method != "GET" or error.code not in (301, 302, 303, 307, 308) or not where:
                    raise
                url = urljoin(url, where)
                if urlsplit(url).scheme not in ("http", "https"):
                    raise HostedError(f"{self.url} sends a download to {url[:80]}.") from None
                for name in (
                    "x-api-key",
                    "authorization",
                ):  # a storage that nobody named must not get the key
                    known.pop(name, None)
        raise HostedError(f"{self.url} redirects a download in circles.")


def present(url: str, path: str, key: str = "") -> None:
    """Before a run begins: raises ``HostedError`` where nothing answers. Within a run a server that is away is waited for much longer."""
    try:
        Wire(url, key, PRESENT, pause=0.3).get(path)
    except Forgotten:
        return  # it is there, and has no such route
    except Unanswered as error:
        raise Unanswered(f"{error} Nothing was begun. Is it running, and is the address right?") from None


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Through the proxy that the environment names, but never for this very machine."""
    here = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return urllib.request.build_opener(_Stay, urllib.request.ProxyHandler({} if here else None))


def _asked_to_wait(error: urllib.error.HTTPError) -> float | None:
    try:
        return min(max(float(error.headers.get("retry-after", "")), 0.0), LONGEST_PAUSE)
    except ValueError:
        return None


def _words(error: urllib.error.HTTPError) -> str:
    """What an error says, in one line."""
    try:
        raw = error.read(2000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException):
        return ""
    try:
        said = json.loads(raw)
        said = said.get("detail") or said.get("error") or said if isinstance(said, dict) else said
    except ValueError:
        said = raw
    return " ".join(str(said).split())[:300]


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
