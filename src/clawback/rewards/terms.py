"""Composite rewards in a run: what counts beside the feedback on an answer, or beside its predicted rating.

The verifiers of the settings are the critic; coherence, tokens and safety are measured on the text. For a
turn that somebody rated, ``feedback`` is their rating; for a fresh answer it is the prediction of the head or
the reward model, less its uncertainty. Both use the same λ, so that training data and fresh answers are
rewarded alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clawback.errors import UsageError
from clawback.records import JsonObject, Sample, Term, Turn
from clawback.rewards import composite, verifiers
from clawback.rewards.composite import Weights
from clawback.rewards.rating_likelihood import Floats
from clawback.rewards.verifiers import Verifier


@dataclass(frozen=True)
class RewardTerms:
    """λ of all parts, the verifiers, and between which lengths the part ``tokens`` falls from 1 to 0."""

    weights: Weights
    verifiers: tuple[Verifier, ...] = ()
    target: int = 200
    limit: int = 800

    def __post_init__(self) -> None:
        others = any(value for name, value in asdict(self.weights).items() if name != "critic")
        if bool(self.verifiers) > bool(self.weights.critic) or not (others or self.verifiers):
            raise UsageError(
                "In [reward] the verifiers are the critic: set both `verifiers` and weights.critic, or neither."
            )
        composite.tokens(
            1, self.target, self.limit
        )  # says what is wrong with them now, not in the middle of a run

    @property
    def name(self) -> str:
        """Which ones; changes when they do."""
        return repr(self)

    def __str__(self) -> str:
        return " + ".join(f"{share:.2g}·{name}" for name, share in self.shares.items())

    @property
    def shares(self) -> dict[str, float]:
        """The normalised λ of the parts that an answer has; ``feedback`` first, 0 where it does not count."""
        lambdas = asdict(self.weights)
        if not self.verifiers:
            del lambdas["critic"]
        total = sum(lambdas.values())
        return {name: w / total for name, w in lambdas.items() if w or name == "feedback"}

    def measured(self, prompt: str, response: str, tokens: int) -> dict[str, float]:
        """The parts beside feedback, each in [0, 1]; parts without a weight are not computed."""
        make = {
            "critic": lambda: composite.critic([one(prompt, response) for one in self.verifiers]),
            "coherence": lambda: composite.coherence(response),
            "tokens": lambda: composite.tokens(tokens, self.target, self.limit),
            "safety": lambda: composite.safety(response),
        }
        return {name: make[name]() for name in self.shares if name in make}

    def of(self, sample: Sample, tokens: int) -> Sample:
        """The sample with its composite reward and the terms of it; one that was not rated stays as it is.

        Raises ``UsageError`` where a verifier returns anything but a number from 0 to 1.
        """
        if not sample.rated:
            return sample
        parts = {"feedback": composite.feedback(sample.reward)}
        parts |= self.measured(Turn("", sample.messages, "").prompt, sample.response, tokens)
        made = composite.add_up(parts, self.weights)
        terms = tuple(Term(name, value, made.shares.get(name, 0.0)) for name, value in parts.items())
        return dataclasses.replace(sample, reward=made.value, terms=terms)

    def add(self, expected: ArrayLike, pairs: Sequence[tuple[str, str]], tokens: Sequence[int]) -> Floats:
        """``[n]`` rewards: ``expected`` ``[n]`` in units of a rating takes the place of feedback, beside the parts of (prompt, response).

        The same sum as ``composite.add_up`` makes of them, but that what is expected may lie beyond ±1: a head's order is kept there.
        """
        shares = self.shares
        rewards = shares["feedback"] * np.asarray(expected, dtype=np.float64)
        for row, ((prompt, response), count) in enumerate(zip(pairs, tokens, strict=True)):
            parts = self.measured(prompt, response, count)
            beside = composite.add_up(parts, self.weights).value if parts else 0.0
            rewards[row] += (1 - shares["feedback"]) * beside
        return rewards


def read(settings: Mapping[str, Any]) -> RewardTerms | None:
    """``weights``, ``verifiers`` and ``tokens`` of the table ``[reward]``; None where neither of the first two is given.

    Weights that are not named are 0, and with none named they are ``composite.Weights()``. Raises ``UsageError`` for a verifier that nobody
    provides or that is set up wrongly, and for weights that cannot be meant.
    """
    given, asked = settings.get("weights") or {}, settings.get("verifiers") or ()
    if not given and not asked:
        return None
    weights = Weights(**dict.fromkeys(asdict(Weights()), 0.0) | dict(given)) if given else Weights()
    target, limit = settings.get("tokens") or (RewardTerms.target, RewardTerms.limit)
    return RewardTerms(weights, tuple(_verifier(dict(one)) for one in asked), target, limit)


def _verifier(settings: JsonObject) -> Verifier:
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise UsageError('A verifier in [reward] needs a name, such as {name = "regex", pattern = "…"}.')
    try:
        return verifiers.make(name, settings)
    except TypeError as error:
        raise UsageError(f"The verifier {name!r} cannot be made: {error}.") from error
