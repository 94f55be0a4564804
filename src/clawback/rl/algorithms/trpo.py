"""TRPO: the longest step uphill that changes the policy by no more than δ nats.

Source: Schulman et al. 2015 (arXiv:1502.05477), §6 and appendix C. With g the gradient of the loss L below and F the Fisher matrix of the
policy (the Hessian of its KL) at θ:

    A    = r − mean of all ratings of the run
    L(θ) = −mean_tokens[ π_θ(t)/π_old(t) · A ] + β · mean_tokens[ k3_t ]
    x    = (F + damping)⁻¹ · (−g)                    by conjugate gradients, from products F·v alone
    s    = sqrt( 2δ / xᵀFx )
    θ   ← θ + shrink^j · s · x                       the first j = 0, 1, … with KL(θ_new ‖ θ) ≤ δ and a lower L; else θ stays

Details that decide how it behaves:

1. The step is measured in what the policy *says*, not in its weights: no learning rate, and a LoRA's A and B, which
   live on quite different scales, are no trouble. A gradient of any size gives a step of the same length.
2. F·v is how the gradient of the KL changes along v: (∇KL(θ + hv) − ∇KL(θ − hv)) / 2h, where ∇KL(θ) = 0. The KL is exact, over the whole
   vocabulary, so F is the true Fisher matrix at these positions and not one from sampled tokens.
3. F and g come from a few dozen answers, and F⁻¹g goes furthest where F knows least: in their noise. ``damping`` turns those directions down
   (towards the plain gradient), and is left out where the length is measured, so that a step is δ long whatever it is.
4. A step needs two dozen passes: give it many answers at once, and few steps.
5. There is no clip, so π_old has to be near: it is made anew each time all answers have been gone through, which by default is each
   step. Against the policy that wrote the answers, a few rare tokens whose ratio has grown to 10 or 100 become the whole gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clawback.rl import advantages
from clawback.rl.batch import Batch
from clawback.rl.kl import figures, penalty


@dataclass(frozen=True)
class Trpo:
    name: ClassVar[str] = "trpo"
    needs: ClassVar[frozenset[str]] = frozenset({"natural", "proximal"})

    kl: float = 0.001
    """β, weight of the KL to the base."""
    max_step_kl: float = 0.003
    """δ, nats a token between the policies before and after a step."""
    damping: float = 0.03
    products: int = 6
    """Fisher-vector products a step, two passes each."""
    shrink: float = 0.5
    tries: int = 8
    """Lengths of step that are tried."""

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:  # noqa: ARG002
        """[S] → [S], the baseline as it was."""
        return advantages.batch_mean(rewards), baseline

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """L, the surrogate."""
        ratio = (batch.logprobs - batch.old_logprobs).exp()  # [N]
        policy_loss = -batch.token_mean(ratio * batch.advantages[batch.segment])
        kl_loss = batch.token_mean(penalty(batch))
        loss = policy_loss + self.kl * kl_loss
        return loss, figures(batch, loss, policy_loss, kl_loss, torch.zeros(()))

    def direction(self, gradient: Tensor, fisher: Callable[[Tensor], Tensor]) -> Tensor:
        """[P] → [P]: s · x, the whole step before any shrinking. Zero where the gradient is."""

        def damped(vector: Tensor) -> Tensor:
            return fisher(vector) + self.damping * vector

        x = conjugate_gradient(damped, -gradient, self.products)
        curvature = torch.dot(x, fisher(x))
        if not bool(curvature > 1e-12 * torch.dot(x, x)):
            return torch.zeros_like(gradient)
        return x * (2 * self.max_step_kl / curvature).sqrt()

    def search(self, try_at: Callable[[float], tuple[float, float]], loss: float) -> float:
        """The share of the step to take.

        Args:
            try_at: share of the step → (KL from the policy before it, loss).
            loss: before the step.

        Returns:
            The first share, from 1 down, that keeps to δ and lowers the loss; 0 where none does.
        """
        for attempt in range(self.tries):
            share = self.shrink**attempt
            moved, value = try_at(share)
            if moved <= self.max_step_kl and value < loss:
                return share
        return 0.0


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], target: Tensor, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """x with ``product(x) ≈ target`` for a symmetric positive matrix that is known by its products only.

    Args:
        product: [P] → [P].
        target: [P].
        tolerance: stop when the squared residual is below this share of the target's.
    """
    x = torch.zeros_like(target)
    residual = target.clone()
    along = residual.clone()
    square = torch.dot(residual, residual)
    least = tolerance * square
    for _ in range(iterations):
        if not bool(square > least):
            break
        image = product(along)
        curvature = torch.dot(along, image)
        if not bool(curvature > 0):
            break
        length = square / curvature
        x = x + length * along
        residual = residual - length * image
        after = torch.dot(residual, residual)
        along = residual + (after / square) * along
        square = after
    return x
