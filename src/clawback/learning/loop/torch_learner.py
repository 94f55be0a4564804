"""The learner in this process: gradients by autograd, piece by piece, clipped, and AdamW or a natural step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clawback.errors import TrainingError
from clawback.learning import value_head
from clawback.learning.examples import TrainingExample
from clawback.learning.loop.checkpoint import State
from clawback.learning.loop.packing import Shared, gradients
from clawback.policy import Policy
from clawback.rl import algorithms
from clawback.rl.algorithms import Algorithm
from clawback.scoring import Scored

if TYPE_CHECKING:
    from clawback.learning.loop.learner import GradientGroup
    from clawback.learning.loop.trainer import LoopSettings


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
            groups.append({"params": [parameter for _, parameter in valued], "lr": value_head.RATE})
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

        from clawback.learning.loop import natural_gradient

        step = natural_gradient.NaturalStep(self.policy.scorer, self.adapter, examples)
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
