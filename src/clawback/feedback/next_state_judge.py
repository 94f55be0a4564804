"""The next-state judge: what came back after an answer shows how the answer was received.

A judge model reads (request, answer, next state) and votes +1, -1 or 0, ``m`` times; the majority is the
turn's verdict, and a tie is 0. A verdict of ±1 becomes a row of feedback (``kind="judge"``,
``source="judge:MODEL"``), weighted by how far this judge agrees with its person (calibrate.py). A 0 becomes
none; the store only remembers that the turn was judged, so that it is not paid for twice. If no vote can be
parsed, nothing is remembered either: that is the judge's failure (it may have been cut off), not the turn's.
Each finished conversation gives at least one sample: if the verdict on all of its turns is 0, the turn with
the strongest mean vote is entered with that mean.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from clawback.config import SILENT
from clawback.feedback.endpoint import Ask
from clawback.feedback.passes import PassPlan, go_over, readings
from clawback.feedback.verdict import JUDGE, boxed, decided, majority, shown
from clawback.records import Feedback, JsonObject, Turn, with_keys

if TYPE_CHECKING:
    from clawback.store import Store

REMEMBERED = 20_000
"""Turns without a verdict that are remembered."""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """What the votes on one turn came to. ``votes``: those that could be read, at least one; ``lean``: their mean."""

    votes: tuple[int, ...]

    @property
    def value(self) -> int:
        return majority(self.votes)

    @property
    def lean(self) -> float:
        return sum(self.votes) / len(self.votes)


@dataclass(frozen=True, slots=True)
class Tally:
    """What a pass did. ``by_conversation``: turns without a majority that stand for their conversation; ``failed``: no vote came
    that can be read, they are asked about again next time; ``stopped``: why it ended early, "" where it did not."""

    source: str
    turns: int
    good: int
    bad: int
    unclear: int
    by_conversation: int
    failed: int
    stopped: str

    def to_dict(self) -> JsonObject:
        return with_keys(asdict(self), {"by_conversation": "kept"})


def source_of(model: str) -> str:
    """The name that a judge's rows carry."""
    return f"judge:{model}"


def verdict(ask: Ask, turn: Turn, votes: int) -> JudgeVerdict:
    """Up to ``votes`` votes on one turn; further ones are not asked for once the majority is certain.

    Raises ``NoAnswer`` where no call brought a vote that can be read, and what ``ask`` raises beyond that.
    """
    return JudgeVerdict(tuple(readings(ask, JUDGE, shown(turn), votes, boxed, decided)))


def pending(store: Store, model: str, limit: int = -1) -> list[Turn]:
    """Main turns with a next state that this judge has not been asked about, newest first, those that brought nothing before
    last: a few that never will must not hold up the others. -1: all."""
    source = source_of(model)
    known = [int(t) for t in _unclear(store, source)]
    return store.followed_turns(source, limit, known, last=store.get(f"failed:{source}", []))


def judge(store: Store, ask: Ask, plan: PassPlan, *, silent: float = SILENT) -> Tally:
    """Go over what is pending and enter the verdicts; what is entered stays, however the pass ends.

    ``silent``: seconds without a turn after which a conversation is over.

    Raises ``JudgeError`` where the judge cannot be asked at all.
    """
    source = source_of(plan.model)
    found = pending(store, plan.model, plan.limit)
    counts = {1: 0, -1: 0, 0: 0}

    def keep(turn: Turn, came: JudgeVerdict) -> None:
        counts[came.value] += 1
        if came.value:
            enter(store, turn.id, source, float(came.value), came.votes)
        else:
            remember(store, source, {turn.id: came.lean})

    ended = go_over(found, lambda turn: verdict(ask, turn, plan.votes), keep, "judge", plan)
    remember_failed(store, source, ended.failed)
    through = not ended.stopped and not ended.failed and (plan.limit < 0 or len(found) < plan.limit)
    kept = at_least_one(store, source, time.time() - silent) if through else 0
    return Tally(source, ended.done, counts[1], counts[-1], counts[0], kept, len(ended.failed), ended.stopped)


def enter(store: Store, turn_id: int, source: str, value: float, votes: Sequence[int]) -> None:
    """One row for a turn and a judge, however often the pass is repeated."""
    text = "votes " + " ".join(f"{v:+d}" if v else "0" for v in votes) if votes else ""
    store.add_feedback(Feedback(turn_id, "judge", value, text, source=source, event_id=f"{source}:{turn_id}"))


def at_least_one(store: Store, source: str, since: float) -> int:
    """Conversations that are over (done, or silent since then) and have no sample yet get the one whose votes leaned most;
    how many that were."""
    open_turns = {int(t): lean for t, lean in _unclear(store, source).items() if lean is not None}
    by_session: dict[str, list[int]] = {}
    for number in open_turns:
        by_session.setdefault(store.turn(number).session, []).append(number)
    entered, going = 0, store.going_on(since)
    for name, numbers in by_session.items():
        if name in going:
            continue
        with store.together():
            if not _has_sample(store, name):
                best = max(numbers, key=lambda n: (abs(open_turns[n]), n))
                enter(store, best, source, open_turns[best], ())
                entered += 1
            remember(store, source, dict.fromkeys(numbers))
    return entered


def _has_sample(store: Store, session: str) -> bool:
    members = store.turns(limit=-1, session=session, kind="main")
    return any(f.kind != "critique" for t in members for f in store.feedback(turn_id=t.id))


def _unclear(store: Store, source: str) -> dict[str, float | None]:
    """Turn → lean of its votes; None where its conversation has a sample already."""
    return dict(store.get(f"unclear:{source}", {}))


def remember(store: Store, source: str, turns: dict[int, Any]) -> None:
    """Mark these turns as judged, without feedback for them."""
    with store.together():
        known = _unclear(store, source) | {str(n): value for n, value in turns.items()}
        newest = sorted(known, key=int)[-REMEMBERED:]
        store.set(f"unclear:{source}", {n: known[n] for n in newest})


def remember_failed(store: Store, source: str, turns: Sequence[int]) -> None:
    """Mark these turns as failed: next time they come last."""
    if turns:
        store.set(f"failed:{source}", sorted({*store.get(f"failed:{source}", []), *turns})[-REMEMBERED:])
