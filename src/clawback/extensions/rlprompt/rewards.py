"""Rewards for a prompt refinement: one number, and the terms that it is the sum of.

    R = λ1·feedback + λ2·critic + λ3·coherence + λ4·tokens + λ5·safety

| term | key in ``info`` | unit | λ |
| --- | --- | --- | --- |
| feedback | ``human_feedback`` | what the person said, 0 to 1 (or -1 to 1) | at least 0 |
| critic | ``critic_score`` | what the critic expects, 0 to 1 | at least 0 |
| coherence | ``response_coherence`` | 0 to 1, more is better | at least 0 |
| tokens | ``tokens_used`` | tokens of the answer: a cost | at most 0 |
| safety | ``safety_penalty`` | how bad, 0 to 1: a cost | at most 0 |

A λ of the wrong sign would pay for what should cost, and is refused. A term that nobody gave is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clawback.errors import UsageError

Info = Mapping[str, Any]
RewardFn = Callable[[Info], float]

KEYS = {
    "feedback": "human_feedback",
    "critic": "critic_score",
    "coherence": "response_coherence",
    "tokens": "tokens_used",
    "safety": "safety_penalty",
}
COSTS = ("tokens", "safety")


@dataclass(frozen=True, slots=True)
class RewardReport:
    """A reward and the terms that it adds up from, each with its λ; what was not given is not among them."""

    value: float
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ScalarReward:
    """One value of ``info``, ``default`` where it is missing."""

    key: str = "score"
    default: float = 0.0

    def __call__(self, info: Info) -> float:
        return self.report(info).value

    def report(self, info: Info) -> RewardReport:
        value = _number(info, self.key)
        return RewardReport(self.default, {}) if value is None else RewardReport(value, {self.key: value})


@dataclass(frozen=True, slots=True)
class HybridReward:
    """The sum above. Raises ``UsageError`` for a λ of the wrong sign."""

    lambda_feedback: float = 1.0
    lambda_critic: float = 0.8
    lambda_coherence: float = 0.3
    lambda_tokens: float = -0.0002
    """A token; 1,000 tokens cost a fifth of a full rating."""
    lambda_safety: float = -1.0

    def __post_init__(self) -> None:
        for name, weight in self.weights.items():
            if not math.isfinite(weight) or (weight > 0 if name in COSTS else weight < 0):
                side = "at most" if name in COSTS else "at least"
                raise UsageError(f"lambda_{name} = {weight:g} would reward the wrong side: it is {side} 0.")

    @property
    def weights(self) -> dict[str, float]:
        return {name: getattr(self, f"lambda_{name}") for name in KEYS}

    def __call__(self, info: Info) -> float:
        return self.report(info).value

    def report(self, info: Info) -> RewardReport:
        """The sum with its terms."""
        weights = self.weights
        terms = {name: weights[name] * value for name, key in KEYS.items() if (value := _number(info, key)) is not None}  # fmt: skip
        return RewardReport(sum(terms.values()), terms)


def report(reward: RewardFn, info: Info) -> RewardReport:
    """The terms of any reward function; one that has no ``report`` is its own only term."""
    if isinstance(reward, ScalarReward | HybridReward):
        return reward.report(info)
    value = float(reward(info))
    return RewardReport(value, {"reward": value})


def _number(info: Info, key: str) -> float | None:
    """Raises ``UsageError`` for what is there and no number."""
    value = info.get(key)
    if value is None:
        return None
    if isinstance(value, str) or not math.isfinite(number := float(value)):
        raise UsageError(f"The reward term {key!r} is {value!r}, which is no number.")
    return number
