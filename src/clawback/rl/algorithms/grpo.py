"""GRPO: several answers to the same prompt, each rewarded relative to the others.

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
6. There are several passes over the ratings; in each the current policy takes the place of the one that sampled.
7. A group whose rewards are equal contributes nothing.
8. Where the batch holds the exact KL of each position (``Batch.exact_kl``), that takes the place of k3.
9. ``grouped = False`` is for answers that stand alone, as OpenClaw-RL has it ("groups of one"): A is the reward itself, without
   any normalisation. With ratings of one answer a prompt, groups would leave nothing to learn.
10. Where the batch holds an advantage for each token (``Batch.token_advantages``: the turns of an episode differ), that is A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clawback.rl import advantages
from clawback.rl.batch import Batch
from clawback.rl.kl import clipped, figures, penalty


@dataclass(frozen=True)
class Grpo:
    name: ClassVar[str] = "grpo"
    needs: ClassVar[frozenset[str]] = frozenset({"proximal"})

    kl: float = 0.02
    """β, weight of the KL term."""
    clip_low: float = 0.8
    clip_high: float = 1.28
    scale_advantages: bool = True
    """False: leave out the division by the group's standard deviation (Dr. GRPO)."""
    grouped: bool = True
    """False: each answer stands alone, and its advantage is its reward."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:
        """[S], [S] → [S], the baseline as it was."""
        if not self.grouped:
            return rewards.float(), baseline
        return advantages.group_normalised(rewards, groups, scale=self.scale_advantages), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above."""
        ratio = (batch.logprobs - batch.old_logprobs).exp()  # [N]
        token = batch.token_advantages
        advantage = batch.advantages[batch.segment] if token is None else token
        gain, bound = clipped(ratio, advantage, self.clip_low, self.clip_high)
        if batch.pg_weight is not None:
            gain = gain * batch.pg_weight
        policy_loss = -batch.token_mean(gain)
        kl_loss = batch.token_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        return loss, figures(batch, loss, policy_loss, kl_loss, batch.token_mean(bound.float()))
