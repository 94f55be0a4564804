"""The learner in this process: gradients, its optimizer's or a natural step, and the value head that some algorithms train beside the adapter.

A natural-gradient step on the adapter's parameters, for algorithms that choose its direction and length (``rl/algorithms/trpo.py``).

Its passes go over the same pieces as the gradient, so that a step needs no more memory than any other.

A value head, which predicts the reward from the policy's hidden state, for algorithms that need values.

It is trained beside the adapter and kept in checkpoints; it is not part of the adapter that is published.

The learner in this process: gradients by autograd, piece by piece, clipped, and AdamW or a natural step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from clawback.errors import TrainingError
from clawback.policy import Policy
from clawback.rl import algorithms
from clawback.rl.algorithms import Algorithm
from clawback.scoring import Scored, Scorer, divergence
from clawback.trainer.examples import Shared, TrainingExample, gradients
from clawback.trainer.training_loop import State

if TYPE_CHECKING:
    from clawback.trainer.training_loop import GradientGroup, LoopSettings


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


class TorchLearner:
    """A policy's adapter, and a value head beside it where the source has one."""

    def __init__(
        self,
        policy: Policy,
        settings: LoopSettings,
        critic: nn.Module | None = None,
        group: GradientGroup | None = None,
    ) -> None:
        """``group``: further processes that a step's gradient is shared out among. Raises ``TrainingError`` where there is no adapter."""
        self.policy, self.critic, self.group = policy, critic, group
        self.cover, self.grad_clip = settings.cover, settings.grad_clip
        named = sorted((name, p) for name, p in policy.model.named_parameters() if p.requires_grad)
        if not named:
            raise TrainingError("There is nothing to train: the policy has no adapter.")
        self.names = [name for name, _ in named]
        self.adapter: list[nn.Parameter] = [parameter for _, parameter in named]
        self.weights = list(self.adapter)
        groups: list[dict[str, Any]] = [{"params": self.adapter, "lr": settings.learning_rate}]
        if critic is not None:
            valued = sorted(critic.named_parameters())
            self.names += [f"critic.{name}" for name, _ in valued]
            self.weights += [parameter for _, parameter in valued]
            groups.append({"params": [parameter for _, parameter in valued], "lr": RATE})
        self.rates = [group["lr"] for group in groups]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, fused=True)
        self.good = [weight.detach().clone() for weight in self.weights]
        self.good_steps = 0
        self.last: tuple[Sequence[TrainingExample], Algorithm, Shared, float] | None = None
        """What the gradient is of, and its loss."""

    def score(self, examples: Sequence[TrainingExample]) -> Scored:
        with torch.no_grad():
            return self.policy.scorer([example.encoded for example in examples])

    def backward(
        self, examples: Sequence[TrainingExample], algorithm: Algorithm, kl_scale: float
    ) -> dict[str, float]:
        needs = algorithms.needs(algorithm)
        shared = Shared.of(
            examples,
            cover=self.cover,
            entropy="entropy" in needs,
            critic=self.critic,
            mismatch_kl=self._mismatch(examples),
            kl_scale=kl_scale,
        )
        if self.group is not None:
            figures = dict(self.group.gradient(self.policy, algorithm, self.adapter, examples, shared))
        else:
            figures = gradients(self.policy.scorer, algorithm, examples, shared)
        norm, *_ = [
            nn.utils.clip_grad_norm_(group["params"], self.grad_clip) for group in self.optimizer.param_groups
        ]
        self.last = (examples, algorithm, shared, figures["loss"])
        return {**figures, "grad_norm": float(norm)}

    @torch.no_grad()
    def _mismatch(self, examples: Sequence[TrainingExample]) -> float:
        """Nats between policy and base on an answer to another prompt, mean of the step, not below 0."""
        odd = [(e.mismatched, e.mismatched_ref) for e in examples if e.mismatched is not None]
        if not odd:
            return 0.0
        values = self.policy.scorer([encoded for encoded, _ in odd]).split()
        return max(0.0, sum(float(v.sum()) - ref for v, (_, ref) in zip(values, odd, strict=True)) / len(odd))

    def step(self, rates: Sequence[float]) -> dict[str, float]:
        assert self.last is not None
        figures: dict[str, float] = {}
        if "natural" in algorithms.needs(self.last[1]):
            figures = self._natural_step(*self.last)
        else:
            for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return figures

    def _natural_step(
        self, examples: Sequence[TrainingExample], algorithm: Any, shared: Shared, loss: float
    ) -> dict[str, float]:
        def loss_now() -> float:
            with torch.no_grad():
                return gradients(self.policy.scorer, algorithm, examples, shared)["loss"]

        step = NaturalStep(self.policy.scorer, self.adapter, examples)
        return step.take(algorithm, loss, loss_now)

    @torch.no_grad()
    def remember(self, steps: int) -> None:
        self.good_steps = steps
        for kept, weight in zip(self.good, self.weights, strict=True):
            kept.copy_(weight)

    @torch.no_grad()
    def restore(self) -> int:
        self.optimizer.zero_grad(set_to_none=True)
        for kept, weight in zip(self.good, self.weights, strict=True):
            weight.copy_(kept)
        return self.good_steps

    def save(self, state: State, *, pause: bool = False) -> State:  # noqa: ARG002
        return {
            **state,
            "weights": dict(zip(self.names, (w.detach() for w in self.weights), strict=True)),
            "good": dict(zip(self.names, self.good, strict=True)),
            "optimizer": self.optimizer.state_dict(),
        }

    @torch.no_grad()
    def load(self, state: State) -> State:
        for name, kept, weight in zip(self.names, self.good, self.weights, strict=True):
            weight.copy_(state["weights"][name])
            kept.copy_(state["good"][name])
        self.good_steps = max(0, int(state["step"]) - 1)
        self.optimizer.load_state_dict(state["optimizer"])
        return state
