"""The words that the ratings speak for, as a teacher: what a person likes to read about, where no sentence asks the base for it.

Of somebody who likes answers that speak of difficulties, the reader learns from some dozen taps that "challenge", "struggle" and "issue" go with a good
rating (``features.word_meanings``). Answers that the base gives by itself have few of these words, so the best of several are hardly better, and each
teaches all else that it says as well. Here the words are taught directly. With b_v, what the reader's linear model of meanings expects of token v in standard
deviations among words, less what lies within one of them (soft threshold: Donoho 1995, IEEE Trans. Inf. Theory 41),

    log p_T(v) = log p(v) + γ · b_v + const

is the distribution of the highest expected γ·b less its KL to the base, token by token (weighted decoding: Ghazvininejad et al. 2017, ACL; See et al. 2019,
arXiv:1902.08654, §5.2). Words that most answers have, and pieces of words, keep b = 0, so grammar stays. The LM head is linear: p_T is what it makes of
states moved by γ·u, where W u is nearest to b, squared errors weighted by how often each token occurs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from clawback.rewards.kernel_ensemble import ridge
from clawback.rewards.reward_head import correlation
from clawback.rewards.views import FURTHEST, MEANINGS
from clawback.sources.guided import Guide

if TYPE_CHECKING:
    from clawback.features.style_features import Floats
    from clawback.rewards.reward_ensemble import RewardEnsemble
    from clawback.scoring import Head
    from clawback.sources.graded import Grading
    from clawback.templates import Encoded

LEAST_BY_WORDS = 0.3
"""Correlation of ratings with what the meanings alone say of each from the others, from which on the words are taught (docs/decisions/0053)."""
THRESHOLD = 1.0
"""Standard deviations among words within which b is 0."""
NAMES = 8
"""Words that are named."""
_TOKENS = 2048
"""Of the vocabulary at a time."""
_RARE = 0.05
"""Weight of a token that no answer has, where one that an answer has once weighs 1."""
_RIDGE = 1e-3
"""Of the mean squared entry of the head, so that few equations do not decide alone."""


@dataclass(frozen=True)
class WordGuide(Guide):
    """The base whose words are those that the ratings speak for."""

    shift: Tensor
    """[H] u."""
    words: tuple[str, ...]
    """Those with the highest b among words of the answers."""

    def changes(self, grading: Grading, answers: Sequence[Encoded]) -> list[Tensor]:  # noqa: ARG002
        return [self.shift.expand(len(one.response), -1) for one in answers]


def word_guide(grading: Grading, rated: Sequence[Encoded]) -> WordGuide | None:
    """The guide at a strength of 1. None where the words explain the ratings hardly, or less than all that the reader sees, or the head
    is none that ``Head`` knows. ``rated``: answers whose words may be named."""
    reader = grading.ensemble
    if reader is None or reader.views.meanings is None or not grading.policy.scorer.fused_head:
        return None
    read = _word_weights(reader)
    if read is None:
        return None
    counts = np.zeros(grading.policy.scorer.head.weight.shape[0])
    for one in [*grading.base, *rated]:
        np.add.at(counts, np.asarray(one.response, dtype=np.int64), 1.0)
    likes = _likes(reader, read, counts)
    tokenizer = grading.policy.tokenizer
    liked = np.flatnonzero((counts > 0) & (likes > 0))
    best = liked[np.argsort(-likes[liked], kind="stable")][: 4 * NAMES].tolist()
    words = dict.fromkeys(str(tokenizer.decode([token])).strip().lower() for token in best)
    return WordGuide(1.0, state_shift(grading.policy.scorer.head, likes, counts), tuple(words)[:NAMES])


def _word_weights(reader: RewardEnsemble) -> Floats | None:
    """``[d]`` weights of a ridge regression of the ratings on the meanings; None where what it says of each rating from the others tells little."""
    seen, ratings = reader.kernels.rated.get(MEANINGS), reader.kernels.ratings
    if seen is None or not seen.any():
        return None
    alpha, left_out = ridge(seen, ratings)
    r = float(correlation(left_out, ratings))
    weights: Floats = (seen - seen.mean(0)).T @ alpha
    return weights if r >= max(LEAST_BY_WORDS, reader.trust.correlation) else None


def _likes(reader: RewardEnsemble, weights: Floats, counts: Floats) -> Floats:
    """``[V]`` b. ``counts [V]``: how often answers have each token."""
    meanings, standard = reader.views.meanings, reader.views.standards[MEANINGS]
    assert meanings is not None
    starts = range(0, len(counts), _TOKENS)
    tables = (meanings.table(np.arange(start, min(start + _TOKENS, len(counts)))) for start in starts)
    worth = np.concatenate([table @ (weights / standard.spread) for table in tables])
    spread = float(worth[(counts > 0) & (worth != 0)].std())
    worth = np.clip(worth / max(spread, 1e-12), -FURTHEST, FURTHEST)
    return np.asarray(np.sign(worth) * np.maximum(np.abs(worth) - THRESHOLD, 0.0))


@torch.no_grad()
def state_shift(head: Head, likes: Floats, counts: Floats) -> Tensor:
    """``[H]`` u, float32 on the CPU: weighted least squares with a constant, which a softmax does not see.

    Args:
        likes: ``[V]`` b.
        counts: ``[V]`` how often each token occurs in answers.
    """
    device, width = head.weight.device, head.weight.shape[1] + 1
    left, right = torch.zeros(width, width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    often, wanted = (
        torch.as_tensor(values, dtype=torch.float32, device=device)
        for values in (np.sqrt(counts) + _RARE, likes)
    )
    for start in range(0, len(counts), _TOKENS):
        some = slice(start, start + _TOKENS)
        rows = torch.nn.functional.pad(head.weight[some].float() * head.scale, (0, 1), value=1.0)
        heavy = rows * often[some, None]
        left += (heavy.T @ rows).cpu().double()
        right += (heavy.T @ wanted[some]).cpu().double()
    left += _RIDGE * left.trace() / width * torch.eye(width, dtype=torch.float64)
    shift: Tensor = torch.linalg.solve(left, right)[:-1]
    return shift.float()
