"""Tests rules on the ratings: which of all proposed rules do the ratings speak for, each at its word and all at once.

A rule that was proposed after somebody looked at the ratings, one of many, looks good by chance. So the test is over all of them together:
the ratings are permuted among the answers, and a rule is believed only if it stands out from the largest statistic that such ratings give any
of the rules (step-down max-T: Westfall & Young 1993, algorithm 2.8). The chance of one false rule or more is at most ``LEVEL``, however many
were proposed and however much they resemble each other. The permutations are drawn from a fixed seed.

The statistic of a rule is the correlation of its verdicts with the ratings (point-biserial for taps) times the root of the number of answers
that it applies to. An answer to which a rule does not apply has no verdict, and says nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from clawback.records import JsonObject, with_keys

Floats = NDArray[np.float64]

LEVEL = 0.05
"""Chance of one false rule or more among all that are tested."""
PERMUTATIONS = 1999
SEED = 0
UNSURE = 0.05
"""A verdict this near to 0.5 is none: the judge did not know, or the rule does not apply."""
ADDS = 2.0
"""Standard errors that a believed rule has to add beyond stronger ones, else it says the same in other words. With 1, a person of one wish was told
2.4 rules after 256 ratings, with 2 it is 1.25; of two wishes as many are told (docs/rules-learning.md)."""


@dataclass(frozen=True, slots=True)
class RuleTest:
    """What the ratings say of one rule."""

    passes: int
    """Rated answers that keep it."""
    broken: int
    liked_kept: float
    """Mean rating of those that keep it, in [-1, 1]."""
    liked_broken: float
    auc: float
    """How often an answer that keeps the rule is rated above one that breaks it; a tie counts half. 0.5 where there is nothing to compare."""
    statistic: float
    p: float
    """Chance that ratings without any pattern speak for one of the rules as clearly; adjusted for all rules."""
    p_against: float
    """The same for ratings that speak against it."""
    explained_by: int = -1
    """Place of a stronger rule beside which this one adds nothing; -1 for none."""

    @property
    def believed(self) -> bool:
        return self.p <= LEVEL

    @property
    def against(self) -> bool:
        return self.p_against <= LEVEL

    def to_dict(self) -> JsonObject:
        return with_keys(asdict(self), {"passes": "kept"})


def rule_tests(
    verdicts: Floats, ratings: Sequence[float] | Floats, *, permutations: int = PERMUTATIONS, seed: int = SEED
) -> list[RuleTest]:
    """Test all rules at once.

    Args:
        verdicts: ``[rules, answers]``, 1 kept, 0 broken, between them how sure a judge is, nan for none.
        ratings: ``[answers]`` in [-1, 1].
    """
    values = np.where(np.abs(verdicts - 0.5) < UNSURE, np.nan, verdicts)
    y = np.asarray(ratings, dtype=np.float64)
    if not len(values):
        return []
    statistics = _statistics(values, y[:, None])[:, 0] if y.size else np.zeros(len(values))
    shuffled = (
        np.random.default_rng(seed).permuted(np.tile(y, (permutations, 1)), axis=1).T if y.size else None
    )
    chance = _statistics(values, shuffled) if shuffled is not None else np.zeros((len(values), permutations))
    p, p_against = _step_down(statistics, chance), _step_down(-statistics, -chance)
    explained = _explained(values, y, statistics, p)
    return [
        RuleTest(*_counts(row, y), float(statistics[i]), float(p[i]), float(p_against[i]), explained[i])
        for i, row in enumerate(values)
    ]


def _statistics(values: Floats, ratings: Floats) -> Floats:
    """``[rules, K]``: √n · correlation of each rule's verdicts with each of ``K`` sets of ratings ``[answers, K]``; 0 where nothing varies."""
    known = ~np.isnan(values)
    mask = known.astype(np.float64)
    count = np.maximum(mask.sum(axis=1), 1.0)
    filled = np.where(known, values, 0.0)
    centred = np.where(known, filled - (filled.sum(axis=1) / count)[:, None], 0.0)
    products = centred @ ratings
    spread = mask @ ratings**2 - (mask @ ratings) ** 2 / count[:, None]
    scale = np.sqrt((centred**2).sum(axis=1))[:, None] * np.sqrt(np.maximum(spread, 0.0))
    return np.where(scale > 1e-9, np.sqrt(count)[:, None] * products / np.maximum(scale, 1e-9), 0.0)


def _step_down(statistics: Floats, chance: Floats) -> Floats:
    """Adjusted p-values: each rule against the largest of all that are no clearer than it."""
    order = np.argsort(-statistics, kind="stable")
    largest = np.maximum.accumulate(chance[order[::-1]], axis=0)[::-1]
    raw = (1 + (largest >= statistics[order][:, None] - 1e-9).sum(axis=1)) / (1 + chance.shape[1])
    adjusted = np.empty_like(statistics)
    adjusted[order] = np.maximum.accumulate(raw)
    return adjusted


def _counts(row: Floats, y: Floats) -> tuple[int, int, float, float, float]:
    keeps, breaks = y[row > 0.5], y[row < 0.5]
    if not keeps.size or not breaks.size:
        means = [float(part.mean()) if part.size else 0.0 for part in (keeps, breaks)]
        return keeps.size, breaks.size, means[0], means[1], 0.5
    above = (keeps[:, None] > breaks).mean() + 0.5 * (keeps[:, None] == breaks).mean()
    return keeps.size, breaks.size, float(keeps.mean()), float(breaks.mean()), float(above)


def _explained(values: Floats, y: Floats, statistics: Floats, p: Floats) -> list[int]:
    """For each believed rule, the stronger one beside which it adds less than ``ADDS`` standard errors; -1 for none.

    Short answers hold no lists: whoever likes short ones seems to dislike lists. Strongest first, the verdicts and the ratings are freed of what
    the rules before explain (partial correlation), and what is left of a rule has to speak for itself.
    """
    explained = [-1] * len(values)
    standing: list[int] = []
    means = (
        np.nanmean(np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values), axis=1)
        if y.size
        else np.zeros(len(values))
    )
    filled = np.where(np.isnan(values), means[:, None], values) - means[:, None]
    for i in np.argsort(-statistics, kind="stable"):
        if p[i] > LEVEL:
            break
        basis = np.column_stack([np.ones(y.size), *(filled[j] for j in standing)])
        left = [column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0] for column in (filled[i], y)]
        scale = float(np.linalg.norm(left[0]) * np.linalg.norm(left[1]))
        if standing and (scale < 1e-9 or np.sqrt(y.size) * float(left[0] @ left[1]) / scale < ADDS):
            explained[i] = max(
                standing,
                key=lambda j: abs(float(filled[i] @ filled[j])) / max(float(np.linalg.norm(filled[j])), 1e-9),
            )
        else:
            standing.append(int(i))
    return explained
