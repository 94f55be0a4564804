"""Turns a plain function into an endpoint: it runs on a thread, its data becomes JSON, its errors a sentence with the right status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from clawback.errors import Busy, ClawbackError, NotFound, UsageError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from clawback.inference.server import Server


def decoded(raw: bytes, shape: object) -> Any:
    try:
        return msgspec.json.decode(raw or b"{}", type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"The request body is not valid: {error}.") from None


def endpoint(server: Server, handler: Callable[[Server, Request], Any]) -> Any:
    async def handle(request: Request) -> object:
        from starlette.concurrency import run_in_threadpool

        return await answered(lambda r: run_in_threadpool(handler, server, r), request)

    return handle


def writing(server: Server, shape: object, handler: Callable[..., Any]) -> Any:
    async def handle(request: Request) -> object:
        from starlette.concurrency import run_in_threadpool

        async def result(request: Request) -> Any:
            raw = await request.body()
            body = decoded(raw, shape) if shape else None
            return await run_in_threadpool(handler, server, request, body)

        return await answered(result, request)

    handle.body_shape = shape  # type: ignore[attr-defined]  # for the description of the API
    return handle


async def answered(handler: Callable[[Request], Any], request: Request) -> Any:
    """The handler's data as JSON, or its error as a sentence with the status that fits."""
    from starlette.responses import Response

    try:
        code, data = 200, await handler(request)
    except NotFound as error:
        code, data = 404, {"error": str(error)}
    except UsageError as error:
        code, data = 400, {"error": str(error)}
    except Busy as error:
        code, data = 409, {"error": str(error)}
    except ClawbackError as error:
        code, data = 503, {"error": str(error)}
    return Response(json.dumps(data, ensure_ascii=False, default=str), code, media_type="application/json")


async def no_route(request: Request, error: Exception) -> Response:
    """The answer where no route has the path, or none the method: under ``/api`` JSON with a sentence, as for every other error."""
    from starlette import responses
    from starlette.exceptions import HTTPException

    assert isinstance(error, HTTPException)
    path, code = request.url.path, error.status_code
    if not path.startswith("/api/"):
        return responses.PlainTextResponse(error.detail, code, headers=error.headers)
    text = f"There is nothing at {path}." if code == 404 else f"{path} does not take {request.method}."
    return responses.Response(json.dumps({"error": text}), code, error.headers, media_type="application/json")
