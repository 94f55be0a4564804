"""DPO: direct preference optimisation, from preferences, edits, and ratings of answers to the same prompt.

Source: Rafailov et al. 2023 (arXiv:2305.18290), eq. 7; ``smoothing`` is cDPO's (E. Mitchell, 2023), eq. 3. For a pair with the better
answer w and the worse one l:

    r_y = Σ_t log π(t) − log π_ref(t)
    Δ   = β·(r_w − r_l)
    L   = mean_pairs[ −(1 − ε)·log σ(Δ) − ε·log σ(−Δ) ]

Details that decide how it behaves:

1. Only the difference counts: both answers may become less likely, the worse one faster. Large β holds the policy nearer the base.
2. ε is how often a person is taken to prefer the wrong one. Without it a single wrong rating is followed without limit.
3. An edit is the clearest pair there is: the same prompt, what was said, and what should have been.
4. There is no other KL term: it is in Δ.
5. Both answers of a pair go through the loss together, and a step counts answers: a batch of 8 is four pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from clawback.rl.batch import Batch


@dataclass(frozen=True)
class Dpo:
    name: ClassVar[str] = "dpo"
    needs: ClassVar[frozenset[str]] = frozenset({"pairs"})

    beta: float = 0.1
    smoothing: float = 0.0
    """ε"""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S] → [S]: the rewards as they are; which of two is better is said by the pair."""
        return rewards.float(), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The equation above, over ``Batch.pairs``."""
        reward = batch.sums(batch.logprobs - batch.ref_logprobs)  # [S]
        pairs = batch.pairs if batch.pairs is not None else torch.zeros(0, 2, dtype=torch.int64)
        margin = self.beta * (reward[pairs[:, 0]] - reward[pairs[:, 1]])  # [P]
        errors = -(1 - self.smoothing) * logsigmoid(margin) - self.smoothing * logsigmoid(-margin)
        count = batch.samples / 2
        loss = errors.sum() / count
        with torch.no_grad():
            metrics = {
                "loss": loss.item(),
                "margin": float(margin.sum() / count),
                "accuracy": float((margin > 0).float().sum() / count),
            }
        return loss, metrics
