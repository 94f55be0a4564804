"""KTO: learns from good and bad ratings of single answers, weighted as people weigh gains and losses.

Source: Ethayarajh et al. 2024 (arXiv:2402.01306), eq. 7–8. For an answer y to a prompt x:

    r_y = Σ_t log π(t) − log π_ref(t)
    z   = max(0, mean over the step of Σ_t log π(t) − log π_ref(t) on answers to *other* prompts)    no gradient
    v   = λ_D · σ(β·(r_y − z)) for a good answer,  λ_U · σ(β·(z − r_y)) for a bad one
    L   = mean_answers[ λ_y − v ]

Details that decide how it behaves:

1. It is a bounded loss: once an answer is far on its right side, nothing pushes it further. No clip is needed.
2. z says how far the policy has left the base in general. A good answer counts as a gain only beyond it. It is measured on each
   prompt with the next one's answer, as in the authors' code, and costs a forward pass without gradient.
3. ``balance``: λ is scaled so that good and bad ratings weigh the same in all, as §4.2 of the paper advises where there are
   more of one kind.
4. A rating between bad and good (a score of 6 of 10) counts by its size; a 0 not at all.
5. There is no other KL term: σ saturates in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl.batch import Batch


@dataclass(frozen=True)
class Kto:
    name: ClassVar[str] = "kto"
    needs: ClassVar[frozenset[str]] = frozenset({"mismatched"})

    beta: float = 0.1
    desirable: float = 1.0
    """λ_D"""
    undesirable: float = 1.0
    """λ_U"""
    balance: bool = True

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S] → [S]: the sign says good or bad, the size is λ times the rating's. The baseline as it was."""
        rewards = rewards.float()
        weight = torch.where(rewards > 0, self.desirable, self.undesirable) * rewards
        good, bad = weight.clamp(min=0).sum(), -weight.clamp(max=0).sum()
        if self.balance and good > 0 and bad > 0:
            weight = weight * torch.where(rewards > 0, (good + bad) / (2 * good), (good + bad) / (2 * bad))
        return weight, baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above; ``Batch.mismatch_kl`` is z."""
        reward = batch.sums(batch.logprobs - batch.ref_logprobs)  # [S]
        side = batch.advantages.sign()
        value = torch.sigmoid(self.beta * side * (reward - batch.mismatch_kl))
        loss = (batch.advantages.abs() * (1 - value)).sum() / batch.samples
        with torch.no_grad():
            right = ((reward - batch.mismatch_kl) * side > 0).float().sum() / batch.samples
            share = len(batch.advantages) / batch.samples
            metrics = {"loss": loss.item(), "right_side": float(right), "kl_loss": batch.mismatch_kl * share}
        return loss, metrics
