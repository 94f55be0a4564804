"""The web page: a handful of files in ``web/``, nothing from elsewhere. It knows no more than ``/api`` tells who has the token."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

WEB = Path(__file__).with_name("web")
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/views.js": ("views.js", "text/javascript; charset=utf-8"),
    "/plot.js": ("plot.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""All that there is: a path from the network is looked up here and goes no further."""


def routes() -> list[Any]:
    from starlette.responses import Response
    from starlette.routing import Route

    async def serve(_: Any, *, name: str, kind: str) -> Any:
        return Response((WEB / name).read_bytes(), media_type=kind)

    return [Route(path, partial(serve, name=name, kind=kind)) for path, (name, kind) in FILES.items()]
