"""The web page: the files of ``web/``, nothing from elsewhere. It knows only what ``/api`` returns to a holder of the token."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

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


def routes() -> list[Any]:
    from starlette.responses import Response
    from starlette.routing import Route

    async def serve(_: Any, *, file: Path, kind: str) -> Any:
        return Response(file.read_bytes(), media_type=kind)

    return [Route(path, partial(serve, file=file, kind=kind)) for path, (file, kind) in FILES.items()]
