"""A trainer: the recipe and the inputs of a run, training examples, and the loop that steps on them.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.trainer.best_weights import summary
    from clawback.trainer.examples import (
        Plan,
        Shared,
        TrainingExample,
        gradients,
        logprob_gradients,
        together,
    )
    from clawback.trainer.recipe import Recipe, RunConditions, RunRules, check_options, conditions_of
    from clawback.trainer.run import TrainingRun, fingerprint, finished, ignore, write_adapter, write_result
    from clawback.trainer.training_loop import Fitted, LoopSettings, State, read_checkpoint, write_checkpoint
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "best_weights": "summary",
            "examples": "TrainingExample Plan Shared gradients logprob_gradients together",
            "recipe": "Recipe RunConditions RunRules check_options conditions_of",
            "run": "finished write_adapter write_result TrainingRun fingerprint ignore",
            "training_loop": "Fitted LoopSettings State read_checkpoint write_checkpoint",
        },
    )
