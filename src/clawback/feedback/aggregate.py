"""All that was said about a turn adds up to one reward in [-1, 1], and how it was made up is kept.

The reward is the weighted mean of the parts. A part's weight says how directly its kind speaks for the person:

    rating 1   preference ½   edit ½   environment reward 1   implicit ¼   judge: what it has earned (calibrate.py), ¼ at first

- Of several ratings from one source the newest counts: a person may change their mind. Sources are averaged.
- A preference is +½ for the better turn and -½ for the worse one: it says which, not how good either is.
- An edit says that the response was not right (-½) *and* gives one that is: a second sample with reward +1.
- A critique and a note have no number. A critique, and what an edit says should have been, are kept with the sample as hints for
  algorithms that read.
- Where only judges and implicit signs have spoken the reward is ``Σ w v / max(1, Σ w)``: each is worth no more than its weight, what the person
  would say of such a turn on average. A judge of weight 0 makes no sample at all.

**Late ratings.** With a ``credit`` c, a turn that nothing was said about gets c times the reward of the next turn of its session, c² that of
the one after, up to the first that something was said about: what somebody says at the end is also about how it came to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clawback.feedback.calibrate import PRIOR_WEIGHT, Reliability, reliability
from clawback.records import Feedback, Part, Sample, Turn

if TYPE_CHECKING:
    from clawback.store import Store

WEIGHTS = {
    "rating": 1.0,
    "preference": 0.5,
    "edit": 0.5,
    "reward": 1.0,
    "judge": PRIOR_WEIGHT,
    "implicit": 0.25,
}
UNSAID = ("judge", "implicit")
"""Kinds of feedback that the person did not give: worth no more than their weight where they stand alone, and no evidence."""
PREFERENCE = 0.5
EDITED_AWAY = -0.5
EDITED_TO = 1.0
BETTER = "A better answer would have been:"
"""What stands before an edit when it is a hint."""
SESSION_TURNS = 1000
"""Newest turns of a session that a late rating reaches."""


def reward(
    turn_id: int, said: Sequence[Feedback], judges: Mapping[str, Reliability] | None = None
) -> tuple[float, tuple[Part, ...]]:
    """The reward of one turn and its make-up. No part with a number gives 0 and ``()``.

    ``judges``: how far each judge can be trusted (``judges(store)``); one that is not named has the weight of a new one.
    """
    newest: dict[tuple[str, str], Feedback] = {}
    others = []
    for given in sorted(said, key=lambda f: f.id):
        if given.kind in ("rating", "edit"):
            newest[given.kind, given.source] = given
        elif given.kind in WEIGHTS:
            others.append(given)
    kept = sorted([*newest.values(), *others], key=lambda f: f.id)
    parts = tuple(Part(f.id, f.kind, _value(turn_id, f), _weight(f, judges or {})) for f in kept)
    total = sum(p.weight for p in parts)
    if not total:
        return 0.0, ()
    if all(p.kind in UNSAID for p in parts):
        total = max(total, 1.0)
    return sum(p.value * p.weight for p in parts) / total, parts


def _weight(given: Feedback, judges: Mapping[str, Reliability]) -> float:
    if given.kind == "judge" and given.source in judges:
        return judges[given.source].weight
    return WEIGHTS[given.kind]


def _value(turn_id: int, given: Feedback) -> float:
    if given.kind == "preference":
        return PREFERENCE if given.turn_id == turn_id else -PREFERENCE
    return EDITED_AWAY if given.kind == "edit" else given.value


def samples(
    store: Store,
    feedback_ids: Iterable[int] | None = None,
    judges: Mapping[str, Reliability] | None = None,
    *,
    words: bool = False,
    credit: float = 0.0,
) -> list[Sample]:
    """Turns with feedback, ready to train on, oldest first; a turn with an edit gives a second sample, the edit.

    Args:
        feedback_ids: narrows to that feedback, and judges are then weighed by it alone: a run that goes on after an interruption sees the
            same rewards whatever was said meanwhile, and nothing that was kept for the gate has a say in training. Turns of
            kind ``side`` are never trained on.
        judges: weighs them otherwise.
        words: also turns of which something was said in words alone (``Sample.rated`` is then False).
        credit: share of a reward that goes on to the unrated turn before it in its session, 0 … 1.
    """
    wanted = None if feedback_ids is None else set(feedback_ids)
    by_turn = _by_turn(f for f in store.feedback() if wanted is None or f.id in wanted)
    if judges is None:
        judges = _reliability(by_turn)
    made = []
    for turn_id in sorted(by_turn):
        turn = store.turn(turn_id)
        if turn.kind == "main":
            made += _samples_of(turn, by_turn[turn_id], judges, words)
    return sorted([*made, *_credited(store, made, credit)], key=lambda s: s.turn_id) if credit > 0 else made


def evidence(samples: Iterable[Sample]) -> list[Sample]:
    """The samples as people and the environment speak of them: what was not said outright taken out, and samples that had no other.

    What decides whether a version goes live must not come from a model.
    """
    made = []
    for sample in samples:
        parts = tuple(p for p in sample.parts if p.kind not in UNSAID)
        if len(parts) == len(sample.parts):
            made.append(sample)
        elif parts:
            value = sum(p.value * p.weight for p in parts) / sum(p.weight for p in parts)
            made.append(replace(sample, reward=value, parts=parts))
    return made


def judges(store: Store, said: Iterable[Feedback] | None = None) -> dict[str, Reliability]:
    """Judge (its ``source``) → how it stands beside the person. ``said``: only where one of these is a judge's, else ``{}``
    at no cost."""
    if said is not None and not any(f.kind == "judge" for f in said):
        return {}
    return _reliability(_by_turn(store.feedback()))


def _by_turn(said: Iterable[Feedback]) -> dict[int, list[Feedback]]:
    by_turn: dict[int, list[Feedback]] = {}
    for given in said:
        for turn_id in (given.turn_id, given.other_turn_id):
            if turn_id is not None:
                by_turn.setdefault(turn_id, []).append(given)
    return by_turn


def _reliability(by_turn: Mapping[int, list[Feedback]]) -> dict[str, Reliability]:
    votes = [f for said in by_turn.values() for f in said if f.kind == "judge"]
    if not votes:
        return {}
    own = {t: reward(t, [f for f in by_turn[t] if f.kind != "judge"])[0] for t in {v.turn_id for v in votes}}
    return reliability(own, votes)


def hints(said: Sequence[Feedback]) -> tuple[str, ...]:
    """What would have made the response better, in words: the person's critiques, what judges read out of what came back,
    and the newest edit."""
    from clawback.feedback.hints import hints_of

    edits = [f.text.strip() for f in sorted(said, key=lambda f: f.id) if f.kind == "edit"]
    return (*hints_of(said), *(f"{BETTER}\n{text}" for text in edits[-1:]))


def _samples_of(
    turn: Turn, said: list[Feedback], judges: Mapping[str, Reliability], words: bool
) -> list[Sample]:
    value, parts = reward(turn.id, said, judges)
    read = hints(said)
    made = []
    if parts or (words and read):
        made.append(
            Sample(
                turn.id,
                turn.messages,
                turn.response,
                value,
                parts,
                turn.response_ids,
                turn.response_logprobs,
                read,
            )
        )
    edits = [f for f in said if f.kind == "edit"]
    if edits:
        last = max(edits, key=lambda f: f.id)
        made.append(
            Sample(turn.id, turn.messages, last.text, EDITED_TO, (Part(last.id, "edit", EDITED_TO, 1.0),))
        )
    return made


def _credited(store: Store, made: list[Sample], credit: float) -> list[Sample]:
    """Samples of unrated turns that led to rated ones."""
    own: dict[int, Sample] = {}
    for sample in made:
        own.setdefault(sample.turn_id, sample)  # the turn itself, not what an edit made of it
    sessions = dict.fromkeys(store.turn(turn_id).session for turn_id in own)
    found = []
    for session in sessions:
        ahead: Sample | None = None
        distance = 0
        for turn in store.turns(limit=SESSION_TURNS, session=session, kind="main"):  # newest first
            if turn.id in own:
                ahead, distance = own[turn.id], 0
                continue
            distance += 1
            if ahead is not None and ahead.rated and turn.response:
                share = credit**distance
                parts = tuple(Part(p.feedback_id, p.kind, p.value * share, p.weight) for p in ahead.parts)
                found.append(
                    Sample(
                        turn.id,
                        turn.messages,
                        turn.response,
                        ahead.reward * share,
                        parts,
                        turn.response_ids,
                        turn.response_logprobs,
                    )
                )
    return found
