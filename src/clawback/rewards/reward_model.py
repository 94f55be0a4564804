"""What the loop asks of the reward model of a home. One is trained by an extension, and most homes have none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from clawback import plugins

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from clawback.config import RewardSection
    from clawback.paths import Home
    from clawback.rewards.rating_likelihood import Floats


class RewardModel(Protocol):
    """A trained model of a person's ratings."""

    @property
    def name(self) -> str: ...

    def score(self, pairs: Sequence[tuple[str, str]], pessimism: float = 0.0) -> Floats:
        """``[n]`` scores of (prompt, response) in [0, 1], less ``pessimism`` standard deviations of the members."""
        ...


class Grader(Protocol):
    """A grader of fresh answers that can replace the reward head. ``name`` identifies it, and changes when it does."""

    @property
    def name(self) -> str: ...

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> ArrayLike:
        """(prompt, response) → ``[n]`` rewards in [-1, 1]; the same pairs give the same rewards."""
        ...


class RewardModels(Protocol):
    """The module that is registered as ``reward-model`` in the group ``clawback.graders``."""

    def load(self, home: Home) -> RewardModel:
        """Raises ``NotFound`` where the home has none, ``ModelError`` where it is damaged."""
        ...

    def grader(self, home: Home, pessimism: float) -> tuple[Grader | None, str]:
        """The grader and "", or None and why it is not used. Raises as ``load`` does."""
        ...

    def learned_from(self, home: Home, prompts: Collection[str]) -> bool:
        """Whether the reward model was trained on answers to one of these prompts. Raises as ``load`` does."""
        ...


def load(home: Home) -> RewardModel:
    """Raises ``NotFound`` where the home has no reward model or nothing reads one, ``ModelError`` where it is damaged."""
    return _models().load(home)


def grader(home: Home, settings: RewardSection) -> tuple[Grader | None, str]:
    """The grader that a run is to use and "", or None and why not. A run without one, which most are, loads nothing.

    Raises as ``load`` does, where the settings ask for a reward model.
    """
    return _models().grader(home, settings.pessimism) if settings.grade else (None, "")


def learned_from(home: Home, prompts: Collection[str]) -> bool:
    """Whether the reward model was trained on answers to one of these prompts. Raises as ``load`` does."""
    return _models().learned_from(home, prompts)


def _models() -> RewardModels:
    models: RewardModels = plugins.load(plugins.GRADERS, "reward-model")
    return models
