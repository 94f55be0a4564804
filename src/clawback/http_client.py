"""One HTTP request by the standard library: bounded in time and size, with the two errors that all clients share.

Requests to this machine never go through a proxy; all others use the proxy that the environment names. Redirects are
not followed unless the caller allows it for a GET, and then without the key: a key must not reach an address that
nobody configured.
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
from functools import lru_cache
from typing import Any, BinaryIO
from urllib.parse import urljoin, urlsplit

from clawback.errors import ClawbackError, UsageError

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Statuses after which the same request may succeed."""
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MOST_REDIRECTS = 5
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ERROR_BYTES = 2000
SENTENCE = 300
"""Characters of a server's own words that a message repeats."""
LARGEST = 1 << 30
PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What one request may take."""

    timeout: float = 60.0
    """Seconds for each read from the socket."""
    total: float = float("inf")
    """Seconds for the complete answer: a server that sends a byte a second never meets ``timeout``."""
    largest: int = LARGEST
    """Bytes of the answer."""


LIMITS = RequestLimits()
Follow = Callable[[str, str], bool]
"""(the address that redirects, the new address) → whether to follow."""


class StatusError(ClawbackError):
    """The server answered with an error status."""

    def __init__(self, url: str, status: int, text: str = "", retry_after: float | None = None) -> None:
        self.url, self.status, self.text, self.retry_after = url, status, text, retry_after
        super().__init__(f"{url} answers with {status}: {self.words or 'no reason'}.")

    @property
    def words(self) -> str:
        """The server's own sentence in one line: the message of a JSON error, or the beginning of the text."""
        try:
            found: Any = json.loads(self.text)
        except ValueError:
            found = self.text
        while isinstance(found, Mapping):
            parts = (found.get(name) for name in ("message", "detail", "error"))
            found = next((part for part in parts if part), json.dumps(dict(found)))
        return " ".join(str(found).split())[:SENTENCE]


class TransportError(ClawbackError):
    """No complete answer came: no connection, no answer in time, or a connection that broke off."""

    def __init__(self, url: str, reason: object) -> None:
        self.url, self.reason = url, str(reason) or type(reason).__name__
        super().__init__(f"{url} does not answer: {self.reason}.")


class BadReply(ClawbackError):
    """The server answered with something that is not in the form of its API."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A successful answer."""

    content_type: str
    body: bytes

    def json(self) -> Any:
        """Raises ``ValueError`` for a body that is no JSON."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Retry:
    """Which failed requests are repeated, and after how long: growing pauses with some jitter, or as the server asks."""

    tries: int = 3
    pause: float = 1.0
    """Seconds before the second try, doubled before each further one."""
    longest: float = 30.0
    statuses: frozenset[int] = field(default=RETRIED)

    def seconds(self, attempt: int, error: StatusError | TransportError) -> float | None:
        """Seconds to wait after the failed ``attempt`` (from 1); None where the request is not repeated."""
        if attempt >= self.tries or (isinstance(error, StatusError) and error.status not in self.statuses):
            return None
        wanted = error.retry_after if isinstance(error, StatusError) else None
        return min(wanted, self.longest) if wanted else self.backoff(attempt)

    def backoff(self, attempt: int) -> float:
        """The pause that no server asked for."""
        pause = self.pause * 2 ** min(attempt - 1, 10)
        return float(min(self.longest, pause) * random.uniform(0.75, 1.25))


def request(
    method: str,
    url: str,
    *,
    body: bytes | BinaryIO | None = None,
    headers: Mapping[str, str] | None = None,
    limits: RequestLimits = LIMITS,
    follow: Follow | None = None,
) -> HttpReply:
    """Send one request and read its whole answer.

    Raises ``StatusError``, ``TransportError``, ``BadReply`` for an answer that is too large, ``UsageError`` for an
    address or a header that HTTP does not allow.
    """
    known, until = {"user-agent": "clawback", **(headers or {})}, time.monotonic() + limits.total
    for _ in range(MOST_REDIRECTS + 1):
        try:
            return _exchange(method, url, body, known, limits, until)
        except urllib.error.HTTPError as error:
            target = urljoin(url, error.headers.get("location") or url)
            wanted = method == "GET" and error.code in REDIRECTS and target != url
            if not (wanted and follow is not None and is_address(target) and follow(url, target)):
                raise _status_error(url, error) from None
            url = target
            known = {n: v for n, v in known.items() if n.lower() not in ("authorization", "x-api-key")}
        except urllib.error.URLError as error:
            raise TransportError(url, error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(url, error) from None
    raise BadReply(f"{url} redirects in circles.")


def is_address(url: str) -> bool:
    """Whether this is an HTTP address with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # a port that is no number, half an IPv6 address
        return False


def answers(url: str, timeout: float) -> bool:
    """Whether any server answers at this address, with whatever status."""
    try:
        request("GET", url, limits=RequestLimits(timeout, timeout))
    except StatusError:
        return True
    except ClawbackError:
        return False
    return True


def _exchange(
    method: str,
    url: str,
    body: bytes | BinaryIO | None,
    headers: Mapping[str, str],
    limits: RequestLimits,
    until: float,
) -> HttpReply:
    if not is_address(url):
        raise UsageError(f"{url!r} is no address of a server; one is like http://127.0.0.1:11434.")
    try:
        sent = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310
        response = _opener(url).open(sent, timeout=limits.timeout)
    except (urllib.error.URLError, OSError, http.client.HTTPException):
        raise
    except ValueError:  # its text would repeat the key
        raise UsageError(
            f"{url} cannot be asked: its address or its key has characters that HTTP does not allow."
        ) from None
    with response:
        read = bytearray()
        while piece := response.read1(PIECE):
            read += piece
            if len(read) > limits.largest:
                raise BadReply(f"{url} sends more than {limits.largest} bytes at once.")
            if time.monotonic() > until:
                raise TimeoutError("it sends too slowly")
        length = response.headers.get("content-length", "")
        if method != "HEAD" and length.isdecimal() and len(read) < int(length):
            raise http.client.IncompleteRead(bytes(read), int(length) - len(read))
        return HttpReply(str(response.headers.get("content-type", "")), bytes(read))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _opener(url: str) -> urllib.request.OpenerDirector:
    parts = urlsplit(url)
    proxies = {} if parts.hostname in LOOPBACK else urllib.request.getproxies()
    return _opener_by(tuple(sorted(proxies.items())), parts.scheme == "https")


@lru_cache(maxsize=4)
def _opener_by(proxies: tuple[tuple[str, str], ...], encrypted: bool) -> urllib.request.OpenerDirector:
    """Kept, since all certificates are read for each context: 20 to 70 ms of CPU."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), urllib.request.ProxyHandler(dict(proxies))]
    if encrypted or proxies:
        import ssl  # a hook that speaks to this machine does not need it

        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    return urllib.request.build_opener(*handlers)


def _status_error(url: str, error: urllib.error.HTTPError) -> StatusError:
    with error:
        try:
            text = error.read(ERROR_BYTES).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            text = ""
    try:
        retry_after = max(float(error.headers.get("retry-after", "")), 0.0)
    except ValueError:
        retry_after = None
    return StatusError(url, error.code, text, retry_after)
