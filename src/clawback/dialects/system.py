"""Adds a learned prompt to the end of the agent's own system prompt, in the request format of each dialect.

Always at the end: the text before it keeps its bytes, so a provider's prompt cache still matches up to there
and, as the prompt is the same in every request until another version is live, beyond. At the beginning it
would invalidate the cache for the agent's whole prompt each time a version changes; and a subscription's
server checks how the agent's own prompt begins.
"""

from __future__ import annotations

from collections.abc import Callable

from clawback.dialects import parsing, shapes
from clawback.dialects.shapes import Json
from clawback.records import SYSTEM, under, with_prompt

Put = Callable[[Json, str], Json | None]


def put(dialect: str, body: shapes.Body, prompt: str) -> Json | None:
    """The body with the prompt in it; None where it has no place there (a completion without a chat, a cached context), or stands there already."""
    known = _PLACES.get(dialect)
    return known(dict(body), prompt.strip()) if known and prompt.strip() else None


def _chat(body: Json, prompt: str) -> Json | None:
    """OpenAI chat, Ollama's chat: the system or developer messages at the head of ``messages``."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        return None
    prompted = list(under(messages, prompt))
    return None if prompted == messages else body | {"messages": prompted}


def _responses(body: Json, prompt: str) -> Json | None:
    """OpenAI responses: ``instructions``, which are not kept with a previous response, so that they come with every request; where the agent has none, its
    developer messages at the head of ``input``."""
    own, items = body.get("instructions"), body.get("input")
    if isinstance(own, str) and own.strip():
        return None if prompt in own else body | {"instructions": with_prompt(own, prompt)}
    if isinstance(items, list) and items and isinstance(items[0], dict) and items[0].get("role") in SYSTEM:
        head = 0
        while head < len(items) and isinstance(items[head], dict) and items[head].get("role") in SYSTEM:
            head += 1
        last = items[head - 1]
        content = last.get("content")
        if prompt in str(content):
            return None
        block = {"type": "input_text", "text": prompt}
        added = [*content, block] if isinstance(content, list) else with_prompt(content, prompt)
        return body | {"input": [*items[: head - 1], {**last, "content": added}, *items[head:]]}
    return body | {"instructions": prompt}


def _anthropic(body: Json, prompt: str) -> Json | None:
    """Anthropic messages: ``system``, a text or blocks. The new block has no cache mark: a request may have four, and the agent may use them all."""
    own = body.get("system")
    if isinstance(own, list):
        blocks = parsing.dicts(own)
        if any(prompt in parsing.text(block.get("text")) for block in blocks):
            return None
        return body | {"system": [*own, {"type": "text", "text": prompt}]}
    if isinstance(own, str) and prompt in own:
        return None
    return body | {"system": with_prompt(own, prompt)}


def _gemini(body: Json, prompt: str) -> Json | None:
    """Gemini: a part more of ``systemInstruction``. A request on a cached context may not bring one."""
    if body.get("cachedContent") or body.get("cached_content"):
        return None
    name = "system_instruction" if "system_instruction" in body else "systemInstruction"
    own = body.get(name)
    if isinstance(own, str):  # the SDKs take a text, the server a content: leave it to who knows
        return None
    content = own if isinstance(own, dict) else {}
    value = content.get("parts")
    parts = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
    if any(prompt in parsing.text(part.get("text")) for part in parsing.dicts(parts)):
        return None
    return body | {name: {**content, "parts": [*parts, {"text": prompt}]}}


def _generate(body: Json, prompt: str) -> Json | None:
    """Ollama's generate: ``system``, unless the text is taken as it stands."""
    own = body.get("system")
    if body.get("raw") is True or body.get("context") or (isinstance(own, str) and prompt in own):
        return None
    return body | {"system": with_prompt(own, prompt)}


_PLACES: dict[str, Put] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama-chat": _chat,
    "ollama-generate": _generate,
}
