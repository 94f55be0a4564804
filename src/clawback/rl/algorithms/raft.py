"""RAFT: fine-tuning on the best-graded answers.

Source: Dong et al. 2023 (RAFT, arXiv:2304.06767): draw several answers, keep the best by a reward model, fine-tune on these. Where the answers
were drawn under an instruction that the learner does not see, this is context distillation (Askell et al. 2021, arXiv:2112.00861, §2.3;
Snell et al. 2022, arXiv:2209.15189). For answer i with weight w_i and tokens t, and N tokens in the step:

    L = −(1/N) Σ_i w_i Σ_t log π(t) + β · mean_tokens[ v_t · KL_t ]

1. There is no ratio and no clip: the answers need not be the policy's own. Which model wrote them does not matter, only that they were selected.
2. Weights are the advantages of the batch, 0 or more. An answer of weight 0 has its KL alone (replay).
3. KL_t is exact over the whole vocabulary where the batch holds it, else k3 of the token; ``v_t`` is ``Batch.kl_weight``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clawback.rl.batch import Batch
from clawback.rl.surrogate import figures, penalty


@dataclass(frozen=True)
class Raft:
    name: ClassVar[str] = "raft"

    kl: float = 0.1
    """β, weight of the KL term."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S], [S] → [S]: liked answers (reward above 0) by their reward, the others not at all; the baseline as it was."""
        return rewards.float().clamp(min=0.0), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above."""
        policy_loss = -batch.token_mean(batch.logprobs * batch.advantages[batch.segment])
        kl_loss = batch.token_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        return loss, figures(batch, loss, policy_loss, kl_loss, policy_loss.detach().new_zeros(()))
