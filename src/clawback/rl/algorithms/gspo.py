"""GSPO: GRPO with one ratio per answer, the geometric mean of its tokens' ratios.

Source: Zheng et al. 2025, "Group Sequence Policy Optimization" (arXiv:2507.18071), eq. 5–7. For answer i of a group, with tokens
t = 1…T:

    A_i = (r_i − mean_group) / (std_group + ε)
    s_i = exp( (1/T) Σ_t log π(t) − log π_old(t) )
    L   = −mean_answers[ min(s_i·A_i, clip(s_i, low, high)·A_i) ] + β · mean_answers[ mean_t k3_t ]

Details that decide how it behaves:

1. The reward is given to the answer, so the importance weight is the answer's, too. A token's own ratio is a sample of one, and its
   noise adds up over long answers; in mixtures of experts it jumps when a token is routed elsewhere.
2. A clip takes a whole answer out, or leaves all of it in. s_i moves by hundredths where a token's ratio moves by tenths: the
   paper clips at 3e-4 and 4e-4 on fresh answers, each used a few times. Ratings are gone over many times, so it is wider here.
3. Means are over tokens, then over answers: long and short answers count alike.
4. As in GRPO a group whose rewards are equal contributes nothing. ``grouped = False`` takes the reward itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clawback.rl import advantages
from clawback.rl.batch import Batch
from clawback.rl.kl import clipped, figures, penalty


@dataclass(frozen=True)
class Gspo:
    name: ClassVar[str] = "gspo"

    kl: float = 0.02
    """β, weight of the KL term."""
    mean_low: float = 0.7
    mean_high: float = 1.4
    """Clip of an answer's mean ratio."""
    scale_advantages: bool = True
    """False: leave out the division by the group's standard deviation."""
    grouped: bool = True
    """False: each answer stands alone, and its advantage is its reward."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:
        """[S], [S] → [S], the baseline as it was."""
        if not self.grouped:
            return rewards.float(), baseline
        return advantages.group_normalised(rewards, groups, scale=self.scale_advantages), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above."""
        ratio = batch.means(batch.logprobs - batch.old_logprobs).exp()  # [S]
        gain, bound = clipped(ratio, batch.advantages, self.mean_low, self.mean_high)
        policy_loss = -gain.sum() / batch.samples
        kl_loss = batch.sample_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        return loss, figures(batch, loss, policy_loss, kl_loss, bound.float().sum() / batch.samples)
