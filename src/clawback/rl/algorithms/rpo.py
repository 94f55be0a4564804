"""RPO: fine-tuning on the best-graded answers, each preferred to a worse one to the same prompt.

Source: Pang et al. 2024 (iterative reasoning preference optimization, arXiv:2404.19733, eq. 1): DPO's loss plus the likelihood of the better
answer. Without pairs it is RAFT (Dong et al. 2023, arXiv:2304.06767): draw several answers, keep the best by a reward model, fine-tune on
these. Where the answers were drawn under an instruction that the learner does not see, this is context distillation (Askell et al. 2021,
arXiv:2112.00861, §2.3; Snell et al. 2022, arXiv:2209.15189). For answer i with weight w_i and tokens t, N tokens and S answers in the step,
and pairs of a better answer b and a worse one c:

    r_y = Σ_t log π(t) − log π_ref(t)
    Δ   = β·(r_b − r_c)
    L   = −(1/N) Σ_i w_i Σ_t log π(t) + α·(2/S) Σ_pairs[ −(1 − ε)·log σ(Δ) − ε·log σ(−Δ) ] + γ · mean_tokens[ v_t · KL_t ]

1. There is no ratio and no clip: the answers need not be the policy's own. Which model wrote them does not matter, only how they were graded.
2. Weights are the advantages of the batch, 0 or more. A worse answer has weight 0, and so has one of the base that carries the KL alone (replay).
3. The likelihood keeps what is preferred likely: under DPO alone both answers of a pair may become less so, and what is said in their place nobody has graded.
4. KL_t is exact over the whole vocabulary where the batch holds it, else k3 of the token; ``v_t`` is ``Batch.kl_weight``.
5. Both answers of a pair go through the loss together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl.algorithms.dpo import Dpo
from clawback.rl.batch import Batch
from clawback.rl.kl import figures, penalty


@dataclass(frozen=True)
class Rpo:
    name: ClassVar[str] = "rpo"
    needs: ClassVar[frozenset[str]] = frozenset({"pairs"})

    kl: float = 0.1
    """γ, weight of the KL term."""
    preference: float = 1.0
    """α, weight of the pairs."""
    beta: float = 0.1
    smoothing: float = 0.1
    """ε, how often the grades are taken to have the order wrong."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S], [S] → [S]: liked answers (reward above 0) by their reward, the others not at all; the baseline as it was."""
        return rewards.float().clamp(min=0.0), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above."""
        policy_loss = -batch.token_mean(batch.logprobs * batch.advantages[batch.segment])
        kl_loss = batch.token_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        # Of each step and piece, with pairs or without: figures of pieces and steps are added up by name.
        shown = {"margin": 0.0, "accuracy": 0.0}
        if batch.pairs is not None and len(batch.pairs):
            preference_loss, shown = Dpo(self.beta, self.smoothing).loss(batch)
            loss = loss + self.preference * preference_loss
        no_clip = torch.zeros((), device=loss.device)
        return loss, {**shown, **figures(batch, loss, policy_loss, kl_loss, no_clip)}
