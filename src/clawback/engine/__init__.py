"""The face of the rooms that work on weights: models, scoring, sampling, policy, learning. They know no SQL and no HTTP.

Importing this is cheap: torch is imported when a model is loaded.
"""

from __future__ import annotations

from clawback.learning.episode_run import episode_recipe, train_episodes
from clawback.learning.estimate import Estimate, estimate
from clawback.learning.recipe import Recipe, recipe, recipe_from
from clawback.learning.training import (
    DRAWING,
    check_readable,
    reads_words,
    shardable,
    train,
)
from clawback.models.types import Completion, ModelInfo, TrainResult
from clawback.policy import load

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
