"""Which prompts the gate asks, and who else looks at the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.feedback import hold_out
from clawback.gate.questions import ShownAnswers
from clawback.gate.report import ReaderOpinion
from clawback.paths import Home
from clawback.records import GATE, Message, Turn

if TYPE_CHECKING:
    from clawback.store import Store

MOST_TURNS = 512
"""Newest turns among which prompts are looked for."""
MOST_PROMPTS = 16
"""Prompts that are asked, each as often as there are answers for. The questions of the gate then match answers of both versions by rank within a prompt, and
their difference is that of the versions and not of two draws: with one answer each to 96 prompts a version that is better by 25 points won 76 % of
the decided answers, with six each to 16 prompts 86 % (`python -m benchmarks gate_questions`)."""
LEAST_PROMPTS = 8
"""Where fewer prompts are kept, others are asked as well, last and marked in the report."""


def prompts(store: Store, share: float) -> tuple[list[tuple[Message, ...]], int]:
    """The person's own newest different conversations up to their question, ``MOST_PROMPTS`` at most, and how many of them are kept: those come first, and alone if
    there are enough.

    Of the others, those come first of which no run has learned from a rating. A run may have drawn on any of them.
    """
    every = store.turns(limit=MOST_TURNS)
    usable = [t for t in every if t.trainable and t.messages and t.prompt and t.agent != GATE]
    different: dict[str, Turn] = {}
    for turn in usable:
        different.setdefault(hold_out.prompt_key(turn.messages), turn)
    kept = hold_out.kept_turns(store, different.values(), share)[:MOST_PROMPTS]
    room = max(LEAST_PROMPTS - len(kept), 0)
    numbers, learned = {turn.id for turn in kept}, hold_out.learned_prompts(store) if room else set()
    others = [(key in learned, turn) for key, turn in different.items() if turn.id not in numbers]
    rest = [turn for _, turn in sorted(others, key=lambda one: one[0])][:room]
    return [turn.messages for turn in (*kept, *rest)], len(kept)


def opinion(home: Home, shown: ShownAnswers) -> ReaderOpinion | None:
    """The reward model's opinion of both versions' answers; None where there is no reward model, or none that can be used."""
    from clawback.errors import ClawbackError
    from clawback.rewards import reward_model

    try:
        model = reward_model.load(home)
    except ClawbackError:  # information alone: `clawback lab reward eval` says what is wrong
        return None

    questions = [Turn("", tuple(messages), "").prompt for messages in shown.prompts]
    means = [
        float(model.score([(q, c.text) for q, c in zip(questions, answers, strict=True)]).mean())
        for answers in (shown.candidate, shown.live)
    ]
    return ReaderOpinion(model.name, *means)
