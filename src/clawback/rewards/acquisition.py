"""Active learning: chooses which answer to ask about next, updated after every rating.

A posterior over what the person may want is computed from their ratings so far (``rewards.rule_posterior``),
and the next question is the answer whose rating is most informative about all others
(``feedback.information``). From four times as many captured answers, 16 ratings chosen like this are worth 24
that were not, and 24 are worth 48 (research/studies/2026-11-21-more-from-the-same-taps.md).

Only the text of the answers is used, with words in place of a model's tokens: it needs no model, and takes
milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from clawback.feedback import information
from clawback.rewards import rule_posterior
from clawback.rewards.features import Features

READ = 2000
"""Characters of an answer that are looked at."""
_WORD = re.compile(r"\w+|[^\w\s]")


def word_ids(texts: Sequence[str]) -> list[list[int]]:
    """Words and marks, numbered in the order in which they occur: in place of a model's tokens."""
    numbers: dict[str, int] = {}
    return [
        [numbers.setdefault(word, len(numbers)) for word in _WORD.findall(text.lower())] for text in texts
    ]


class Acquisition:
    """Answers, rated and not."""

    def __init__(self, texts: Sequence[str]) -> None:
        texts = [text[:READ] for text in texts]
        words = word_ids(texts)
        # The answers themselves show how answers vary. Of none, or one, nothing does.
        self.signs, manners = np.zeros((len(texts), 0), dtype=bool), 0
        if len(texts) > 1:
            features = Features.ground(words, np.zeros((len(texts), 1)), texts)
            self.signs, manners = features.signs(words, texts), features.manners
        self.space = rule_posterior.Space.of(self.signs, manners)

    def next(
        self, ratings: Mapping[int, float], left: Sequence[int], count: int = 1
    ) -> list[tuple[int, float]]:
        """Up to ``count`` of the places ``left``, best first, and what a rating of each is expected to tell (0: nothing varies).

        ``ratings``: place → rating in [-1, 1] of the answers that were rated.
        """
        if not len(self.space.literals):
            return [(place, 0.0) for place in left[:count]]
        return [(left[i], gain) for i, gain in information.best_turns(self._belief(ratings, left), count)]

    def _belief(self, ratings: Mapping[int, float], places: Sequence[int]) -> information.Belief:
        """What is expected of the answers at these places."""
        rated = list(ratings)
        taste = rule_posterior.fit(self.space, self.signs[rated], [ratings[place] for place in rated])
        return information.Belief(*taste.joint(self.signs[list(places)]), taste.noise)
