"""Sampling: many answers at once for training and the gate, continuous batching for the server.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.sampling.batched_sampler import (
        Chance,
        DrawSettings,
        Sampled,
        answer,
        completion,
        draw_answers,
        evaluating,
        most_rows,
        requests_for,
        rows_of,
        sample,
        stop_ids,
        until_speaker,
    )
    from clawback.sampling.choose import PLAIN, ChatModel, SamplingRequest
    from clawback.sampling.conversations import Conversations, TurnRequest
    from clawback.sampling.decoder import Cache
    from clawback.sampling.decoder_choice import drawing_dtype, fits, lean
    from clawback.sampling.scheduler import READ_TOKENS, Lean, Rows, Scheduler
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "conversations": "Conversations TurnRequest",
            "decoder": "Cache",
            "decoder_choice": "drawing_dtype fits lean",
            "batched_sampler": "Chance DrawSettings Sampled answer completion draw_answers evaluating most_rows requests_for rows_of sample stop_ids until_speaker",
            "choose": "PLAIN ChatModel SamplingRequest",
            "scheduler": "Lean READ_TOKENS Rows Scheduler",
        },
    )
