"""The face of the rooms that work on weights: models, scoring, sampling, policy, trainer, learning. They know no SQL and no HTTP.

Importing this is cheap: torch is imported when a model is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clawback.learning.run_budget import Estimate, estimate
from clawback.learning.training import (
    DRAWING,
    check_readable,
    reads_words,
    shardable,
    train,
)
from clawback.models.types import Completion, ModelInfo, TrainResult
from clawback.policy import load
from clawback.trainer.recipe import Recipe, recipe, recipe_from

if TYPE_CHECKING:
    from clawback.learning.episode_run import episode_recipe, train_episodes

__all__ = [
    "DRAWING",
    "Completion",
    "Estimate",
    "ModelInfo",
    "Recipe",
    "TrainResult",
    "check_readable",
    "episode_recipe",
    "estimate",
    "load",
    "reads_words",
    "recipe",
    "recipe_from",
    "shardable",
    "train",
    "train_episodes",
]


def __getattr__(name: str) -> Any:
    if name in ("episode_recipe", "train_episodes"):  # a run on ratings needs neither
        from clawback.learning import episode_run

        return getattr(episode_run, name)
    raise AttributeError(f"module 'clawback.engine' has no attribute {name!r}")
