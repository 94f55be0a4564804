"""All that was said about a turn adds up to one reward in [-1, 1], and how it was made up is kept.

The reward is the weighted mean of the parts. A part's weight says how directly its kind speaks for the person:

    rating 1   preference ½   edit ½   environment reward 1   judge ¼   implicit ¼

- Of several ratings from one source the newest counts: a person may change their mind. Sources are averaged.
- A preference is +½ for the better turn and -½ for the worse one: it says which, not how good either is.
- An edit says that the response was not right (-½) *and* gives one that is: a second sample with reward +1.
- A critique and a note have no number. A critique, and what an edit says should have been, are kept with the sample as hints for
  algorithms that read.

**Late ratings.** With a ``credit`` c, a turn that nothing was said about gets c times the reward of the next turn of its session, c² that of
the one after, up to the first that something was said about: what somebody says at the end is also about how it came to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clawback.records import Feedback, Part, Sample, Turn

if TYPE_CHECKING:
    from clawback.store import Store

WEIGHTS = {"rating": 1.0, "preference": 0.5, "edit": 0.5, "reward": 1.0, "judge": 0.25, "implicit": 0.25}
PREFERENCE = 0.5
EDITED_AWAY = -0.5
EDITED_TO = 1.0
BETTER = "A better answer would have been:"
"""What stands before an edit when it is a hint."""
SESSION_TURNS = 1000
"""Newest turns of a session that a late rating reaches."""


def reward(turn_id: int, said: Sequence[Feedback]) -> tuple[float, tuple[Part, ...]]:
    """The reward of one turn and its make-up. No part with a number gives 0 and ``()``."""
    newest: dict[tuple[str, str], Feedback] = {}
    others = []
    for given in sorted(said, key=lambda f: f.id):
        if given.kind in ("rating", "edit"):
            newest[given.kind, given.source] = given
        elif given.kind in WEIGHTS:
            others.append(given)
    kept = sorted([*newest.values(), *others], key=lambda f: f.id)
    parts = tuple(Part(f.id, f.kind, _value(turn_id, f), WEIGHTS[f.kind]) for f in kept)
    total = sum(p.weight for p in parts)
    return (sum(p.value * p.weight for p in parts) / total if total else 0.0), parts


def _value(turn_id: int, given: Feedback) -> float:
    if given.kind == "preference":
        return PREFERENCE if given.turn_id == turn_id else -PREFERENCE
    return EDITED_AWAY if given.kind == "edit" else given.value


def samples(
    store: Store, feedback_ids: Iterable[int] | None = None, *, words: bool = False, credit: float = 0.0
) -> list[Sample]:
    """Turns with feedback, ready to train on, oldest first; a turn with an edit gives a second sample, the edit.

    Args:
        feedback_ids: narrows to that feedback. Turns of kind ``side`` are never trained on.
        words: also turns of which something was said in words alone (``Sample.rated`` is then False).
        credit: share of a reward that goes on to the unrated turn before it in its session, 0 … 1.
    """
    wanted = None if feedback_ids is None else set(feedback_ids)
    by_turn: dict[int, list[Feedback]] = {}
    for given in store.feedback():
        if wanted is None or given.id in wanted:
            for turn_id in (given.turn_id, given.other_turn_id):
                if turn_id is not None:
                    by_turn.setdefault(turn_id, []).append(given)
    made = []
    for turn_id in sorted(by_turn):
        turn = store.turn(turn_id)
        if turn.kind == "main":
            made += _samples_of(turn, by_turn[turn_id], words)
    return sorted([*made, *_credited(store, made, credit)], key=lambda s: s.turn_id) if credit > 0 else made


def hints(said: Iterable[Feedback]) -> tuple[str, ...]:
    """What would have made the response better, in words, oldest first: each critique, and the newest edit."""
    ordered = sorted(said, key=lambda f: f.id)
    found = [f.text.strip() for f in ordered if f.kind == "critique"]
    edits = [f.text.strip() for f in ordered if f.kind == "edit"]
    return (*dict.fromkeys(found), *(f"{BETTER}\n{text}" for text in edits[-1:]))


def _samples_of(turn: Turn, said: list[Feedback], words: bool) -> list[Sample]:
    value, parts = reward(turn.id, said)
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
