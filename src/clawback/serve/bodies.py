"""The JSON of the API: the types that requests are decoded into and that the API's description is generated from; and turns, versions and runs as they are given."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from clawback import feedback, store
from clawback.endings import mark
from clawback.progress import describe
from clawback.records import Feedback, JsonObject, Run, Turn, Version

if TYPE_CHECKING:
    from clawback.inference.server import Server


class FeedbackBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/turns/ID/feedback``."""

    kind: str
    """``good``, ``bad``, ``rate``, ``edit``, ``critique`` (a remark) or ``undo``."""
    value: float = 0
    """1 to 10, for ``rate``; 7.5 is one too."""
    text: str = ""
    event_id: str = ""
    source: str = "web"


class PreferenceBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/preferences``."""

    better: int
    worse: int
    tie: bool = False
    """Neither of the two is better."""
    event_id: str = ""


class Done(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/turns/ID/use``: what somebody did with an answer."""

    kind: str
    """``click`` (a link of it), ``copy``, or ``accept``."""


class RollbackBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/rollback``; None: to the version before."""

    version: int | None = None


class NewsBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/news``."""

    keep: bool
    """True: the new version stays. False: back to the one before it."""


class Used(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/prompts/ID/use``."""

    seen: tuple[str, ...] = ()
    """The new sentences that the person was shown (``unseen`` of ``GET /api/prompts``), to which this is a yes."""


class NewRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/rules``."""

    text: str
    """One sentence: what you want of every answer."""


class PairBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/pairs``: answer a turn's prompt by two versions."""

    turn: int
    versions: tuple[int, ...] = ()
    seed: int = 0
    keep: bool = False
    """Store both answers as turns, so that one can be preferred to the other; equal answers are not stored."""


class SettingValue(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The body of ``POST /api/settings``."""

    key: str
    value: str = ""
    """As it is typed after ``clawback config set KEY``; empty: the default."""


def turns(server: Server, db: store.Store, turns: list[Turn], parts: bool = False) -> list[JsonObject]:
    said = [db.feedback(turn_id=t.id) for t in turns]
    judges = feedback.judges(db, [f for each in said for f in each])
    raters = feedback.rater_weights(db, server.settings.training.raters)
    usual = db.middles()
    made = []
    for one, each in zip(turns, said, strict=True):
        reward, of = feedback.reward(one.id, each, judges, raters, usual)
        more = {"parts": [asdict(p) for p in of]} if parts else {}
        made.append(turn(one, each) | {"reward": reward if of else None} | more)
    return made


def turn(turn: Turn, opinions: list[Feedback]) -> JsonObject:
    return {
        "id": turn.id,
        "session": turn.session,
        "agent": turn.agent,
        "kind": turn.kind,
        "model": turn.model,
        "version": turn.version,
        "created_at": turn.created_at,
        "prompt": turn.prompt,
        "before": max(len(turn.messages) - 1, 0),
        "response": turn.response,
        "calls": list(turn.calls),
        "ending": turn.ending,
        "cut": mark(turn.ending),
        "feedback": [asdict(f) for f in opinions],
    }


def version(version: Version) -> JsonObject:
    data = asdict(version)
    data.pop("path")  # where files lie on this machine is nobody's business
    return data


def step(turn: Turn) -> JsonObject:
    return {"id": turn.id, "response": turn.response, "calls": list(turn.calls)}


def runs(db: store.Store, limit: int) -> list[JsonObject]:
    """The newest, without which feedback they used."""
    found = db.runs(limit, ids=False)
    learned = db.count_learned(one.id for one in found)
    return [run(one, learned[one.id]) for one in found]


def run(run: Run, ratings: int) -> JsonObject:
    kept = (
        "id",
        "algorithm",
        "seed",
        "parent",
        "created_at",
        "finished_at",
        "stop_at",
        "progress",
        "version",
        "error",
    )
    return {name: getattr(run, name) for name in kept} | {
        "ratings": ratings,
        "text": describe(run.progress),
        "interrupted": run.interrupted,
        "status": run.state,
    }
