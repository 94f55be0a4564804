"""A run's grader: the reward model of the home, where the settings ask for it and it may be believed.

Runs without one, which are most, load nothing of reward models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import config, store
from clawback.paths import Home
from clawback.rewards.composite import SIGNED, UNIT

if TYPE_CHECKING:
    from clawback.rewards.encoder import Encoder
    from clawback.rewards.measures import Floats


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


def grader(home: Home, settings: config.RewardSection) -> tuple[RewardModelGrader | None, str]:
    """The grader that a run is to use and "", or None and why not.

    Raises ``NotFound`` where the settings ask for a reward model and there is none, ``ModelError`` where it is damaged.
    """
    if not settings.grade:
        return None, ""
    from clawback.jobs.rewarding import load, ratings, watch
    from clawback.rewards import HELD_OUT
    from clawback.rewards.measures import Interval

    model, card = load(home)
    with store.connect(home.database) as db:
        there, held_out = bool(db.feedback(newest=1)), db.get(HELD_OUT)
    if held_out and not held_out["spearman"]["low"] > 0:
        said = Interval(**held_out["spearman"])
        return None, (
            f"the reward model is not shown to read better than chance (ρ {said} on answers that it has not seen); the ensemble that this run fits to your ratings grades instead "
            "(rate more and train it again: `clawback lab reward train`)"
        )
    if there and watch(model, ratings(home, all_of_them=True), card.trained).opened is not None:
        return None, (
            "the reward model promises more than people say of its versions; the ensemble that this run fits to your ratings grades instead "
            "(train it again: `clawback lab reward train`)"
        )
    return RewardModelGrader(model, settings.pessimism), ""
