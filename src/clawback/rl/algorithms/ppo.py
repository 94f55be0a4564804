"""PPO with a value head, which estimates how each token of an answer contributed to its reward.

Source: Schulman et al. 2017 (arXiv:1707.06347), eq. 7 and 9; GAE of 2016 (arXiv:1506.02438); Ziegler et al. 2019 (arXiv:1909.08593), §2.2,
for the adaptive KL. The state before token t of an answer is the prompt and the tokens so far; the reward r comes with the
last token. With V the value head:

    A_t = Σ_l (γλ)^l · (r_{t+l} + γ·V_{t+l+1} − V_{t+l})                   then centred and scaled over all tokens of the run
    ρ_t = π(t) / π_old(t)
    L   = −mean_tokens[ min(ρ_t·A_t, clip(ρ_t, 1 ± 0.2)·A_t) ]
          + c_v · mean_tokens[ ½ · max( (V_t − R_t)², (V_old + clip(V_t − V_old, ±0.2) − R_t)² ) ]
          − c_e · mean_tokens[ H_t ] + β · k · mean_tokens[ k3_t ]           R_t = A_t + V_old, A_t before it is scaled
    k   ← k · (1 + 0.1 · clip(KL / target − 1, ±0.2)) after each step         within 1/100 … 100

Details that decide how it behaves:

1. γ is 0.99 and λ 0.95: a token sees the next twenty or so. Further ahead it sees through V alone, so V must be worth something:
   before the first step it is fitted to the discounted rewards in closed form (with V = 0 the first tokens of an answer would
   get next to no credit; value pretraining, arXiv:2503.01491, for the same reason).
2. V is linear in the policy's last hidden state. Its gradient stops there: a few dozen rewards are not let loose on the adapter
   through a second loss.
3. Each time all ratings have been gone through, advantages are made again from the values as they are, and π_old is the policy as
   it is. Within a round it is PPO with one epoch.
4. The value is clipped like the policy, around what it was when advantages were made.
5. KL is a term of the loss, its weight adapted towards a target; in a reward it would have to be made again at every step.
6. The value head is trained beside the adapter and kept in checkpoints. It is no part of what is published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl import advantages, turn_advantages
from clawback.rl.batch import Batch
from clawback.rl.kl import clipped, figures, penalty


@dataclass(frozen=True)
class Ppo:
    name: ClassVar[str] = "ppo"
    needs: ClassVar[frozenset[str]] = frozenset({"values", "entropy"})

    kl: float = 0.001
    """β, weight of the KL term before it is adapted."""
    clip: float = 0.2
    value_clip: float = 0.2
    value_weight: float = 0.5
    """c_v"""
    entropy_bonus: float = 0.001
    """c_e"""
    gamma: float = 0.99
    lam: float = 0.95
    target_kl: float = 0.1
    """Nats a token that the adaptive weight of the KL steers for."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S] → [S], the baseline as it was: each reward against the mean, for ``credit`` to share out over tokens."""
        return advantages.batch_mean(rewards), baseline

    def credit(self, rewards: Tensor, values: Tensor, segment: Tensor) -> tuple[Tensor, Tensor]:
        """Advantages and returns of tokens.

        Args:
            rewards: [S], given with each answer's last token.
            values: [N] of the value head before each token.
            segment: [N] int64, non-decreasing.

        Returns:
            [N] advantages with mean 0 and standard deviation 1, and [N] returns.
        """
        paid = self.paid(rewards, segment)
        found, returns = turn_advantages.gae(paid, values, segment, gamma=self.gamma, lam=self.lam)
        spread = found.std(unbiased=False) if found.numel() else found.sum()
        return (found - found.mean()) / (spread + 1e-8), returns

    def paid(self, rewards: Tensor, segment: Tensor) -> Tensor:
        """[S], [N] → [N]: each reward at the last token of its answer, 0 elsewhere."""
        last = torch.ones_like(segment, dtype=torch.bool)
        last[:-1] = segment[1:] != segment[:-1]
        return torch.where(last, rewards.float()[segment], 0.0)

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above. Without values in the batch there is no value loss, without entropy no bonus."""
        ratio = (batch.logprobs - batch.old_logprobs).exp()  # [N]
        token = batch.token_advantages
        advantage = batch.advantages[batch.segment] if token is None else token
        gain, bound = clipped(ratio, advantage, 1 - self.clip, 1 + self.clip)
        policy_loss = -batch.token_mean(gain)
        kl_loss = batch.token_mean(penalty(batch))
        value_loss = batch.token_mean(self.value_error(batch))
        loss = policy_loss + self.value_weight * value_loss + self.kl * batch.kl_scale * kl_loss
        if batch.entropy is not None:
            loss = loss - self.entropy_bonus * batch.token_mean(batch.entropy)
        shown = figures(batch, loss, policy_loss, kl_loss, batch.token_mean(bound.float()))
        return loss, {**shown, "value_loss": value_loss.item()}

    def value_error(self, batch: Batch) -> Tensor:
        """[N] half the squared error of the value, the larger of plain and clipped."""
        if batch.values is None or batch.returns is None or batch.old_values is None:
            return torch.zeros_like(batch.logprobs)
        near = batch.old_values + (batch.values - batch.old_values).clamp(-self.value_clip, self.value_clip)
        errors = torch.maximum((batch.values - batch.returns).square(), (near - batch.returns).square())
        return errors / 2

    def adapt(self, scale: float, shown: Mapping[str, float]) -> float:
        """The factor on β for the next step, from the figures of this one."""
        error = max(-0.2, min(0.2, shown["kl_loss"] / self.target_kl - 1))
        return max(0.01, min(100.0, scale * (1 + 0.1 * error)))
