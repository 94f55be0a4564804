"""Access control for every request: who may ask, and how much. docs/security.md gives the reasons for each rule.

* **Host** must be an address that we listen on, so that a web page cannot reach us under a name of its own
  (DNS rebinding).
* **Origin**, which browsers send, must be our own page: no other site can make a browser act here.
* **The token** is required for everything under ``/api/`` (it reads turns or changes state) and ``/metrics``;
  and for the model paths too, if we listen on more than loopback. Agents' hooks have a token of their own,
  valid for ``/api/hooks/`` alone. Tokens are not forwarded: the upstream never sees them. Invited people have
  one each, valid under ``/api/`` for what ``roles`` lists.
* **A model server's responses** are never pages: a browser gets them by ``fetch`` alone, and runs nothing in
  them.
* **Limits**: size of the body, and how long it may take to arrive. (Those of the headers are in
  ``protocol``.)
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from clawback.dialects import is_model_path
from clawback.inference import wire
from clawback.redact import redact
from clawback.serve.roles import ROOT, Person
from clawback.store.invitations import ADDRESSED, MARK, TOKEN

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

log = logging.getLogger("clawback.serve")

MOST_BYTES = 32 * 2**20
BODY_SECONDS = 60.0
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_MODEL = [(b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'")]
_PAGE = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """ASGI middleware around the whole app."""

    def __init__(
        self,
        app: Any,
        *,
        token: str,
        hook_token: str,
        host: str,
        names: tuple[str, ...] = (),
        holder: Callable[[str], Person | None] = lambda _: None,
    ) -> None:
        self.app, self.token, self.hook_token = app, token.encode(), hook_token.encode()
        self.holder = holder
        self.open = host in ("127.0.0.1", "localhost", "::1")
        shown = f"[{host}]" if ":" in host else host
        self.hosts = {*(name.lower() for name in names), *LOOPBACK, shown}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            else:
                await wire.lifespan(self.app, scope, receive, send)
            return
        headers, model = wire.headers(scope), is_model_path(scope["path"])
        started = False

        async def marked(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                page = _MODEL if model else _PAGE
                message = {**message, "headers": [*message["headers"], *_ALWAYS, *page]}
            await send(message)

        person = await self._invited(headers) if scope["path"].startswith("/api/") else None
        if refusal := self._refusal(scope, headers, person, model):
            await wire.refuse(marked, scope, *refusal)
            return
        scope = {**scope, "clawback.person": person or ROOT}
        if model:
            vouched = self._known(headers, [self.token])
            scope |= {"headers": self._without_tokens(scope["headers"]), "clawback.vouched": vouched}
        try:
            scope["clawback.body"] = body = await _body(receive)
        except wire.Gone:
            return
        except wire.RequestRefused as error:
            await wire.refuse(marked, scope, error.status, str(error))
            return
        try:
            await self.app(scope, wire.again(body, receive), marked)
        except ConnectionResetError:
            raise
        except Exception as error:
            log.error("%s %s failed: %s", scope["method"], scope["path"], redact(repr(error)))
            if not started:
                await wire.refuse(marked, scope, 500, "Something went wrong; the log says what.")

    async def _invited(self, headers: dict[str, str]) -> Person | None:
        """Whose token it is, where it is one of those that invited people have."""
        for given in tokens_of(headers):
            if found := ADDRESSED.fullmatch(given):
                return await asyncio.to_thread(self.holder, found[2])
        return None

    def _refusal(
        self, scope: Scope, headers: dict[str, str], person: Person | None, model: bool
    ) -> tuple[int, str] | None:
        """The status and the reason, where a request is refused. ``model``: whether a model's server is meant."""
        host = headers.get("host", "")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        if name.lower() not in self.hosts:
            return 421, "This address is not one that Clawback answers under."
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            return 403, "Requests from other sites are refused."
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "Requests from other sites are refused."
        path = scope["path"]
        raw = (scope.get("raw_path") or path.encode()).decode("latin-1")
        if any(part in (".", "..") for part in unquote(unquote(raw)).replace("\\", "/").split("/")):
            return 400, "A path with `..` in it is not passed on."
        if self.token in scope["query_string"] or MARK.encode() in scope["query_string"]:
            return (
                400,
                "The token belongs into a header, not into the address, which is logged and passed on.",
            )
        if model and (headers.get("sec-fetch-dest", "empty") != "empty" or "service-worker" in headers):
            return 403, "What a model's server says is no page, script or picture."
        asked = (path.startswith(("/api/", "/metrics")) and not model) or (model and not self.open)
        if path == "/api/hooks/proof":  # here we prove who we are: hooks show no token before
            asked = False
        tokens = [self.token, self.hook_token] if path.startswith("/api/hooks/") else [self.token]
        if asked and not self._known(headers, tokens) and (person is None or model):
            return 401, "A token is needed: Authorization: Bearer … (the content of $CLAWBACK_HOME/token)."
        return None

    def _known(self, headers: dict[str, str], tokens: list[bytes]) -> bool:
        given = tokens_of(headers)
        return any(hmac.compare_digest(one.encode("utf-8", "replace"), t) for one in given for t in tokens)

    def _without_tokens(self, headers: Any) -> list[tuple[bytes, bytes]]:
        """The headers that hold none of our tokens: what an upstream may see."""
        return [
            (k, v)
            for k, v in headers
            if self.token not in v and self.hook_token not in v and not TOKEN.search(v.decode("latin-1"))
        ]


def tokens_of(headers: dict[str, str]) -> list[str]:
    """What may be a token, wherever clients put one."""
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    given = [headers.get(name, "") for name in ("x-clawback-token", "x-api-key", "x-goog-api-key")]
    return given + ([bearer.strip()] if scheme.lower() == "bearer" else [])


async def _body(receive: Receive) -> bytes:
    """The body, within the limits of size and time. Raises ``RequestRefused`` beyond them."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await wire.body(receive, MOST_BYTES)
    except TimeoutError:
        raise wire.RequestRefused(
            408, f"The request did not arrive within {BODY_SECONDS:g} seconds."
        ) from None
