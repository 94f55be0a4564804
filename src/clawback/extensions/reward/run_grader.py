"""What the loop asks of the reward model of a home, as ``rewards.reward_model`` says: a run's grader, where it may be believed, and a second opinion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import store
from clawback.extensions.reward import reward_files
from clawback.paths import Home
from clawback.rewards.composite import SIGNED, UNIT

if TYPE_CHECKING:
    from clawback.extensions.reward.encoder import Encoder
    from clawback.rewards.rating_likelihood import Floats


@dataclass(frozen=True)
class RewardModelGrader:
    """The reward model's word on imagined answers, in [-1, 1], less its doubt."""

    model: Encoder
    pessimism: float

    @property
    def name(self) -> str:
        return f"{self.model.name} (pessimism {self.pessimism:g})"

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        import numpy as np

        low, high = SIGNED
        return low + (high - low) * np.clip(self.model.score(pairs, self.pessimism), *UNIT)


def load(home: Home) -> Encoder:
    """Raises ``NotFound`` where there is none, ``ModelError`` where it is damaged."""
    from clawback.extensions.reward import rewarding

    return rewarding.load(home)[0]


def learned_from(home: Home, prompts: Collection[str]) -> bool:
    """Whether it was trained on answers to one of these prompts. Reads its card alone; raises as ``load`` does."""
    from clawback.extensions.reward.rated import mark

    return bool({mark(prompt) for prompt in prompts} & set(reward_files.read(home.reward).trained))


def grader(home: Home, pessimism: float) -> tuple[RewardModelGrader | None, str]:
    """The grader that a run is to use and "", or None and why not.

    Raises as ``load`` does.
    """
    from clawback.extensions.reward import rewarding
    from clawback.extensions.reward.measures import Interval
    from clawback.rewards import HELD_OUT

    model, card = rewarding.load(home)
    with store.connect(home.database) as db:
        there, held_out = bool(db.feedback(newest=1)), db.get(HELD_OUT)
    if held_out and not held_out["spearman"]["low"] > 0:
        said = Interval(**held_out["spearman"])
        return None, (
            f"the reward model is not shown to read better than chance (ρ {said} on answers that it has not seen); the ensemble that this run fits to your ratings grades instead "
            "(rate more and train it again: `clawback lab reward train`)"
        )
    if (
        there
        and rewarding.watch(model, rewarding.ratings(home, all_of_them=True), card.trained).opened is not None
    ):
        return None, (
            "the reward model promises more than people say of its versions; the ensemble that this run fits to your ratings grades instead "
            "(train it again: `clawback lab reward train`)"
        )
    return RewardModelGrader(model, pessimism), ""
