"""Fresh answers of the compared versions to the same prompts: which prompts the gate asks, who else looks at the answers, and their scores under the base."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.feedback import turn_reward
from clawback.gate.questions import ShownAnswers
from clawback.gate.report import ReaderOpinion
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import GATE, GUARDED_ANSWERS, Message, Sample, Turn

if TYPE_CHECKING:
    from clawback.features.style_features import Floats
    from clawback.models import Completion
    from clawback.policy import Policy
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
        different.setdefault(turn_reward.prompt_key(turn.messages), turn)
    kept = turn_reward.kept_turns(store, different.values(), share)[:MOST_PROMPTS]
    room = max(LEAST_PROMPTS - len(kept), 0)
    numbers, learned = {turn.id for turn in kept}, turn_reward.learned_prompts(store) if room else set()
    others = [(key in learned, turn) for key, turn in different.items() if turn.id not in numbers]
    rest = [turn for _, turn in sorted(others, key=lambda one: one[0])][:room]
    return [turn.messages for turn in (*kept, *rest)], len(kept)


def opinion(home: Home, shown: ShownAnswers) -> ReaderOpinion | None:
    """The reward model's opinion of both versions' answers; None where there is no reward model, or none that can be used."""
    if not home.reward.exists():
        return None
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


Conversation = Sequence[Message]


@dataclass(frozen=True, slots=True)
class VersionPair:
    """The two versions that are compared, on one base model."""

    candidate: Path | None
    """The candidate's PEFT folder; that of the live version where only its prompt is another."""
    live: Path | None
    """None is the base model."""
    candidate_prompt: str = ""
    live_prompt: str = ""
    """The learned prompts that they answer under. The base answers under the candidate's, and so does whatever compares: a prompt that was folded
    into the weights is to be needed no more."""
    folded: bool = False
    """The candidate is to do without a prompt what the live version does with it. It is compared with the middle between the live version's answers
    and the base's: to be better than that is to have kept more than half of what the prompt gives."""

    @property
    def same_prompt(self) -> bool:
        return self.candidate_prompt == self.live_prompt


@dataclass(frozen=True, slots=True)
class FreshAnswers:
    """One version's answers, and the base model's scores of them."""

    completions: list[Completion]
    hidden: Floats  # [answers, hidden + 1] pooled states of the base
    base: list[float]
    """log π_base of each answer, summed over its tokens."""
    elsewhere: list[float] | None
    """The same of the first ``GUARDED_ANSWERS``, given another of the prompts; None where all ask the same."""
    kl: float
    """Σ log π - log π_base over an answer's tokens, mean over answers."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """Answers of the candidate, the live version and the base to the conversations ``prompts``."""

    prompts: list[Conversation]
    candidate: FreshAnswers
    live: FreshAnswers
    base: FreshAnswers
    neutral: list[float]
    """log π of the first ``GUARDED_ANSWERS`` of the base's under the candidate, each summed over its tokens."""
    shifts: list[float]
    """Of the log-prob per token, candidate less live, of each sample that was kept out of training."""


def draw(
    policy: Policy,
    pair: VersionPair,
    held: Sequence[Sample],
    prompts: list[Conversation],
    limits: dict[str, Any],
    tell: OnProgress = lambda _: None,
) -> Fresh:
    """Put the adapters on in turn, and let each answer. ``limits``: what ``Policy.generate`` takes beside the conversations."""
    tell({"phase": "gate", "step": 0, "steps": 4})
    policy.put(pair.live)
    with speaking(policy, pair.candidate_prompt, pair.live_prompt):
        live = answers(policy, prompts, limits)
        live_shares = per_token(policy, held)
    if not pair.same_prompt:
        live = understood(policy, prompts, live.completions)
    tell({"phase": "gate", "step": 1, "steps": 4})
    base = live
    if (pair.candidate != pair.live or pair.folded) and (pair.live is not None or not pair.same_prompt):
        policy.put(None)
        base = answers(policy, prompts, limits)
    tell({"phase": "gate", "step": 2, "steps": 4})
    policy.put(pair.candidate)
    candidate = answers(policy, prompts, limits)
    shifts = [new - old for new, old in zip(per_token(policy, held), live_shares, strict=True)]
    neutral = totals(policy, prompts[:GUARDED_ANSWERS], base.completions[:GUARDED_ANSWERS])
    tell({"phase": "gate", "step": 3, "steps": 4})
    return Fresh(prompts, candidate, live, base, neutral, shifts)


@contextmanager
def speaking(policy: Policy, usual: str, system: str) -> Iterator[None]:
    """A context manager that sets another learned prompt for a while."""
    if system == usual:
        yield
        return
    policy.chat.system = system
    try:
        yield
    finally:
        policy.chat.system = usual


def answers(policy: Policy, prompts: Sequence[Conversation], limits: dict[str, Any]) -> FreshAnswers:
    made = [c for [c] in policy.generate(prompts, **limits)]
    return understood(policy, prompts, made, by_base=not policy.has_adapter)


def understood(
    policy: Policy, prompts: Sequence[Conversation], drawn_answers: list[Completion], by_base: bool = False
) -> FreshAnswers:
    """The base model's scores of answers, under the prompt that the policy has now, if any. ``by_base``: it drew them itself, and their log-probs were
    recorded."""
    base = (
        [sum(one.logprobs) for one in drawn_answers]
        if by_base
        else totals(policy, prompts, drawn_answers, base=True)
    )
    # Of its own answers a version's log-probs were recorded when they were drawn.
    kl = sum(sum(one.logprobs) - total for one, total in zip(drawn_answers, base, strict=True)) / len(
        drawn_answers
    )
    return FreshAnswers(
        drawn_answers,
        hidden(policy, prompts, drawn_answers),
        base,
        elsewhere(policy, prompts[:GUARDED_ANSWERS], drawn_answers[:GUARDED_ANSWERS]),
        kl,
    )


def hidden(policy: Policy, prompts: Sequence[Conversation], completions: Sequence[Completion]) -> Floats:
    """``[n, hidden + 1]`` of the base, the adapter off."""
    return policy.features(prompts, [list(one.ids) for one in completions]).double().numpy()


def totals(
    policy: Policy, prompts: Sequence[Conversation], completions: Sequence[Completion], base: bool = False
) -> list[float]:
    """Log-probability of each answer, summed over its tokens."""
    ids = [list(c.ids) for c in completions]
    if base:
        with policy.base():
            values = policy.logprobs(prompts, ids)
    else:
        values = policy.logprobs(prompts, ids)
    return [float(v.sum()) for v in values]


def elsewhere(
    policy: Policy, prompts: Sequence[Conversation], completions: Sequence[Completion]
) -> list[float] | None:
    """Log-probability of each answer under the base, given another of the conversations, one that asks something else."""
    others = swapped(prompts)
    return None if others is None else totals(policy, others, completions, base=True)


def per_token(policy: Policy, samples: Sequence[Sample]) -> list[float]:
    """Mean log-probability of a response token of each sample."""
    import torch

    if not samples:
        return []
    with torch.no_grad():
        values = policy.scorer([policy.encode(s) for s in samples]).split()
    return [float(v.mean()) if len(v) else 0.0 for v in values]


def swapped(prompts: Sequence[Conversation]) -> list[Conversation] | None:
    """Another of the conversations for each, one that asks something else; None where all ask the same."""
    questions = [question(messages) for messages in prompts]
    count = len(prompts)
    others = []
    for i, own in enumerate(questions):
        # Half way round first: neighbours are often about the same thing.
        places = ((i + count // 2 + step) % count for step in range(count))
        other = next((j for j in places if questions[j] != own), None)
        if other is None:
            return None
        others.append(prompts[other])
    return others


def question(messages: Conversation) -> str:
    return Turn("", tuple(messages), "").prompt
