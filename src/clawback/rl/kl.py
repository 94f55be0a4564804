"""Shared parts of the losses: estimators of the KL, PPO's clipped surrogate, and what is reported of a ratio.

Three estimators of KL(policy ‖ reference), a token each, come from tokens that were sampled. With ``d = log π_ref − log π`` at a token (J. Schulman, "Approximating KL divergence", 2020):

    k1 = −d                 unbiased, may be negative
    k2 = d² / 2             biased, low variance, always ≥ 0
    k3 = exp(d) − d − 1     unbiased, low variance, always ≥ 0

"Unbiased" holds for tokens that the *policy* sampled. On ratings of older answers they are penalties with the right
minimum (the reference) and no more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from clawback.rl.batch import Batch

Estimator = Literal["k1", "k2", "k3"]


def k1(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[N], [N] → [N], in nats."""
    return logprobs - ref_logprobs


def k2(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[N], [N] → [N], in nats, ≥ 0."""
    return (logprobs - ref_logprobs).square() / 2


def k3(logprobs: Tensor, ref_logprobs: Tensor) -> Tensor:
    """[N], [N] → [N], in nats, ≥ 0.

    Written with ``expm1``: near the reference, where training starts, ``exp(d) − 1`` would lose every digit.
    """
    difference = ref_logprobs - logprobs
    return difference.expm1() - difference


ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": k1, "k2": k2, "k3": k3}


def per_token(logprobs: Tensor, ref_logprobs: Tensor, estimator: Estimator = "k3") -> Tensor:
    """[N], [N] → [N] by the named estimator."""
    return ESTIMATORS[estimator](logprobs, ref_logprobs)


def clipped(ratio: Tensor, advantage: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """PPO's pessimistic surrogate (Schulman et al. 2017, arXiv:1707.06347, eq. 7), and where the clip holds it.

        min(ρ·A, clip(ρ, low, high)·A)

    Args:
        ratio: π/π_old, of tokens or of whole answers.
        advantage: of the same shape.

    Returns:
        The gain, and a bool of the same shape: True where the gradient is cut off.
    """
    gain = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
    bound = ((ratio > high) & (advantage > 0)) | ((ratio < low) & (advantage < 0))
    return gain, bound


def penalty(batch: Batch) -> Tensor:
    """[N] KL to the base in nats: exact where the batch holds it, else k3; times ``kl_weight`` where given."""
    value = k3(batch.logprobs, batch.ref_logprobs) if batch.exact_kl is None else batch.exact_kl
    return value if batch.kl_weight is None else value * batch.kl_weight


@torch.no_grad()
def figures(
    batch: Batch, loss: Tensor, policy_loss: Tensor, kl_loss: Tensor, clip_fraction: Tensor
) -> dict[str, float]:
    """What every loss shows. Each figure of a piece is its share of the step's."""
    ratio = (batch.logprobs - batch.old_logprobs).exp()
    shown = {
        "loss": loss.item(),
        "policy_loss": policy_loss.item(),
        "kl_loss": kl_loss.item(),
        "clip_fraction": float(clip_fraction),
        "ratio": float(batch.token_mean(ratio)),
    }
    if batch.entropy is not None:
        shown["entropy"] = float(batch.token_mean(batch.entropy))
    return shown
