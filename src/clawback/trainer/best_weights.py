"""The weights that played the best stretch of training episodes: a policy that learns from its own play may lose what it had learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from clawback.policy import Policy

WINDOW = 256
"""Episodes of a stretch."""
CAUTION = 2.0
"""Standard errors that are taken off a mean before it is compared: a lucky batch is not the best one."""


class BestWeights:
    """``see`` the returns of each batch before it is learned from; ``restore_best`` at the end of a run."""

    def __init__(self, policy: Policy, window: int = WINDOW) -> None:
        named = sorted((name, p) for name, p in policy.model.named_parameters() if p.requires_grad)
        self.parameters = [parameter for _, parameter in named]
        self.window = window
        self.returns: list[float] = []
        self.mean, self.error, self.episodes = -math.inf, 0.0, 0
        """Of the best stretch, or of the best batch: a policy may lose within a stretch what it had learned in it."""
        self.weights: list[Tensor] = []

    def see(self, returns: Sequence[float]) -> None:
        """Episodes of the weights as they are now."""
        self.returns = [*self.returns, *returns][-self.window :]
        if len(self.returns) < self.window:
            return
        spread = summary(self.returns)["error"] * math.sqrt(self.window)
        for newest in (self.returns, self.returns[-len(returns) :]):
            mean, error = sum(newest) / len(newest), spread / math.sqrt(len(newest))
            if mean - CAUTION * error > self.mean - CAUTION * self.error:
                self.mean, self.error, self.episodes = mean, error, len(newest)
                self.weights = [parameter.detach().clone() for parameter in self.parameters]

    @property
    def lost(self) -> bool:
        """Whether the newest stretch is worse than the best, by more than twice the error of their difference."""
        newest = summary(self.returns)
        difference = self.mean - newest["mean"]
        return bool(self.weights) and difference > 2 * math.hypot(self.error, newest["error"])

    def restore_best(self) -> str:
        """The best weights, where the newest are worse: a sentence about it; "" where they are not."""
        import torch

        if not self.lost:
            return ""
        with torch.no_grad():
            for parameter, weight in zip(self.parameters, self.weights, strict=True):
                parameter.copy_(weight)
        return f"The return had fallen; the weights are those of its best {self.episodes} episodes ({self.mean:+.3f})."

    def state(self) -> dict[str, Any]:
        """What ``restore`` takes, for a checkpoint."""
        return {
            "returns": self.returns,
            "mean": self.mean,
            "error": self.error,
            "episodes": self.episodes,
            "weights": self.weights,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.returns, self.mean, self.error = list(state["returns"]), state["mean"], state["error"]
        self.episodes = state.get("episodes", self.window)
        devices = [parameter.device for parameter in self.parameters]
        self.weights = [w.to(device) for w, device in zip(state["weights"], devices, strict=False)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """Mean, and its standard error."""
    n = len(values)
    mean = sum(values) / max(1, n)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1)) if n > 1 else 0.0
    return {"mean": mean, "error": spread / math.sqrt(max(1, n)), "episodes": float(n)}
