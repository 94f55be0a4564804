"""Training runs, on a person's feedback or on episodes: their budget, their stages and their result.

The face of the room: what others may import, beside the functions of ``clawback.engine``. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.learning.episode_examples import EpisodeSettings
    from clawback.learning.episode_run import Form, exploration
    from clawback.learning.episode_trainer import EpisodeTrainer
    from clawback.learning.reading import BaseModelReader
    from clawback.learning.run_budget import gate_answers
    from clawback.learning.training import DRAWING, conclusion, fit_elsewhere
    from clawback.learning.warm_starts import is_short
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "episode_examples": "EpisodeSettings",
            "episode_run": "Form exploration",
            "episode_trainer": "EpisodeTrainer",
            "reading": "BaseModelReader",
            "run_budget": "run_budget gate_answers",
            "training": "DRAWING conclusion fit_elsewhere",
            "warm_starts": "is_short",
        },
    )
