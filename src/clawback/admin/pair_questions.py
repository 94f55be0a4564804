"""Which two answers to ask about: pairs of answers to one prompt, in the order of what a comparison of them is expected to tell.

The pairs are those that stand in the store: answers that were drawn twice, the branches of an imported conversation, the answers to a question that
was asked again. What is believed beforehand comes from the owner's ratings and comparisons and, at a small weight, from the guesses of an
import (``feedback.turn_reward``). A guess is left out where somebody has spoken of the pair: it never outweighs a rating.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clawback.feedback.calibrate import centred, standing
from clawback.feedback.implicit import asked_again
from clawback.feedback.turn_reward import EDITED_AWAY, WEIGHTS
from clawback.records import GATE, PICTURE, UNLEARNED, Feedback, Turn

if TYPE_CHECKING:
    from clawback.rewards.acquisition import Comparable, Comparison
    from clawback.store import Store

MOST_PAIRS = 200
"""Newest pairs that are considered, and newest further answers that were spoken of: the cost goes as the third power of the answers."""
MOST_GUESSES = 2_000
"""Newest guesses, and newest words of people, that are read."""
MOST_REPEATED = 100
"""Newest questions that were asked again whose later answer is looked for."""
SOON = 6
"""Turns after an answer among which its question is asked again."""
NEAR = 4
"""Of many answers to one prompt, each is paired with the few that came just before it."""

Ids = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Feedbacks:
    """What people have said, and what was guessed, newest pieces alone."""

    words: Sequence[Feedback]
    guesses: Sequence[Feedback]

    @classmethod
    def of(cls, store: Store) -> Feedbacks:
        words = store.feedback(newest=MOST_GUESSES, outright=True)
        guesses = store.feedback(newest=MOST_GUESSES, outright=False)
        return cls(
            standing(centred(words, store.middles())), [one for one in guesses if one.kind == "implicit"]
        )

    @property
    def compared(self) -> set[frozenset[int]]:
        """Pairs that somebody has compared, ties included."""
        return {
            frozenset((one.turn_id, one.other_turn_id))
            for one in self.words
            if one.kind == "preference" and one.other_turn_id is not None
        }

    @property
    def rated(self) -> set[int]:
        """Answers of which somebody has said what they are worth."""
        return {one.turn_id for one in self.words if one.kind in ("rating", "edit")}


def of_one_prompt(turns: Sequence[Turn]) -> list[Ids]:
    """Answers to the same prompt among these turns (newest first), the older one of each pair first."""
    places: dict[str, list[Turn]] = {}
    for turn in turns:
        places.setdefault(turn.prompt, []).append(turn)
    return [
        (older.id, newer.id)
        for several in places.values()
        for place, newer in enumerate(several)
        for older in several[place + 1 : place + NEAR]
    ]


def of_history(store: Store, guesses: Iterable[Feedback]) -> list[Ids]:
    """Pairs that a history brought: the branches of a conversation, and a question that was asked again."""
    newest = sorted(guesses, key=lambda one: -one.id)
    pairs = [(one.turn_id, one.other_turn_id) for one in newest if one.other_turn_id is not None]
    repeated = [one.turn_id for one in newest if one.source == "asked-again"][:MOST_REPEATED]
    return [*pairs, *_asked_again(store, repeated)]


def _asked_again(store: Store, repeated: Sequence[int]) -> list[Ids]:
    """The answers whose question was asked again, each with the answer to that."""
    near = store.turns_by_id({number + step for number in repeated for step in range(SOON)})
    pairs = []
    for number in repeated:
        following = [near[n] for n in range(number + 1, number + SOON) if n in near]
        first = near.get(number)
        later = next((t for t in following if first and t.session == first.session and asked_again(first.prompt, t.prompt)), None)  # fmt: skip
        if later is not None:
            pairs.append((number, later.id))
    return pairs


def can_be_compared(first: Turn, second: Turn) -> bool:
    """Whether a person can say which of two answers is better."""
    sides = (first, second)
    return (
        first.response.strip() != second.response.strip()
        and all(side.trainable and side.response.strip() and side.ending not in UNLEARNED for side in sides)
        and all(side.agent != GATE and PICTURE not in side.prompt for side in sides)
    )


def open_pairs(store: Store, pairs: Iterable[Ids], feedbacks: Feedbacks) -> list[tuple[Turn, Turn]]:
    """The first ``MOST_PAIRS`` of those that nobody has compared, with their turns."""
    compared, rated = feedbacks.compared, feedbacks.rated
    left = [pair for pair in pairs if frozenset(pair) not in compared and not set(pair) <= rated]
    found: list[tuple[Turn, Turn]] = []
    seen: set[frozenset[int]] = set()
    for start in range(0, len(left), 50):
        part = left[start : start + 50]
        turns = store.turns_by_id({number for pair in part for number in pair})
        for one, other in part:
            if frozenset((one, other)) in seen or not {one, other} <= turns.keys():
                continue
            seen.add(frozenset((one, other)))
            if can_be_compared(turns[one], turns[other]):
                found.append(_in_random_order(_slim(turns[one]), _slim(turns[other])))
        if len(found) >= MOST_PAIRS:
            break
    return found[:MOST_PAIRS]


def _slim(turn: Turn) -> Turn:
    """The turn with its question alone: three hundred long conversations need not be in memory."""
    return replace(turn, messages=({"role": "user", "content": turn.prompt},))


def _in_random_order(first: Turn, second: Turn) -> tuple[Turn, Turn]:
    """The same order each time, which does not tell which answer came first."""
    low, high = sorted((first, second), key=lambda turn: turn.id)
    return (high, low) if random.Random(f"{low.id}:{high.id}").random() < 0.5 else (low, high)


class PairQuestions:
    """Chooses pairs again after each answer. What does not depend on the answers is computed once."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._answers: Comparable | None = None

    def next(
        self, store: Store, turns: Sequence[Turn], held_out: Set[int], count: int
    ) -> list[tuple[Turn, Turn, float]]:
        """Up to ``count`` pairs, each chosen as if those before had been answered, and the bits that its answer is expected to tell (0: not known).

        ``turns``: newest unrated answers, in which pairs are looked for beside those of the history. ``held_out``: turns that are kept for the gate; what
        was said of them has no say. Without numpy the order stays.
        """
        said = Feedbacks.of(store)
        there = {*of_one_prompt(turns), *of_history(store, said.guesses)}
        pairs = open_pairs(store, sorted(there, key=max, reverse=True), said)
        best = [(index, 0.0) for index in range(len(pairs))][:count]
        if pairs and importlib.util.find_spec("numpy") is not None:
            best = self._informative(store, pairs, said, held_out, count) or best
        return [(*pairs[index], bits) for index, bits in best]

    def _informative(
        self,
        store: Store,
        pairs: Sequence[tuple[Turn, Turn]],
        feedbacks: Feedbacks,
        held_out: Set[int],
        count: int,
    ) -> list[tuple[int, float]]:
        """Indices and bits; nothing where no view tells the answers apart."""
        from clawback.feedback.information import best_pairs
        from clawback.rewards.acquisition import Comparable

        turns = {side.id: side for pair in pairs for side in pair}
        spoken = {
            n for one in (*feedbacks.words, *feedbacks.guesses) for n in (one.turn_id, one.other_turn_id) if n
        }
        others = sorted(spoken - turns.keys() - held_out)[-MOST_PAIRS:]
        turns |= {n: _slim(turn) for n, turn in store.turns_by_id(others).items() if turn.response.strip()}
        numbers = sorted(turns)
        if self._answers is None or numbers != self._numbers:
            shown = [turns[number] for number in numbers]
            self._numbers = numbers
            self._answers = Comparable([t.prompt for t in shown], [t.response for t in shown])
        place = {number: index for index, number in enumerate(numbers)}
        belief = self._answers.belief(observations(feedbacks, place, held_out))
        if belief is None:
            return []
        return best_pairs(belief, [(place[one.id], place[other.id]) for one, other in pairs], count)


def observations(feedbacks: Feedbacks, rows: Mapping[int, int], held_out: Set[int]) -> list[Comparison]:
    """What was said and guessed of answers, as the belief reads it."""
    spoken_of = feedbacks.rated | {number for pair in feedbacks.compared for number in pair}
    found = [
        _observation(one, rows, 1.0)
        for one in feedbacks.words
        if not held_out & {one.turn_id, one.other_turn_id}
    ]
    found += [
        _observation(one, rows, WEIGHTS["implicit"])
        for one in feedbacks.guesses
        if not (held_out | spoken_of) & {one.turn_id, one.other_turn_id}
    ]
    return [one for one in found if one is not None]


def _observation(opinion: Feedback, rows: Mapping[int, int], weight: float) -> Comparison | None:
    from clawback.rewards.acquisition import Comparison

    value = EDITED_AWAY if opinion.kind == "edit" else opinion.value
    if opinion.turn_id not in rows or not value or opinion.kind not in WEIGHTS:
        return None
    if opinion.other_turn_id is None:
        return Comparison(rows[opinion.turn_id], None, value > 0, weight * abs(value))
    if opinion.other_turn_id not in rows:
        return None
    return Comparison(rows[opinion.turn_id], rows[opinion.other_turn_id], value > 0, weight)
