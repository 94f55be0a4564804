"""What a run has to learn from, and whether any of it can be read. ``auto`` decides that before anything is drawn.

The ratings are trusted where the reader explains them better than the same ratings in random order. That test needs the rated answers alone: how
answers vary is seen on them, and fresh answers add only to what is read (docs/decisions/0036-a-run-is-as-large-as-what-it-knows.md). A run without demonstrations,
comparisons, rules and remarks whose ratings are not trusted would train for minutes on noise, so it ends here (``NothingRead``). Two kinds of runs
go on: those of models of a few million parameters, which take seconds, and those that somebody wants all the same (``RunConditions.anyway``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clawback.errors import NothingRead
from clawback.features.style_features import Floats
from clawback.records import BETTER
from clawback.rewards.instructions import wishes
from clawback.rewards.rating_likelihood import Ints, feedback_kinds, reader_values
from clawback.sources.targets import DirectEvidence, evidence
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.records import Sample
    from clawback.rewards.reward_ensemble import RewardEnsemble
    from clawback.sources.graded import Grading
    from clawback.trainer.recipe import Recipe, RunRules
    from clawback.trainer.run import TrainingRun


@dataclass(frozen=True)
class Inputs:
    """The feedback of a run."""

    every: Sequence[Sample]
    """Samples that have a number, answers that were cut included."""
    samples: Sequence[Sample]
    """The complete ones: what grades complete answers has seen complete ones."""
    rated: Sequence[Encoded]
    rewards: Floats
    """``[n]`` of the samples."""
    remarks: Sequence[tuple[Encoded, str]]
    spoken: Sequence[str]
    """Remarks in the owner's own words that ask for something."""
    rules: RunRules
    shown: DirectEvidence
    """Demonstrations and comparisons, which need no reading."""

    @classmethod
    def of(cls, policy: Policy, feedback: Sequence[Sample], recipe: Recipe) -> Inputs:
        every = [one for one in feedback if one.rated]
        samples = [one for one in every if not one.cut]
        words = [(one, hint) for one in feedback for hint in one.hints if not hint.startswith(BETTER)]
        return cls(
            every,
            samples,
            [policy.encode(one) for one in samples],
            reader_values(samples),
            [(policy.encode(one), hint) for one, hint in words],
            [wish for one in feedback for wish in wishes(one)],
            recipe.conditions.rules,
            evidence(feedback, policy, recipe.learn_from),
        )

    @property
    def alike(self) -> str:
        """Why nothing can be compared, in a sentence, where all ratings are the same; "" else."""
        if not len(self.rewards) or np.ptp(self.rewards) > 0:
            return ""
        sign = "good" if self.rewards[0] > 0 else "bad"
        return f"all {len(self.rewards)} ratings are {sign}, so there is nothing to compare"

    def has_words(self, ensemble: RewardEnsemble | None) -> bool:
        """Whether somebody said in words what is wanted: in rules, in remarks of their own, or in others that ``ensemble`` recognised."""
        recognised = ensemble is not None and ensemble.recognised_remarks
        return bool(self.rules.by_people or self.spoken or recognised)

    @property
    def kinds(self) -> Ints:
        """``[n]`` kinds of feedback that the rewards come from."""
        return feedback_kinds(self.samples)

    @property
    def order(self) -> list[int]:
        """``[n]`` numbers that grow with the time of each rating."""
        return [sample.newest for sample in self.samples]


def read(grading: Grading, inputs: Inputs) -> RewardEnsemble | None:
    """What the rated answers tell by themselves, and whether that is trusted. None where fresh answers cost little, or nothing has to be read: the
    trust is then that of the reader that has seen them."""
    if not reads(grading):
        return None
    return grading.read(inputs.rated, inputs.rewards, inputs.remarks, inputs.order, kinds=inputs.kinds)


def reads(grading: Grading) -> bool:
    """Whether the run decides before it draws anything: ``auto``, on models above micro size."""
    micro = grading.policy.info.bucket == "micro"
    return grading.recipe.algorithm == "auto" and not micro and grading.grader is None


def unreadable(inputs: Inputs, ensemble: RewardEnsemble | None) -> str:
    """Why nothing can be read from ratings, rules and remarks, in a sentence; "" where something can. ``ensemble``: as ``read`` made it."""
    if inputs.rules.sentences or inputs.has_words(ensemble):
        return ""
    if ensemble is None:
        return "" if inputs.remarks else inputs.alike
    return inputs.alike or ("" if ensemble.trust.trusted else ensemble.trust.reason)


def goes_on(run: TrainingRun) -> bool:
    """Whether a run of which nothing can be read learns the ratings themselves: somebody chose that, or it is cheap, or other terms reward it."""
    recipe = run.recipe
    chosen = recipe.algorithm != "auto" or recipe.conditions.anyway
    return chosen or run.policy.info.bucket == "micro" or run.terms is not None


def stop(why: str) -> NothingRead:
    """The error of a run of which nothing can be read."""
    return NothingRead(f"Nothing read: {why}")
