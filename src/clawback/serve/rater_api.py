"""``/api/me``, ``/api/assigned``: what an invited rater is asked about, without anything that would reveal others' opinions.

Not shown: which model or version wrote an answer, its session, what anybody else said, and its current
reward. ``/api/raters`` shows owners and viewers how far all of them agree.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clawback import feedback, store
from clawback.endings import mark
from clawback.errors import NotFound
from clawback.feedback.rater_statistics import disagreements, raters
from clawback.records import JsonObject, with_keys
from clawback.serve.endpoints import endpoint
from clawback.serve.roles import Person, person

if TYPE_CHECKING:
    from starlette.requests import Request

    from clawback.inference.server import Server
    from clawback.records import Feedback, Turn
    from clawback.store import Store

MOST_ROWS = 200


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    return [
        Route("/me", endpoint(server, me), methods=["GET"]),
        Route("/assigned", endpoint(server, waiting), methods=["GET"]),
        Route("/assigned/{id:int}", endpoint(server, assigned_turn), methods=["GET"]),
        Route("/raters", endpoint(server, everybody), methods=["GET"]),
    ]


def me(server: Server, request: Request) -> Any:
    """Who the token belongs to, and how many of their assigned turns they have rated."""
    whom = person(request.scope)
    with store.connect(server.home.database) as db:
        own = db.assigned(whom.name) if whom.name else []
    done = sum(each.rated for each in own)
    return {"name": whom.name, "role": whom.role, "assigned": len(own), "done": done}


def waiting(server: Server, request: Request) -> Any:
    """The turns that this person is asked about, those that they have not rated first."""
    whom = person(request.scope)
    with store.connect(server.home.database) as db:
        own = sorted(db.assigned(whom.name), key=lambda each: each.rated) if whom.name else []
        return [_shown(db, db.turn(each.turn_id), whom) for each in own[:MOST_ROWS]]


def assigned_turn(server: Server, request: Request) -> Any:
    """One of these turns, with the conversation that led to it."""
    whom = person(request.scope)
    with store.connect(server.home.database) as db:
        require_assigned(db, whom, request.path_params["id"])
        found = db.turn(request.path_params["id"])
        return _shown(db, found, whom) | {"messages": list(found.messages)}


def require_assigned(db: Store, whom: Person, *turns: int) -> None:
    """Raises ``NotFound``, as for turns that are not there, where somebody was not asked about one of them."""
    if not whom.blind:
        return
    own = {each.turn_id for each in db.assigned(whom.name)}
    for turn in turns:
        if turn not in own:
            raise NotFound(f"Turn {turn} is not assigned to you.")


def everybody(server: Server, request: Request) -> Any:  # noqa: ARG001
    """All raters, how far they agree, who was invited, and the turns that they see differently."""
    with store.connect(server.home.database) as db:
        found = raters(db)
        own = db.assigned()
        invited = [
            {"name": i.name, "role": i.role, "assigned": sum(a.rater == i.name for a in own),
             "done": sum(a.rated for a in own if a.rater == i.name)}
            for i in db.invited()
        ]  # fmt: skip
        weights = feedback.rater_weights(db, server.settings.training.raters)
        return {
            "raters": [asdict(r) for r in found.raters],
            "alpha": found.alpha,
            "invited": invited,
            "disagreements": [with_keys(asdict(d), {"ratings": "said"}) for d in disagreements(db, weights)],
        }


def _shown(db: Store, turn: Turn, whom: Person) -> JsonObject:
    own = [f for f in db.feedback(turn_id=turn.id) if f.author == whom.source]
    return {
        "id": turn.id,
        "prompt": turn.prompt,
        "before": max(len(turn.messages) - 1, 0),
        "response": turn.response,
        "calls": list(turn.calls),
        "cut": mark(turn.ending),
        "feedback": [own_opinion(f) for f in own],
    }


def own_opinion(opinion: Feedback) -> JsonObject:
    """A rater's own feedback, in the form that they may see."""
    keep = ("id", "turn_id", "other_turn_id", "kind", "value", "text", "created_at", "undone_at")
    return {name: getattr(opinion, name) for name in keep}
