"""Sampling: many answers at once for training and the gate, continuous batching for the server.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import faces

if TYPE_CHECKING:
    from clawback.sampling.batcher import Batcher
    from clawback.sampling.conversations import Conversations, Turn
    from clawback.sampling.decoder_choice import fits
    from clawback.sampling.generate import (
        Chance,
        Sampled,
        completion,
        draw_answers,
        sample,
        stop_ids,
        until_speaker,
    )
    from clawback.sampling.grammar import Constraint, Grammars
    from clawback.sampling.request import Request
else:
    __all__, __getattr__ = faces.face(
        __name__,
        {
            "batcher": "Batcher",
            "conversations": "Conversations Turn",
            "decoder_choice": "fits",
            "generate": "Chance Sampled completion draw_answers sample stop_ids until_speaker",
            "grammar": "Constraint Grammars",
            "request": "Request",
        },
    )
