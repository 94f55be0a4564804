"""Grades by agreement: an answer whose result most of the model's other answers to the same prompt come to is more often right.

Self-consistency (Wang et al. 2022, arXiv:2203.11171) as a reward (Zuo et al. 2025, arXiv:2504.16084). What an answer says of right and wrong is not in its
words, so the reader cannot see it; that several ways lead to one result can be seen, where answers come to results that can be compared
(``features.final_answers``). It counts only where the person's ratings say so: a permutation test of the rated answers' agreement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from clawback.features.final_answers import final_answer
from clawback.features.style_features import Floats
from clawback.rewards.reward_head import Trust, permutation_test
from clawback.sources.rule_grades import weight
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.sources.first_reading import Inputs
    from clawback.sources.graded import Grading, Prompt
    from clawback.trainer.recipe import Recipe

ANSWERS = 5
"""Answers of the base to each prompt that are compared."""
PROMPTS = 64
"""Prompts that the base is asked so often, at most."""
FEWEST_PROMPTS = 16
"""The same in a run of the smallest size."""
COMPARABLE = 0.5
"""Share of the rated answers that come to a result, from which on answers are compared. Of answers to everyday questions a tenth do."""
MAJORITY = 0.5
"""Share of the other answers from which on a result counts: fewer come to the same one by the same mistake, too."""
FEWEST = 8
"""Rated answers to prompts that the base has answered, from which on their agreement is tested."""


def comparable(texts: Sequence[str]) -> bool:
    """Whether rated answers come to results that can be compared."""
    return len(texts) >= FEWEST and sum(final_answer(text) is not None for text in texts) >= COMPARABLE * len(
        texts
    )


def asked(recipe: Recipe, prompts: int) -> int:
    """How many of a person's ``prompts`` the base is asked ``ANSWERS`` times."""
    return min(prompts, max(FEWEST_PROMPTS, round(PROMPTS * recipe.size)))


@dataclass
class Agreement:
    """Grades ``[S]`` in [-1, 1] of answers by the share of others to the same prompt that come to the same result."""

    grading: Grading
    votes: dict[Prompt, Counter[str | None]]
    """Results of the base's answers, by prompt."""
    known: frozenset[Encoded]
    """These answers: none counts for itself."""
    base: tuple[float, float]
    """Mean and standard deviation of the shares of the base's answers."""
    unit: float
    """What a standard deviation is worth, in units of a rating."""
    trust: Trust
    liked: dict[Prompt, set[str]] = field(default_factory=dict)
    """Results of liked answers and edits, by prompt."""
    disliked: dict[Prompt, set[str]] = field(default_factory=dict)
    """Results of disliked answers alone."""

    @classmethod
    def of(cls, grading: Grading, inputs: Inputs) -> Agreement:
        """Of the base's answers that were drawn; what they are worth and whether that is trusted, by the ratings."""
        made = cls(grading, {}, frozenset(grading.base), (0.0, 1.0), 0.0, Trust(False, 0.0, 0.0, 1.0, ""))
        for answer, text in zip(grading.base, grading.texts(grading.base), strict=True):
            made.votes.setdefault(answer.question, Counter())[final_answer(text)] += 1
        shares = made.shares(grading.base)
        made.base = float(shares.mean()), max(float(shares.std()), 1e-6)
        places = [i for i, one in enumerate(inputs.rated) if one.question in made.votes and not one.pixels]
        rated, ratings = [inputs.rated[i] for i in places], inputs.rewards[places]
        # One at a time: two rated answers to one prompt are no votes for each other.
        scores = np.array([made.shares([one])[0] for one in rated])
        if len(rated) >= FEWEST and np.ptp(scores) > 0:
            scaled = (scores - made.base[0]) / made.base[1]
            made.unit = weight(scaled, ratings)
            made.trust = permutation_test(
                ratings,
                lambda dealt: (scaled - scaled.mean()) @ dealt,
                grading.seed,
                grading.settings.trusted_below,
                inputs.kinds[places],
            )
        made._take_feedback(inputs)
        return made

    def _take_feedback(self, inputs: Inputs) -> None:
        """What the person said of a result holds for every answer that comes to it."""
        # What a picture shows is no part of a prompt's tokens.
        rated = [pair for pair in zip(inputs.rated, inputs.rewards, strict=True) if not pair[0].pixels]
        liked = [one for one, value in rated if value > 0]
        disliked = [one for one, value in rated if value < 0]
        for answers, results in ((liked, self.liked), (disliked, self.disliked)):
            for one, text in zip(answers, self.grading.texts(answers), strict=True):
                if (result := final_answer(text)) is not None:
                    results.setdefault(one.question, set()).add(result)
        for prompt, bad in self.disliked.items():
            bad -= self.liked.get(prompt, set())

    def __call__(self, answers: Sequence[Encoded], _: Sequence[tuple[str, str]]) -> Floats:
        mean, deviation = self.base
        grades: Floats = np.clip(self.unit * (self.shares(answers) - mean) / deviation, -1.0, 1.0)
        return grades

    def shares(self, answers: Sequence[Encoded]) -> Floats:
        """``[S]`` the share of the other answers to its prompt, of the base or among these, that come to the same result as each; 0 for one without a
        result, and where they are the lesser part. 1 and 0 for results that the person liked or disliked, and 0 beside one that they liked."""
        results = [final_answer(text) for text in self.grading.texts(answers)]
        polls: dict[Prompt, Counter[str | None]] = {}
        new = [one not in self.known for one in answers]
        for one, result, is_new in zip(answers, results, new, strict=True):
            poll = polls.setdefault(one.question, Counter(self.votes.get(one.question, ())))
            poll[result] += is_new
        shares = []
        for one, result in zip(answers, results, strict=True):
            poll, liked = polls[one.question], self.liked.get(one.question)
            others = poll.total() - 1
            if result is None or result in self.disliked.get(one.question, ()):
                shares.append(0.0)
            elif liked:
                shares.append(float(result in liked))
            else:
                share = (poll[result] - 1) / others if others else 0.0
                shares.append(share if share >= MAJORITY else 0.0)
        return np.array(shares)
