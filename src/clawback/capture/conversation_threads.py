"""Which conversation a request continues, and whether it is the user's own or an agent's background request.

After each of its responses a conversation has a *place*: the hash of everything said so far. A request whose
messages begin with a known place continues from there, whoever sent it and however often it is sent. System
messages do not count, because agents put the date into them; nor does how a text is cut into blocks.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from clawback.capture import errands
from clawback.feedback import command
from clawback.records import Message, TurnKind, text_of
from clawback.reminders import without_reminders

FOLDER_HEADER = "X-Clawback-Folder"
"""The folder that a question comes from, percent-encoded: `clawback good` rates the newest answer of a folder."""
_PARENTS = ("x-claude-code-agent-id", "x-codex-parent-thread-id", "x-parent-session-id")
"""Headers of Claude Code's, Codex's and opencode's sub-agents."""
_SESSIONS = (
    "x-session-id",
    "x-claude-code-session-id",
    "session-id",
    "x-session-affinity",
    "x-openwebui-chat-id",
)
"""Headers in which agents name the conversation. Open WebUI does so with ``ENABLE_FORWARD_USER_INFO_HEADERS``."""
_SILENT = ("system", "developer")
_OPENCLAW = (
    re.compile(
        r"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>.*?(?:<<<END_OPENCLAW_INTERNAL_CONTEXT>>>|\Z)", re.DOTALL
    ),
    re.compile(r"\A\s*\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d[^\]\n]{0,40}\] ?"),
    re.compile(r"\A(?:[^\n]{0,80}⟦openclaw:ctx⟧\n```json\n.*?\n```\n*)+", re.DOTALL),
)
"""What OpenClaw puts around what a person wrote: its context, the time, the sender, and what it runs on. Some of it stands in
one request and not in the next, so that it is no part of the conversation."""


def plain_text(message: Message) -> str:
    """A message's text without OpenClaw's additions."""
    return plain_texts([message])[0]


def plain_texts(messages: Sequence[Message]) -> list[str]:
    """The text of each message without OpenClaw's additions."""
    texts = [text_of(message.get("content")) for message in messages]
    return [
        _without_additions(text) if message.get("role") == "user" else text.strip()
        for message, text in zip(messages, texts, strict=True)
    ]


def _without_additions(text: str) -> str:
    for wrap in _OPENCLAW:
        text = wrap.sub("", text)
    return _without_runtime(text).strip()


def _without_runtime(text: str) -> str:
    """Without OpenClaw's last paragraph, ``Runtime: agent=… | session=…``."""
    before, _, last = text.rpartition("\n")
    alone = not before or before.endswith("\n")
    if alone and last.startswith("Runtime: agent=") and " | session=" in last:
        return before.removesuffix("\n")
    return text


def spoken(messages: Sequence[Message]) -> list[Message]:
    """The messages as they are stored: without OpenClaw's additions to a user's messages, and without messages that are wholly its own."""
    kept: list[Message] = []
    texts = [text_of(m.get("content")).strip() if m.get("role") == "user" else "" for m in messages]
    for message, text in zip(messages, texts, strict=True):
        bare = _without_additions(text) if text else ""
        content = message.get("content")
        shown = [part for part in content if _seen(part)] if isinstance(content, (list, tuple)) else []
        if bare == text:
            kept.append(message)
        elif shown:
            words = [{"type": "text", "text": bare}] if bare else []
            kept.append({**message, "content": [*shown, *words]})
        elif bare:
            kept.append({**message, "content": bare})
    return kept


def _seen(part: object) -> bool:
    """Whether a part of a message is something else than text, such as a picture."""
    return isinstance(part, Mapping) and part.get("type", "text") != "text"


def places(messages: Sequence[Message]) -> list[tuple[int, bytes]]:
    """The conversation's place after each response in ``messages``: (index of the response, place), oldest first."""
    return places_and_ends(messages, (), ())[0]


def places_and_ends(
    messages: Sequence[Message], responses: Iterable[str], calls: Iterable[Mapping[str, Any]]
) -> tuple[list[tuple[int, bytes]], tuple[bytes, ...]]:
    """``places``, and the conversation's place after each of these wordings of its next response, which makes these calls."""
    state, known = b"", []
    for index, (message, text) in enumerate(zip(messages, plain_texts(messages), strict=True)):
        role = message.get("role")
        if role in _SILENT:
            continue
        if text or role != "user" or not text_of(message.get("content")).strip():  # else it is OpenClaw's own
            state = _step(state, message, text)
        if role == "assistant":
            known.append((index, state))
    answer = {"role": "assistant", "tool_calls": [{"id": call["id"]} for call in calls]}
    return known, tuple(_step(state, answer, response.strip()) for response in responses)


def _step(state: bytes, message: Message, text: str) -> bytes:
    calls = message.get("tool_calls")
    listed = calls if isinstance(calls, (list, tuple)) else ()
    names = [_letters(c.get("id")) for c in listed if isinstance(c, Mapping)]
    word_of = [message.get("role"), text, names]
    if message.get("role") == "tool":
        word_of.append(_letters(message.get("tool_call_id")))
    word = json.dumps(word_of, ensure_ascii=True, default=str).encode()
    return hashlib.blake2b(word, key=state, digest_size=16).digest()


def _letters(name: object) -> str:
    """A call's id without what OpenClaw takes out of it (``call_1`` comes back as ``call1``)."""
    return re.sub(r"[^A-Za-z0-9]", "", str(name))


def came_back(messages: Sequence[Message], after: int) -> list[Message]:
    """What the user, a tool or the environment said after the response at index ``after``."""
    return [m for m in spoken(messages[after + 1 :]) if m.get("role") not in (*_SILENT, "assistant")]


class ProxiedRequest(Protocol):
    """What ``kind_of`` reads of a request."""

    @property
    def messages(self) -> Sequence[Message]: ...
    @property
    def tools(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def schema(self) -> Mapping[str, object] | None: ...
    @property
    def max_tokens(self) -> int | None: ...


def kind_of(request: ProxiedRequest, headers: Mapping[str, str]) -> TurnKind:
    """``side`` for titles, summaries, sub-agents and probes; ``main`` for the person's own conversation. ``headers``: names in lower case."""
    named = headers.get("x-turn-type", "").strip().lower()
    if named in ("main", "side"):
        return "main" if named == "main" else "side"
    if any(name in headers for name in _PARENTS):
        return "side"
    if re.search(r'"thread_source"\s*:\s*"(?!user")', headers.get("x-codex-turn-metadata", "")):
        return "side"
    if request.schema is not None and not request.tools:
        return "side"
    if request.max_tokens is not None and request.max_tokens <= 1:
        return "side"
    others = [message for message in request.messages if message.get("role") != "assistant"]
    texts = plain_texts(others)
    roles = [message.get("role") for message in others]
    prompt = next((text for role, text in zip(roles[::-1], texts[::-1], strict=True) if role == "user"), "")
    if command.parse(prompt) is not None:
        return "side"  # an agent whose hooks do not run yet asks its model what we should have answered
    newest = request.messages[-1].get("role") if request.messages else ""
    prompts = [text for role, text in zip(roles, texts, strict=True) if role != "tool" and text]
    side = errands.is_background(
        prompts[-1:] + prompts[:1], after=texts[-1] if newest in ("user", "tool") else ""
    )
    return "side" if side else "main"


def human(messages: Sequence[Message]) -> list[Message]:
    """The conversation between person and model: without system messages, tools, and the reminders that agents insert."""
    kept: list[Message] = []
    for message, plain in zip(messages, plain_texts(messages), strict=True):
        if message.get("role") not in ("user", "assistant"):
            continue
        text = without_reminders(plain)
        if text:
            kept.append({"role": message["role"], "content": text})
    return kept


def session_of(headers: Mapping[str, str], body: Mapping[str, object]) -> str:
    """The session id that the agent itself sends, or ""."""
    for name in _SESSIONS:
        if value := headers.get(name, "").strip():
            return value[:200]
    meta = body.get("metadata")
    user = meta.get("user_id") if isinstance(meta, Mapping) else None
    if isinstance(user, str) and (found := re.search(r'"session_id"\s*:\s*"([\w-]{1,100})"', user)):
        return found[1]
    return ""


def folder_of(headers: Mapping[str, str]) -> str:
    """The folder that a question of `clawback ask` or `chat` comes from, or ""."""
    from urllib.parse import unquote

    return unquote(headers.get(FOLDER_HEADER.lower(), ""))[:4096]


def agent_of(headers: Mapping[str, str]) -> str:
    """A short name of the program that sent a request."""
    program = headers.get("user-agent", "").lower()
    for mark, name in (
        ("claude-cli", "claude-code"),
        ("codex", "codex"),
        ("openclaw", "openclaw"),
        ("opencode", "opencode"),
        ("clawback-cli", "clawback"),
    ):
        if mark in program:
            return name
    return "codex" if "x-codex-turn-metadata" in headers else "api"
