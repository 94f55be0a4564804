"""A value head: what the policy's hidden state says about the reward that will come. For algorithms that need values.

It is trained beside the adapter and kept in checkpoints; it is no part of the adapter that is published.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from clawback.engine.torch.examples import Example, Ratings
from clawback.engine.torch.policy import Policy

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


class Crediting(Protocol):
    """What an algorithm that needs values has beside ``advantages`` and ``loss``; see ``rl/algorithms/ppo.py``."""

    def credit(self, rewards: Tensor, values: Tensor, segment: Tensor) -> tuple[Tensor, Tensor]:
        """[S] rewards, [N] values, [N] segments → [N] advantages and [N] returns."""
        ...

    def paid(self, rewards: Tensor, segment: Tensor) -> Tensor:
        """[S], [N] → [N]: when each reward is given."""
        ...


class Valued(Ratings):
    """Ratings whose token advantages are made again, by the values of the moment, each time all have been gone through."""

    critic: ValueHead

    def __init__(
        self, policy: Policy, algorithm: Crediting, examples: Sequence[Example], **dealing: Any
    ) -> None:
        super().__init__([[example] for example in examples], **dealing)
        self._policy, self._algorithm = policy, algorithm
        self._all = list(examples)
        self._round = -1
        kept = [self._kept(example) for example in self._all]
        self._lengths = [len(places) for places in kept]
        lengths = torch.tensor(self._lengths)
        self._segment = torch.repeat_interleave(torch.arange(len(kept)), lengths)
        self._rewards = torch.tensor([example.advantage for example in self._all])
        states = self._states()
        self.critic = ValueHead(states.shape[1]).to(states.device)
        paid = self._algorithm.paid(self._rewards, self._segment)
        _, hoped = self._algorithm.credit(self._rewards, torch.zeros_like(paid), self._segment)
        self.critic.fit(states, hoped.to(states.device))

    def examples(self, step: int) -> list[Example]:
        number = step * self._per_step // len(self._all)
        if number != self._round:
            self._value()
            self._round = number
        return super().examples(step)

    @torch.no_grad()
    def _value(self) -> None:
        """Values of all tokens, and from them advantages and returns."""
        values = self.critic(self._states()).cpu()
        advantages, returns = self._algorithm.credit(self._rewards, values, self._segment)
        parts = (x.split(self._lengths) for x in (advantages, returns, values))
        self._put([[self._whole(e, x) for e, x in zip(self._all, part, strict=True)] for part in parts])

    def _put(self, columns: Sequence[Sequence[Tensor]]) -> None:
        rows = zip(self._all, *columns, strict=True)
        self._all = [
            dataclasses.replace(one, token_advantages=a, returns=r, old_values=v) for one, a, r, v in rows
        ]
        self._units = [[example] for example in self._all]

    @torch.no_grad()
    def _states(self) -> Tensor:
        """[N, H] of all tokens that the policy wrote, as it is now."""
        scorer = self._policy.scorer
        lengths = [len(example.encoded.response) for example in self._all]
        parts = scorer.hidden([example.encoded for example in self._all]).split(lengths)
        return torch.cat([part[self._kept(e)] for e, part in zip(self._all, parts, strict=True)]).float()

    @staticmethod
    def _kept(example: Example) -> Tensor:
        count = len(example.encoded.response)
        return torch.arange(count) if example.mask is None else example.mask.nonzero()[:, 0].cpu()

    @classmethod
    def _whole(cls, example: Example, values: Tensor) -> Tensor:
        """[kept tokens] → [tokens], 0 for the others."""
        return torch.zeros(len(example.encoded.response)).index_put((cls._kept(example),), values)

    def state(self) -> dict[str, Any]:
        columns = [[e.token_advantages, e.returns, e.old_values] for e in self._all]
        return {"round": self._round, "columns": columns}

    def restore(self, state: dict[str, Any]) -> None:
        self._round = int(state["round"])
        if self._round >= 0:
            self._put(list(zip(*state["columns"], strict=True)))
