"""The ASGI app: maps paths to handlers. The web page is the files of ``web/``, nothing from elsewhere; it knows only what ``/api`` tells a holder of the token."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config, plugins, store
from clawback.dialects import OLLAMA
from clawback.errors import ClawbackError
from clawback.inference import wire
from clawback.inference.answers_api import AnswersAPI
from clawback.inference.server import Server
from clawback.paths import Home, secret
from clawback.serve import api, guard, hooks, prompts_api, rater_api, roles, rules_api, setup_api
from clawback.serve.endpoints import no_route

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

WEB = Path(__file__).with_name("web")
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
}
FILES = {
    "/" if file.name == "index.html" else f"/{file.relative_to(WEB).as_posix()}": (file, KINDS[file.suffix])
    for file in sorted(WEB.rglob("*.*"))
    if file.suffix in KINDS
}
"""All that there is: a path from the network is looked up here and goes no further."""


def page_routes() -> list[Any]:
    from starlette.responses import Response
    from starlette.routing import Route

    async def serve(_: Any, *, file: Path, kind: str) -> object:
        return Response(file.read_bytes(), media_type=kind)

    return [Route(path, partial(serve, file=file, kind=kind)) for path, (file, kind) in FILES.items()]


def make(home: Home, settings: config.ServeSection | None = None) -> Any:
    """The whole app, guarded. ``settings`` in place of the file's."""
    return around(Server(home, settings))


def around(server: Server) -> Any:
    """The app of a server; whoever mounts it within another keeps ``server.running``."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    home = server.home
    models = server.forward or AnswersAPI(server)
    app = Starlette(
        routes=[
            Route("/healthz", Asgi(health), methods=["GET", "HEAD"]),
            Route("/api/hello", Asgi(greet), methods=["HEAD", "GET"]),
            *(Route(path, models) for path in OLLAMA),
            Mount("/api", routes=roles.admitted(api_routes(server))),
            Route("/metrics", api.metrics(server)),
            Route("/v1/{rest:path}", models),
            Route("/v1beta/{rest:path}", models),
            *page_routes(),
        ],
        lifespan=server.running,
        exception_handlers={404: no_route, 405: no_route},
    )
    return guard.Guard(
        app,
        token=secret(home.root / "token"),
        hook_token=secret(home.root / "hook-token"),
        host=server.serve.host,
        names=server.serve.names,
        holder=lambda token: holder(home, token),
    )


def api_routes(server: Server) -> list[Any]:
    """The routes under ``/api``: roles and the description of the API go by them."""
    return [
        *api.routes(server),
        *prompts_api.routes(server),
        *rules_api.routes(server),
        *rater_api.routes(server),
        *setup_api.routes(server),
        *hooks.routes(server),
        *(
            route
            for name in plugins.names(plugins.ROUTES)
            for route in plugins.load(plugins.ROUTES, name)(server)
        ),
    ]


def holder(home: Home, token: str) -> roles.Person | None:
    """The owner of a token. Where the store cannot be read nobody is admitted."""
    try:
        with store.connect(home.database) as db:
            found = db.holder(token)
    except ClawbackError:
        return None
    return roles.Person(found.role, found.name) if found else None


async def health(_: Any, receive: Receive, send: Send) -> None:  # noqa: ARG001
    await wire.respond(send, 200, b'{"status": "ok"}')


async def greet(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    """Agents probe the server before they use it (``HEAD /``, ``HEAD /api/hello``)."""
    await wire.respond(send, 200, b"")


class Asgi:
    """An ASGI function that starlette takes for an app (it takes functions for something else)."""

    def __init__(self, function: Any) -> None:
        self.function = function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.function(scope, receive, send)
