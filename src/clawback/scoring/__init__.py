"""Evaluation of given tokens: packed forward passes, log-probs, hidden states, exact KL, and the fast kernels under them.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.scoring.choices import Choices
    from clawback.scoring.lm_head import (
        Head,
        divergence,
        entropy,
        overlap,
        teacher_divergence,
        token_logprobs,
        top,
    )
    from clawback.scoring.logprobs import Scored, Scorer
    from clawback.scoring.pooling import features, pooled
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "choices": "Choices",
            "lm_head": "Head overlap teacher_divergence top divergence entropy token_logprobs",
            "logprobs": "Scored Scorer",
            "pooling": "features pooled",
        },
    )
