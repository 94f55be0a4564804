"""``/api/episodes``: the episodes played, newest first, and one episode with its messages and the reward of each step."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clawback import store
from clawback.errors import UsageError
from clawback.records import Episode, JsonObject, text_of
from clawback.serve.endpoints import endpoint

if TYPE_CHECKING:
    from starlette.requests import Request

    from clawback.inference.server import Server

MOST_ROWS = 200


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    return [
        Route("/episodes", endpoint(server, episodes), methods=["GET"]),
        Route("/episodes/{id:int}", endpoint(server, episode), methods=["GET"]),
    ]


def episodes(server: Server, request: Request) -> Any:
    ask = request.query_params
    status, split, run = ask.get("status"), ask.get("split"), ask.get("run")
    if not (run or "0").isdecimal() or not (ask.get("limit") or "0").isdecimal():
        raise UsageError("run and limit are numbers.")
    with store.connect(server.home.database) as db:
        found = db.episodes(
            min(int(ask.get("limit") or 50), MOST_ROWS),
            run=int(run) if run else None,
            status=status or None,
            split=split or None,
        )
    return [_row(one) for one in found]


def episode(server: Server, request: Request) -> Any:
    with store.connect(server.home.database) as db:
        found = db.episode(request.path_params["id"])
    messages = [
        {"role": str(m.get("role", "")), "text": text_of(m.get("content")).strip()} for m in found.messages
    ]
    steps = [asdict(step) for step in found.steps]
    return _row(found) | {"messages": messages, "steps": steps, "replies": list(found.replies)}


def _row(episode: Episode) -> JsonObject:
    return {
        "id": episode.id,
        "environment": episode.environment,
        "task": episode.task,
        "seed": episode.seed,
        "run": episode.run_id,
        "split": episode.split,
        "status": episode.status,
        "stop_reason": episode.stop_reason,
        "return": episode.total,
        "turns": len(episode.steps),
        "unparsable": episode.unparsable,
        "created_at": episode.created_at,
    }
