"""A policy that chooses which prompt answers a question, and learns from the ratings of the answers.

``PromptActor`` is a softmax policy, linear in features of the question::

    π(a | q) = (1 − ε) · softmax_a(W φ(q)) + ε / K

It is trained by ``GPROOptimizer``, RLPrompt's name for what its papers call a clipped-ratio, group-relative policy gradient: PPO's clipped
surrogate (Schulman et al. 2017, eq. 7) with GRPO's advantages (Shao et al. 2024, §4.1.1), rewards less the mean of their group over its
spread, in place of a critic's. W has some dozens of numbers; no network, no torch.

``ThompsonActor`` (Thompson 1933; linear: Agrawal & Goyal 2013) is the bandit that such a policy has to be measured by, ``RandomActor`` chooses evenly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clawback.errors import UsageError
from clawback.prompts.prompt import Prompt

if TYPE_CHECKING:
    from clawback.records import JsonObject

Floats = NDArray[np.float64]
FeaturesOf = Callable[[str], Floats]

EXPLORE = 0.02
"""ε: share of the choices that are made evenly, so that no prompt is given up for good."""
_CODE = re.compile(r"```|`|\b(?:def|class|function|import|select|error|code|bug|script)\b", re.IGNORECASE)
_TASK = re.compile(
    r"^\W*(?:write|make|create|draft|compose|translate|summari[sz]e|list|give)\b", re.IGNORECASE
)
_WHY = re.compile(r"\b(?:why|explain|how come|reason)\b", re.IGNORECASE)
_HOW = re.compile(r"\b(?:how (?:do|can|to|should)|steps?)\b", re.IGNORECASE)


def context(query: str) -> Floats:
    """``[7]`` what kind of question it is: a constant, its length, and signs of code, a task, a why, a how, a number."""
    words = len(query.split())
    signs = (
        _CODE.search(query),
        _TASK.search(query),
        _WHY.search(query),
        _HOW.search(query),
        re.search(r"\d", query),
    )
    return np.array([1.0, np.log1p(words) / 3 - 1, *(float(bool(sign)) for sign in signs)])


@dataclass(frozen=True, slots=True)
class CandidateResponse:
    """An answer under one of the prompts."""

    text: str
    system_prompt: str
    prompt_index: int


@dataclass(frozen=True, slots=True)
class Transition:
    """One choice and what came of it. ``logprob``: of the choice when it was made; ``group``: choices on one question, compared with one another."""

    query: str
    prompt_id: str
    reward: float
    logprob: float
    group: str = ""
    among: tuple[str, ...] = ()
    """The prompts that it was chosen from; empty: all that the actor knows."""


class Actor(Protocol):
    """Chooses among prompts, by their ids."""

    def probabilities(self, query: str, prompt_ids: Sequence[str]) -> Floats: ...

    def choose(self, query: str, prompt_ids: Sequence[str]) -> tuple[int, float]: ...

    def learn(self, batch: Sequence[Transition]) -> dict[str, float]: ...


class _Chooser:
    """What all actors have in common. Draws follow from the seed and their number alone, so that a restart draws on."""

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.draws = seed, 0

    def rng(self) -> np.random.Generator:
        self.draws += 1
        return np.random.default_rng((self.seed, self.draws))

    def probabilities(self, query: str, prompt_ids: Sequence[str]) -> Floats:  # noqa: ARG002
        return np.full(len(prompt_ids), 1.0 / max(1, len(prompt_ids)))

    def choose(self, query: str, prompt_ids: Sequence[str]) -> tuple[int, float]:
        """The place of the chosen prompt, and the logarithm of its probability. Raises ``UsageError`` without prompts."""
        if not prompt_ids:
            raise UsageError("There is no prompt to choose from.")
        chances = self.probabilities(query, prompt_ids)
        place = int(self.rng().choice(len(prompt_ids), p=chances))
        return place, float(np.log(chances[place]))

    def select_response(self, query: str, candidates: Sequence[CandidateResponse]) -> int:
        """Which of these answers to show."""
        return self.choose(query, [Prompt(one.system_prompt).id for one in candidates])[0]

    def learn(self, batch: Sequence[Transition]) -> dict[str, float]:  # noqa: ARG002
        return {}

    def to_dict(self) -> JsonObject:
        return {"seed": self.seed, "draws": self.draws}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.seed, self.draws = int(state["seed"]), int(state["draws"])


class RandomActor(_Chooser):
    """Chooses evenly and learns nothing: what any other has to beat."""


class PromptActor(_Chooser):
    """The softmax policy. A prompt that it has not seen begins at the mean of those that it knows."""

    def __init__(
        self,
        *,
        seed: int = 0,
        explore: float = EXPLORE,
        optimizer: GPROOptimizer | None = None,
        features: FeaturesOf = context,
    ) -> None:
        super().__init__(seed)
        self.explore, self.features = explore, features
        self.optimizer = optimizer or GPROOptimizer()
        self.weights: dict[str, Floats] = {}

    def matrix(self, prompt_ids: Sequence[str]) -> Floats:
        """``[K, d]`` the weights of these prompts."""
        size = len(self.features(""))
        start = np.mean(list(self.weights.values()), 0) if self.weights else np.zeros(size)
        return np.array([self.weights.setdefault(one, start.copy()) for one in prompt_ids])

    def probabilities(self, query: str, prompt_ids: Sequence[str]) -> Floats:
        return self._mixed(_softmax(self.matrix(prompt_ids) @ self.features(query)))

    def _mixed(self, soft: Floats) -> Floats:
        return np.asarray((1 - self.explore) * soft + self.explore / len(soft))

    def learn(self, batch: Sequence[Transition]) -> dict[str, float]:
        return self.optimizer.update(batch, self)

    def to_dict(self) -> JsonObject:
        return super().to_dict() | {"weights": {id: row.tolist() for id, row in self.weights.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.weights = {str(id): np.array(row, dtype=np.float64) for id, row in state["weights"].items()}


@dataclass
class GPROOptimizer:
    """The clipped-ratio, group-relative policy gradient.

    Attributes:
        learning_rate: of gradient ascent on W.
        clip: how far a probability may move from what it was when the choice was made, as a ratio, before its gradient stops.
        epochs: passes over a batch.
        decay: pull of W to 0, which forgets old ratings where tastes change.

    With ten ratings a batch, steps are large and the clip is wide: PPO's usual 0.2 leaves a batch half read, and costs a third more regret
    (research/benchmarks/2026-11-23-prompts.md).
    """

    learning_rate: float = 4.0
    clip: float = 0.5
    epochs: int = 8
    decay: float = 0.0

    def update(
        self,
        batch: Sequence[Transition],
        actor: PromptActor,
        critic: object = None,  # noqa: ARG002
    ) -> dict[str, float]:
        """Ascend the surrogate on a batch. Returns figures of the last pass: surrogate, share of clipped ratios, KL from before."""
        if not batch:
            return {}
        ids = list(dict.fromkeys((*actor.weights, *(id for t in batch for id in (t.prompt_id, *t.among)))))
        weights, start = actor.matrix(ids), np.array([t.logprob for t in batch])
        x = np.array([actor.features(t.query) for t in batch])  # [n, d]
        chosen = np.array([ids.index(t.prompt_id) for t in batch])
        there = np.array([[not t.among or id in t.among for id in ids] for t in batch])  # [n, K]
        floor = actor.explore * there / there.sum(1, keepdims=True)
        advantages, rows = relative(batch), np.arange(len(batch))
        figures: dict[str, float] = {}
        for _ in range(self.epochs):
            soft = _softmax(np.where(there, x @ weights.T, -np.inf))  # [n, K]
            mixed = (1 - actor.explore) * soft + floor
            ratio = mixed[rows, chosen] / np.exp(start)
            clipped = np.where(advantages > 0, ratio > 1 + self.clip, ratio < 1 - self.clip)
            # ∂ ratio / ∂ W_k = (1 − ε) π_a (1[a = k] − π_k) φ / π_old
            own = (
                (1 - actor.explore) * soft[rows, chosen] / np.exp(start) * np.where(clipped, 0.0, advantages)
            )
            back = -own[:, None] * soft
            back[rows, chosen] += own
            weights = weights + self.learning_rate * (back.T @ x / len(batch) - self.decay * weights)
            surrogate = np.minimum(
                ratio * advantages, np.clip(ratio, 1 - self.clip, 1 + self.clip) * advantages
            )
            figures = {
                "surrogate": float(surrogate.mean()),
                "clipped": float(clipped.mean()),
                "kl": float(np.mean(ratio - 1 - np.log(np.maximum(ratio, 1e-12)))),
            }
        actor.weights.update(dict(zip(ids, weights, strict=True)))
        return figures


def relative(batch: Sequence[Transition]) -> Floats:
    """``[n]`` advantages: reward less the mean of its group, over the spread. Groups of one are compared with each other."""
    rewards = np.array([t.reward for t in batch])
    groups: dict[str, list[int]] = {}
    for place, one in enumerate(batch):
        groups.setdefault(one.group, []).append(place)
    alone = [rows[0] for group, rows in groups.items() if group and len(rows) == 1]
    together = [rows for group, rows in groups.items() if len(rows) > 1 and group] + [
        groups.get("", []) + alone
    ]
    made = np.zeros(len(batch))
    for rows in together:
        if len(rows) > 1 and (spread := rewards[rows].std()) > 1e-9:
            made[rows] = (rewards[rows] - rewards[rows].mean()) / spread
    return made


class ThompsonActor(_Chooser):
    """Bayesian linear regression of the reward on φ(q) for each prompt; whichever has the best draw from its posterior is chosen."""

    def __init__(self, *, seed: int = 0, noise: float = 0.5, features: FeaturesOf = context) -> None:
        super().__init__(seed)
        self.noise, self.features = noise, features
        self.known: dict[str, tuple[Floats, Floats]] = {}  # precision [d, d], weighted rewards [d]

    def _posterior(self, prompt_id: str) -> tuple[Floats, Floats]:
        size = len(self.features(""))
        precision, total = self.known.get(prompt_id, (np.eye(size), np.zeros(size)))
        cover = np.linalg.inv(precision)
        return np.asarray(cover @ total), np.asarray(cover * self.noise**2)

    def probabilities(self, query: str, prompt_ids: Sequence[str]) -> Floats:
        """How often each is chosen, by 256 draws."""
        wins = np.bincount(np.argmax(self._draws(query, prompt_ids, 256), 1), minlength=len(prompt_ids))
        return np.asarray((wins + 0.5) / (wins.sum() + 0.5 * len(prompt_ids)))

    def choose(self, query: str, prompt_ids: Sequence[str]) -> tuple[int, float]:
        if not prompt_ids:
            raise UsageError("There is no prompt to choose from.")
        return int(np.argmax(self._draws(query, prompt_ids, 1)[0])), 0.0

    def _draws(self, query: str, prompt_ids: Sequence[str], count: int) -> Floats:
        phi, rng = self.features(query), self.rng()
        columns = []
        for one in prompt_ids:
            middle, cover = self._posterior(one)
            spread = math.sqrt(max(0.0, float(phi @ cover @ phi)))
            columns.append(rng.normal(float(phi @ middle), spread, count))
        return np.array(columns).T

    def learn(self, batch: Sequence[Transition]) -> dict[str, float]:
        for one in batch:
            phi = self.features(one.query)
            precision, total = self.known.get(one.prompt_id, (np.eye(len(phi)), np.zeros(len(phi))))
            self.known[one.prompt_id] = (precision + np.outer(phi, phi), total + one.reward * phi)
        return {}

    def to_dict(self) -> JsonObject:
        known = {id: [a.tolist(), b.tolist()] for id, (a, b) in self.known.items()}
        return super().to_dict() | {"known": known}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.known = {str(id): (np.array(a), np.array(b)) for id, (a, b) in state["known"].items()}


def _softmax(scores: Floats) -> Floats:
    """Over the last axis."""
    made = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(made / made.sum(-1, keepdims=True))
