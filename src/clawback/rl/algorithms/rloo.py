"""RLOO: each answer's reward against the mean of the others', with the whole answer as one action.

Source: Ahmadian et al. 2024, "Back to Basics" (arXiv:2402.14740), eq. 7; the clipped ratio of a whole answer is how TRL repeats
it on the same answers. For answer i of a group of k with reward r_i, and tokens t:

    A_i = r_i − mean of the other k − 1
    ρ_i = exp( Σ_t log π(t) − log π_old(t) )
    L   = −mean_answers[ min(ρ_i·A_i, clip(ρ_i, low, high)·A_i) ] + β · mean_tokens[ k3_t ]

Details that decide how it behaves:

1. Leaving oneself out makes the baseline independent of the answer, so that the gradient is unbiased; it is GRPO's centred
   reward times k / (k − 1), without the division by the spread.
2. Answers that are alone with their prompt are one group together (``advantages.leave_one_out``): with one rating a prompt
   this is REINFORCE with the mean as its baseline.
3. An answer is one action: its tokens' log-probs are summed and not averaged, so long answers are pushed harder.
4. The ratio of a whole answer moves fast: 50 tokens that each become 2 % likelier make 2.7. TRL's clip of 0.8–1.2 stops an
   answer after a step or two, which suits fresh answers; a few dozen ratings that are gone over again need the wide one here.
5. KL is a term of the loss instead of a part of the reward: ratings are not made again when the policy moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clawback.rl import advantages
from clawback.rl.batch import Batch
from clawback.rl.kl import clipped, figures, penalty


@dataclass(frozen=True)
class Rloo:
    name: ClassVar[str] = "rloo"

    kl: float = 0.001
    """β, weight of the KL term."""
    answer_low: float = 0.05
    answer_high: float = 20.0
    """Clip of an answer's ratio."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:
        """[S], [S] → [S], the baseline as it was."""
        return advantages.leave_one_out(rewards, groups), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above."""
        ratio = batch.sums(batch.logprobs - batch.old_logprobs).exp()  # [S]
        gain, bound = clipped(ratio, batch.advantages, self.answer_low, self.answer_high)
        policy_loss = -gain.sum() / batch.samples
        kl_loss = batch.token_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        return loss, figures(batch, loss, policy_loss, kl_loss, bound.float().sum() / batch.samples)
