"""REINFORCE with a baseline and a KL term, made safe to repeat on the same ratings.

Source: Williams 1992 (doi:10.1007/BF00992696), eq. 11; the truncated importance weight is that of IMPALA
(Espeholt et al. 2018, arXiv:1802.01561, eq. 1). For an answer with reward r and tokens t = 1…T:

    A   = r − b                                          b: moving average ("ema") or mean of the run ("mean")
    w_t = min(cap, π(t) / π_old(t)), no gradient         1 on fresh answers
    L   = −mean_tokens[ A · w_t · log π(t) ] + β · mean_tokens[ k3_t ]

Details that decide how it behaves:

1. Tokens of all answers count alike (one mean over all tokens): a long answer has more to learn from.
2. ``b = "mean"`` is over all ratings of the run, not over a mini-batch of a few, which would be mostly noise.
   With ratings of one sign every advantage is then 0 and nothing moves; "ema" learns from them, and may run away.
3. Without ``w_t``, going over the ratings again pushes a bad answer's tokens down without end, as −log π has no
   floor. With it the push fades as the token becomes unlikely, and a good token is pushed at most ``cap`` times as
   hard. ``importance_cap = 0`` leaves it out.
4. No clip and no normalisation of advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from clawback.rl import advantages, kl
from clawback.rl.batch import Batch


@dataclass(frozen=True)
class Reinforce:
    name: ClassVar[str] = "reinforce"

    kl: float = 0.001
    """β, weight of the KL term."""
    baseline: Literal["mean", "ema"] = "mean"
    ema_decay: float = 0.99
    importance_cap: float = 2.0

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S], [S] → [S], new baseline. The moving average is kept up to date even where the mean is used."""
        by_ema, moved = advantages.ema(rewards, baseline, self.ema_decay)
        return (by_ema if self.baseline == "ema" else advantages.batch_mean(rewards)), moved

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above; ``pg_weight`` and ``kl_weight`` multiply their terms where given."""
        ratio = (batch.logprobs.detach() - batch.old_logprobs).exp()  # [N]
        weight = batch.advantages[batch.segment]
        if self.importance_cap > 0:
            weight = weight * ratio.clamp(max=self.importance_cap)
        if batch.pg_weight is not None:
            weight = weight * batch.pg_weight
        penalty = kl.k3(batch.logprobs, batch.ref_logprobs)
        policy_loss = -batch.token_mean(weight * batch.logprobs)
        kl_loss = batch.token_mean(penalty if batch.kl_weight is None else penalty * batch.kl_weight)
        loss = policy_loss + self.kl * kl_loss
        with torch.no_grad():
            capped = ratio > self.importance_cap if self.importance_cap > 0 else torch.zeros_like(ratio)
            metrics = {
                "loss": loss.item(),
                "policy_loss": policy_loss.item(),
                "kl_loss": kl_loss.item(),
                "clip_fraction": float(batch.token_mean(capped.float())),
                "ratio": float(batch.token_mean(ratio)),
            }
        return loss, metrics
