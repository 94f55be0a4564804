"""Three per-token estimators of KL(policy ‖ reference) from tokens that were sampled.

With ``d = log π_ref − log π`` at a token (J. Schulman, "Approximating KL divergence", 2020):

    k1 = −d                 unbiased, may be negative
    k2 = d² / 2             biased, low variance, always ≥ 0
    k3 = exp(d) − d − 1     unbiased, low variance, always ≥ 0

"Unbiased" holds for tokens that the *policy* sampled. On ratings of older answers they are penalties with the right
minimum (the reference) and no more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor

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
