"""Claude.ai's export, Grok's, and conversations of other programs by their shape: messages with names or times."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from clawback.endings import ending_of
from clawback.extensions.chat_histories import local_chats, trees
from clawback.extensions.chat_histories.fields import IDS, STAMPS, first, opinion_in, stamp
from clawback.extensions.chat_histories.trees import MessageTree, Node, chain, step_nodes
from clawback.extensions.data_sets import lines
from clawback.extensions.data_sets.entries import Entry, FileReading, Record, dicts, digest
from clawback.extensions.data_sets.messages import message_of, role_of, steps_in, steps_of
from clawback.records import text_of

_CLAUDE_BLOCKS = ("text", "thinking", "tool_use", "tool_result")

_PARENTS = (
    "parent", "parentId", "parent_id", "parentMessageId", "parent_message_id", "parent_message_uuid", "parent_response_id",
)  # fmt: skip
_OPINIONS = ("rating", "feedback", "vote", "thumbs", "liked", "like", "reaction", "annotation", "chat_feedback", "score")  # fmt: skip


def is_claude(data: Record) -> bool:
    return isinstance(data.get("chat_messages"), list)


def read_claude(data: Record, reading: FileReading) -> Iterator[Entry]:
    nodes: list[Node] = []
    for raw in dicts(data["chat_messages"]):
        blocks = dicts(raw.get("content"))
        for block in blocks:
            if (kind := block.get("type")) not in (*_CLAUDE_BLOCKS, "token_budget"):
                reading.unread[f"blocks of the kind {kind}"] += 1
        thinking = "\n\n".join(str(b.get("thinking") or "") for b in blocks if b.get("type") == "thinking")
        node = Node(
            str(raw.get("uuid") or ""), None, role_of(raw.get("sender")), at=stamp(raw), thinking=thinking
        )
        parent = raw.get("parent_message_uuid")
        node.parent = parent if isinstance(parent, str) else None
        node.model = str(raw.get("model") or data.get("model") or "")
        node.ending = ending_of(raw.get("stop_reason")) or ""
        if isinstance(opinion := raw.get("chat_feedback"), dict):
            node.feedback = opinion_in(opinion, stamp(opinion))
        steps = steps_of(node.role, [b for b in blocks if b.get("type") in _CLAUDE_BLOCKS])
        if not any(text_of(m["content"]) for m in steps if m["role"] == node.role):
            steps.append({"role": node.role, "content": str(raw.get("text") or "")})
        for attached in dicts(raw.get("attachments")):
            if isinstance(attached.get("extracted_content"), str):
                words = f"{text_of(steps[-1]['content'])}\n\n{attached['extracted_content']}"
                steps[-1] = {**steps[-1], "content": words.strip()}
        nodes += step_nodes(node, steps)
    if not any(raw.get("parent_message_uuid") for raw in dicts(data["chat_messages"])):
        nodes = chain(nodes)
    current = str(data.get("current_leaf_message_uuid") or "")
    yield from trees.entries(
        MessageTree(str(data.get("uuid") or digest([], str(data), "")), "claude.ai", nodes, current), reading
    )


def is_grok(data: Record) -> bool:
    return (
        isinstance(data.get("conversation"), dict)
        and bool(dicts(data.get("responses")))
        and "response" in dicts(data["responses"])[0]
    )


def read_grok(data: Record, reading: FileReading) -> Iterator[Entry]:
    nodes: list[Node] = []
    for one in dicts(data["responses"]):
        raw = one.get("response")
        if isinstance(raw, dict):
            node = _plain_node(raw, len(nodes))
            node.role = "user" if str(raw.get("sender")).lower() == "human" else "assistant"
            nodes.append(node)
    nodes = nodes if any(n.parent for n in nodes) else chain(nodes)
    yield from trees.entries(MessageTree(str(first(data["conversation"], IDS)), "grok", nodes), reading)


def is_history(data: Record) -> bool:
    """A conversation whose messages have names or times, as programs keep them and data sets do not."""
    messages = dicts(data.get("messages")) or dicts(data.get("conversation")) or dicts(data.get("turns"))
    if not messages or "chosen" in data or "response" in data:
        return False
    return all(message_of(m) is not None or _fragments(m) for m in messages) and any(
        first(m, (*IDS, *STAMPS)) is not None for m in messages
    )


def read_history(data: Record, reading: FileReading) -> Iterator[Entry]:
    messages = dicts(data.get("messages")) or dicts(data.get("conversation")) or dicts(data.get("turns"))
    joined = [
        {**raw, "content": "\n".join(fragments)} if (fragments := _fragments(raw)) else raw
        for raw in messages
    ]
    listed = [(_plain_node(raw, place), steps_in(raw)) for place, raw in enumerate(joined)]
    nodes = [n for node, steps in listed for n in (step_nodes(node, steps) if steps else [node])]
    nodes = nodes if any(node.parent for node, _ in listed) else chain(nodes)
    model = first(data, ("model", "modelId", "model_id"))
    for node in nodes:
        if node.role == "assistant" and not node.model and isinstance(model, str):
            node.model = model
    name = str(
        first(data, ("id", "uuid", "conversation_id", "conversationId", "session_id", "thread_id", "chat_id"))
        or ""
    )
    name = name or digest([], json.dumps(messages[:2], default=str), "")[:16]
    system = first(data, ("system_prompt", "system", "preprompt", "instructions"))
    tools = data.get("tools") if isinstance(data.get("tools"), list) else []
    agent = str(data.get("agent") or "chat")
    current = str(first(data, ("currentId", "current_node", "current_leaf")) or "")
    yield from trees.entries(
        MessageTree(
            name, agent, nodes, current, system if isinstance(system, str) else "", tools=tools or []
        ),
        reading,
    )


def _fragments(raw: Record) -> list[str]:
    """Texts of a message that is kept in fragments."""
    parts = [f.get("part") for f in dicts(raw.get("fragments"))]
    return [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]


def _plain_node(raw: Record, index: int) -> Node:
    message = message_of(raw) or {"role": "", "content": ""}
    ancestors = raw.get("ancestors")
    parent = first(raw, _PARENTS) or (ancestors[-1] if isinstance(ancestors, list) and ancestors else None)
    name = first(raw, IDS)
    node = Node(
        str(name if name is not None else f"m{index}"),
        str(parent) if parent is not None else None,
        str(message["role"]),
    )
    node.content, node.calls = message["content"], list(message.get("tool_calls") or [])
    node.call_id, node.at = str(message.get("tool_call_id") or ""), stamp(raw)
    model = first(raw, ("model", "model_name", "modelId", "model_slug", "modelID"))
    node.model = model if isinstance(model, str) and node.role == "assistant" else ""
    thinking = first(raw, ("thinking", "reasoning_content", "reasoning"))
    node.thinking = thinking if isinstance(thinking, str) else ""
    node.ending = ending_of(first(raw, ("finish_reason", "stop_reason"))) or ""
    for field in _OPINIONS:
        if node.role == "assistant" and raw.get(field) is not None and (opinions := opinion_in(raw[field])):
            node.feedback = opinions
            break
    return node


def is_message(data: Record) -> bool:
    """A record that is one message of a conversation."""
    data = lines.lowered(data)
    if "iscreatedbyuser" in data and "text" in data:
        return True
    named = any(name in data for name in ("role", "from", "sender", "author"))
    return message_of(data) is not None and named and "prompt" not in data


_GROUPS = (
    "thread_id",
    "conversation_id",
    "conversationid",
    "session_id",
    "chat_id",
    "sessionid",
    "chatid",
    "conversation",
)


def thread_of(record: Record) -> str:
    """The conversation that a message names; "" where it names none."""
    return str(first(lines.lowered(record), _GROUPS) or "")


def read_messages(records: Sequence[Record], reading: FileReading, name: str) -> Iterator[Entry]:
    """Messages, one a record: conversations by what names them, else all of them are one."""
    groups: dict[str, list[Record]] = {}
    for raw in records:
        groups.setdefault(thread_of(raw) or name, []).append(raw)
    for group, listed in groups.items():
        if all("isCreatedByUser" in raw for raw in listed):
            yield from local_chats.read_librechat(
                {"conversationId": group, "messages": list(listed)}, reading
            )
        else:
            messages = [dict(raw) if message_of(raw) else lines.lowered(raw) for raw in listed]
            yield from read_history({"id": group, "messages": messages}, reading)
