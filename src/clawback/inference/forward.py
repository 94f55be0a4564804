"""The recording proxy in front of an upstream: bytes pass unchanged and are recorded. Only a live prompt changes a request (``prompting``).

Nothing is parsed before a byte is passed on. Only the end is held back: the last event of a stream, or a
whole JSON answer, is passed on when its turn is on the disk (see ``recorder``).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clawback.dialects import DialectReading, of
from clawback.dialects.parsing import is_events
from clawback.inference import wire
from clawback.inference.prompting import PromptChooser, Prompted
from clawback.inference.recorder import ProxyExchange, Recorder
from clawback.redact import redact

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger("clawback.serve")

_NOT_PASSED = {
    b"host", b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    b"content-length", b"accept-encoding", b"x-turn-type", b"x-session-done", b"x-clawback-token", b"expect",
}  # fmt: skip
_NOT_RETURNED = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "trailer",
    "upgrade",
    "content-length",
    "date",
    "server",
    # What a browser would obey, on the origin of our page.
    "content-security-policy",
    "x-content-type-options",
    "x-frame-options",
    "service-worker-allowed",
    "refresh",
    "link",
    "clear-site-data",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "cross-origin-resource-policy",
}
_KINDS = re.compile(
    r"(?:application/(?:json|x-ndjson|jsonl|octet-stream|stream\+json|[\w.-]{1,80}\+json)|text/(?:event-stream|plain)|audio/[\w.+-]{1,80}"
    r"|image/(?:png|jpeg|webp))\s*(?:;.*)?",
    re.IGNORECASE | re.DOTALL,
)
"""What an API answers with. Anything else (an HTML page of an error, say) passes as text that no browser shows as a page."""
_LAST = re.compile(
    rb"(?:\A|\n)(?:data: ?\[DONE\]|(?:event: ?|data: ?\{\"type\": ?\")(?:message_stop|response\.(?:completed|incomplete|failed)))"
    # Ollama: a line a piece, the last one says so.
    rb"|\"done\": ?true[,}]"
)
"""Where the last event of a stream begins, by dialect. At the start of a line, where no text of a model can stand."""
_OVERLAP = 64
"""Bytes that are looked at again, for what was cut in two."""
MOST_READ = 64 * 2**20
"""Bytes of a response that are read along; a longer one passes, and is not recorded."""
CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Request:
    """A request of an agent under way. ``dialect``: None where nothing of it is read; ``sent``: what the upstream is asked in its place."""

    scope: Scope
    headers: Mapping[str, str]
    dialect: DialectReading | None
    body: bytes
    sent: Prompted


class Forward:
    """An ASGI app behind the guard, which has read the body. It sends requests to ``upstream``: ``http://127.0.0.1:11434``, with or without ``/v1``, or with the path of the
    provider's API, such as ``https://api.z.ai/api/paas/v4`` (``place``)."""

    def __init__(self, upstream: str, recorder: Recorder, prompts: PromptChooser) -> None:
        self.upstream = upstream.rstrip("/")
        self.recorder, self.prompts = recorder, prompts
        self.client: Any = None

    async def start(self) -> None:
        import aiohttp

        self.prompts.start()
        limits = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
        patience = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=600)
        self.client = aiohttp.ClientSession(
            connector=limits, timeout=patience, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def close(self) -> None:
        if self.client:
            await self.client.close()
        self.prompts.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        import aiohttp

        dialect = of(scope["path"]) if scope["method"] == "POST" else None
        body, headers = scope["clawback.body"], wire.headers(scope)
        gone = asyncio.ensure_future(wire.gone(receive))

        async def passing() -> None:
            sent = await self.prompts(dialect, body, headers) if dialect else Prompted(body)
            # Asked and read by one task: by the time that a second one is awake, an upstream that breaks off has, and what it had said is lost.
            async with await self._ask(scope, sent) as answer:
                # An upstream that falls silent must not hold back what was heard, nor work on for nobody.
                gone.add_done_callback(lambda _: answer.close())
                await self._pass_on(_Request(scope, headers, dialect, body, sent), gone, send, answer)

        working = asyncio.ensure_future(passing())
        try:
            await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and not scope.get("clawback.started"):
                return
            await working
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if gone.done():
                return
            if scope.get("clawback.started"):
                log.warning("the upstream broke off: %s", redact(str(error)))
                if "clawback.break" not in scope:
                    raise ConnectionResetError("the upstream broke off") from error
                scope["clawback.break"]()
                await gone
                return
            log.warning("the upstream did not answer: %s", redact(str(error)))
            why = f"The upstream {_shown(self.upstream)} did not answer ({type(error).__name__}). Is it running?"
            await wire.refuse(send, scope, 502, why)
        finally:
            gone.cancel()
            working.cancel()  # where nobody waits for it any more: that closes the connection

    async def _ask(self, scope: Scope, sent: Prompted) -> Any:
        """The upstream's answer, of which the head has come."""
        return await self.client.request(
            scope["method"],
            self._address(scope),
            data=sent.body or None,
            headers=self._headers(scope, sent),
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
        )

    def _address(self, scope: Scope) -> object:
        from yarl import URL

        path = scope.get("raw_path") or scope["path"].encode()
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        asked = path.split(b"?")[0].decode("latin-1")
        return URL(upstream_url(self.upstream, asked) + query.decode("latin-1"), encoded=True)

    def _headers(self, scope: Scope, sent: Prompted) -> list[tuple[str, str]]:
        kept = [
            (k.decode("latin-1"), v.decode("latin-1"))
            for k, v in scope["headers"]
            if k not in _NOT_PASSED and not (sent.changed and k == b"content-encoding")
        ]
        return [*kept, ("accept-encoding", "identity")]

    async def _pass_on(
        self,
        request: _Request,
        gone: asyncio.Future[None],
        send: Send,
        answer: Any,
    ) -> None:
        kind = answer.headers.get("content-type", "")
        packed = answer.headers.get("content-encoding", "").strip().lower()
        stream = not packed and ("event-stream" in kind or "ndjson" in kind)
        reads = request.dialect is not None and 200 <= answer.status < 300
        headers = [
            (k.lower().encode("latin-1"), v.encode("latin-1", "replace"))
            for k, v in answer.headers.items()
            if k.lower() not in (*_NOT_RETURNED, "content-type")
        ]
        content_type = _harmless(kind).encode("latin-1", "replace")
        headers += [*request.sent.marks, (b"content-type", content_type)]
        length = answer.headers.get("content-length")
        if length is not None:
            headers.append((b"content-length", length.encode()))
        heard, recorded, last = bytearray(), False, -1
        try:
            request.scope["clawback.started"] = True
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            async for chunk in answer.content.iter_any():
                if gone.done():
                    break
                if reads and not recorded:
                    heard += chunk
                    if len(heard) > MOST_READ:
                        reads = False
                        heard.clear()
                        log.warning("a response is too large to be recorded")
                    stream = stream or (not packed and is_events(bytes(heard[:64])))
                    if reads and stream and last < 0:
                        found = _LAST.search(heard, max(0, len(heard) - len(chunk) - _OVERLAP))
                        last = found.end() if found else -1
                    whole = last >= 0 and _ended(heard, max(last, len(heard) - len(chunk) - 4), kind)
                    if reads and (whole or (length is not None and len(heard) >= int(length))):
                        recorded = True
                        await self._record(request, answer, bytes(heard))
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if reads and not recorded and heard:
                recorded = True
                left = gone.done()
                await self._record(request, answer, bytes(heard), left)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if reads and not recorded and heard:  # broke off: what was heard is kept
                left = gone.done()
                await asyncio.shield(self._record(request, answer, bytes(heard), left))

    async def _record(
        self,
        request: _Request,
        answer: Any,
        raw: bytes,
        left: bool = False,
    ) -> None:
        """What the agent asked, without the learned prompt, and which version's prompt it was answered under."""
        assert request.dialect
        await self.recorder.record(
            ProxyExchange(
                request.dialect,
                request.body,
                request.headers,
                raw,
                answer.headers.get("content-encoding", "").strip().lower(),
                answer.charset or "",
                left,
                session=request.sent.session,
                vouched=bool(request.scope.get("clawback.vouched")),
                version=request.sent.version,
            )
        )


_VERSION = re.compile(r"v\d+(?:(?:alpha|beta)\d*)?")


def upstream_url(upstream: str, path: str) -> str:
    """The address of a client's path at an upstream.

    A base address that names a version, wherever in its path, stands for ``/v1``, as OpenAI's own clients have it
    (``…/api/paas/v4``, ``…/v1beta/openai``). Anthropic's clients always add ``/v1/messages``, except after a version.

    >>> upstream_url("https://api.z.ai/api/paas/v4", "/v1/chat/completions")
    'https://api.z.ai/api/paas/v4/chat/completions'
    >>> upstream_url("http://127.0.0.1:11434/v1", "/api/chat")
    'http://127.0.0.1:11434/api/chat'
    """
    segments = urlsplit(upstream).path.strip("/").split("/")
    versions = [segment for segment in segments if _VERSION.fullmatch(segment)]
    last = segments[-1] if _VERSION.fullmatch(segments[-1]) else ""
    first, _, rest = path.lstrip("/").partition("/")
    if last == first:
        return f"{upstream}/{rest}"
    if first == "v1" and (last or (versions and not rest.startswith("messages"))):
        return f"{upstream}/{rest}"
    if last == "v1":  # the provider's other paths stand beside it
        return upstream.removesuffix("/v1") + path
    return upstream + path


def _harmless(kind: str) -> str:
    if _KINDS.fullmatch(kind):
        return kind
    return "text/plain; charset=utf-8" if kind.startswith("text/") else "application/octet-stream"


def _ended(buffer: bytearray, since: int, kind: str) -> bool:
    """Whether the last event is whole: an empty line ends it, or, where a line is an event, the line's end."""
    if "ndjson" in kind:
        return buffer.find(b"\n", since) >= 0
    return buffer.find(b"\n\n", since) >= 0 or buffer.find(b"\r\n\r\n", since) >= 0


def _shown(address: str) -> str:
    """Without a name or password that may stand in it."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
