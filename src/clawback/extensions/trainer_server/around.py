"""Middleware of the stand-in: the API key, signatures for downloads, and deliberate failures."""

from __future__ import annotations

import hmac
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

API = "/api/v1"


@dataclass(frozen=True)
class Faults:
    """A share of all answers that fails: 429, 500, a cut connection, 425. Half of them after the work was done."""

    share: float = 0.0
    seed: int = 0


def signature(key: str, path: str) -> str:
    return hmac.new(key.encode(), path.encode(), "sha256").hexdigest()


class Keyed:
    """Nothing but health without the key, or a signature for that very path."""

    def __init__(self, app: Any, key: str) -> None:
        self.app, self.named, self.key = app, key, key.removeprefix("tml-").encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != f"{API}/healthz":
            headers = dict(scope["headers"])
            said = headers.get(b"x-api-key") or headers.get(b"authorization", b"").removeprefix(b"Bearer ")
            signed = f"signature={signature(self.named, scope['path'])}".encode()
            if not (
                hmac.compare_digest(said.removeprefix(b"tml-"), self.key)
                or hmac.compare_digest(scope["query_string"], signed)
            ):
                from starlette.responses import JSONResponse

                await JSONResponse({"detail": "The key is missing or wrong"}, 401)(scope, receive, send)
                return
        await self.app(scope, receive, send)


class Failing:
    """Some answers fail: one in four of them each way, half of them once the work was asked for."""

    def __init__(self, app: Any, faults: Faults) -> None:
        self.app, self.share, self.random = app, faults.share, random.Random(faults.seed)
        self.failed = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self.random.random() >= self.share:
            await self.app(scope, receive, send)
            return
        self.failed += 1
        how, after = self.random.choice((429, 500, 425, "cut")), self.random.random() < 0.5
        if after:  # it is done, and nobody hears of it

            async def unheard(_: Any) -> None:
                pass

            await self.app(scope, receive, unheard)
        if how == "cut":
            await send(
                {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"999")]}
            )
            await send({"type": "http.response.body", "body": b"{", "more_body": True})
            raise ConnectionAbortedError("cut on purpose")
        from starlette.responses import JSONResponse

        response = JSONResponse({"detail": "failed on purpose"}, int(how))
        response.headers["retry-after"] = "0"
        await response(scope, receive, send)
