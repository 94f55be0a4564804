"""Somebody who says which of two answers is better, where a gate asks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clawback.gate.report import Report
    from clawback.gate.rule import Decision, Evidence
    from clawback.paths import Home
    from clawback.records import Turn


def first_is_better(likes: tuple[bool, bool], rng: random.Random, wrong: float) -> bool:
    """The liked one, with a share of wrong choices; a coin where both or neither are liked."""
    if likes[0] == likes[1]:
        return rng.random() < 0.5
    return likes[0] != (rng.random() < wrong)


def answer_all(
    home: Home,
    likes: Callable[[Turn], bool],
    rng: random.Random,
    wrong: float,
    judge: Callable[[], Report | None],
) -> int:
    """Answer what the gate asks in a home until it asks no more. ``judge``: judges again. Returns how many were answered."""
    from clawback import feedback, store
    from clawback.admin.rating_inbox import Inbox

    count = 0
    while pair := next(iter(Inbox(home).questions()), None):
        first = first_is_better((likes(pair.first), likes(pair.second)), rng, wrong)
        better, worse = (pair.first, pair.second) if first else (pair.second, pair.first)
        with store.connect(home.database) as db:
            feedback.prefer(db, better.id, worse.id)
        count += 1
        judge()
    return count


def decided(
    seen: Evidence,
    asked: Sequence[tuple[str, str]],
    likes: Callable[[str], bool],
    rng: random.Random,
    wrong: float,
) -> tuple[Decision, int]:
    """The decision on evidence once its questions are answered: (the candidate's answer, the live version's) each. And how many were needed."""
    from dataclasses import replace

    from clawback.config import GateSection
    from clawback.gate.rule import decide

    answers: list[Any] = []
    decision = decide(seen, GateSection())
    while decision.asks:
        ours, theirs = asked[len(answers)]
        answers.append(first_is_better((likes(ours), likes(theirs)), rng, wrong))
        decision = decide(replace(seen, answers=tuple(answers)), GateSection())
    return decision, len(answers)
