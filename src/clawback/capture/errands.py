"""Recognises what agents ask a model on their own account (titles, summaries), by how the prompt begins; the answer is not looked at."""

from __future__ import annotations

import json

BEGINNINGS = (
    "generate a concise, single-line task title",
    "generate a title for this conversation",
    "here is the conversation so far:",
)
"""Of Codex's and opencode's titles, and of opencode's compaction. In lower case."""


def is_errand(prompt: str) -> bool:
    return prompt[:200].lstrip().lower().startswith(BEGINNINGS)


def is_title(said: str) -> bool:
    """``{"title": …}`` and nothing else."""
    if not said.lstrip().startswith("{"):
        return False
    try:
        made = json.loads(said)
    except (ValueError, RecursionError):
        return False
    return isinstance(made, dict) and set(made) == {"title"}
