"""Grades by rules: how far an answer keeps what the person has said in words, where nothing can be read from the ratings.

Each rule that code or a believed judge can check counts by its verdict. The others count by how much likelier the answer is, a token, to the base
that is told the rule: r = (1/T) Σ_t [ log π(a_t | prompt, rule) − log π(a_t | prompt) ] (an attribute's reward in Drift: arXiv:2502.14289, eq. 4),
in standard deviations of the base's own answers. The answers of which that is highest are those that the rule speaks of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from clawback.features.style_features import Floats
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.rewards.views import Judge
    from clawback.sources.graded import Grading
    from clawback.sources.instructed import PromptMessages
    from clawback.trainer.run import TrainingRun

MOST = 4
"""Rules that are graded together: a model that is told more at once follows few of them."""
UNIT = 0.5
"""Of a rating, for a standard deviation."""


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

    def ground(self) -> None:
        """See how much likelier the rules make the base's own answers."""
        if self.unchecked:
            ratios = self._ratios(self.grading.base)
            self.base = float(ratios.mean()), max(float(ratios.std()), 1e-6)

    def __call__(self, answers: Sequence[Encoded], pairs: Sequence[tuple[str, str]]) -> Floats:
        grades = []
        if self.columns and self.judge is not None:
            questions, texts = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            verdicts = self.judge(questions, texts)[:, list(self.columns)]
            grades += [2 * np.where(np.isnan(column), 0.5, column) - 1 for column in verdicts.T]
        if self.unchecked:
            mean, deviation = self.base
            scaled = np.clip(UNIT * (self._ratios(answers) - mean) / deviation, -1.0, 1.0)
            grades += [scaled] * len(self.unchecked)
        together: Floats = np.mean(grades, axis=0)
        return together

    @torch.no_grad()
    def _ratios(self, answers: Sequence[Encoded]) -> Floats:
        """``[S]`` r of each answer, all rules without a verdict told at once."""
        grading, sentence = self.grading, " ".join(self.unchecked)
        prompts = [
            Encoded(self.conversations.under(grading, one.question, sentence), one.response)
            for one in answers
        ]
        with grading.policy.base():
            scorer = grading.policy.scorer
            plain, informed = (
                [part.cpu().double() for part in scorer(group).split()] for group in (list(answers), prompts)
            )
        return np.array(
            [float((b - a).mean()) if len(a) else 0.0 for a, b in zip(plain, informed, strict=True)]
        )


def rule_grades(
    grading: Grading, conversations: PromptMessages, run: TrainingRun, remarks: Sequence[str]
) -> RuleGrades | None:
    """What grades by the rules of the run and by the owner's newest remarks; None where there are none, or the model is too small to be told any."""
    rules = run.recipe.conditions.rules
    sentences = list(dict.fromkeys([*rules.sentences, *reversed(remarks)]))[:MOST]
    features = [text for text, _ in rules.features] if run.judge is not None else []
    columns = [features.index(text) for text in sentences if text in features]
    unchecked = [text for text in sentences if text not in features]
    if grading.policy.info.bucket == "micro" and run.recipe.algorithm != "distil":
        unchecked = []
    if not columns and not unchecked:
        return None
    known = [text for text in sentences if text in features or text in unchecked]
    grades = RuleGrades(grading, conversations, known, run.judge, columns, unchecked)
    grades.ground()
    return grades
