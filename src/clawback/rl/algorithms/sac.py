"""Discrete SAC: maximises an environment's reward together with the policy's entropy.

Source: Haarnoja et al. 2018 (arXiv:1812.05905) with its automatic temperature, eq. 18; Christodoulou 2019 (arXiv:1910.07207), eq. 10–12,
for discrete actions, where every expectation over actions is a sum. With logits of A actions, π = softmax, twin Q heads, their slow
copies Q̄, and the temperature α:

    V̄(s)  = Σ_a π(a|s) · ( min(Q̄₁, Q̄₂)(s, a) − α·log π(a|s) )
    y     = r + γ · (1 − done) · V̄(s')                                               no gradient
    L_Q   = mean[ (Q₁(s, a) − y)² + (Q₂(s, a) − y)² ] / 2
    L_π   = mean[ Σ_a π(a|s) · ( α·log π(a|s) − min(Q₁, Q₂)(s, a) ) ]                 no gradient to the Q heads
    L_α   = mean[ log α · ( H(π(·|s)) − H_target ) ]                                  no gradient to π
    Q̄    ← (1 − τ)·Q̄ + τ·Q

Details that decide how it behaves:

1. Q heads give a value for every action at once, so nothing is sampled and the policy's gradient has no noise from actions.
2. The smaller of two Qs is used: one alone is too optimistic, because maximising over actions picks its errors.
3. The target entropy is a share of the largest there is, log A. The share of 0.98 in the paper keeps a policy of few actions nearly
   random; 0.3 is the default here.
4. α is learned by its logarithm, so that it stays positive.
5. It learns from a memory of steps in an environment, off the policy. It is not for ratings: a person does not rate states.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sac:
    name: ClassVar[str] = "sac"

    gamma: float = 0.99
    tau: float = 0.01
    """How fast the slow copies follow."""
    target_share: float = 0.3
    """Entropy that the temperature steers for, as a share of log A."""

    def target(
        self,
        rewards: Tensor,
        done: Tensor,
        next_logits: Tensor,
        next_q1: Tensor,
        next_q2: Tensor,
        temperature: Tensor | float,
    ) -> Tensor:
        """What Q should have been.

        Args:
            rewards: [B] what the step brought.
            done: [B] bool, the episode ended with it.
            next_logits: [B, A] of the policy after the step.
            next_q1, next_q2: [B, A] of the slow copies there.
            temperature: α.

        Returns:
            [B], without gradient.
        """
        with torch.no_grad():
            log_pi = next_logits.float().log_softmax(-1)
            soft = torch.minimum(next_q1, next_q2) - temperature * log_pi
            value = (log_pi.exp() * soft).sum(-1)
            return rewards + self.gamma * (~done.bool()).to(value.dtype) * value

    def critic_loss(self, q1: Tensor, q2: Tensor, actions: Tensor, target: Tensor) -> Tensor:
        """L_Q from both heads' values [B, A], the actions taken [B] int64 and ``target`` [B]."""
        taken = [q.gather(1, actions[:, None])[:, 0] for q in (q1, q2)]
        return sum(((q - target).square().mean() for q in taken), torch.zeros(())) / 2

    def actor_loss(self, logits: Tensor, q1: Tensor, q2: Tensor, temperature: Tensor | float) -> Tensor:
        """L_π from the policy's logits [B, A] and both heads' values [B, A]."""
        log_pi = logits.float().log_softmax(-1)
        worth = torch.minimum(q1, q2).detach()
        alpha = temperature.detach() if isinstance(temperature, Tensor) else temperature
        return (log_pi.exp() * (alpha * log_pi - worth)).sum(-1).mean()

    def temperature_loss(self, log_temperature: Tensor, logits: Tensor) -> Tensor:
        """L_α from log α (a scalar that is trained) and the policy's logits [B, A]."""
        with torch.no_grad():
            log_pi = logits.float().log_softmax(-1)
            entropy = -(log_pi.exp() * log_pi).sum(-1)
        excess = entropy - self.target_share * math.log(logits.shape[-1])
        return (log_temperature * excess).mean()

    @torch.no_grad()
    def follow(self, slow: Iterable[Tensor], fast: Iterable[Tensor]) -> None:
        """Move the slow copies of the Q heads' parameters a little towards the heads, in place."""
        for copy, parameter in zip(slow, fast, strict=True):
            copy.lerp_(parameter, self.tau)
