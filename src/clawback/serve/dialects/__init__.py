"""The three dialects that agents speak: what a request asks, what a response said, and how the embedded model answers.

All are read into one shape, that of OpenAI chat messages, because chat templates of models want that. Reading is lenient
(an odd field is skipped, never an error): the bytes themselves are passed on untouched, whatever is made of them here.
"""

from __future__ import annotations

from clawback.serve.dialects import anthropic, openai_chat, openai_responses
from clawback.serve.dialects.shapes import Asked, Dialect, Said

__all__ = ["BY_PATH", "Asked", "Dialect", "Said"]

BY_PATH: dict[str, Dialect] = {
    "/v1/chat/completions": openai_chat.DIALECT,
    "/v1/responses": openai_responses.DIALECT,
    "/v1/messages": anthropic.DIALECT,
}
