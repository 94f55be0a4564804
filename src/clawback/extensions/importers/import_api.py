"""``/api/imports``, ``/api/export``: files in and out by the page, with the importers and layouts of the commands.

A file arrives in parts, each far below the limit of a request's body. ``table`` says what was understood of it and stores nothing; ``store`` stores it
and deletes the uploaded copy.
"""

from __future__ import annotations

import re
import secrets
import shutil
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from clawback import store
from clawback.errors import NotFound, UsageError
from clawback.extensions.importers import containers, export
from clawback.extensions.importers.import_plan import ImportPlan
from clawback.extensions.importers.importing import Options, sources_of
from clawback.privacy import age
from clawback.serve.endpoints import answered, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from clawback.inference.server import Server

PART_BYTES = 8 << 20
"""Largest part of a file in one request."""
MOST_BYTES = 4 << 30
"""Largest file; a larger one is for the command."""
MOST_PROBLEMS = 20
KEPT_SECONDS = 86_400.0
"""Uploads that nobody has stored are deleted after this time."""
_ID = re.compile(r"[0-9a-f]{16}")
_COMMAND = "`clawback import PATH` in a terminal reads it"


class NewImport(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/imports``: a file that is to be uploaded."""

    name: str
    size: Annotated[int, msgspec.Meta(ge=0)] = 0


class ImportOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/imports/ID/table`` and ``…/store``: the options of ``clawback import``."""

    scale: str = ""
    """``1-5``, where the scores do not say it themselves."""
    person: str = ""
    """Whose opinions these are where a line names nobody; empty: yours."""
    mine: bool = False
    """Opinions in a set that strangers made count as yours."""
    liked: bool = False
    """Answers of which the file says nothing count as liked."""


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    return [
        Route("/imports", writing(server, NewImport, begin), methods=["POST"]),
        Route("/imports/{upload}/parts", _appending(server), methods=["POST"]),
        Route("/imports/{upload}/table", writing(server, ImportOptions, table), methods=["POST"]),
        Route("/imports/{upload}/store", writing(server, ImportOptions, store_upload), methods=["POST"]),
        Route("/imports/{upload}/discard", writing(server, None, discard), methods=["POST"]),
        Route("/export", _exporting(server), methods=["GET"]),
    ]


# --------------------------------------------------------------------------------------------------------- import


def begin(server: Server, request: Request, body: NewImport) -> Any:  # noqa: ARG001
    """A place for a file that is to be uploaded."""
    if body.size > MOST_BYTES:
        raise UsageError(f"{body.name} is larger than {MOST_BYTES >> 30} GB: {_COMMAND}.")
    uploads = _uploads(server)
    uploads.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in uploads.iterdir():
        if time.time() - old.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    if shutil.disk_usage(uploads).free - body.size < containers.ROOM:
        raise UsageError(f"There is not enough room on the disk for {body.name}.")
    upload = secrets.token_hex(8)
    folder = uploads / upload
    folder.mkdir(mode=0o700)
    name = re.sub(r"[\x00-\x1f\x7f]", "", body.name.replace("\\", "/").rpartition("/")[2])[
        -60:
    ]  # a name has at most 255 bytes
    (folder / (name.lstrip(".") or "file")).touch(mode=0o600)
    return {"id": upload, "part_bytes": PART_BYTES}


def append(server: Server, request: Request, part: bytes) -> Any:
    """Append a part; ``offset`` is where it begins, so that a part that is sent again is stored once."""
    file = _file(server, request)
    offset = request.query_params.get("offset", "")
    size = file.stat().st_size
    if not (offset.isascii() and offset.isdigit() and len(offset) < 12 and int(offset) <= size):
        raise UsageError(f"A part begins at its offset, here at most {size}.")
    if int(offset) + len(part) > MOST_BYTES:
        raise UsageError(f"The file is larger than {MOST_BYTES >> 30} GB: {_COMMAND}.")
    with file.open("r+b") as target:
        target.seek(int(offset))
        target.write(part)
        target.truncate()
    return {"size": file.stat().st_size}


def table(server: Server, request: Request, body: ImportOptions) -> Any:
    """What the file holds, in the words of the command's table; nothing is stored."""
    with _plan(server, request, body) as plan:
        files = plan.understand()
        problems = [p for one in files for p in one.problems]
        return {
            "files": [one.to_dict() | {"lines": one.lines()} for one in files],
            "passed_over": plan.opened.passed_over,
            "problems": problems[:MOST_PROBLEMS],
            "more_problems": max(len(problems) - MOST_PROBLEMS, 0),
            "unknown": plan.unknown(files),
        }


def store_upload(server: Server, request: Request, body: ImportOptions) -> Any:
    """Store what the table showed, once: an import of the same file again adds nothing."""
    with _plan(server, request, body) as plan:
        with store.connect(server.home.database) as db:
            report, files = plan.store(db)
        problems = plan.problems(report, files)
        answer = {
            "turns": report.turns,
            "feedback": report.feedback,
            "known": report.known,
            "problems": problems[:MOST_PROBLEMS],
            "more_problems": max(len(problems) - MOST_PROBLEMS, 0),
        }
    discard(server, request, None)
    answer["training_started"] = server.settings.training.background and server.maybe_train()
    return answer


def discard(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    shutil.rmtree(_file(server, request).parent, ignore_errors=True)
    return {"discarded": True}


def _uploads(server: Server) -> Path:
    return server.home.root / "tmp" / "uploads"


def _file(server: Server, request: Request) -> Path:
    """The uploaded file. Raises ``NotFound``."""
    upload = str(request.path_params["upload"])
    folder = _uploads(server) / upload
    file = next(folder.iterdir(), None) if _ID.fullmatch(upload) and folder.is_dir() else None
    if file is None:
        raise NotFound("There is no such upload; one that was not stored is deleted after a day.")
    return file


@contextmanager
def _plan(server: Server, request: Request, body: ImportOptions) -> Iterator[ImportPlan]:
    """The plan for an upload; what was unpacked for it is deleted afterwards."""
    file = _file(server, request)
    if age.is_age(file):
        raise UsageError(f"{file.name} is encrypted: {_COMMAND}.")
    options = Options(
        scale=body.scale or "auto",
        person=body.person,
        mine=body.mine,
        liked=body.liked,
        required=server.settings.privacy.require_consent,
    )
    workspace = containers.workspace_in(server.home.root / "tmp")
    try:
        yield ImportPlan(sources_of([file], workspace), options)
    finally:
        containers.remove(workspace)


def _appending(server: Server) -> Any:
    async def handle(request: Request) -> object:
        from starlette.concurrency import run_in_threadpool

        async def stored(request: Request) -> Any:
            return await run_in_threadpool(append, server, request, await request.body())

        return await answered(stored, request)

    return handle


# --------------------------------------------------------------------------------------------------------- export


def _exporting(server: Server) -> Any:
    async def handle(request: Request) -> object:
        from starlette.background import BackgroundTask
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import FileResponse

        written: list[Path] = []

        async def file_written(request: Request) -> object:
            written.append(await run_in_threadpool(write_export, server, request))
            return {}

        refusal = await answered(file_written, request)
        if not written:
            return refusal
        return FileResponse(
            written[0],
            media_type="application/jsonl",
            filename=f"clawback-{written[0].name}",
            background=BackgroundTask(shutil.rmtree, written[0].parent, ignore_errors=True),
        )

    return handle


def write_export(server: Server, request: Request) -> Path:
    """The file of an export, in a folder of its own."""
    kind, layout = request.query_params.get("format", "jsonl"), request.query_params.get("layout", "")
    known = export.LAYOUTS.get(kind, ())
    if kind != "jsonl" and layout not in known:
        choices = ["format=jsonl", *(f"format={k}&layout={one}" for k, all_ in export.LAYOUTS.items() for one in all_)]  # fmt: skip
        raise UsageError(f"An export is one of {', '.join(choices)}.")
    folder = containers.workspace_in(server.home.root / "tmp")
    file = folder / (f"{kind}-{layout}.jsonl" if layout and kind != "jsonl" else "export.jsonl")
    with store.connect(server.home.database) as db:
        if kind == "jsonl":
            export.export_file(db, file, everything=request.query_params.get("all") == "yes")
        else:
            export.export_layout(db, file, kind, cast("export.Layout", layout))
    return file
