"""Hints: what an answer should have taken into account, extracted from what came after it.

Sources are the next state, the text that a person put in the answer's place, and critiques, which are hints as they are.
A judge model is asked ``m`` times; each answer that ends in ``\\boxed{1}`` with a hint of more than ten characters is a
candidate. All candidates are kept (``kind="critique"``, ``source="hint:MODEL"``): which of them teaches most is for the engine to
find out, by how far the model's own next tokens agree with it. A hint alone adds nothing to a reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from clawback.feedback.calibrate import HINT_SOURCE
from clawback.feedback.endpoint import Ask
from clawback.feedback.next_state_judge import remember, remember_failed
from clawback.feedback.passes import PassPlan, go_over, readings
from clawback.feedback.verdict import HINT, Vote, read_hint, shown
from clawback.records import Feedback, JsonObject, Turn

if TYPE_CHECKING:
    from clawback.store import Store

LONGEST = 600
"""Characters of a hint that are kept: three sentences have fewer."""


@dataclass(frozen=True, slots=True)
class HintCounts:
    """What a pass for hints did: turns asked about, those that gave hints, and candidates."""

    source: str
    turns: int
    hinted: int
    hints: int
    failed: int
    stopped: str

    def to_dict(self) -> JsonObject:
        return asdict(self)


def candidates(ask: Ask, turn: Turn, votes: int, wanted: str = "") -> list[str]:
    """Different hints from ``votes`` answers. ``wanted``: the text that a person put in the answer's place.

    Raises ``NoAnswer`` where no call brought a verdict that can be read.
    """
    read = readings(ask, HINT, shown(turn, wanted=wanted), votes, _readable)
    return list(dict.fromkeys(vote.hint[:LONGEST] for vote in read if vote.hint))


def _readable(text: str) -> Vote | None:
    vote = read_hint(text)
    return None if vote.value is None else vote


def pending_hints(store: Store, model: str, limit: int = -1) -> list[Turn]:
    """Turns that something came back to, or that a person corrected, and that were not asked about yet; newest first.

    Those that a person has criticised are left out: their own words are the better hint.
    """
    source = HINT_SOURCE + model
    known = store.get(f"unclear:{source}", {})
    last = store.get(f"failed:{source}", [])
    return store.followed_turns(source, limit, [int(t) for t in known], last, hints=True)


def extract(store: Store, ask: Ask, plan: PassPlan) -> HintCounts:
    """Ask for hints on what is pending and keep the candidates; what is kept stays, however the pass ends.

    Raises ``JudgeError`` where the model cannot be asked at all.
    """
    source = HINT_SOURCE + plan.model
    todo = pending_hints(store, plan.model, plan.limit)
    wanted = {t.id: wanted_instead(t, store.feedback(turn_id=t.id)) for t in todo}
    hinted = made = 0

    def keep(turn: Turn, came: list[str]) -> None:
        nonlocal hinted, made
        hinted, made = hinted + bool(came), made + len(came)
        with store.together():
            for place, hint in enumerate(came):
                event = f"{source}:{turn.id}:{place}"
                store.add_feedback(Feedback(turn.id, "critique", 0.0, hint, source=source, event_id=event))
            if not came:
                remember(store, source, {turn.id: None})

    ended = go_over(
        todo, lambda turn: candidates(ask, turn, plan.votes, wanted[turn.id]), keep, "hints", plan
    )
    remember_failed(store, source, ended.failed)
    return HintCounts(source, ended.done, hinted, made, len(ended.failed), ended.stopped)


def wanted_instead(turn: Turn, opinions: Sequence[Feedback]) -> str:
    """The newest correction of this turn, or ""."""
    edits = [f for f in opinions if f.kind == "edit" and f.turn_id == turn.id]
    return max(edits, key=lambda f: f.id).text if edits else ""
