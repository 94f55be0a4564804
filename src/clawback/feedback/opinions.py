"""What each person thinks of an answer now: of all that was said, the words that count, with scores centred by whoever gave them.

A person may change their mind, in any place: the terminal, the page, an agent, a message. So of one person and one turn

- the newest rating counts (``good``, ``bad`` and scores alike),
- the newest edit counts,
- of a good rating and an edit, which contradict each other, the newer one counts; a bad rating and an edit agree, and both count,
- of preferences between the same two turns the newest counts.

Newest is what was said last, whenever it was stored. What is taken back is not there, so the word before it counts again. Different persons
are never merged: the mean of their opinions is the reward (``aggregate``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from clawback import scales
from clawback.records import Feedback

Middles = Mapping[tuple[str, str], float]
"""(person, scale) → the value that is 0 for that person."""
HINT_SOURCE = "hint:"
"""What the source of a candidate that a judge model extracted begins with."""


def standing(feedback: Iterable[Feedback]) -> list[Feedback]:
    """The words that count, oldest first. Critiques are no opinion with a number: all of them stay."""
    newest: dict[tuple[object, ...], Feedback] = {}
    for given in sorted(feedback, key=lambda f: f.moment):
        newest[_subject(given)] = given
    for (kind, turn, person, *_), rating in list(newest.items()):
        edit = newest.get(("edit", turn, person))
        if kind == "rating" and edit is not None and rating.value > 0:
            del newest["edit" if rating.moment > edit.moment else "rating", turn, person]
    return sorted(newest.values(), key=lambda f: f.moment)


def _subject(opinion: Feedback) -> tuple[object, ...]:
    """What a later word of the same person replaces."""
    if opinion.kind in ("rating", "edit"):
        return opinion.kind, opinion.turn_id, opinion.author
    if opinion.kind == "preference":
        return opinion.kind, frozenset((opinion.turn_id, opinion.other_turn_id)), opinion.author
    return opinion.kind, opinion.turn_id, opinion.author, opinion.id, id(opinion)


def ratings(feedback: Iterable[Feedback], middles: Middles | None = None) -> list[Feedback]:
    """The newest rating of each person and turn, oldest first, with centred scores."""
    every = [f for f in feedback if f.kind == "rating"]
    return standing(centred(every, middles))


def middles_of(feedback: Iterable[Feedback]) -> dict[tuple[str, str], float]:
    """What is usual for each person on each scale, by the scores that stand among these."""
    groups: dict[tuple[str, str], list[float]] = {}
    for given in standing(f for f in feedback if f.kind == "rating"):
        if given.scale:
            groups.setdefault((given.author, given.scale), []).append(given.value)
    return {group: scales.middle(values) for group, values in groups.items()}


def centred(feedback: Iterable[Feedback], middles: Middles | None = None) -> list[Feedback]:
    """The same feedback with each score's value centred by the person who gave it (by these scores themselves, without ``middles``)."""
    every = list(feedback)
    if not any(f.scale for f in every):
        return every
    zero = middles_of(every) if middles is None else middles
    return [
        replace(f, value=scales.centred(f.value, zero.get((f.author, f.scale), 0.0)))
        if f.scale and f.kind == "rating"
        else f
        for f in every
    ]


def hints_of(opinions: Sequence[Feedback]) -> tuple[str, ...]:
    """The hints among what was said of a turn: the person's own critiques, newest first, then candidates, longest first."""
    standing = [f for f in opinions if f.kind == "critique" and f.undone_at is None and f.text.strip()]
    own = [f for f in standing if not f.source.startswith(HINT_SOURCE)]
    read = [f for f in standing if f.source.startswith(HINT_SOURCE)]
    ordered = sorted(own, key=lambda f: f.moment, reverse=True) + sorted(
        read, key=lambda f: (-len(f.text), f.id)
    )
    return tuple(dict.fromkeys(f.text.strip() for f in ordered))
