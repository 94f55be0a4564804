"""GRPO: several answers to the same prompt, graded against each other.

Source: Shao et al. 2024 (arXiv:2402.03300) for the groups; Yu et al. 2025 (DAPO, arXiv:2503.14476) for the
unequal clip and the mean over tokens. For answer i of a group with reward r_i, and tokens t:

    A_i = (r_i − mean_group) / (std_group + ε)
    ρ_t = π(t) / π_old(t)                                π_old: log-probs recorded when the answer was sampled
    L   = −mean_tokens[ u_t · min(ρ_t·A, clip(ρ_t, 0.8, 1.28)·A) ] + β · mean_tokens[ v_t · k3_t ]

Details that decide how it behaves:

1. The upper clip is the wider one: an unlikely token that turned out well has room to grow, which keeps variety.
2. The pessimistic minimum of PPO: a token outside the clip still gets a gradient that brings it back.
3. Tokens of all answers count alike. The original mean per answer favours short good answers and long bad ones.
4. ``u_t`` (``Batch.pg_weight``) and ``v_t`` (``Batch.kl_weight``) are 1 unless given: for instance a gradient
   at high-entropy "forking" tokens only (arXiv:2506.01939), and KL on the others. They are absolute: the means
   stay over all tokens.
5. The reference of the KL is the base model, not the policy that sampled.
6. A group whose rewards are equal has no say.
7. Where the batch holds the exact KL of each position (``Batch.exact_kl``), that takes the place of k3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl import advantages, kl
from clawback.rl.batch import Batch


@dataclass(frozen=True)
class Grpo:
    name: ClassVar[str] = "grpo"

    kl: float = 0.02
    """β, weight of the KL term."""
    clip_low: float = 0.8
    clip_high: float = 1.28
    scale_advantages: bool = True
    """False: leave out the division by the group's standard deviation (Dr. GRPO)."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:
        """[S], [S] → [S], the baseline as it was."""
        return advantages.group_normalised(rewards, groups, scale=self.scale_advantages), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above."""
        ratio = (batch.logprobs - batch.old_logprobs).exp()  # [N]
        advantage = batch.advantages[batch.segment]
        gain = torch.minimum(ratio * advantage, ratio.clamp(self.clip_low, self.clip_high) * advantage)
        if batch.pg_weight is not None:
            gain = gain * batch.pg_weight
        penalty = batch.exact_kl
        if penalty is None:
            penalty = kl.k3(batch.logprobs, batch.ref_logprobs)
        policy_loss = -batch.token_mean(gain)
        kl_loss = batch.token_mean(penalty if batch.kl_weight is None else penalty * batch.kl_weight)
        loss = policy_loss + self.kl * kl_loss
        with torch.no_grad():
            bound = ((ratio > self.clip_high) & (advantage > 0)) | ((ratio < self.clip_low) & (advantage < 0))
            metrics = {
                "loss": loss.item(),
                "policy_loss": policy_loss.item(),
                "kl_loss": kl_loss.item(),
                "clip_fraction": float(batch.token_mean(bound.float())),
                "ratio": float(batch.token_mean(ratio)),
            }
            if batch.entropy is not None:
                metrics["entropy"] = float(batch.token_mean(batch.entropy))
        return loss, metrics
