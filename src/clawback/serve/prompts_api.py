"""``/api/prompts``: learned and hand-written prompts, for the page. Putting one live accepts each sentence that was shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawback import release, store
from clawback.errors import UsageError
from clawback.gate import prompt_gate as prompt_gate
from clawback.release import prompted, screening
from clawback.serve.bodies import Used
from clawback.serve.endpoints import endpoint, writing

if TYPE_CHECKING:
    from starlette.requests import Request

    from clawback.inference.server import Server
    from clawback.records import JsonObject, Version
    from clawback.store import Store


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    return [
        Route("/prompts", endpoint(server, prompts), methods=["GET"]),
        Route("/prompts/{id:int}/use", writing(server, Used, use), methods=["POST"]),
    ]


def prompts(server: Server, request: Request) -> Any:  # noqa: ARG001
    """The phase, the live version, and every version whose prompt is another than its parent's, newest first."""
    from clawback.prompt_jobs import prompt_learning

    with store.connect(server.home.database) as db:
        prompted.edited(db, server.home)
        live = db.live()
        rows = [_row(db, one, live) for one in reversed(prompted.changes(db))]
    return {"phase": prompt_learning.phase(server.home), "live": live.number, "prompt": prompted.source(live), "versions": rows}  # fmt: skip


def use(server: Server, request: Request, body: Used) -> Any:
    """Put a prompt live. The new sentences that the person was shown are named; others than these are not accepted."""
    with store.connect(server.home.database) as db:
        found = db.version(request.path_params["id"])
        if not found.prompt:
            raise UsageError(f"Version {found.number} has no prompt.")
        if found.status == "live":
            raise UsageError(f"Version {found.number} is live already.")
        new = _unseen(db, found)
        if missing := [one for one in new if one not in body.seen]:
            raise UsageError(
                f"The prompt of version {found.number} has {len(missing)} sentences that were not shown. Look at it again first."
            )
        if found.status == "retired":
            now = release.rollback(db, server.home, found.number)
        else:
            now = prompt_gate.by_hand(db, server.home, found)
        return _row(db, now, now)


def _row(db: Store, version: Version, live: Version) -> JsonObject:
    parent = db.version(version.parent or 0)
    report = version.report or {}
    return {
        "number": version.number,
        "status": version.status,
        "speaks": version.prompt == live.prompt,
        "author": str(version.origin.get("author", "")),
        "created_at": version.created_at,
        "promoted_at": version.promoted_at,
        "prompt": prompted.source(version),
        "parent": parent.number,
        "before": prompted.source(parent),
        "unseen": (unseen := _unseen(db, version)),
        "authors": screening.authors(db, unseen) if unseen else {},
        "reasons": list(report.get("reasons", [])),
        "accepted": bool(report.get("accepted")),
        "again_at": report.get("again_at", 0),
        "ratings": len(db.run(version.run_id).train_ids) if version.run_id else None,
        "trained": version.path != parent.path,
    }


def _unseen(db: Store, version: Version) -> list[str]:
    return prompted.unseen(db, version) if version.status not in ("live", "retired") else []
