"""A conversation as a model reads it: its own chat template, rendered in a process with limits, token ids and pictures.

The face of the room: what others may import. Importing it is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback import plugins

if TYPE_CHECKING:
    from clawback.templates.chat_tokens import OPENINGS, PROMPT_TOKENS, RESPONSE_TOKENS, Chat, Encoded
    from clawback.templates.rendering import EndlessTemplate, NextSpeaker
    from clawback.templates.vision import Pixels, Vision
else:
    __all__, __getattr__ = plugins.face(
        __name__,
        {
            "chat_tokens": "Chat Encoded OPENINGS PROMPT_TOKENS RESPONSE_TOKENS",
            "rendering": "EndlessTemplate NextSpeaker",
            "vision": "Pixels Vision",
        },
    )
