"""Evaluation of given tokens: packed forward passes, log-probs, hidden states, exact KL, and the fast kernels under them.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import faces

if TYPE_CHECKING:
    from clawback.scoring.choices import Choices
    from clawback.scoring.distillation import overlap, teacher_divergence, top
    from clawback.scoring.exact_kl import divergence, entropy
    from clawback.scoring.lm_head import token_logprobs
    from clawback.scoring.logprobs import Scored, Scorer
    from clawback.scoring.pooling import features, pooled
else:
    __all__, __getattr__ = faces.face(
        __name__,
        {
            "choices": "Choices",
            "distillation": "overlap teacher_divergence top",
            "exact_kl": "divergence entropy",
            "lm_head": "token_logprobs",
            "logprobs": "Scored Scorer",
            "pooling": "features pooled",
        },
    )
