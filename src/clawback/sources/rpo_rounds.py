"""Iterated RPO: the policy learns the best answers drawn under a sentence, then round by round the best of its own.

A sentence that a small model follows only now and then, or a taste that no sentence asks for, takes it a part
of the way: the best of several answers show more of what is liked than the policy's average answer, and once
it has learned them, the best of its own show more again (expert iteration: Anthony et al. 2017, arXiv:1705.08439).
Each is preferred to the worst answer of the policy itself to the same prompt, where that is clearly worse (iterative RPO: Pang et
al. 2024, arXiv:2404.19733): a few pairs say what is liked where a good answer alone also teaches all else that it
happens to say (research/studies/2026-11-22-saying-the-taste.md, "Best against worst"). Where a sentence helped, most answers of a round are drawn
under it: what the policy has learned and what it is told add up, so the teacher stays ahead of the learner. It ends
when the policy's own answers are graded as well as what it learned from (nothing is left to choose), or when the base's own
answers have become so unlikely that a round more would take the version beyond what the gate lets pass. What the last round took
too far is taken back (``policy/interpolation.py``).

Each round uses other prompts, first those without a good answer yet. A policy memorises what it has learned:
on learned prompts it seems to have the taste when on new ones it has not (0.78 against 0.28 of the answers
liked: SmolLM2, "a list"; research/studies/2026-11-22-saying-the-taste.md, "Rounds at other prompts"). So there are no more
rounds than it takes to ask each prompt once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from clawback.progress import OnProgress
from clawback.sources.distilled import (
    Chosen,
    DistilSettings,
    chosen,
    examples,
    forgotten,
    nothing,
    take_back,
    worst,
)
from clawback.sources.graded import Graded, Grading, Prompt
from clawback.sources.instructed import answers_to
from clawback.templates import Encoded
from clawback.trainer.examples import RatingSource, SourceState, TrainingExample

LEFT = 0.15
"""Standard deviations of the base's rewards between what is learned and what the policy says by itself below which nothing is left to learn."""


class RpoRounds:
    """A source of examples: the ``first`` best answers, then rounds of the policy's own best. What it draws follows from the seed and the round."""

    fresh = False
    critic = None

    def __init__(
        self,
        grading: Grading,
        first: Chosen,
        settings: DistilSettings,
        prompts: Sequence[Prompt] = (),
        tell: OnProgress = lambda _: None,
        under: Callable[[Prompt], Prompt] | None = None,
    ) -> None:
        """``prompts``: all that may be asked in the rounds. ``under``: a prompt with the sentence that won; None where none did."""
        self.grading, self.settings, self.tell, self.under = grading, settings, tell, under
        self.known: dict[Prompt, Graded] = {one.encoded.question: one for one in first.answers}
        """The best answer to each prompt so far."""
        new = [prompt for prompt in prompts if prompt not in self.known]
        self.prompts = [*self._shuffled(new), *self._shuffled(list(self.known))]
        """In the order in which they are asked."""
        self.targets = first.targets
        """Edits and comparisons, learned in each round."""
        self.number, self.round = 0, first
        self.begun, self.dealt = 0, self._dealt()
        self.rounds = settings.rounds(len(self.prompts))
        self.steps = self.dealt.steps + self.rounds * self._steps(settings.refine_prompts + len(self.targets))

    def examples(self, step: int) -> list[TrainingExample]:
        if step >= self.begun + self.dealt.steps:
            best = self._best_answers(self.number + 1) if self.number < self.rounds else None
            if best is None:
                return []
            self.round, self.number, self.begun = best, self.number + 1, step
            self.dealt = self._dealt()
        return self.dealt.examples(step - self.begun)

    def _best_answers(self, number: int) -> Chosen | None:
        """The best answers of a round to learn from; none where they are hardly better than the policy's usual ones."""
        grading, settings = self.grading, self.settings
        if forgotten(grading) > settings.most_forgotten:
            return None
        count = min(settings.refine_prompts, len(self.prompts))
        some = [self.prompts[((number - 1) * count + i) % len(self.prompts)] for i in range(count)]
        self.tell({"phase": "draw", "step": number, "steps": self.rounds})
        told = min(settings.refine_told, settings.refine_samples - 1) if self.under else 0
        drawn = grading.draw(some, settings.refine_samples - told, grading.generator(number, 3))
        ours = grading.judged(drawn.answers, drawn.ended)
        others = [self.known[prompt] for prompt in some if prompt in self.known]
        if told and self.under:
            said = [self.under(prompt) for prompt in some]
            others += answers_to(grading, some, said, told, grading.generator(number, 9))
        best = chosen(grading, ours + others, settings)
        for one in best.answers:
            self.known[one.encoded.question] = one
        left = np.mean([one.reward for one in best.answers] or [-np.inf]) - np.mean(
            [one.reward for one in ours if one.complete] or [grading.typical]
        )
        enough = len(best.answers) >= settings.distil_batch
        if not enough or left <= LEFT * grading.spread:
            return None
        return replace(best, worst=worst(grading, ours), targets=self.targets)

    def settle(self) -> str:
        """Take the policy back towards the base where its own answers have become too unlikely; a sentence on it, "" where there was no need."""
        return take_back(self.grading, self.settings.most_forgotten)

    def _shuffled(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        order = torch.randperm(len(prompts), generator=self.grading.generator(0, 2)).tolist()
        return [prompts[i] for i in order]

    def _dealt(self) -> RatingSource:
        """The round's answers and targets with some of the base's, each ``passes`` times, shuffled."""
        made = examples(self.grading, self.round, self.settings, self.number)
        count = len(self.targets)
        repeats = 1 if self.number else self.settings.repeats(count)
        once = self._steps(len(self.round.answers) + repeats * count)
        steps = once if self.number else max(self.settings.least_steps, once)
        seed = self.grading.seed * 1_009 + self.number
        each = max(1, round(len(made) * self.settings.passes / once))
        return RatingSource(made, steps=steps, per_step=each, seed=seed)

    def _steps(self, answers: int) -> int:
        settings = self.settings
        examples = answers * (1 + settings.hold_share)
        return max(1, round(examples * settings.passes / settings.distil_batch))

    # ----------------------------------------------------------------------------------------------- the state

    def state(self) -> SourceState:
        """The round under way and the best answers known. What the base says of them is asked again."""
        return {
            "number": self.number,
            "begun": self.begun,
            "round": [_record(one) for one in self.round.answers],
            "worst": [_record(one) for one in self.round.worst.values()],
            "known": [_record(one) for one in self.known.values()],
        }

    def restore(self, state: SourceState) -> None:
        self.number, self.begun = int(state["number"]), int(state["begun"])
        best = [_graded(one) for one in state["round"]]
        low = worst(self.grading, [_graded(one) for one in state.get("worst", ())])
        self.round = nothing(self.targets)
        if best:
            seen = self.grading.look([one.encoded for one in best])
            self.round = Chosen(best, seen, low, self.targets)
        self.known = {one.encoded.question: one for one in map(_graded, state["known"])}
        self.dealt = self._dealt()


def _record(answer: Graded) -> list[Any]:
    return [
        list(answer.encoded.prompt),
        list(answer.encoded.response),
        answer.encoded.thought,
        answer.reward,
        answer.complete,
    ]


def _graded(record: Sequence[Any]) -> Graded:
    prompt, response, thought, reward, whole = record
    return Graded(Encoded(tuple(prompt), tuple(response), int(thought)), float(reward), bool(whole))
