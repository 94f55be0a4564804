"""ChatGPT's export, and DeepSeek's, which has the same tree: conversations in parts, thumbs in a file of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from clawback.endings import ending_of
from clawback.extensions.chat_histories import trees
from clawback.extensions.chat_histories.fields import first, opinion_in, stamp
from clawback.extensions.chat_histories.trees import MessageTree, Node
from clawback.extensions.data_sets.entries import BadLine, Entry, FileReading, Record, dicts, digest, table
from clawback.extensions.data_sets.messages import role_of

if TYPE_CHECKING:
    from clawback.records import JsonObject


def is_chatgpt(data: Record) -> bool:
    mapping = data.get("mapping")
    return isinstance(mapping, dict) and all(
        isinstance(n, dict) and "message" in n for n in list(mapping.values())[:5]
    )


def read_chatgpt(data: Record, reading: FileReading) -> Iterator[Entry]:
    """A conversation of ChatGPT's export; DeepSeek's has the same tree."""
    agent = (
        "deepseek"
        if any(
            {"fragments", "inserted_at"} & (n.get("message") or {}).keys() for n in data["mapping"].values()
        )
        else "chatgpt"
    )
    nodes = []
    for name, raw in data["mapping"].items():
        parent = raw.get("parent") if isinstance(raw.get("parent"), str) else None
        message = raw.get("message")
        made = _chatgpt_node(name, parent, message, reading) if isinstance(message, dict) else None
        nodes.append(made or Node(name, parent, ""))
    name = str(
        first(data, ("conversation_id", "id")) or digest([], json.dumps(data["mapping"], default=str), "")
    )
    by_name = {node.id: node for node in nodes}
    for node in nodes:  # DeepSeek's older exports name no roles
        if not node.role and node.content:
            above = by_name.get(node.parent or "")
            node.role = "assistant" if above is not None and above.role == "user" else "user"
    current = data.get("current_node")
    yield from trees.entries(
        MessageTree(name, agent, nodes, current if isinstance(current, str) else ""), reading
    )


def _chatgpt_node(name: str, parent: str | None, message: JsonObject, reading: FileReading) -> Node | None:
    if isinstance(message.get("fragments"), list):
        return _deepseek_node(name, parent, message)
    author = message.get("author")
    role = role_of(author if isinstance(author, Mapping) else message.get("role"))
    content = table(message.get("content")) or {"parts": [message.get("content")]}
    meta = table(message.get("metadata"))
    kind = str(content.get("content_type") or "text")
    if (
        role == "system"
        or meta.get("is_visually_hidden_from_conversation")
        or kind in ("user_editable_context", "model_editable_context")
    ):
        words = _parts(content, reading)
        return Node(name, parent, "system", words) if role == "system" and words else None
    model = str(meta.get("model_slug") or message.get("model") or "")
    node = Node(name, parent, role, at=stamp(message, ("create_time", "inserted_at")), model=model)
    node.thinking = str(message.get("reasoning_content") or "")
    if kind in ("thoughts", "reasoning_recap", "system_error"):
        return None
    words = _parts(content, reading)
    recipient = str(message.get("recipient") or "all")
    if role == "assistant" and (recipient != "all" or kind == "code"):
        node.calls = [{"id": name, "type": "function", "function": {"name": recipient, "arguments": words}}]
    else:
        node.content = words
    if role == "tool":
        node.call_id = parent or ""
    why = table(meta.get("finish_details")).get("type")
    node.ending = ending_of(why) or ("incomplete" if message.get("status") == "in_progress" else "")
    return node


def _parts(content: Record, reading: FileReading) -> str:
    words = []
    parts = content.get("parts")
    for part in parts if isinstance(parts, list) else [content.get("text") or content.get("result")]:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            words.append(part["text"])
        elif isinstance(part, dict):
            reading.unread[f"parts of the kind {part.get('content_type', 'unknown')}"] += 1
    return "\n".join(w for w in words if w).strip()


def _deepseek_node(name: str, parent: str | None, message: JsonObject) -> Node:
    by_kind: dict[str, list[str]] = {}
    for piece in dicts(message["fragments"]):
        if isinstance(piece.get("content"), str):
            by_kind.setdefault(str(piece.get("type")), []).append(piece["content"])
    asked = "REQUEST" in by_kind
    words = "\n\n".join(by_kind.get("REQUEST" if asked else "RESPONSE", []))
    thinking = "\n\n".join(by_kind.get("THINK", []))
    return Node(
        name,
        parent,
        "user" if asked else "assistant",
        words,
        str(message.get("model") or ""),
        stamp(message),
        thinking,
    )


def is_chatgpt_feedback(data: Record) -> bool:
    return (
        {"conversation_id", "rating", "id"} <= data.keys() and "prompt" not in data and "messages" not in data
    )


def read_chatgpt_feedback(data: Record, reading: FileReading) -> Iterator[Entry]:
    """A thumb: about a message of a conversation that is in another file."""
    inside: Any = data.get("content")
    try:
        inside = json.loads(inside) if isinstance(inside, str) and inside.startswith("{") else inside
    except ValueError:
        inside = {}
    details = inside if isinstance(inside, dict) else {"text": inside}
    opinions = opinion_in({**details, "rating": data["rating"]}, stamp(data), reading.person)
    if not opinions:
        raise BadLine(f"the rating {str(data['rating'])[:40]!r} is none that is known")
    about = f"chatgpt:{data['conversation_id']}:{data['id']}"
    yield Entry(links=tuple((about, one) for one in opinions))
