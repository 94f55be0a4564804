"""A natural-gradient step on the adapter's parameters, for algorithms that choose its direction and length (``rl/algorithms/trpo.py``).

Its passes go over the same pieces as the gradient, so that a step needs no more memory than any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from clawback.errors import TrainingError
from clawback.learning.examples import TrainingExample
from clawback.scoring import Scorer, divergence

_PROBE = 0.1
"""Length in parameter space of the little step along which the gradient of the KL is differenced."""


class Natural(Protocol):
    """What an algorithm that takes natural steps has beside ``advantages`` and ``loss``."""

    def direction(self, gradient: Tensor, fisher: Callable[[Tensor], Tensor]) -> Tensor:
        """[P] gradient of the loss, and [P] → [P] products with the Fisher matrix → [P] the whole step."""
        ...

    def search(self, try_at: Callable[[float], tuple[float, float]], loss: float) -> float:
        """Share of the step → (KL, loss) there, and the loss before → the share to take; 0 for none."""
        ...


class NaturalStep:
    """One step: made at the weights as they are."""

    def __init__(
        self, scorer: Scorer, weights: Sequence[nn.Parameter], examples: Sequence[TrainingExample]
    ) -> None:
        if not scorer.fused_head:
            raise TrainingError(
                "The LM head of this model is of an unknown kind, and natural gradients need its whole distribution. "
                "Use another algorithm, such as ppo."
            )
        self.scorer, self.weights = scorer, list(weights)
        self.before = torch.cat([w.detach().reshape(-1) for w in weights])
        encoded = [example.encoded for example in examples]
        self.pieces = [[encoded[i] for i in piece] for piece in scorer.pieces(encoded)]
        masks = [e.mask if e.mask is not None else torch.ones(len(e.encoded.response)) for e in examples]
        tokens = max(1.0, float(sum(float(mask.sum()) for mask in masks)))
        self.shares = [
            torch.cat([masks[i] for i in piece]).float().to(scorer.device) / tokens
            for piece in scorer.pieces(encoded)
        ]
        with torch.no_grad():
            self.states = [scorer.states(piece) for piece in self.pieces]

    def take(self, algorithm: Natural, loss: float, loss_now: Callable[[], float]) -> dict[str, float]:
        """Move the weights, whose gradients are there. ``loss_now`` measures the loss at the weights as they stand."""
        gradient = torch.cat([_grad(weight) for weight in self.weights])
        whole = algorithm.direction(gradient, self.fisher)
        tried: list[tuple[float, float]] = []

        def try_at(share: float) -> tuple[float, float]:
            self.put(self.before + share * whole)
            tried.append((self.moved(), loss_now()))
            return tried[-1]

        share = algorithm.search(try_at, loss)
        self.put(self.before + share * whole)
        return {"step_share": share, "step_kl": tried[-1][0] if share and tried else 0.0}

    def fisher(self, vector: Tensor) -> Tensor:
        """[P] → [P]: the product of the Fisher matrix with a vector."""
        length = float(vector.norm())
        if length == 0.0:
            return torch.zeros_like(vector)
        little = _PROBE / length
        ahead, behind = (self._slope(self.before + sign * little * vector) for sign in (1, -1))
        self.put(self.before)
        return (ahead - behind) / (2 * little)

    def _slope(self, weights: Tensor) -> Tensor:
        """[P] gradient of KL(policy at these weights ‖ policy before), mean over tokens."""
        self.put(weights)
        for weight in self.weights:
            weight.grad = None
        for piece, states, share in zip(self.pieces, self.states, self.shares, strict=True):
            with torch.enable_grad(), self.scorer.engaged(piece):
                apart = divergence(self.scorer.head, self.scorer.states(piece), states)
                (apart * share).sum().backward()
        return torch.cat([_grad(weight) for weight in self.weights])

    @torch.no_grad()
    def moved(self) -> float:
        """Nats a token between the policy before and at the weights as they stand."""
        total = 0.0
        for piece, states, share in zip(self.pieces, self.states, self.shares, strict=True):
            apart = divergence(self.scorer.head, self.scorer.states(piece), states)
            total += float((apart * share).sum())
        return total

    @torch.no_grad()
    def put(self, flat: Tensor) -> None:
        """Set the weights."""
        start = 0
        for weight in self.weights:
            weight.copy_(flat[start : start + weight.numel()].view_as(weight))
            start += weight.numel()


def _grad(weight: nn.Parameter) -> Tensor:
    return (
        torch.zeros(weight.numel(), device=weight.device) if weight.grad is None else weight.grad.reshape(-1)
    )
