"""Values of actions by ridge regression on the base's hidden states, from episodes whose replies were drawn at random.

For each of K replies a linear function of the state before it, Q(s, a) = w_a · x(s) + b_a, fitted to

    y_t = r_t + γ · max_a Q(s_{t+1}, a)        0 in place of the maximum after an episode's last turn

as often as the longest episode has turns (fitted Q-iteration; Ernst, Geurts & Wehenkel 2005, JMLR 6). The weight of the ridge is the one with
the least generalised cross-validation error (Golub, Heath & Wahba 1979).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

RIDGES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0, 3.0)
"""In units of the number of turns."""
MOST_SWEEPS = 12


@dataclass(frozen=True)
class ActionValues:
    values: Tensor
    """[T, K] of each reply in each of the states, float64."""
    explained: float
    """Share of the variance of y that the states explain, by generalised cross-validation; at most 0 where they say nothing."""


class _Ridge:
    """Regressions on the same rows with any targets."""

    def __init__(self, rows: Tensor) -> None:
        self.mean = rows.mean(0)
        self.u, self.s, self.v = torch.linalg.svd(rows - self.mean, full_matrices=False)

    def fit(self, y: Tensor) -> tuple[Tensor, float, float]:
        """[n] → weights [H], the constant, and the squared error of generalised cross-validation."""
        count, centre = len(y), float(y.mean())
        projected = self.u.T @ (y - centre)
        rest = float((y - centre).square().sum() - projected.square().sum())
        best: tuple[float, Tensor] | None = None
        for ridge in RIDGES:
            shrink = self.s.square() / (self.s.square() + ridge * count)
            error = (rest + float(((1 - shrink) * projected).square().sum())) / count
            free = max(1e-3, 1 - (1 + float(shrink.sum())) / count)
            score = error / free**2
            if best is None or score < best[0]:
                best = (score, shrink)
        assert best is not None
        weights = self.v.T @ (best[1] * projected / self.s.clamp(min=1e-12))
        return weights, centre - float(self.mean @ weights), best[0]


def fit_action_values(
    states: Tensor, actions: Tensor, rewards: Tensor, last: Tensor, *, count: int, gamma: float
) -> ActionValues | None:
    """Fit the value of each reply.

    Args:
        states: [T, H] before each turn, the turns of an episode one after the other.
        actions: [T] int64, which of the ``count`` replies was given.
        rewards: [T] of each turn.
        last: [T] bool: the last turn of its episode.

    Returns None where a reply was given too rarely to be told from the others (twice at least).
    """
    x = states.double()
    x = (x - x.mean(0)) / x.std(0, unbiased=False).clamp(min=1e-6)
    rows = [actions == action for action in range(count)]
    if min(int(given.sum()) for given in rows) < 2:
        return None
    ridges = [_Ridge(x[given]) for given in rows]
    r, end = rewards.double(), last
    ends = last.nonzero()[:, 0]
    sweeps = min(MOST_SWEEPS, int((ends - torch.cat([ends.new_tensor([-1]), ends[:-1]])).max()))
    values, y, error = x.new_zeros(len(x), count), r, 0.0
    low, high = _range(r, end, gamma)
    for _ in range(max(1, sweeps)):
        ahead = values.max(1).values.clamp(low, high).roll(-1)
        y = r + gamma * ahead.masked_fill(end, 0.0)
        fits = [ridge.fit(y[given]) for ridge, given in zip(ridges, rows, strict=True)]
        values = torch.stack([x @ weights + constant for weights, constant, _ in fits], 1)
        error = sum(score * int(given.sum()) for (_, _, score), given in zip(fits, rows, strict=True)) / len(
            x
        )
    spread = float(y.var(unbiased=False))
    return ActionValues(values, 1 - error / spread if spread > 1e-12 else 0.0)


def _range(rewards: Tensor, last: Tensor, gamma: float) -> tuple[float, float]:
    """The least and the largest return that followed a turn: what a value may be."""
    returns, ahead = torch.zeros_like(rewards), 0.0
    for turn in reversed(range(len(rewards))):
        ahead = float(rewards[turn]) + (0.0 if last[turn] else gamma * ahead)
        returns[turn] = ahead
    return float(returns.min()), float(returns.max())
