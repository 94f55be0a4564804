"""Guided self-distillation: the base that is told a sentence teaches the base that is not, along answers that are there already.

A few dozen answers that were drawn under a sentence, learned token by token, teach a small model little of it: each token is one sample of what the
sentence changes. Here the whole distribution of the model that is told is learned at each position (context distillation: Askell et al. 2021,
arXiv:2112.00861, §2.3; Snell et al. 2022, arXiv:2209.15189), and what the sentence changes is taken further than the model itself takes it
(classifier-free guidance of a language model: Sanchez et al. 2023, arXiv:2306.17806, eq. 7). With γ, the strength,

    log p_T(v) = γ · log p(v | prompt, sentence) − (γ − 1) · log p(v | prompt) + const.

The LM head is linear, so p_T is what the head makes of the states γ·h_told − (γ − 1)·h_plain, and the exact divergence from it is that of
``scoring/exact_kl.py``. No answer is drawn for it: those to learn along are the base's own and the ones that the search for the sentence drew.

The strength is the largest at which the base's own answers lose no more than a run may forget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clawback.learning.examples import TrainingExample
from clawback.models import Encoded

if TYPE_CHECKING:
    from clawback.learning.sources.graded import Grading, Prompt, Seen

Under = Callable[["Prompt"], "Prompt"]
"""A prompt → the same with the sentence."""

STRENGTHS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)


@dataclass(frozen=True)
class Guide:
    """A teacher, and the answers along which it teaches."""

    under: Under
    strength: float
    """γ; 1: the model that is told, as it is."""
    answers: Sequence[Encoded] = ()
    """After the prompt without the sentence."""

    @torch.no_grad()
    def states(self, grading: Grading, answers: Sequence[Encoded], plain: Sequence[Tensor]) -> list[Tensor]:
        """``[T, H]`` for each answer: states whose distribution is p_T. ``plain``: the base's own, without the sentence."""
        instructed = _instructed_states(grading, self.under, answers)
        return [_guided(i, p, self.strength) for i, p in zip(instructed, plain, strict=True)]

    def examples(self, grading: Grading, seen: Seen, weight: float) -> list[TrainingExample]:
        """The answers with what is to be learned at each of their positions. ``seen``: what the base makes of them; ``weight``: of the divergence."""
        states = self.states(grading, self.answers, seen.states)
        return [
            TrainingExample(
                encoded=one,
                advantage=0.0,
                old=seen.ref[i],
                ref=seen.ref[i],
                kl_weight=torch.full_like(seen.ref[i], weight),
                base=states[i],
            )
            for i, one in enumerate(self.answers)
        ]


def teaches(grading: Grading) -> bool:
    """Whether the model's head is one whose distribution follows from states."""
    return grading.policy.scorer.fused_head


def guide(
    grading: Grading, under: Under, answers: Sequence[Encoded], places: Sequence[int], most: float
) -> Guide | None:
    """The guide of the largest strength under which the base's answers at ``places`` are at most ``most`` nats a token less likely; None where the model that is
    told goes further by itself, or the model's head is none that ``Head`` knows."""
    if not teaches(grading):
        return None
    scorer = grading.policy.scorer
    watched, seen = [grading.base[i] for i in places], grading.base_seen.of(places)
    instructed, before = _instructed_states(grading, under, watched), torch.cat(seen.ref)
    strongest = None
    for strength in STRENGTHS:
        states = [_guided(i, p, strength) for i, p in zip(instructed, seen.states, strict=True)]
        with torch.no_grad():
            scored = scorer.of_hidden(watched, torch.cat(states).to(scorer.device))
        if float((before - scored.logprobs.cpu()).mean()) > most:
            break
        strongest = strength
    return None if strongest is None else Guide(under, strongest, tuple(answers))


def _guided(instructed: Tensor, plain: Tensor, strength: float) -> Tensor:
    if strength == 1:
        return instructed
    return (strength * instructed.float() - (strength - 1) * plain.float()).to(instructed.dtype)


@torch.no_grad()
def _instructed_states(grading: Grading, under: Under, answers: Sequence[Encoded]) -> list[Tensor]:
    """``[T, H]`` states of the base that is told the sentence, for each answer, on the CPU."""
    asked = [replace(one, prompt=(*under(one.question), *one.prompt[len(one.question) :])) for one in answers]
    with grading.policy.base():
        states = grading.policy.scorer.hidden(asked)
    return list(states.cpu().split([len(one.response) for one in answers]))
