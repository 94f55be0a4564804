"""Grades by rules: how far an answer keeps what the person has said in words, beside what is read from the ratings.

Each rule that code or a believed judge can check counts by its verdict, where the ratings tell nothing: else the reader looks at the verdicts. The others
count by how much likelier the rule makes what the answer says to the base: log π(a_t | prompt, rule) − log π(a_t | prompt), the mean of the ``TELLING``
tokens of which that is highest, in standard deviations of the base's own answers. A few words show that a rule is kept; the mean of all tokens, an
attribute's reward in Drift (arXiv:2502.14289, eq. 4), tells nothing of it on two small models (research/studies/2026-11-29-words-beside-taps.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from clawback.features.style_features import Floats
from clawback.sources.instructed import PromptMessages, answer_after
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.rewards.views import Judge
    from clawback.sources.first_reading import Inputs
    from clawback.sources.graded import Grading
    from clawback.trainer.run import TrainingRun

MOST = 4
"""Rules that are graded together: a model that is told more at once follows few of them."""
UNIT = 0.25
"""Of a rating, for a standard deviation. The ratings do not weigh it: of a wish that the base hardly ever meets they show almost nothing, and what was said
in words tells liked answers drawn under it from others best (AUC 0.81 and 0.80 with the reader; weighed by the ratings 0.76 and 0.73, the reader alone 0.66
and 0.57: Qwen2.5-Coder-0.5B and SmolLM2, nine and eight development remarks; research/studies/2026-11-29-what-a-run-learns-of-a-remark.md)."""
TELLING = 10
"""Tokens of an answer that count."""


@dataclass
class RuleGrades:
    """Grades ``[S]`` in [-1, 1] of answers by rules. ``base``: mean and standard deviation of r among the base's answers."""

    grading: Grading
    conversations: PromptMessages
    sentences: Sequence[str]
    judge: Judge | None
    columns: Sequence[int]
    """Columns of the judge's verdicts that are of these rules."""
    unchecked: Sequence[str]
    """Rules that no verdict is about."""
    base: tuple[float, float] = field(default=(0.0, 1.0))
    known: dict[Encoded, float] = field(default_factory=dict)
    """r of answers that were graded before: those of the base are graded to scale the others, and then as what a run may learn."""

    def ground(self) -> None:
        """See how much likelier the rules make the base's own answers."""
        if self.unchecked:
            ratios = self.ratios(self.grading.base)
            self.base = float(ratios.mean()), max(float(ratios.std()), 1e-6)

    def __call__(self, answers: Sequence[Encoded], pairs: Sequence[tuple[str, str]]) -> Floats:
        grades = []
        if self.columns and self.judge is not None:
            questions, texts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            verdicts = self.judge(questions, texts)[:, list(self.columns)]
            grades += [2 * np.where(np.isnan(column), 0.5, column) - 1 for column in verdicts.T]
        if self.unchecked:
            mean, deviation = self.base
            scaled = np.clip(UNIT * (self.ratios(answers) - mean) / deviation, -1.0, 1.0)
            grades += [scaled] * len(self.unchecked)
        together: Floats = np.mean(grades, axis=0)
        return together

    def ratios(self, answers: Sequence[Encoded]) -> Floats:
        """``[S]`` r of each answer, all rules without a verdict told at once."""
        new = [one for one in dict.fromkeys(answers) if one not in self.known]
        if new:
            self.known |= zip(new, self._ratios(new), strict=True)
        return np.array([self.known[one] for one in answers])

    @torch.no_grad()
    def _ratios(self, answers: Sequence[Encoded]) -> list[float]:
        grading, sentence = self.grading, " ".join(self.unchecked)
        prompts = [
            answer_after(one, self.conversations.under(grading, one.question, sentence)) for one in answers
        ]
        with grading.policy.base():
            scorer = grading.policy.scorer
            plain, informed = (
                [part.cpu().double() for part in scorer(group).split()] for group in (list(answers), prompts)
            )
        changes = [b - a for a, b in zip(plain, informed, strict=True)]
        return [float(c.topk(min(TELLING, len(c))).values.mean()) if len(c) else 0.0 for c in changes]


def rule_grades(
    grading: Grading,
    conversations: PromptMessages,
    run: TrainingRun,
    inputs: Inputs,
    verdicts: bool = True,
) -> RuleGrades | None:
    """What grades by the rules of the run and by the owner's newest remarks; None where there are none, or the model is too small to be told any.

    Args:
        verdicts: whether rules count of which a verdict is known; else the reader has looked at these.
    """
    rules = run.recipe.conditions.rules
    sentences = list(dict.fromkeys([*rules.sentences, *reversed(inputs.spoken)]))[:MOST]
    features = [text for text, _ in rules.features] if run.judge is not None else []
    columns = [features.index(text) for text in sentences if text in features] if verdicts else []
    unchecked = [text for text in sentences if text not in features]
    if grading.policy.info.bucket == "micro" and run.recipe.algorithm != "distil":
        unchecked = []
    if not columns and not unchecked:
        return None
    known = [text for text in sentences if text in unchecked or (verdicts and text in features)]
    grades = RuleGrades(grading, conversations, known, run.judge, columns, unchecked)
    grades.ground()
    return grades
