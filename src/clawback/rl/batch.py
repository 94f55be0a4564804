"""The ragged layout that every loss is written for: response tokens of S answers laid end to end.

Nothing is padded, so nothing has to be masked: a token is in the batch because it counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """S answers of N response tokens in all. All floats are float32, whatever the model's dtype.

    An optimizer step may be computed in several pieces to save memory. Each piece is one ``Batch``, and means are
    taken over ``samples_in_step`` and ``tokens_in_step``, so that the losses of the pieces add up to the loss
    of the step exactly. They default to what this batch holds.
    """

    logprobs: Tensor
    """[N] log-probability of each response token under the policy that is trained; carries the gradient."""
    old_logprobs: Tensor
    """[N] the same under the policy that wrote the answers (or the one at the start of the run)."""
    ref_logprobs: Tensor
    """[N] the same under the base model."""
    segment: Tensor
    """[N] int64, which answer a token belongs to: 0 … S-1, non-decreasing."""
    advantages: Tensor
    """[S]"""
    entropy: Tensor | None = None
    """[N] entropy of the policy's next-token distribution, in nats; with its gradient where an algorithm ``needs`` it."""
    pg_weight: Tensor | None = None
    """[N] weight of a token in the policy-gradient term. Absolute: the mean stays over all tokens, so weights
    with a mean of 1 keep the size of the term."""
    exact_kl: Tensor | None = None
    """[N] divergence from the reference over the whole vocabulary at each position, with its gradient: in place of an
    estimate from the token that was sampled."""
    kl_weight: Tensor | None = None
    """[N] weight of a token in the KL term; absolute as well."""
    samples_in_step: float | None = None
    tokens_in_step: float | None = None
    token_advantages: Tensor | None = None
    """[N] an advantage for each single token, for algorithms that ``need`` values or a teacher."""
    teacher_kl: Tensor | None = None
    """[N] divergence of the policy from the teacher at each position, with its gradient."""
    values: Tensor | None = None
    """[N] what the value head expects of the state before each token; carries its gradient."""
    old_values: Tensor | None = None
    """[N] the same when advantages were made."""
    returns: Tensor | None = None
    """[N] what the values should have been."""
    pairs: Tensor | None = None
    """[P, 2] int64: the better and the worse answer of each pair."""
    mismatch_kl: float = 0.0
    """Nats an answer between policy and base on answers to *other* prompts, ≥ 0, over the whole step."""
    kl_scale: float = 1.0
    """Factor on the weight of the KL, for algorithms that ``adapt`` it."""

    @property
    def samples(self) -> float:
        return float(self.advantages.numel()) if self.samples_in_step is None else self.samples_in_step

    @property
    def tokens(self) -> float:
        return float(self.logprobs.numel()) if self.tokens_in_step is None else self.tokens_in_step

    def sums(self, values: Tensor) -> Tensor:
        """[N] → [S]: the sum over each answer's tokens."""
        return values.new_zeros(self.advantages.numel()).index_add(0, self.segment, values)

    def means(self, values: Tensor) -> Tensor:
        """[N] → [S]: the mean over each answer's tokens (0 for an answer without tokens)."""
        return self.sums(values) / self.lengths().clamp(min=1.0)

    def lengths(self) -> Tensor:
        """[S] float: tokens of each answer."""
        return torch.bincount(self.segment, minlength=self.advantages.numel()).to(self.logprobs.dtype)

    def sample_mean(self, values: Tensor) -> Tensor:
        """[N] → scalar: mean over each answer's tokens, then over the answers of the step. Each answer counts alike."""
        return self.means(values).sum() / self.samples

    def token_mean(self, values: Tensor) -> Tensor:
        """[N] → scalar: mean over the tokens of the step. Each token counts alike, so long answers count more."""
        return values.sum() / self.tokens
