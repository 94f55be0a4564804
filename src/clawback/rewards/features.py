"""Features of an answer: its style, the everyday tokens it uses, and the base model's hidden states for it.

Three kinds of features, standardised over answers that the base itself gives to the person's prompts:

* **Style.** Length, lists, tone, units and the like, by name (``rewards.style_features``): what most tastes are about.
* **Tokens.** Whether a token occurs at all, for tokens that occur in at least a tenth of those answers and are missing in
  at least a tenth. They capture how things are said (a word, a punctuation mark), not what is said, because the words
  of one topic are rare over all. So the head cannot learn to prefer or reject a fact.
* **Hidden states.** The mean of the base's last hidden states over the response, and the log of its length: what the
  other two miss. The *base*'s, with the adapter off, so that features mean the same in
  every version and ratings of old and new answers can be learned from together.

Their shares (``SHARES``) are a prior on where a taste shows: a few dozen ratings cannot find a direction among hundreds of hidden
units, most of which speak of the topic. Other layers, poolings and spaces: research/studies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clawback.rewards import style_features
from clawback.rewards.remarks import SAYS

Floats = NDArray[np.float64]

EVERYDAY = 0.1
"""A token counts when it occurs in at least this share of the base's answers, and is missing in as many."""
SHARES = (0.5, 0.3, 0.2)
"""Shares of style, tokens and hidden states in the squared length of an average answer's features."""
CUTS = (1 / 3, 1 / 2, 2 / 3)
"""Quantiles of a count among the base's answers: "more than that" is a sign."""
_LEAST_SPREAD = 0.05
"""A style feature that varies less than this is left out."""


@dataclass(frozen=True, slots=True)
class Features:
    """The features of answers that the reward head uses, standardised."""

    tokens: NDArray[np.int64]  # [k] ids of the everyday tokens
    share: Floats  # [k] of the base's answers that hold them
    mean: Floats  # [h] of the hidden features
    spread: Floats  # [h]
    usual: Floats  # [m] means of the style features
    varies: Floats  # [m] their standard deviations; 0 for one that is left out
    cuts: Floats  # [counts, cuts] of the style features that are counts
    phrases: tuple[str, ...] = ()  # texts that somebody spoke of, in lower case
    shares: tuple[float, float, float] = SHARES

    @classmethod
    def ground(cls, answers: Sequence[Sequence[int]], hidden: Floats, texts: Sequence[str]) -> Features:
        """From answers of the base to many prompts: their token ids, their ``features [S, h]``, and what they say."""
        held = [set(ids) for ids in answers]
        counts: dict[int, int] = {}
        for ids in held:
            for token in ids:
                counts[token] = counts.get(token, 0) + 1
        least, most = EVERYDAY * len(held), (1 - EVERYDAY) * len(held)
        tokens = np.array(sorted(t for t, n in counts.items() if least <= n <= most), dtype=np.int64)
        share = np.array([counts[int(t)] / len(held) for t in tokens])
        how = style_features.manner(texts)
        varies = np.where(how.std(0) > _LEAST_SPREAD, how.std(0), 0.0)
        cuts = np.quantile(how[:, len(style_features.SIGNS) :], CUTS, axis=0).T
        return cls(
            tokens,
            share,
            hidden.mean(0),
            np.maximum(hidden.std(0), 1e-8),
            how.mean(0),
            varies,
            cuts,
        )

    def __call__(self, answers: Sequence[Sequence[int]], hidden: Floats, texts: Sequence[str]) -> Floats:
        """``[S, m + k + h]``: an average answer of the base has squared length 1."""
        there = self._there(answers)
        chosen = self.varies > 0
        blocks = [
            (style_features.manner(texts) - self.usual)[:, chosen] / self.varies[chosen],
            (there - self.share) / np.sqrt(self.share * (1 - self.share)),
            (hidden - self.mean) / self.spread,
        ]
        shares = [share if block.shape[1] else 0.0 for share, block in zip(self.shares, blocks, strict=True)]
        weights = [
            share / sum(shares) / max(1, block.shape[1]) for share, block in zip(shares, blocks, strict=True)
        ]
        return np.hstack([block * np.sqrt(w) for block, w in zip(blocks, weights, strict=True)])

    @property
    def manners(self) -> int:
        """How many of the signs are style features or phrases; the others are tokens."""
        return len(style_features.SIGNS) + self.cuts.size + len(self.phrases)

    def signs(self, answers: Sequence[Sequence[int]], texts: Sequence[str]) -> NDArray[np.bool_]:
        """``[S, manners + k]`` binary features: style features that are present, counts above their cuts, phrases, tokens that occur."""
        how = style_features.manner(texts)
        there, counted = how[:, : len(style_features.SIGNS)] > 0, how[:, len(style_features.SIGNS) :]
        above = (counted[:, :, None] > self.cuts).reshape(len(how), self.cuts.size)
        says = np.array([[phrase in text.lower() for phrase in self.phrases] for text in texts], dtype=bool)
        return np.hstack([there, above, says.reshape(len(how), -1), self._there(answers) > 0])

    def columns(self, name: str) -> list[int]:
        """The columns of a style feature, or a phrase, among the signs: one, or one for each cut of a count.
        None for a phrase that is not tracked.
        """
        signs = len(style_features.SIGNS)
        if name.startswith(SAYS):
            phrase = name.removeprefix(SAYS)
            return [signs + self.cuts.size + i for i, one in enumerate(self.phrases) if one == phrase]
        place = style_features.NAMES.index(name)
        if place < signs:
            return [place]
        first = signs + (place - signs) * len(CUTS)
        return list(range(first, first + len(CUTS)))

    def _there(self, answers: Sequence[Sequence[int]]) -> Floats:
        held = [set(ids) for ids in answers]
        there = np.array([[int(t) in ids for t in self.tokens] for ids in held], dtype=np.float64)
        return there.reshape(len(held), len(self.tokens))
