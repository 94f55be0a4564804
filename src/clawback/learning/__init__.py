"""A training run: its recipe and budget, the sources of its examples, and the loop that steps on them.

The face of the room: what others may import, beside the functions of ``clawback.engine``. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.learning.best_weights import summary
    from clawback.learning.episode_run import Form, exploration
    from clawback.learning.episode_trainer import EpisodeTrainer
    from clawback.learning.examples import (
        Plan,
        Shared,
        TrainingExample,
        gradients,
        logprob_gradients,
        together,
    )
    from clawback.learning.loop.trainer import Fitted, LoopSettings, State, read_checkpoint, write_checkpoint
    from clawback.learning.reading import BaseModelReader
    from clawback.learning.recipe import Recipe, RunConditions, RunRules, check_options, conditions_of
    from clawback.learning.run import TrainingRun, fingerprint, finished, ignore, write_adapter, write_result
    from clawback.learning.run_budget import gate_answers
    from clawback.learning.sources.episode_examples import EpisodeSettings
    from clawback.learning.sources.targets import is_named, is_other
    from clawback.learning.sources.warm_starts import is_short
    from clawback.learning.training import DRAWING, conclusion, fit_elsewhere
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "sources.targets": "is_named is_other",
            "best_weights": "summary",
            "run_budget": "run_budget gate_answers",
            "episode_trainer": "EpisodeTrainer",
            "episode_run": "Form exploration",
            "examples": "TrainingExample Plan Shared gradients logprob_gradients together",
            "loop.trainer": "Fitted LoopSettings State read_checkpoint write_checkpoint",
            "reading": "BaseModelReader",
            "recipe": "Recipe RunConditions RunRules check_options conditions_of",
            "run": "finished write_adapter write_result TrainingRun fingerprint ignore",
            "sources.episode_examples": "EpisodeSettings",
            "sources.warm_starts": "is_short",
            "training": "DRAWING conclusion fit_elsewhere",
        },
    )
