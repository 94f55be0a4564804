"""Chat messages in all the ways in which programs and data sets write them, as OpenAI's API does."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from clawback.capture.exchanges import result_text
from clawback.extensions.data_sets.entries import BadLine, dicts, table
from clawback.records import JsonObject, Message

_ROLES = {
    "human": "user", "user": "user", "prompter": "user", "customer": "user", "question": "user", "instruction": "user",
    "client": "user", "me": "user", "request": "user",
    "gpt": "assistant", "assistant": "assistant", "bot": "assistant", "model": "assistant", "ai": "assistant",
    "chatbot": "assistant", "chatgpt": "assistant", "answer": "assistant", "response": "assistant", "char": "assistant",
    "llm": "assistant", "agent": "assistant", "bing": "assistant", "bard": "assistant", "claude": "assistant",
    "gemini": "assistant",
    "system": "system", "developer": "system",
    "tool": "tool", "function": "tool", "observation": "tool", "tool_response": "tool", "toolresult": "tool",
    "function_response": "tool", "function_result": "tool", "tool_result": "tool", "ipython": "tool",
    "function_call": "call", "tool_call": "call",
}  # fmt: skip
"""Who speaks, by the names that others use. ``call``: the model calls a tool."""
ROLE_FIELDS = ("role", "from", "author", "sender", "speaker", "name", "type", "user")
TEXT_FIELDS = ("content", "value", "text", "message", "mes", "body", "utterance", "parts")
LISTS = (
    "messages", "conversations", "conversation", "dialogue", "dialog", "turns", "chat", "history", "text",
    "items", "contents", "context_messages",
)  # fmt: skip
"""Fields that hold a conversation."""
_OPENAI_PARTS = frozenset(
    ("text", "image_url", "image", "input_audio", "audio", "video", "video_url", "file", "refusal")
)
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning", "think", "thought")
_CALLS = ("tool_use", "tool_call", "toolCall", "toolCallRequest", "functionCall", "function_call")
_RESULTS = ("tool_result", "toolCallResult", "functionResponse", "function_response")
"""Kinds of blocks, or the fields that hold them."""

_CHATML = re.compile(r"<\|im_start\|>\s*(\w+)\s*\n(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)
_HEADINGS = re.compile(
    r"^#{2,3} ?(Human|Assistant|Instruction|Response|Input|User|System|Question|Answer):?[ \t]*", re.MULTILINE
)
_SPEAKERS = re.compile(r"(?:\A|\n\n)[ \t]*(Human|Assistant|User|System): ?")
_EXTRA_ID = re.compile(r"<extra_id_1>(User|Assistant)\n")
_NAMED = {name: "system" if name == "system" else "user" for name in ("human", "instruction", "input", "user", "question", "system")}  # fmt: skip


def role_of(name: object) -> str:
    """``user``, ``assistant``, ``system``, ``tool``, ``call``; "" for a name that is not known."""
    if isinstance(name, Mapping):
        name = name.get("role") or name.get("name")
    plain = str(name).strip().lower().replace("-", "_") if isinstance(name, str) else ""
    return _ROLES.get(plain, "")


def message_of(raw: object) -> Message | None:
    """One message; None for what is none."""
    if not isinstance(raw, Mapping):
        return None
    if isinstance(inner := raw.get("message"), Mapping) and role_of(inner.get("role")):
        raw = inner
    role = next((known_role for name in ROLE_FIELDS if (known_role := role_of(raw.get(name)))), "")
    if not role:
        return None
    content = next((raw[name] for name in TEXT_FIELDS if raw.get(name) is not None), None)
    if isinstance(content, Mapping):
        content = content.get("parts", content.get("text", content.get("value")))
    if isinstance(content, (list, tuple)):
        content = _blocks(content)
    if content is not None and not isinstance(content, (str, list)):
        return None
    calls = calls_of(raw.get("tool_calls")) or calls_of(
        [raw["function_call"]] if raw.get("function_call") else None
    )
    if role == "call":
        return {"role": "assistant", "content": "", "tool_calls": _written_call(content)}
    message: JsonObject = {"role": role, "content": content if content is not None else ""}
    if calls:
        message["tool_calls"] = calls
    if role == "tool":
        message["tool_call_id"] = str(raw.get("tool_call_id") or raw.get("name") or "")
    return message


def is_openai(value: object) -> bool:
    """Whether a list is messages as OpenAI's API writes them, so that nothing of them needs to be read anew."""
    return isinstance(value, list) and all(
        isinstance(m, dict)
        and m.get("role") in ("user", "assistant", "system", "developer", "tool")
        and bool({"content", "tool_calls"} & m.keys())
        and (
            isinstance(content := m.get("content"), (str, type(None)))
            or (
                isinstance(content, list)
                and all(table(part).get("type") in _OPENAI_PARTS for part in content)
            )
        )
        for m in value
    )


def steps_of(role: str, blocks: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of one that is written as blocks: words, then calls of tools, then their results, then more words."""
    messages: list[JsonObject] = []

    def newest(begins: bool) -> JsonObject:
        if begins or not messages or messages[-1]["role"] == "tool":
            messages.append({"role": role, "content": []})
        return messages[-1]

    for block in blocks:
        kind, inner = _kind_of(block)
        if kind in _CALLS:
            newest(False).setdefault("tool_calls", []).extend(calls_of([inner]))
            block = inner
        if kind in _RESULTS or (kind in _CALLS and inner.get("output") is not None):
            call = (
                inner.get("tool_use_id")
                or inner.get("toolCallRequestId")
                or inner.get("id")
                or inner.get("name")
            )
            words = next(
                (inner[n] for n in ("content", "output", "response") if inner.get(n) is not None), ""
            )
            messages.append({"role": "tool", "tool_call_id": str(call or ""), "content": _result(words)})
        elif kind not in (*_CALLS, *_THOUGHTS):
            newest(bool(messages and messages[-1].get("tool_calls")))["content"].append(block)
    for message in messages:
        message["content"] = message["content"] if message["role"] == "tool" else _blocks(message["content"])
    return _with_results([m for m in messages if m["content"] or m.get("tool_calls") or m["role"] == "tool"])


def _kind_of(block: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The kind of a block, and what holds its fields: itself, or an object under the kind's name."""
    kind = next(
        (k for k in (*_CALLS, *_RESULTS) if isinstance(block.get(k), Mapping)), str(block.get("type") or "")
    )
    inner = block[kind] if isinstance(block.get(kind), Mapping) else block
    return ("thought" if block.get("thought") is True else kind), inner


def _result(result: object) -> str:
    if isinstance(result, str) and result.startswith('[{"type"'):  # blocks that are written as text
        with contextlib.suppress(ValueError):
            result = json.loads(result)
    return result_text(result)


def reply_of(value: object) -> object:
    """The answer of an API's response: ``choices``, ``candidates``, ``message``, ``generations``; the value itself where it is none."""
    while isinstance(value, (Mapping, list)):
        if isinstance(value, list):
            value = [one for one in value if table(one).get("type") != "reasoning"]
            if len(value) != 1 or message_of(value[0]) is not None:
                return value
            value = value[0]
            continue
        inner = next(
            (value[n] for n in ("choices", "candidates", "generations", "message", "body") if value.get(n)),
            None,
        )
        if message_of(value) is not None or inner is None:
            return value.get("text", value.get("output_text", value)) if message_of(value) is None else value
        value = inner
    return value


def conversation_of(raw: object) -> list[Message] | None:
    """The messages of a list in any of the known manners; None where it is no conversation."""
    if not isinstance(raw, (list, tuple)) or not raw:
        return None
    if all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and all(isinstance(t, str) for t in pair)
        for pair in raw
    ):
        return [
            {"role": role, "content": words}
            for pair in raw
            for role, words in zip(("user", "assistant"), pair, strict=True)
            if words
        ]
    listed = [steps_in(one) for one in raw]
    return _with_results([m for steps in listed for m in steps]) if all(listed) else None


def steps_in(raw: Any) -> list[Message]:
    """The messages of one that may be written as blocks with calls of tools and their results; [] for what is none."""
    message = message_of(raw)
    if message is None:
        return []
    raw = inner if isinstance(inner := raw.get("message"), Mapping) else raw
    blocks = dicts(raw.get("content")) or dicts(raw.get("parts"))
    split = any(_kind_of(block)[0] in (*_CALLS, *_RESULTS) for block in blocks)
    return steps_of(message["role"], blocks) if split else [message]


def _with_results(messages: list[Message]) -> list[Message]:
    """Results of tools that do not name their call belong to the newest call."""
    names: list[str] = []
    named: list[Message] = []
    for message in messages:
        if message.get("tool_calls"):
            names = [str(call.get("id") or "") for call in message["tool_calls"]]
        if message["role"] == "tool" and message.get("tool_call_id") not in names and names:
            message = {**message, "tool_call_id": names[0]}
        named.append(message)
    return named


def _blocks(content: Sequence[object]) -> str | list[Any]:
    """Parts of a content: text alone becomes text, pictures stay parts."""
    parts: list[Any] = []
    for part in content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
        elif isinstance(part, Mapping):
            words = part.get("text")
            if isinstance(words, Mapping):  # {"type": "text", "text": {"value": …}}
                words = words.get("value")
            kind = "thought" if part.get("thought") is True else part.get("type") or "text"
            if isinstance(words, str) and kind in ("text", "input_text", "output_text"):
                parts.append({"type": "text", "text": words})
            elif kind in ("image_url", "image"):
                parts.append(dict(part))
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def calls_of(raw: object) -> list[JsonObject]:
    """Calls of tools as OpenAI writes them."""
    if isinstance(raw, str):
        try:
            raw = json.loads(raw)
        except ValueError:
            return []
    calls = []
    for index, call in enumerate(dicts(raw)):
        function = table(call.get("function")) or call
        names = ("arguments", "input", "args", "parameters")
        arguments = next((function[n] for n in names if function.get(n) is not None), "")
        words = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        calls.append(
            {
                "id": str(
                    call.get("id") or call.get("call_id") or call.get("toolCallRequestId") or f"call_{index}"
                ),
                "type": "function",
                "function": {"name": str(function.get("name") or ""), "arguments": words},
            }
        )
    return calls


def _written_call(content: object) -> list[JsonObject]:
    """A call that is written as text, ``{"name": …, "arguments": …}``."""
    try:
        call = json.loads(content) if isinstance(content, str) else content
    except ValueError:
        call = {"name": "", "arguments": content}
    return calls_of([call] if isinstance(call, Mapping) else call)


def transcript(words: str) -> list[Message] | None:
    """A conversation that is written as one text: ``Human:`` and ``Assistant:``, headings, or ChatML. None for any other text.

    >>> transcript("\\n\\nHuman: Hi\\n\\nAssistant: Hello.")
    [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello.'}]
    """
    if "<|im_start|>" in words:
        return [
            {"role": role_of(name) or name, "content": body.strip()} for name, body in _CHATML.findall(words)
        ] or None
    if "<extra_id_1>" in words:
        pieces = (
            ["User", *_EXTRA_ID.split(words)[1:]]
            if words.startswith("<extra_id_1>")
            else ["", "User", *_EXTRA_ID.split(words)]
        )
        return _spoken(pieces[1:])
    start = words.lstrip()
    for marks in (_SPEAKERS, _HEADINGS):
        if (match := marks.match(start)) and match[1].lower() in _NAMED:
            return _spoken(marks.split(start)[1:])
    if (match := _HEADINGS.search(words)) and match[1] == "Instruction":  # Alpaca's preamble stands before it
        return [
            {"role": "system", "content": words[: match.start()].strip()},
            *_spoken(_HEADINGS.split(words)[1:]),
        ]
    return None


def _spoken(pieces: Sequence[str]) -> list[Message]:
    """Messages of (speaker, words, speaker, words …); an empty last answer is one that is still to come."""
    messages: list[JsonObject] = []
    for name, body in zip(pieces[::2], pieces[1::2], strict=False):
        role = _NAMED.get(name.lower(), "assistant")
        if messages and messages[-1]["role"] == role == "user":  # an instruction and its input
            messages[-1]["content"] += f"\n\n{body.strip()}"
        elif body.strip():
            messages.append({"role": role, "content": body.strip()})
    return list(messages)


def side(value: object) -> list[Message] | str:
    """One answer of a pair: text, a message, messages, or a transcript. Raises ``BadLine``."""
    if isinstance(value, Mapping):
        message = message_of(value) or message_of({"role": "assistant", **value})
        value = [message] if message else None
    if isinstance(value, str):
        rounds = transcript(value)
        return rounds if rounds and rounds[-1]["role"] == "assistant" and len(rounds) > 1 else value
    messages = conversation_of(value)
    if messages is None:
        raise BadLine("an answer is neither text nor messages")
    return messages
