"""The API dialects that agents speak: parsing of requests and responses, and formatting of the embedded model's answers.

All are parsed into one format, that of OpenAI chat messages, because models' chat templates take that.
Parsing is lenient (an odd field is skipped, never an error): the bytes themselves are forwarded unchanged,
whatever is parsed from them here.
"""

from __future__ import annotations

import re

from clawback.dialects import (
    anthropic,
    completions,
    gemini,
    ollama,
    openai_chat,
    openai_responses,
)
from clawback.dialects.parsing import Said
from clawback.dialects.shapes import Asked, Dialect, DialectReading

__all__ = ["BY_PATH", "OLLAMA", "Asked", "Dialect", "DialectReading", "Said", "is_model_path", "of"]

BY_PATH: dict[str, Dialect] = {
    "/v1/chat/completions": openai_chat.DIALECT,
    "/v1/responses": openai_responses.DIALECT,
    "/v1/messages": anthropic.DIALECT,
    "/v1/completions": completions.DIALECT,
    "/api/chat": ollama.CHAT,
    "/api/generate": ollama.GENERATE,
}
"""What the embedded model answers in, too."""

OLLAMA = (
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/api/tags",
    "/api/ps",
    "/api/version",
)
"""Ollama's own paths that are answered or passed on: what asks, and what looks. Our API has none of these, and what changes its models stays out."""
_GEMINI = re.compile(r"/v1(?:beta)?/models/[^/:]{1,200}:(?:stream)?[gG]enerateContent")


def of(path: str) -> DialectReading | None:
    """The dialect that is spoken at a path; None where nothing of a conversation is said."""
    if _GEMINI.fullmatch(path):
        return gemini.READING
    return BY_PATH.get(path)


def is_model_path(path: str) -> bool:
    """Whether a model's server is meant: an upstream's, or the embedded engine behind the same paths."""
    return path.startswith(("/v1/", "/v1beta/")) or path in OLLAMA
