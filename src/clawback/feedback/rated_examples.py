"""Rated answers for somebody else to read (a model that says what the person likes): redacted, cut, and as few as are needed.

What is held out for the gate is not among them: whoever proposes rules or sentences has not seen what these are tested by.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from clawback.redact import redact

if TYPE_CHECKING:
    from clawback.records import Sample
    from clawback.store import Store

MOST = 12
"""Liked, and disliked, answers that are read at most: the newest."""
QUESTION, ANSWER = 300, 1_200
"""Characters of each that are read."""
NEWEST = 512
"""Rated answers among which they are looked for."""


class RatedExample(NamedTuple):
    """One rated answer, as it may leave this machine."""

    turn: int
    liked: bool
    question: str
    answer: str


def rated_samples(store: Store, held_out: float = 0.125) -> list[Sample]:
    """Rated answers and corrections, without what is held out for the gate; the newest ``NEWEST``, oldest first."""
    from clawback.feedback import turn_reward

    samples = turn_reward.evidence(turn_reward.samples(store))
    train, _ = turn_reward.split(samples, held_out, store.splits(sample.turn_id for sample in samples))
    return [sample for sample in train if sample.rated and sample.response.strip()][-NEWEST:]


def sides(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Liked and disliked answers, newest first. Of somebody who likes all that they score, their own middle divides them."""
    middle = median(sample.reward for sample in samples) if samples else 0.0
    bound = min(max(middle, -0.01), 0.01)  # taps: either sign
    if not any(sample.reward < bound for sample in samples):
        bound = middle
    newest = list(reversed(samples))
    return [s for s in newest if s.reward > bound], [s for s in newest if s.reward < bound]


def rated_examples(store: Store, most: int = MOST, held_out: float = 0.125) -> list[RatedExample]:
    """The newest liked and disliked answers, as many of each as there are up to ``most``, oldest first."""
    return examples_of(store, rated_samples(store, held_out), most)


def examples_of(store: Store, samples: Sequence[Sample], most: int = MOST) -> list[RatedExample]:
    """The same, of these samples."""
    liked, disliked = sides(samples)
    examples = [_example(store, one, True) for one in liked[:most]]
    examples += [_example(store, one, False) for one in disliked[:most]]
    return sorted(examples)


def pieces_of(examples: Sequence[RatedExample]) -> list[tuple[str, str]]:
    """(heading, text) of each for a model to read: liked and disliked in turn, newest first."""
    newest = list(reversed(examples))
    groups = [[one for one in newest if one.liked], [one for one in newest if not one.liked]]
    pieces = []
    for number in range(max(map(len, groups), default=0)):
        for word, group in zip(("LIKED", "DISLIKED"), groups, strict=True):
            if number < len(group):
                text = f"Question: {group[number].question}\n\nAnswer: {group[number].answer}"
                pieces.append((f"{word} {number + 1}", text))
    return pieces


def _example(store: Store, sample: Sample, liked: bool) -> RatedExample:
    from clawback.records import Turn

    question = Turn("", sample.messages, sample.response).prompt
    return RatedExample(
        sample.turn_id,
        liked,
        _cut(store, question, QUESTION),
        _cut(store, sample.response, ANSWER),
    )


def _cut(store: Store, text: str, length: int) -> str:
    """Without secrets, also where the settings leave them in what is stored here; then shortened in the middle."""
    clean = redact(str(store.clean(text.strip())))
    return clean if len(clean) <= length else f"{clean[: length // 2 - 2]} […] {clean[-length // 2 + 3 :]}"


def preview(examples: Sequence[RatedExample], width: int = 100) -> str:
    """A line for each: what would be read, for the person to look at first."""
    lines = []
    for one in examples:
        line = f"turn {one.turn}, {'liked' if one.liked else 'disliked'}: {one.question} → {one.answer}"
        line = " ".join(line.split())
        lines.append(line if len(line) <= width else f"{line[: width - 1]}…")
    return "\n".join(lines)
