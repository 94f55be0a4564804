"""Combined: feedback in words and ratings in one advantage per token.

Source: OpenClaw-RL (Combined). With the reward r of an answer and a hint for it, as in ``opd.py``:

    A_t = w_binary · r + w_opd · clip( log π_teacher(t) − log π_old(t), ±c )
    ρ_t = π(t) / π_old(t)
    L   = −mean_tokens[ min(ρ_t·A_t, clip(ρ_t, 0.8, 1.28)·A_t) ] + β · mean_tokens[ k3_t ]

    | the turn has       | A_t                          |
    | ------------------ | ---------------------------- |
    | a hint and a score | both terms                   |
    | a hint             | the second                   |
    | a score            | the first (teacher = old)  |
    | neither            | no sample                    |

Details that decide how it behaves:

1. The score is used as it is: no baseline and no groups, as for answers that nobody can be asked for twice. Ratings of one sign
   then all push the same way, and the guard on drift ends the run.
2. The two do not conflict: the score says how much, the hint where. Tokens that the hint is indifferent to follow the score.
3. The clip c keeps one token that the hint forbids from outweighing a score of 1 many times over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl.batch import Batch
from clawback.rl.kl import clipped, figures, penalty


@dataclass(frozen=True)
class Combined:
    name: ClassVar[str] = "combined"
    needs: ClassVar[frozenset[str]] = frozenset({"teacher", "proximal"})

    kl: float = 0.001
    """β, weight of the KL to the base."""
    w_binary: float = 1.0
    w_opd: float = 1.0
    hint_clip: float = 2.0
    """c, in nats."""
    clip_low: float = 0.8
    clip_high: float = 1.28

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S] → [S]: the weighted rewards, the baseline as it was."""
        return self.w_binary * rewards.float(), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above."""
        ratio = (batch.logprobs - batch.old_logprobs).exp()  # [N]
        advantage = batch.advantages[batch.segment]
        if batch.token_advantages is not None:
            taught = batch.token_advantages.clamp(-self.hint_clip, self.hint_clip)
            advantage = advantage + self.w_opd * taught
        gain, bound = clipped(ratio, advantage, self.clip_low, self.clip_high)
        policy_loss = -batch.token_mean(gain)
        kl_loss = batch.token_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        shown = figures(batch, loss, policy_loss, kl_loss, batch.token_mean(bound.float()))
        # What each of the two pulls, before the clip: together they are the policy's loss where nothing is clipped.
        binary = batch.advantages[batch.segment]
        pulls = {"binary_loss": binary, "opd_loss": advantage - binary}
        with torch.no_grad():
            return loss, {**shown, **{n: float(-batch.token_mean(ratio * a)) for n, a in pulls.items()}}
