"""Open WebUI's chats and its feedback history, from an export or from its database."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from clawback.extensions.chat_histories import trees
from clawback.extensions.chat_histories.fields import first, opinion_in, picture_parts, stamp
from clawback.extensions.chat_histories.trees import MessageTree, Node, step_nodes
from clawback.extensions.data_sets.entries import BadLine, Entry, FileReading, Record, dicts, digest, table
from clawback.extensions.data_sets.messages import role_of, steps_of
from clawback.thinking import DETAILS

if TYPE_CHECKING:
    from clawback.records import JsonObject

_STAMPS_OF_OPINIONS = ("updated_at", "created_at", "create_time", "createdAt")
_ATTRIBUTES = re.compile(r'(\w+)="([^"]*)"')


def _webui_history(data: Record) -> Record | None:
    chat = data.get("chat") if isinstance(data.get("chat"), dict) else data
    if isinstance(chat, dict) and isinstance(chat.get("chat"), dict):
        chat = chat["chat"]
    history = chat.get("history") if isinstance(chat, dict) else None
    if isinstance(chat, dict) and history is None and "chat" in data and dicts(chat.get("messages")):
        history = _as_history(dicts(chat["messages"]))  # as early versions kept it
        chat = {**chat, "history": history}
    return chat if isinstance(history, dict) and isinstance(history.get("messages"), dict) else None


def _as_history(messages: list[JsonObject]) -> JsonObject:
    """A list of messages as a tree of one branch."""
    names = [str(m.get("id") or place) for place, m in enumerate(messages)]
    parents = [None, *names[:-1]]
    nodes = {
        name: {**m, "parentId": parent} for name, parent, m in zip(names, parents, messages, strict=True)
    }
    return {"messages": nodes, "currentId": names[-1]}


def is_open_webui(data: Record) -> bool:
    return _webui_history(data) is not None


def read_open_webui(data: Record, reading: FileReading, person: str = "") -> Iterator[Entry]:
    conversation = _webui_conversation(data, person)
    if conversation is None:
        raise BadLine("there is no conversation")
    yield from trees.entries(conversation, reading)


def _webui_conversation(data: Record, person: str = "") -> MessageTree | None:
    chat = _webui_history(data)
    if chat is None:
        return None
    nodes = [
        node
        for name, raw in chat["history"]["messages"].items()
        if isinstance(raw, dict)
        for node in _webui_nodes(str(name), raw, person)
    ]
    params = table(chat.get("params"))
    system = first({**chat, **params}, ("system", "system_prompt"))
    name = str(
        first(data, ("id", "chat_id"))
        or first(chat, ("id",))
        or digest([], json.dumps(chat, default=str), "")
    )
    return MessageTree(
        name,
        "open-webui",
        nodes,
        str(chat["history"].get("currentId") or ""),
        system if isinstance(system, str) else "",
    )


def _webui_nodes(name: str, raw: Record, person: str) -> list[Node]:
    parent = raw.get("parentId")
    at, role = stamp(raw, ("timestamp",)), role_of(raw.get("role"))
    node = Node(name, parent if isinstance(parent, str) else None, role, at=at)
    words = str(raw.get("content") or "")
    blocks = _blocks_of(words) if role == "assistant" else [{"type": "text", "text": words}]
    node.thinking = "\n\n".join(b["thinking"] for b in blocks if "thinking" in b)
    if role == "assistant":
        node.model = str(first(raw, ("selectedModelId", "model", "modelName")) or "")
    node.ending = "incomplete" if raw.get("done") is False else ""
    if isinstance(raw.get("annotation"), dict):
        node.feedback = opinion_in(raw["annotation"], at, person)
    steps = steps_of(role, blocks) or [{"role": role, "content": ""}]
    steps[-1] = {**steps[-1], "content": picture_parts(steps[-1]["content"], raw.get("files"))}
    return step_nodes(node, steps)


def _blocks_of(words: str) -> list[JsonObject]:
    """The text of an answer and the folded boxes that Open WebUI puts in: thoughts, and calls of tools with their results."""
    blocks: list[JsonObject] = []
    end = 0
    for box in DETAILS.finditer(words):
        blocks.append({"type": "text", "text": words[end : box.start()].strip()})
        end = box.end()
        if box[1] == "reasoning":
            thought = re.sub(r"^> ?", "", html.unescape(box[3]), flags=re.MULTILINE).strip()
            blocks.append({"type": "thinking", "thinking": thought})
        elif box[1] == "tool_calls":
            fields = {name: _attribute(value) for name, value in _ATTRIBUTES.findall(box[2])}
            output = fields.get("result") or box[3].strip() or None
            blocks.append({**fields, "type": "tool_call", "output": output})
    blocks.append({"type": "text", "text": words[end:].strip()})
    return [block for block in blocks if block.get("text") != ""]


def _attribute(value: str) -> Any:
    """The value of an attribute, which may be JSON in JSON."""
    plain: Any = html.unescape(value)
    try:
        return json.loads(plain)
    except ValueError:
        return plain


def is_open_webui_feedback(data: Record) -> bool:
    return (
        isinstance(data.get("data"), dict)
        and isinstance(data.get("meta"), dict)
        and bool({"rating", "model_id"} & data["data"].keys())
    )


def user_of_open_webui(data: Record) -> str:
    return str(data.get("user_id") or "")


def read_open_webui_feedback(data: Record, reading: FileReading, person: str = "") -> Iterator[Entry]:
    """A thumb or a score, with the conversation as it was then where the export has it."""
    meta, rating = data["meta"], data["data"]
    name = str(meta.get("message_id") or "")
    opinions = opinion_in(rating, stamp(data, _STAMPS_OF_OPINIONS), person or reading.person)
    snapshot = data.get("snapshot")
    chat = snapshot.get("chat") if isinstance(snapshot, dict) else None
    conversation = (
        _webui_conversation({"id": meta.get("chat_id"), "chat": chat}, person)
        if isinstance(chat, dict)
        else None
    )
    rated = next((n for n in conversation.nodes if n.id == name), None) if conversation else None
    if conversation is None or rated is None:
        if not opinions:
            raise BadLine("it holds no rating that is known")
        yield Entry(links=tuple((f"open-webui:{meta.get('chat_id')}:{name}", one) for one in opinions))
        return
    for node in conversation.nodes:
        node.feedback = []
    rated.feedback = opinions
    if rating.get("sibling_model_ids") and opinions:
        rated.siblings_worse = opinions[0].value > 0 or rating.get("rating") in (1, "1")
        rated.siblings_better = not rated.siblings_worse
    yield from trees.entries(conversation, reading)
