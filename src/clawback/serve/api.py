"""``/api/…``: HTTP API with the same functions as the command line, for the web page, plugins and scripts.

Handlers are plain functions: starlette runs them on threads, and each opens the store for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from clawback import __version__, feedback, jobs, release, store
from clawback.admin import rating_inbox as waiting
from clawback.dialects import Asked
from clawback.errors import Busy, UsageError
from clawback.feedback.due import count_towards_run, missing_sign, needed_for_run, no_gain
from clawback.feedback.news import news
from clawback.feedback.rule_consent import waiting_rules
from clawback.records import JsonObject, Message, Version
from clawback.serve import bodies, episodes_api, feedback_api, openapi_schema
from clawback.serve.bodies import NewsBody, PairBody, RollbackBody
from clawback.serve.endpoints import answered, decoded, endpoint, writing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from clawback.inference.local import PartialAnswer
    from clawback.inference.server import Server

MOST_ROWS = 200
HISTORY = 100
"""Newest versions and runs that the learning page plots."""
CHATS = "page-"
"""How the names of sessions of the page's Chat begin."""
TITLE = 120
"""Characters of a question that stand for a conversation."""
RECENT_RUNS = 20
"""Newest runs that the learning page lists."""


def routes(server: Server) -> list[Any]:
    from starlette.routing import Route

    def route(path: str, handler: Callable[[Server, Request], Any], method: str = "GET") -> Any:
        return Route(path, endpoint(server, handler), methods=[method])

    return [
        route("/status", status),
        route("/openapi.json", description),
        route("/turns", turns),
        route("/search", search),
        route("/turns/{id:int}", turn),
        *feedback_api.routes(server),
        route("/sessions", sessions),
        route("/conversations", talks),
        route("/sessions/{name:path}", session),
        route("/versions", versions),
        route("/runs", runs),
        route("/runs/{id:int}", run),
        Route("/runs/{id:int}/stop", writing(server, None, stop), methods=["POST"]),
        Route("/runs/{id:int}/resume", writing(server, None, resume), methods=["POST"]),
        *episodes_api.routes(server),
        route("/inbox", inbox),
        route("/inbox/pairs", inbox_pairs),
        route("/learning", learning),
        route("/health", health),
        Route("/versions/{id:int}/promote", writing(server, None, promote), methods=["POST"]),
        Route("/news", writing(server, NewsBody, decide_news), methods=["POST"]),
        Route("/rollback", writing(server, RollbackBody, rollback), methods=["POST"]),
        Route("/train", writing(server, None, train), methods=["POST"]),
        Route("/pairs", _Pairs(server), methods=["POST"]),
    ]


# ------------------------------------------------------------------------------------------------------- reading


def status(server: Server, request: Request) -> Any:  # noqa: ARG001
    with store.connect(server.home.database) as db:
        live, active, balance, skipped = db.live(), db.current_run(), feedback.balance(db), no_gain(db)
        return {
            "version": __version__,
            "model": server.settings.model.base,
            "upstream": bool(server.forward),
            "live": live.number,
            "turns": db.count_turns(),
            "good": balance.good,
            "bad": balance.bad,
            "warning": balance.warning,
            "fresh": db.count_fresh(),
            "towards_run": count_towards_run(db),
            "threshold": needed_for_run(skipped, server.settings.training.threshold),
            "missing_sign": missing_sign(db),
            "nothing_to_gain": skipped["why"] if skipped else "",
            "run": bodies.run(active, len(active.train_ids)) if active else None,
            "news": brought._asdict() | {"sentence": brought.sentence} if (brought := news(db)) else None,
            "rules": [{"id": rule.id, "text": rule.text} for rule in waiting_rules(db)],
        }


def description(server: Server, request: Request) -> Any:  # noqa: ARG001
    mount = next(route for route in request.app.routes if getattr(route, "path", "") == "/api")
    return openapi_schema.openapi(mount.routes)


def turns(server: Server, request: Request) -> Any:
    ask = request.query_params
    rated = {"yes": True, "no": False}.get(ask.get("rated", ""))
    with store.connect(server.home.database) as db:
        found = db.turns(
            limit=min(_number(ask.get("limit"), 50), MOST_ROWS),
            ids=range(before) if (before := _number(ask.get("before"), 0)) else None,
            session=ask.get("session") or None,
            text=ask.get("search") or None,
            rated=rated,
            kind=ask.get("kind") if ask.get("kind") in ("main", "side") else None,
        )
        return bodies.turns(server, db, found)


def search(server: Server, request: Request) -> Any:
    """One look of a search: the newest turns under ``before`` with this text, and where to go on (0: there are no older ones)."""
    ask = request.query_params
    with store.connect(server.home.database) as db:
        found, on = db.search(
            ask.get("text", ""),
            max(1, min(_number(ask.get("limit"), 50), MOST_ROWS)),
            before_id=_number(ask.get("before"), 0) or None,
            rated={"yes": True, "no": False}.get(ask.get("rated", "")),
            kind=ask.get("kind") if ask.get("kind") in ("main", "side") else None,
        )
        return {"turns": bodies.turns(server, db, found), "before": on}


def turn(server: Server, request: Request) -> Any:
    with store.connect(server.home.database) as db:
        found = db.turn(request.path_params["id"])
        whole = {"messages": list(found.messages), "next_state": list(found.next_state)}
        return bodies.turns(server, db, [found], parts=True)[0] | whole


def sessions(server: Server, request: Request) -> Any:
    with store.connect(server.home.database) as db:
        limit = min(_number(request.query_params.get("limit"), 50), MOST_ROWS)
        return [asdict(s) for s in db.sessions(limit)]


def session(server: Server, request: Request) -> Any:
    with store.connect(server.home.database) as db:
        found = db.session(request.path_params["name"])
        members = db.turns(limit=MOST_ROWS, session=found.name)
        return asdict(found) | {"turns": bodies.turns(server, db, members)}


def talks(server: Server, request: Request) -> Any:
    """The conversations of the page's Chat, the newest first, each with its first question."""
    limit = min(_number(request.query_params.get("limit"), 30), MOST_ROWS)
    with store.connect(server.home.database) as db:
        return [
            {"name": name, "newest": newest, "answers": answers, "title": db.turn(first).prompt[:TITLE]}
            for name, newest, answers, first in db.conversations(CHATS, limit)
        ]


def inbox(server: Server, request: Request) -> Any:
    """What is worth a rating, most informative first: answers, each with the steps that led to it."""
    limit = min(_number(request.query_params.get("limit"), 20), MOST_ROWS)
    found = waiting.Inbox(server.home).next(limit)
    with store.connect(server.home.database) as db:
        shown = bodies.turns(server, db, [one.turn for one in found])
    more = [{"why": one.why, "gain": one.gain, "steps": [bodies.step(s) for s in one.steps]} for one in found]
    return [data | extra for data, extra in zip(shown, more, strict=True)]


def inbox_pairs(server: Server, request: Request) -> Any:
    """Two answers to the same prompt that nobody has rated: those that the gate asks about, then those whose comparison tells most."""
    limit = min(_number(request.query_params.get("limit"), 10), MOST_ROWS)
    found = waiting.Inbox(server.home).pairs(limit)
    return [
        {
            "prompt": pair.first.prompt,
            "bits": pair.bits,
            "why": pair.why,
            "answers": [
                # Whose answer it is that the gate asks about is told by nobody before the choice.
                {
                    "turn": one.id,
                    "version": None if pair.why else one.version,
                    "model": one.model,
                    "response": one.response,
                }
                for one in (pair.first, pair.second)
            ],
        }
        for pair in found
    ]


def versions(server: Server, request: Request) -> Any:  # noqa: ARG001
    with store.connect(server.home.database) as db:
        shown = {v.number: v for v in (db.version(0), db.live(), *db.versions(MOST_ROWS))}
        learned = db.count_learned(v.run_id for v in shown.values() if v.run_id)
        return [
            bodies.version(v) | {"ratings": learned[v.run_id] if v.run_id else None}
            for _, v in sorted(shown.items(), reverse=True)
        ]


def runs(server: Server, request: Request) -> Any:  # noqa: ARG001
    with store.connect(server.home.database) as db:
        return bodies.runs(db, HISTORY)


def run(server: Server, request: Request) -> Any:
    """One run with its curves."""
    with store.connect(server.home.database) as db:
        found = db.run(request.path_params["id"])
        return bodies.run(found, len(found.train_ids)) | {"history": db.steps(found.id)}


def learning(server: Server, request: Request) -> Any:  # noqa: ARG001
    """One point a version: what people said of its answers, and what the gate measured."""
    with store.connect(server.home.database) as db:
        rated = db.ratings_by_version()
        points = []
        for version in db.versions(HISTORY):
            evidence = (version.report or {}).get("evidence", {})
            good, count = rated.get(version.number, (0, 0))
            points.append(
                {
                    "version": version.number,
                    "status": version.status,
                    "rated": count,
                    "good": good,
                    "satisfaction": good / count if count else None,
                    "gain": evidence.get("gain"),
                    "kl": evidence.get("kl"),
                    "perplexity_ratio": evidence.get("perplexity_ratio"),
                    "probability": (version.report or {}).get("probability"),
                }
            )
        recent = bodies.runs(db, RECENT_RUNS)
        return {
            "versions": points,
            "run": next((r for r in recent if r["status"] in ("running", "preparing", "interrupted")), None),
            "runs": recent,
        }


def health(server: Server, request: Request) -> Any:  # noqa: ARG001
    from clawback.admin import health as checks

    recorder = server.recorder
    return {
        "findings": checks.check(server.home, thorough=False),
        "recorded": recorder.recorded,
        "not_recorded": recorder.failed,
    }


# ------------------------------------------------------------------------------------------------------- writing


def promote(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    with store.connect(server.home.database) as db:
        return bodies.version(release.promote(db, server.home, request.path_params["id"]))


def decide_news(server: Server, request: Request, body: NewsBody) -> Any:  # noqa: ARG001
    from clawback.jobs.news_answer import decide

    with store.connect(server.home.database) as db:
        return {"text": decide(db, server.home, body.keep)}


def rollback(server: Server, request: Request, body: RollbackBody) -> Any:  # noqa: ARG001
    with store.connect(server.home.database) as db:
        return bodies.version(release.rollback(db, server.home, body.version))


def train(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    if server.train is not None:  # what is due, in its turn
        server.maybe_train()
        return {"started": False, "waits": True}
    if not jobs.start(server.home):
        raise Busy("A run is under way already.")
    with store.connect(server.home.database) as db:
        run = db.current_run()
        return {"started": True, "run": bodies.run(run, 0) if run else None}


def stop(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    found = jobs.stop(server.home, request.path_params["id"])
    return bodies.run(found, len(found.train_ids))


def resume(server: Server, request: Request, body: None) -> Any:  # noqa: ARG001
    if server.train is not None:
        raise Busy("On this server runs start in turn; an interrupted run is resumed when it is your turn.")
    found = jobs.resumable(server.home, request.path_params["id"])
    if not jobs.start(server.home, resume=found.id if found.status == "stopped" else None):
        raise Busy("A run is under way already.")
    return {"started": True}


class _Pairs:
    """``POST /api/pairs``: what two versions answer to the prompt of a turn. An ASGI app, for it awaits the model."""

    body_shape = PairBody

    def __init__(self, server: Server) -> None:
        self.server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        response = await answered(self._answers, Request(scope, receive))
        await response(scope, receive, send)

    async def _answers(self, request: Request) -> Any:
        server = self.server
        if server.forward:
            raise UsageError("An upstream answers here, so versions cannot be compared side by side.")
        wanted = decoded(await request.body(), PairBody)
        found = server.db.turn(wanted.turn)
        numbers = wanted.versions[:2] or (0, server.db.live().number)
        answers = []
        for place, number in enumerate(numbers):
            version = server.db.version(number)
            release.version_registry.check(version)
            # Two draws of one version have seeds of their own.
            seed = wanted.seed + place * (numbers.count(number) > 1)
            answers.append(await _answer_of(server, found.messages, version, seed))
        made: list[JsonObject] = [
            {"version": number, "response": answer.text}
            for number, answer in zip(numbers, answers, strict=True)
        ]
        if wanted.keep and len({answer.text for answer in answers}) > 1:  # of equal ones none is better
            for row, answer in zip(made, answers, strict=True):
                row["turn"] = server.keep(found, answer)
        return {"turn": found.id, "prompt": found.prompt, "answers": made}


async def _answer_of(
    server: Server, messages: tuple[Message, ...], version: Version, seed: int
) -> PartialAnswer:
    pieces = server.local.answer(Asked(messages, seed=seed), version)
    answer, _ = await anext(pieces)
    async for _ in pieces:
        pass
    return answer


def _number(value: str | None, otherwise: int) -> int:
    return int(value) if value and value.isascii() and value.isdigit() and len(value) < 12 else otherwise


def metrics(server: Server) -> Any:
    """Prometheus text: counts that a dashboard may want."""

    async def endpoint(request: Request) -> Any:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import Response

        now = await run_in_threadpool(status, server, request)
        lines = [
            f"clawback_turns_total {now['turns']}",
            f'clawback_ratings_total{{sign="good"}} {now["good"]}',
            f'clawback_ratings_total{{sign="bad"}} {now["bad"]}',
            f"clawback_live_version {now['live']}",
            f"clawback_training {int(now['run'] is not None)}",
            f"clawback_recorded_total {server.recorder.recorded}",
            f"clawback_not_recorded_total {server.recorder.failed}",
        ]
        return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    return endpoint
