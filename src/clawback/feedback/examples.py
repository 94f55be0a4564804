"""Rated answers for somebody else to read (a model that says what the person likes): redacted, cut, and as few as are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from clawback.redact import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawback.records import Sample
    from clawback.store import Store

MOST = 12
"""Liked, and disliked, answers that are read at most: the newest."""
QUESTION, ANSWER = 300, 1_200
"""Characters of each that are read."""


class RatedExample(NamedTuple):
    """One rated answer, as it may leave this machine."""

    turn: int
    liked: bool
    question: str
    answer: str


def rated_examples(store: Store, most: int = MOST) -> list[RatedExample]:
    """The newest liked and disliked answers, as many of each as there are up to ``most``, oldest first."""
    from clawback.feedback.aggregate import samples

    read = [one for one in samples(store, newest=40 * most) if one.reward and one.response.strip()]
    liked = [_example(store, one) for one in read if one.reward > 0][-most:]
    disliked = [_example(store, one) for one in read if one.reward < 0][-most:]
    return sorted([*liked, *disliked])


def _example(store: Store, sample: Sample) -> RatedExample:
    from clawback.records import Turn

    question = Turn("", sample.messages, sample.response).prompt
    return RatedExample(
        sample.turn_id,
        sample.reward > 0,
        _cut(store, question, QUESTION),
        _cut(store, sample.response, ANSWER),
    )


def _cut(store: Store, text: str, length: int) -> str:
    """Without secrets, also where the settings leave them in what is stored here; then shortened."""
    clean = redact(str(store.clean(text)))
    return clean if len(clean) <= length else f"{clean[: length - 1]}…"


def preview(examples: Sequence[RatedExample], width: int = 100) -> str:
    """A line for each: what would be read, for the person to look at first."""
    lines = []
    for one in examples:
        line = f"turn {one.turn}, {'liked' if one.liked else 'disliked'}: {one.question} → {one.answer}"
        line = " ".join(line.split())
        lines.append(line if len(line) <= width else f"{line[: width - 1]}…")
    return "\n".join(lines)
