"""Sampling: many answers at once for training and the gate, continuous batching for the server.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import faces

if TYPE_CHECKING:
    from clawback.sampling.conversations import Conversations, Turn
    from clawback.sampling.decoder_choice import fits, lean
    from clawback.sampling.generate import (
        Chance,
        Sampled,
        completion,
        draw_answers,
        sample,
        stop_ids,
        until_speaker,
    )
    from clawback.sampling.grouped import SharedRows
    from clawback.sampling.request import ChatModel, Request
    from clawback.sampling.rows import Rows
    from clawback.sampling.scheduler import Scheduler
    from clawback.sampling.shelf import Shelf
    from clawback.sampling.ways import rows_of
else:
    __all__, __getattr__ = faces.face(
        __name__,
        {
            "conversations": "Conversations Turn",
            "decoder_choice": "fits lean",
            "generate": "Chance Sampled completion draw_answers sample stop_ids until_speaker",
            "grouped": "SharedRows",
            "request": "ChatModel Request",
            "rows": "Rows",
            "scheduler": "Scheduler",
            "shelf": "Shelf",
            "ways": "rows_of",
        },
    )
