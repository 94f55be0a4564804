"""The weights that played the best stretch of training episodes, and the figures by which stretches are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class BestWeights:
    """``see`` each batch before it is learned from."""

    def __init__(self, copy: Callable[[], list[Tensor]], window: int = 256) -> None:
        """``window``: episodes that a mean is taken over."""
        self.copy, self.window = copy, window
        self.returns: list[float] = []
        self.mean, self.error = -math.inf, 0.0
        self.weights: list[Tensor] = []

    def see(self, returns: Sequence[float]) -> None:
        """Episodes of the weights as they are now."""
        self.returns = [*self.returns, *returns][-self.window :]
        now = summary(self.returns)
        if len(self.returns) == self.window and now["mean"] > self.mean:
            self.mean, self.error, self.weights = now["mean"], now["error"], self.copy()

    def lost(self) -> bool:
        """Whether the newest stretch is worse than the best, by more than twice the error of their difference."""
        now = summary(self.returns)
        return bool(self.weights) and self.mean - now["mean"] > 2 * math.hypot(self.error, now["error"])


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean, and its standard error."""
    n = len(values)
    mean = sum(values) / max(1, n)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else 0.0
    return {"mean": mean, "error": spread / math.sqrt(max(1, n)), "episodes": float(n)}
