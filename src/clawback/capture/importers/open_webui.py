"""Open WebUI's chats and its feedback history, from an export or from its database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from clawback.capture.importers import trees
from clawback.capture.importers.entries import BadLine, Entry, FileReading, dicts, digest, table
from clawback.capture.importers.fields import first, opinion_in, picture_parts, stamp
from clawback.capture.importers.messages import role_of
from clawback.capture.importers.trees import MessageTree, Node

_STAMPS_OF_OPINIONS = ("updated_at", "created_at", "create_time", "createdAt")
_DETAILS = re.compile(
    r"<details type=\"(\w+)\"[^>]*>\s*(?:<summary>.*?</summary>)?\s*(.*?)</details>\s*", re.DOTALL
)


def _webui_history(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    chat = data.get("chat") if isinstance(data.get("chat"), dict) else data
    if isinstance(chat, dict) and isinstance(chat.get("chat"), dict):
        chat = chat["chat"]
    history = chat.get("history") if isinstance(chat, dict) else None
    if isinstance(chat, dict) and history is None and "chat" in data and dicts(chat.get("messages")):
        history = _as_history(dicts(chat["messages"]))  # as early versions kept it
        chat = {**chat, "history": history}
    return chat if isinstance(history, dict) and isinstance(history.get("messages"), dict) else None


def _as_history(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """A list of messages as a tree of one branch."""
    names = [str(m.get("id") or place) for place, m in enumerate(messages)]
    parents = [None, *names[:-1]]
    nodes = {
        name: {**m, "parentId": parent} for name, parent, m in zip(names, parents, messages, strict=True)
    }
    return {"messages": nodes, "currentId": names[-1]}


def is_open_webui(data: Mapping[str, Any]) -> bool:
    return _webui_history(data) is not None


def read_open_webui(data: Mapping[str, Any], reading: FileReading, person: str = "") -> Iterator[Entry]:
    conversation = _webui_conversation(data, person)
    if conversation is None:
        raise BadLine("there is no conversation")
    yield from trees.entries(conversation, reading)


def _webui_conversation(data: Mapping[str, Any], person: str = "") -> MessageTree | None:
    chat = _webui_history(data)
    if chat is None:
        return None
    nodes = [
        _webui_node(str(name), raw, person)
        for name, raw in chat["history"]["messages"].items()
        if isinstance(raw, dict)
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


def _webui_node(name: str, raw: Mapping[str, Any], person: str) -> Node:
    parent = raw.get("parentId")
    words, thinking = without_details(str(raw.get("content") or ""))
    at = stamp(raw, ("timestamp",))
    node = Node(
        name,
        parent if isinstance(parent, str) else None,
        role_of(raw.get("role")),
        picture_parts(words, raw.get("files")),
    )
    node.at, node.thinking = at, thinking
    node.model = str(first(raw, ("model", "modelName")) or "") if node.role == "assistant" else ""
    node.ending = "incomplete" if raw.get("done") is False else ""
    if isinstance(raw.get("annotation"), dict):
        node.feedback = opinion_in(raw["annotation"], at, person)
    return node


def without_details(words: str) -> tuple[str, str]:
    """The text of an answer without the folded boxes that Open WebUI puts in, and what was thought in them."""
    thoughts = [
        re.sub(r"^> ?", "", body, flags=re.MULTILINE).strip()
        for kind, body in _DETAILS.findall(words)
        if kind == "reasoning"
    ]
    return _DETAILS.sub("", words).strip(), "\n\n".join(thoughts)


def is_open_webui_feedback(data: Mapping[str, Any]) -> bool:
    return (
        isinstance(data.get("data"), dict) and isinstance(data.get("meta"), dict) and "rating" in data["data"]
    )


def user_of_open_webui(data: Mapping[str, Any]) -> str:
    return str(data.get("user_id") or "")


def read_open_webui_feedback(
    data: Mapping[str, Any], reading: FileReading, person: str = ""
) -> Iterator[Entry]:
    """A thumb or a score, with the conversation as it was then where the export has it."""
    meta, told = data["meta"], data["data"]
    name = str(meta.get("message_id") or "")
    opinions = opinion_in(told, stamp(data, _STAMPS_OF_OPINIONS), person or reading.person)
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
    if told.get("sibling_model_ids") and opinions:
        rated.siblings_worse = opinions[0].value > 0 or told.get("rating") in (1, "1")
        rated.siblings_better = not rated.siblings_worse
    yield from trees.entries(conversation, reading)
