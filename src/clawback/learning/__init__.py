"""A training run: its recipe and budget, the sources of its examples, and the loop that steps on them.

The face of the room: what others may import, beside the functions of ``clawback.engine``. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import faces

if TYPE_CHECKING:
    from clawback.learning.authorship import is_named, is_other
    from clawback.learning.best_weights import summary
    from clawback.learning.budget import gate_answers
    from clawback.learning.episode_trainer import EpisodeTrainer
    from clawback.learning.episodes import Form
    from clawback.learning.examples import Example, Plan
    from clawback.learning.loop import checkpoint
    from clawback.learning.loop.checkpoint import State
    from clawback.learning.loop.packing import logprob_gradients
    from clawback.learning.loop.parallel import description_of, workers_of_a_node
    from clawback.learning.loop.trainer import Fitted, Settings
    from clawback.learning.loop.worker import load_described
    from clawback.learning.reading import Reader
    from clawback.learning.recipe import Recipe
    from clawback.learning.result import finished, write_adapter, write_result
    from clawback.learning.run import TrainingRun, fingerprint, ignore
    from clawback.learning.sources.episodes import EpisodeSettings
    from clawback.learning.training import DRAWING, conclusion, fit_elsewhere
else:
    __all__, __getattr__ = faces.face(
        __name__,
        {
            "authorship": "is_named is_other",
            "best_weights": "summary",
            "budget": "budget gate_answers",
            "episode_trainer": "EpisodeTrainer",
            "episodes": "Form",
            "examples": "Example Plan",
            "loop.checkpoint": "State checkpoint",
            "loop.packing": "logprob_gradients",
            "loop.parallel": "description_of workers_of_a_node",
            "loop.trainer": "Fitted Settings",
            "loop.worker": "load_described",
            "reading": "Reader",
            "recipe": "Recipe",
            "result": "finished write_adapter write_result",
            "run": "TrainingRun fingerprint ignore",
            "sources.episodes": "EpisodeSettings",
            "training": "DRAWING conclusion fit_elsewhere",
            "estimate": "estimate",
            "machines": "machines",
            "options": "options",
        },
    )
