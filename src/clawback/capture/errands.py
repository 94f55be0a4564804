"""Recognises what agents and libraries ask a model on their own account (titles, summaries, retries), by the prompt; the answer is not looked at."""

from __future__ import annotations

import json
from collections.abc import Sequence

BEGINNINGS = (
    "generate a concise, single-line task title",
    "generate a title for this conversation",
    "here is the conversation so far:",
    "### task:\ngenerate a concise, 3-5 word title",
    "### task:\ngenerate 1-3 broad tags",
    "### task:\nsuggest 3-5 relevant follow-up questions",
    "### task:\nanalyze the chat history to determine the necessity of generating search queries",
    "### task:\ngenerate a detailed prompt for am image generation task",
    "### task:\nyou are an autocompletion system",
)
"""Of Codex's and opencode's titles, of opencode's compaction, and of Open WebUI's titles, tags, follow-ups, searches,
pictures and completions. In lower case."""

RETRIES = (
    r"\A\s*correct your json only response\b",
    r"\A\s*(?:validation errors? found:|recall the function correctly\b)",
    r"\brecall the function correctly, fix the errors",
    r"\A\s*(?:validation feedback:|\d+ validation errors?\b).*fix the errors and try again\.\s*\Z",
    r"\A\s*(?:plain text responses are not permitted\b|please (?:return text or )?include your response in a tool call\.?\s*\Z)",
    r"above, the completion did not satisfy the constraints given in the (?:prompt|instructions)\b",
    r"\A\s*i was given the following json response, which had problems due to incorrect values\b",
    r"\bnow let's retry: take care not to repeat previous errors!",
    r"\A\s*### previous (?:attempt|result) failed validation:",
)
"""How libraries ask again when an answer was not of the form that their program needs: instructor, PydanticAI, LangChain,
Guardrails, smolagents, CrewAI."""
_ERRAND = (
    r"create a detailed summary of (?:the|our|this) conversation|summarize this (?:coding )?conversation"
    r"|generate a (?:concise |short |brief )*title|analyze if this message indicates a new conversation topic"
    r"|^\s*(?:quota|ping|warmup)\s*$"
)
"""What agents ask a model for on their own account, where nothing else gives it away."""
_ENDS = 400
"""Characters at each end of a message in which that stands; between them are errors of any length."""


def is_retry(message: str) -> bool:
    """Whether a library asks again for the same answer in another form: the person has said nothing new."""
    import re

    ends = message if len(message) <= 2 * _ENDS else f"{message[:_ENDS]}\n{message[-_ENDS:]}"
    return any(re.search(pattern, ends, re.IGNORECASE | re.DOTALL) for pattern in RETRIES)


def is_errand(prompt: str) -> bool:
    return prompt[:200].lstrip().lower().startswith(BEGINNINGS)


def is_background(prompts: Sequence[str], after: str) -> bool:
    """Whether a request is an agent's or a library's own. ``prompts``: the newest and the oldest text in it; ``after``: what follows its last answer."""
    import re

    return is_retry(after) or any(is_errand(p) or re.search(_ERRAND, p, re.IGNORECASE) for p in prompts)


def is_title(text: str) -> bool:
    """``{"title": …}`` and nothing else."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        made = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(made, dict) and set(made) == {"title"}
