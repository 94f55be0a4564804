"""``/api/rules``: the rules with their receipts. A viewer reads them; the owner adds one, says yes to one, withdraws one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clawback import feedback, store
from clawback.jobs import rule_proposals
from clawback.prompt_jobs import rule_prompt
from clawback.records import Rule
from clawback.rules import receipts, rule_reminders
from clawback.serve.bodies import NewRule
from clawback.serve.endpoints import endpoint, writing

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from clawback.inference.server import Server
    from clawback.store import Store

MOST_BREACHES = 100
RATED = 1_000
"""Newest pieces of feedback that the page reads: a terminal reads all."""


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    return [
        Route("/rules", endpoint(server, listed), methods=["GET"]),
        Route("/rules", writing(server, NewRule, add), methods=["POST"]),
        Route("/rules/use", writing(server, None, use), methods=["POST"]),
        Route("/rules/{id:int}", endpoint(server, receipt), methods=["GET"]),
        Route("/rules/{id:int}/keep", writing(server, None, keep), methods=["POST"]),
        Route("/rules/{id:int}/drop", writing(server, None, drop), methods=["POST"]),
    ]


def listed(server: Server, request: Request) -> Any:  # noqa: ARG001
    """Every rule with its shares; of many unchecked answers the newest are checked now, the others with the next calls."""
    with store.connect(server.home.database) as db:
        _bring_up_to_date(server, db)
        rows = [receipts.as_json(one) for one in receipts.receipts(db, db.rules())]
        return {"rules": rows, "prompt_differs": rule_prompt.pending(db) is not None}


def receipt(server: Server, request: Request) -> Any:
    """One rule: by model and week, the ratings that speak for and against it, and its breaches."""
    with store.connect(server.home.database) as db:
        rule = db.rule(request.path_params["id"])
        _bring_up_to_date(server, db)
        [shares] = receipts.receipts(db, [rule])
        limit = min(_number(request, "limit") or receipts.BREACHES, MOST_BREACHES)
        return receipts.as_json(shares) | {
            "weeks": [{"week": week, **share.to_dict()} for week, share in shares.weeks.items()],
            "by_model_and_week": {
                model: {week: share.to_dict() for week, share in weeks.items()}
                for model, weeks in receipts.table(db, rule).items()
            },
            "ratings": asdict(
                receipts.ratings(db, rule, feedback.samples(db, query=feedback.SampleQuery(newest=RATED)))
            ),
            "breaches": [
                one.to_dict() for one in receipts.breaches(db, rule, limit, _number(request, "before"))
            ],
        }


def add(server: Server, request: Request, body: NewRule) -> Any:  # noqa: ARG001
    return _changed(server, lambda db: rule_proposals.add(db, body.text))


def keep(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    return _changed(server, lambda db: rule_proposals.accept(db, request.path_params["id"]))


def drop(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    return _changed(server, lambda db: rule_proposals.withdraw(db, request.path_params["id"]))


def use(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    """Put the rules into the live prompt: each of these sentences is the owner's or was accepted."""
    with store.connect(server.home.database) as db:
        version = rule_prompt.use(db, server.home)
        return {"version": version.number, "prompt": version.prompt}


def _changed(server: Server, change: Callable[[Store], Rule]) -> object:
    with store.connect(server.home.database) as db:
        rule = change(db)
        _bring_up_to_date(server, db)
        [shares] = receipts.receipts(db, [rule])
        return receipts.as_json(shares)


def _bring_up_to_date(server: Server, db: Store) -> None:
    receipts.update(db, receipts.FEW)
    rule_reminders.write(server.home, db)


def _number(request: Request, name: str) -> int | None:
    value = request.query_params.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 12 else None
