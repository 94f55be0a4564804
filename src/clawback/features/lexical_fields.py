"""Lexical fields: groups of words that a model's own embeddings put near each other, and how often an answer uses each.

Wishes about content are often about a field (places, times, money, the body) whose single words are too rare among some dozen ratings to be found one by one. A field
of some ten words is frequent enough. The words are those of the answers by which a reader sees how answers vary, and their vectors are the base's input
embeddings, so it works in each language that the base knows. Clusters of word embeddings as features: Turian, Ratinov and Bengio 2010 ("Word representations: a
simple and general method for semi-supervised learning", ACL).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clawback.features.word_meanings import COMMON, Floats, Ints, WordVectors

SIZE = 10
"""Words of a field, on average."""
_ROUNDS = 25


@dataclass(frozen=True, slots=True)
class LexicalFields:
    """The words, and the field that each belongs to."""

    tokens: Ints  # [k], sorted
    fields: Ints  # [k]
    count: int

    @classmethod
    def of(cls, answers: Sequence[Sequence[int]], vectors: WordVectors) -> LexicalFields:
        """From the token ids of answers of the base."""
        held = [np.unique(np.asarray(ids, dtype=np.int64)) for ids in answers]
        tokens, times = np.unique(np.concatenate([*held, np.zeros(0, dtype=np.int64)]), return_counts=True)
        tokens = tokens[times <= COMMON * max(len(answers), 1)]
        table = vectors(tokens) if len(tokens) else np.zeros((0, 1))
        words = np.any(table != 0, axis=1)
        tokens, table = tokens[words], table[words]
        count = len(tokens) // SIZE
        if count < 2:
            return cls(tokens[:0], tokens[:0], 0)
        return cls(tokens, _clusters(_directions(table), count), count)

    def __call__(self, answers: Sequence[Sequence[int]]) -> Floats:
        """``[S, count]``: how many words of each field an answer of these token ids has."""
        rows = np.zeros((len(answers), self.count))
        for row, ids in zip(rows, answers, strict=True):
            found = np.asarray(ids, dtype=np.int64)
            place = np.searchsorted(self.tokens, found).clip(max=max(len(self.tokens) - 1, 0))
            if self.count:
                np.add.at(row, self.fields[place[self.tokens[place] == found]], 1.0)
        return rows


def _directions(table: Floats) -> Floats:
    """``[n, d]`` of length one, as seen from their mean: embeddings share a direction that says nothing."""
    centred = table - table.mean(axis=0)
    return np.asarray(centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12))


def _clusters(directions: Floats, count: int) -> Ints:
    """The cluster ``[n]`` of each unit vector: spherical k-means (Dhillon and Modha 2001), begun with k-means++ (Arthur and Vassilvitskii 2007), by a fixed seed."""
    rng = np.random.default_rng(0)
    chosen = [int(rng.integers(len(directions)))]
    far = 1 - directions @ directions[chosen[0]]
    for _ in range(count - 1):
        far = np.maximum(far, 1e-12)  # never all impossible
        chosen.append(int(rng.choice(len(directions), p=far / far.sum())))
        far = np.minimum(far, 1 - directions @ directions[chosen[-1]])
    centres = directions[chosen]
    cluster = np.full(len(directions), -1)
    for _ in range(_ROUNDS):
        nearest = np.argmax(directions @ centres.T, axis=1)
        if np.array_equal(nearest, cluster):
            break
        cluster = nearest
        sums = np.zeros_like(centres)
        np.add.at(sums, cluster, directions)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 1e-12, sums / np.maximum(lengths, 1e-12), centres)
    return np.asarray(cluster, dtype=np.int64)
