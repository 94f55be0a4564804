"""A value head, which predicts the reward from the policy's hidden state, for algorithms that need values.

It is trained beside the adapter and kept in checkpoints; it is not part of the adapter that is published.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

RATE = 1e-3
"""Learning rate of the value head: its inputs are standardised, so it does not depend on the model."""
RIDGE = 1.0
"""Weight of the ridge when it is first fitted, in units of the number of tokens: tokens of an answer say much the same."""


class ValueHead(nn.Module):
    """Linear in the standardised hidden state. Zero until it is fitted."""

    mean: Tensor
    spread: Tensor

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden))
        self.bias = nn.Parameter(torch.zeros(()))
        self.register_buffer("mean", torch.zeros(hidden))
        self.register_buffer("spread", torch.ones(hidden))

    def forward(self, states: Tensor) -> Tensor:
        """[N, H] → [N]"""
        return (states.float() - self.mean) / self.spread @ self.weight + self.bias

    @torch.no_grad()
    def fit(self, states: Tensor, targets: Tensor, ridge: float = RIDGE) -> None:
        """Ridge regression in closed form: [N, H] → [N]."""
        states = states.float()
        self.mean.copy_(states.mean(0))
        self.spread.copy_(states.std(0, unbiased=False).clamp(min=1e-6))
        x = (states - self.mean) / self.spread
        gram = x.T @ x
        gram.diagonal().add_(ridge * len(x))
        self.bias.copy_(targets.mean())
        self.weight.copy_(torch.linalg.solve(gram, x.T @ (targets - self.bias)))
