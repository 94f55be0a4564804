"""OPD: on-policy distillation from the same model with a hint in its context.

Source: OpenClaw-RL (Binary RL, OPD and Combined), and Lu et al. 2025, "On-Policy Distillation", for the token-level advantage. A critique
or an edit of an answer is a hint. The teacher is the policy as it was at the start, with the hint appended to the
last user message; it reads the *same* response tokens:

    A_t = clip( log π_teacher(t) − log π_old(t), ±c )                     what the hint changes, token by token
    ρ_t = π(t) / π_old(t)
    L   = −mean_tokens[ min(ρ_t·A_t, clip(ρ_t, 0.8, 1.28)·A_t) ] + β · mean_tokens[ k3_t ]

With ``top_k`` the whole distribution is learned in place of the sampled token, as far as the teacher's k likeliest tokens K and one rest go:

    L   = mean_tokens[ Σ_{v ∈ K ∪ rest} π_teacher(v) · (log π_teacher(v) − log π(v)) ] + β · mean_tokens[ k3_t ]

Details that decide how it behaves:

1. A rating is one number per answer; this is one per token. It says *where* the answer would have differed.
2. The teacher is the start of the run, so at first what differs is the hint alone. Each time all answers have been gone through,
   π_old is the policy as it is by then: where it says what the teacher says, A is 0 and it stays.
3. A token that the hint makes impossible has a difference of −10 nats or more. Without the clip a few such tokens are the gradient.
4. With the sampled token alone, a bad answer's tokens go down and what should come up is only known where the answer had it. The
   top-k loss pulls up what the teacher would have said there.
5. Of several hints the one is used whose teacher is nearest to the student: most of its k likeliest tokens are among the
   student's, too. A hint that the model cannot follow gives a teacher that is merely confused.
6. The rest is one bucket, so the divergence is of two distributions and never negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl.batch import Batch
from clawback.rl.kl import clipped, figures, penalty


@dataclass(frozen=True)
class Opd:
    name: ClassVar[str] = "opd"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "hints", "proximal"})

    kl: float = 0.001
    """β, weight of the KL to the base."""
    hint_clip: float = 2.0
    """c, in nats."""
    clip_low: float = 0.8
    clip_high: float = 1.28
    top_k: int = 0
    """Tokens of the teacher to learn from at each position; 0: the one that was sampled."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S] → zeros [S]: ratings are not used. The baseline as it was."""
        return torch.zeros_like(rewards, dtype=torch.float32), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equations above."""
        ratio = (batch.logprobs - batch.old_logprobs).exp()  # [N]
        taught = torch.zeros_like(ratio) if batch.token_advantages is None else batch.token_advantages
        advantage = taught.clamp(-self.hint_clip, self.hint_clip)
        gain, bound = clipped(ratio, advantage, self.clip_low, self.clip_high)
        policy_loss = -batch.token_mean(gain)
        if batch.teacher_kl is not None:
            policy_loss, bound = batch.token_mean(batch.teacher_kl), torch.zeros_like(bound)
        kl_loss = batch.token_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        shown = figures(batch, loss, policy_loss, kl_loss, batch.token_mean(bound.float()))
        return loss, {**shown, "taught": float(batch.token_mean(taught.abs()))}
