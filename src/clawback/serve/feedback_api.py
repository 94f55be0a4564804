"""Feedback on a turn over HTTP: from the owner, or from an invited person, who can speak only for themselves."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from clawback import feedback, store
from clawback.endings import notice
from clawback.errors import UsageError
from clawback.serve.bodies import Done, FeedbackBody, PreferenceBody
from clawback.serve.endpoints import writing
from clawback.serve.rater_api import own_opinion, require_assigned
from clawback.serve.roles import Person, person, said_by

if TYPE_CHECKING:
    from starlette.requests import Request

    from clawback.inference.server import Server
    from clawback.store.version_tables import Use


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    return [
        Route("/turns/{id:int}/feedback", writing(server, FeedbackBody, give), methods=["POST"]),
        Route("/turns/{id:int}/use", writing(server, Done, use), methods=["POST"]),
        Route("/preferences", writing(server, PreferenceBody, prefer), methods=["POST"]),
    ]


def give(server: Server, request: Request, body: FeedbackBody) -> Any:
    number, whom = request.path_params["id"], person(request.scope)
    source = said_by(whom, body.source)
    marks = {"source": source, "event_id": _event(whom, body.event_id)}
    with store.connect(server.home.database) as db:
        require_assigned(db, whom, number)
        turn = db.turn(number)
        cut = notice(turn.ending, turn.kind) if body.kind != "undo" else ""
        match body.kind:
            case "good" | "bad":
                value = 1.0 if body.kind == "good" else -1.0
                made = feedback.rate(db, number, value, note=body.text, **marks)
            case "rate":
                made = feedback.score(db, number, body.value, note=body.text, **marks)
            case "edit":
                made = feedback.edit(db, number, body.text, **marks)
            case "critique":
                made = feedback.critique(db, number, body.text, **marks)
            case "undo":
                made = feedback.undo(db, number, person=whom.source or None)
            case _:
                raise UsageError("kind is good, bad, rate, edit, critique or undo.")
    started = server.settings.training.background and server.maybe_train()
    if whom.blind:
        return own_opinion(made)
    return asdict(made) | {"training_started": started, "notice": cut}


def prefer(server: Server, request: Request, body: PreferenceBody) -> Any:
    whom = person(request.scope)
    event = _event(whom, body.event_id)
    with store.connect(server.home.database) as db:
        require_assigned(db, whom, body.better, body.worse)
        compare = feedback.tie if body.tie else feedback.prefer
        made = compare(db, body.better, body.worse, source=said_by(whom, "web"), event_id=event)
    return own_opinion(made) if whom.blind else asdict(made)


def use(server: Server, request: Request, body: Done) -> Any:
    """A link of an answer was opened, or it was copied or taken over: counted in the report, and no feedback."""
    number = request.path_params["id"]
    with store.connect(server.home.database) as db:
        db.add_use(number, cast("Use", body.kind))
    return {"turn": number, "kind": body.kind}


def _event(whom: Person, name: str) -> str:
    """Somebody's events are theirs: another's name of one finds nothing of it."""
    return f"{whom.source}/{name[:200]}" if whom.source and name else name[:200]
