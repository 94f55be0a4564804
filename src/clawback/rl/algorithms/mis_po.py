"""MIS-PO: Metropolis Independence Sampling – Filtered Policy Optimization, from one rated answer per prompt.

Source: the maths in ReinforceClaw 0.1.0's description, which follows Step 3.5 Flash. For an answer with reward r and
tokens t = 1…T, and m the moving average of all ratings so far (``advantages.ema``, decay 0.99):

    A   = (r − m) · (positive_weight if r > m else 1)
    ρ_t = π(t) / π_ref(t)                               ratio to the reference at a token
    c_t = clip(ρ_t, 0.5, 2)
    ρ̄   = exp(mean_t log ρ_t)                           how far the whole answer has drifted
    s   = min(1, ρ̄ / low, high / ρ̄)                     trajectory scale
    L   = mean_answers[ −A · mean_t(c_t) · s ] + β · mean_answers[ mean_t k3_t ]

Details that decide how it behaves:

1. ``s`` is **detached**: it scales the update, it is not itself pushed. With its gradient the band acts as a second
   objective: a good answer stops learning at ``high`` and a bad one is pushed twice as hard below ``low``.
2. The clip is plain, not PPO's pessimistic minimum: a token outside [0.5, 2] gets no policy gradient in either
   direction, and only the KL term brings it back.
3. Advantages are not normalised within a batch. Doing so would cancel both the baseline and the positive weight.
4. The mean is over tokens, then over answers: long and short answers count alike.
5. One advantage an answer, on every token of it.
6. KL is k3 with the reference in the numerator, exp(d) − d − 1 with d = log π_ref − log π.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl import advantages, kl
from clawback.rl.batch import Batch


@dataclass(frozen=True)
class MisPo:
    """Settings are those of the balanced preset for a dense model."""

    name: ClassVar[str] = "mis-po"

    kl: float = 0.001
    """β, weight of the KL term."""
    ema_decay: float = 0.99
    positive_weight: float = 1.2
    token_low: float = 0.5
    token_high: float = 2.0
    band_low: float = 0.994
    band_high: float = 1.002

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """``r − m`` with good news weighted; groups are not used. [S], [S] → [S], new baseline."""
        plain, baseline = advantages.ema(rewards, baseline, self.ema_decay)
        return torch.where(plain > 0, plain * self.positive_weight, plain), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above; ``pg_weight`` and ``kl_weight`` multiply their terms where given."""
        log_ratio = batch.logprobs - batch.ref_logprobs  # [N]
        ratio = log_ratio.exp()
        clipped = ratio.clamp(self.token_low, self.token_high)
        drift = batch.means(log_ratio.detach()).exp()  # [S]
        scale = torch.minimum(drift / self.band_low, self.band_high / drift).clamp(
            max=1.0
        )  # [S], no gradient
        gain = clipped * (batch.advantages * scale)[batch.segment]  # [N]
        if batch.pg_weight is not None:
            gain = gain * batch.pg_weight
        penalty = kl.k3(batch.logprobs, batch.ref_logprobs)
        policy_loss = -batch.sample_mean(gain)
        kl_loss = batch.sample_mean(penalty if batch.kl_weight is None else penalty * batch.kl_weight)
        loss = policy_loss + self.kl * kl_loss
        with torch.no_grad():
            outside = (ratio < self.token_low) | (ratio > self.token_high)
            metrics = {
                "loss": loss.item(),
                "policy_loss": policy_loss.item(),
                "kl_loss": kl_loss.item(),
                "clip_fraction": float(batch.token_mean(outside.float())),
                "ratio": float(batch.token_mean(ratio)),
                "trajectory_scale": float(scale.sum() / batch.samples),
                "trajectory_clipped": float((scale < 1).float().sum() / batch.samples),
            }
        return loss, metrics
