"""Part of the way back to the base: an adapter that does too much is scaled down, not thrown away.

The answers that a run asks for change early on the way from the base's weights to the learned ones, and what the base knew is lost late on it,
so a point between the two often has nearly all that was learned at a fraction of the loss (WiSE-FT: Wortsman et al. 2022,
arXiv:2109.01903, eq. 1). Of a LoRA only B is scaled: B A is what is added to a weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from clawback.models import delta

if TYPE_CHECKING:
    from clawback.policy.policy import Policy

HALVINGS = 5
"""Of the interval in which the share lies: it is found to a thirty-second."""


@torch.no_grad()
def within(policy: Policy, loss: Callable[[], float], most: float) -> float:
    """Scale what is added to the base's weights until ``loss()`` is at most ``most``.

    Args:
        policy: its adapter or delta is changed in place.
        loss: what has been lost with the weights as they stand; it rises with the share.

    Returns:
        The share that was kept, in [0, 1]: 1 where nothing had to be taken back.
    """
    if loss() <= most:
        return 1.0
    keep = _scaling(policy)
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        keep(middle)
        low, high = (middle, high) if loss() <= most else (low, middle)
    keep(low)
    return low


@torch.no_grad()
def scale(policy: Policy, share: float) -> None:
    """Keep this share of what is added to the base's weights."""
    _scaling(policy)(share)


def _scaling(policy: Policy) -> Callable[[float], None]:
    """Sets what is added to the base's weights to a share of what it is now."""
    added = [
        (weight, weight.detach().clone())
        for name, weight in policy.model.named_parameters()
        if "lora_B" in name or delta.MARK in name
    ]

    def keep(share: float) -> None:
        for weight, whole in added:
            weight.copy_(whole * share)

    return keep
