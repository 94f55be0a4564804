"""An algorithm of one's own: only what was liked is learned, and better liked is learned more.

Source: reward-weighted regression (Peters & Schaal 2007, doi:10.1145/1273496.1273590), eq. 8. For an answer with reward r and tokens t:

    w = exp(r / temperature), then divided by its mean over the run
    L = −mean_tokens[ w · log π(t) ] + β · mean_tokens[ k3_t ]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clawback.rl import Batch, kl


@dataclass(frozen=True)
class RewardWeighted:
    name: ClassVar[str] = "reward-weighted"

    temperature: float = 0.5
    """Set in a recipe's ``extra``: its fields are the settings."""
    kl: float = 0.001
    """Recipes have this one: the preset's value is handed over."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S] rewards → [S] weights; there are no groups and no baseline here."""
        weights = (rewards.float() / self.temperature).exp()
        return weights / weights.mean(), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above. The figures are shown and logged; those of the pieces of a step are added up."""
        weight = batch.advantages[batch.segment]  # [N]
        policy_loss = -batch.token_mean(weight * batch.logprobs)
        kl_loss = batch.token_mean(kl.k3(batch.logprobs, batch.ref_logprobs))
        loss = policy_loss + self.kl * kl_loss
        return loss, {"loss": loss.item(), "policy_loss": policy_loss.item(), "kl_loss": kl_loss.item()}
