"""Guided self-distillation: the base whose states are moved teaches the policy that is not, along the policy's own answers.

What moves them is a sentence that the base is told (``SentenceGuide``), or the words that the ratings speak for (``word_guide.py``).

A few dozen answers that were drawn under a sentence, learned token by token, teach a small model little of it: each token is one sample of what the
sentence changes. Here the whole distribution of the model that is told is learned at each position (context distillation: Askell et al. 2021,
arXiv:2112.00861, §2.3; Snell et al. 2022, arXiv:2209.15189). Any sentence after a prompt changes the answer (it becomes shorter); what is taught is what
this sentence changes beyond a neutral one, and further than the model itself takes it (classifier-free guidance with a negative prompt: Sanchez et al.
2023, arXiv:2306.17806, §3.4). With γ, the strength,

    log p_T(v) = log p(v | prompt) + γ · [log p(v | prompt, sentence) − log p(v | prompt, neutral sentence)] + const.

The LM head is linear, so p_T is what the head makes of the states h_plain + γ·(h_told − h_neutral), and the exact divergence from it is that of
``scoring/exact_kl.py``. The strength is the largest at which the base's own answers lose no more than a run may forget.

First it teaches along answers that are there already: the base's own, and those that the search for the sentence drew. Then, round by round, along what
the policy itself answers to other prompts by now (on-policy distillation: Agarwal et al. 2023, arXiv:2306.13649): there it corrects what the policy does wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from clawback.sources.distilled import DistilSettings, forgotten, take_back
from clawback.sources.graded import Grading, Prompt
from clawback.templates import Encoded
from clawback.trainer.examples import RatingSource, SourceState, TrainingExample

AnyGuide = TypeVar("AnyGuide", bound="Guide")
Under = Callable[[Prompt, str], Prompt]
"""(prompt, sentence) → the prompt with the sentence after it."""

NEUTRAL = "Answer the question."
"""A sentence that asks for nothing more than the prompt does."""

STRENGTHS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0)
"""γ that are tried; below 1: a part of the change."""


@dataclass(frozen=True)
class Guide(ABC):
    """The base with its states moved, as a teacher."""

    strength: float
    """γ."""

    @property
    def instruction(self) -> str:
        """The sentence that the base is told; "" where it is told none."""
        return ""

    @abstractmethod
    def changes(self, grading: Grading, answers: Sequence[Encoded]) -> list[Tensor]:
        """``[T, H]`` for each answer, float32 on the CPU: by how much the base's states are moved at a strength of 1."""

    @torch.no_grad()
    def states(self, grading: Grading, answers: Sequence[Encoded], plain: Sequence[Tensor]) -> list[Tensor]:
        """``[T, H]`` for each answer: states whose distribution is p_T. ``plain``: the base's own."""
        changes = self.changes(grading, answers)
        return [_moved(p, change, self.strength) for p, change in zip(plain, changes, strict=True)]

    def examples(self, grading: Grading, answers: Sequence[Encoded], weight: float) -> list[TrainingExample]:
        """The answers (to prompts without a sentence) with what is to be learned at each of their positions. ``weight``: of the divergence."""
        seen = grading.look(answers)
        states = self.states(grading, answers, seen.states)
        return [
            TrainingExample(
                encoded=one,
                advantage=0.0,
                old=seen.ref[i],
                ref=seen.ref[i],
                kl_weight=torch.full_like(seen.ref[i], weight),
                base=states[i],
            )
            for i, one in enumerate(answers)
        ]


@dataclass(frozen=True)
class SentenceGuide(Guide):
    """The base that is told a sentence."""

    under: Under
    sentence: str

    @property
    def instruction(self) -> str:
        return self.sentence

    @torch.no_grad()
    def changes(self, grading: Grading, answers: Sequence[Encoded]) -> list[Tensor]:
        """``[T, H]`` for each answer, float32 on the CPU: what the sentence changes in the base's states beyond a neutral one."""
        told = self._states_under(grading, self.sentence, answers)
        neutral = self._states_under(grading, NEUTRAL, answers)
        return [a.float() - b.float() for a, b in zip(told, neutral, strict=True)]

    def _states_under(self, grading: Grading, sentence: str, answers: Sequence[Encoded]) -> list[Tensor]:
        prompts = [(*self.under(one.question, sentence), *one.prompt[len(one.question) :]) for one in answers]
        encoded = [replace(one, prompt=prompt) for one, prompt in zip(answers, prompts, strict=True)]
        with grading.policy.base():
            states = grading.policy.scorer.hidden(encoded)
        return list(states.cpu().split([len(one.response) for one in answers]))


class GuidedRounds:
    """A source of examples: answers that are there, then in each round one of the policy's own to each of some prompts, with what the guide makes of them.

    It ends after its last round, or where the policy has forgotten as much as it may.
    """

    fresh = False
    critic = None

    def __init__(
        self,
        grading: Grading,
        guide: Guide,
        answers: Sequence[Encoded],
        settings: DistilSettings,
        prompts: Sequence[Prompt],
    ) -> None:
        """``answers``: to learn along first, to prompts without a sentence. ``prompts``: those of the rounds, taken in turn."""
        self.grading, self.guide, self.settings = grading, guide, settings
        order = torch.randperm(len(prompts), generator=grading.generator(0, 2)).tolist()
        self.prompts = [prompts[i] for i in order]
        rounds = settings.guided_rounds if guide.instruction else settings.word_rounds
        self.rounds = rounds if prompts else 0
        self.number, self.begun, self.answers = 0, 0, list(answers)
        self.dealt = self._dealt()
        self.asked = min(settings.refine_prompts, len(prompts))
        """Prompts of a round."""
        self.steps = self.dealt.steps + self.rounds * self._steps(self.asked)

    def examples(self, step: int) -> list[TrainingExample]:
        if step >= self.begun + self.dealt.steps:
            if self.number >= self.rounds or forgotten(self.grading) > self.settings.most_forgotten:
                return []
            self.number, self.begun = self.number + 1, step
            self.answers = self._own_answers()
            self.dealt = self._dealt()
        return self.dealt.examples(step - self.begun)

    def settle(self) -> str:
        """Take the policy back towards the base where it has forgotten too much; a sentence on it, "" where there was no need."""
        return take_back(self.grading, self.settings.most_forgotten)

    def state(self) -> SourceState:
        """The answers of the round under way. What the base says of them is asked again."""
        answers = [[list(one.prompt), list(one.response), one.thought] for one in self.answers]
        return {"number": self.number, "begun": self.begun, "answers": answers}

    def restore(self, state: SourceState) -> None:
        self.number, self.begun = int(state["number"]), int(state["begun"])
        self.answers = [Encoded(tuple(p), tuple(r), int(thought)) for p, r, thought in state["answers"]]
        self.dealt = self._dealt()

    def _own_answers(self) -> list[Encoded]:
        grading, first = self.grading, (self.number - 1) * self.asked
        prompts = [self.prompts[(first + i) % len(self.prompts)] for i in range(self.asked)]
        grading.tell({"phase": "draw", "step": self.number, "steps": self.rounds})
        drawn = grading.draw(prompts, 1, grading.generator(self.number, 3))
        return [one for one in drawn.answers if one.response]

    def _dealt(self) -> RatingSource:
        """The answers of the round, each once, shuffled."""
        taught = self.guide.examples(self.grading, self.answers, 1 / self.settings.hold_kl)
        seed = self.grading.seed * 1_009 + self.number
        units = [[one] for one in taught]
        return RatingSource(
            units, steps=self._steps(len(units)), per_step=self.settings.distil_batch, seed=seed
        )

    def _steps(self, answers: int) -> int:
        return max(1, round(answers * self.settings.passes / self.settings.distil_batch))


def strongest(guide: AnyGuide, grading: Grading, places: Sequence[int], most: float) -> AnyGuide | None:
    """The guide at the largest strength at which the base's answers at ``places`` are at most ``most`` nats a token less likely; None where the least
    goes further, or the model's head is none that ``Head`` knows."""
    scorer = grading.policy.scorer
    if not scorer.fused_head:
        return None
    watched, seen = [grading.base[i] for i in places], grading.base_seen.of(places)
    changes, before = guide.changes(grading, watched), torch.cat(seen.ref)
    within = None
    for strength in STRENGTHS:
        states = [_moved(p, change, strength) for p, change in zip(seen.states, changes, strict=True)]
        with torch.no_grad():
            scored = scorer.of_hidden(watched, torch.cat(states).to(scorer.device))
        if float((before - scored.logprobs.cpu()).mean()) > most:
            break
        within = strength
    return None if within is None else replace(guide, strength=within)


def _moved(plain: Tensor, change: Tensor, strength: float) -> Tensor:
    return (plain.float() + strength * change).to(plain.dtype)
