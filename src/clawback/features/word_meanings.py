"""What an answer's words mean together: the sum of their vectors, rarer words by more.

Wishes about content are often about a field (places, times, money, the body) whose single words are too rare among some dozen ratings to be found one by
one, and a fresh answer has others of them. With the base's input embeddings each word counts for those of like meaning, seen or not, in each
language that the base knows. Sums of word vectors as features, weighted by rarity: Salton and Buckley 1988 (tf-idf), Arora, Liang and Ma 2017 ("A simple but
tough-to-beat baseline for sentence embeddings", ICLR).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
WordVectors = Callable[[Ints], Floats]
"""Token ids ``[n]`` → ``[n, d]`` embeddings; a row of zeros for a token that is no word."""

COMMON = 0.4
"""A word in more of the answers than this says nothing of what they are about."""
RAREST = 3.0
"""Rarity, in nats, from which on it counts for no more: in one of twenty answers."""


@dataclass(frozen=True, slots=True)
class WordMeanings:
    """How much each word counts, by the answers from which a reader sees how answers vary."""

    vectors: WordVectors
    tokens: Ints  # [k], sorted: words of these answers
    rarity: Floats  # [k] −log of the share of these answers that have the word; 0 for a common one
    unseen: float
    """The same of any other word."""
    centre: Floats  # [d] mean vector of the words

    @classmethod
    def of(cls, answers: Sequence[Sequence[int]], vectors: WordVectors) -> WordMeanings:
        """From the token ids of answers of the base."""
        held = [np.unique(np.asarray(ids, dtype=np.int64)) for ids in answers]
        tokens, times = np.unique(np.concatenate([*held, np.zeros(0, dtype=np.int64)]), return_counts=True)
        table = vectors(tokens) if len(tokens) else np.zeros((0, 1))
        words = np.any(table != 0, axis=1)
        tokens, times, table = tokens[words], times[words], table[words]
        count = max(len(answers), 1)
        rarity = np.minimum(np.log(count / np.maximum(times, 1)), RAREST) * (times <= COMMON * count)
        centre = table.mean(axis=0) if len(table) else np.zeros(table.shape[1])
        return cls(vectors, tokens, rarity, min(float(np.log(count)), RAREST), centre)

    def __call__(self, answers: Sequence[Sequence[int]]) -> Floats:
        """``[S, d]``: what each word adds, by the root of its share of the answer."""
        sums = np.zeros((len(answers), len(self.centre)))
        counts = [np.unique(np.asarray(ids, dtype=np.int64), return_counts=True) for ids in answers]
        every = np.unique(np.concatenate([*(ids for ids, _ in counts), np.zeros(0, dtype=np.int64)]))
        table = self.table(every)
        for row, (ids, times) in zip(sums, counts, strict=True):
            if len(ids):
                row += np.sqrt(times / times.sum()) @ table[np.searchsorted(every, ids)]
        return sums

    def table(self, tokens: Ints) -> Floats:
        """``[n, d]`` what each token adds: its direction as seen from the mean of words, by its rarity; zeros for what is no word."""
        if not len(tokens) or not len(self.tokens):
            return np.zeros((len(tokens), len(self.centre)))
        vectors = self.vectors(tokens)
        place = np.searchsorted(self.tokens, tokens).clip(max=len(self.tokens) - 1)
        rarity = np.where(self.tokens[place] == tokens, self.rarity[place], self.unseen)
        centred = vectors - self.centre
        lengths = np.maximum(np.linalg.norm(centred, axis=1), 1e-12)
        return np.asarray(centred * (rarity * np.any(vectors != 0, axis=1) / lengths)[:, None])
