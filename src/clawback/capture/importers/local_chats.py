"""Chats of programs that run at home: LM Studio, LibreChat, SillyTavern, text-generation-webui."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clawback.capture.importers import trees
from clawback.capture.importers.entries import Entry, FileReading, dicts, digest, moment, table
from clawback.capture.importers.fields import first, opinion_in, stamp
from clawback.capture.importers.messages import role_of
from clawback.capture.importers.trees import MessageTree, Node, chain
from clawback.endings import ending_of
from clawback.records import Ending

_LM_STUDIO_ENDINGS: dict[str, Ending] = {
    "eosFound": "done", "toolCalls": "done", "stopStringFound": "stop", "maxPredictedTokensReached": "length",
    "contextLengthReached": "length", "userStopped": "interrupted", "modelUnloaded": "interrupted", "failed": "error",
}  # fmt: skip


def is_lm_studio(data: Mapping[str, Any]) -> bool:
    messages = dicts(data.get("messages"))
    return bool(messages) and all(isinstance(m.get("versions"), list) for m in messages)


def read_lm_studio(data: Mapping[str, Any], reading: FileReading) -> Iterator[Entry]:
    """A ``.conversation.json``: each message has its versions, of which one is selected."""
    name = str(first(data, ("id", "createdAt", "name")) or "")
    nodes, parent = [], None
    for place, raw in enumerate(dicts(data["messages"])):
        selected = raw.get("currentlySelected")
        names = []
        for index, version in enumerate(dicts(raw["versions"])):
            node = _lm_studio_node(f"{place}.{index}", parent, version)
            node.at = moment(data.get("createdAt")) + place if data.get("createdAt") else 0.0
            nodes.append(node)
            names.append(node.id)
        if names:
            parent = (
                names[selected] if isinstance(selected, int) and 0 <= selected < len(names) else names[-1]
            )
    name = f"{name}-{digest([], json.dumps(dicts(data['messages'])[:1], default=str), '')[:8]}"
    system = data.get("systemPrompt")
    yield from trees.entries(
        MessageTree(name, "lm-studio", nodes, parent or "", system if isinstance(system, str) else ""),
        reading,
    )


def _lm_studio_node(name: str, parent: str | None, version: Mapping[str, Any]) -> Node:
    node = Node(name, parent, role_of(version.get("role")))
    words: list[str] = []
    thoughts: list[str] = []
    for step in [version, *dicts(version.get("steps"))]:
        style = step.get("style")
        thought = isinstance(style, Mapping) and style.get("type") == "thinking"
        if step is not version and step.get("type") != "contentBlock":
            continue
        texts = [
            p["text"]
            for p in dicts(step.get("content"))
            if p.get("type") == "text" and isinstance(p.get("text"), str)
        ]
        (thoughts if thought else words).extend(texts)
        info = step.get("genInfo")
        if isinstance(info, Mapping):
            node.model = str(first(info, ("indexedModelIdentifier", "identifier")) or "")
            stats = info.get("stats")
            why = stats.get("stopReason") if isinstance(stats, Mapping) else None
            node.ending = _LM_STUDIO_ENDINGS.get(str(why), "")
    sender = version.get("senderInfo")
    if not node.model and isinstance(sender, Mapping) and node.role == "assistant":
        node.model = str(sender.get("senderName") or "")
    node.content, node.thinking = "\n".join(words).strip(), "\n".join(thoughts).strip()
    return node


def is_librechat(data: Mapping[str, Any]) -> bool:
    messages = dicts(data.get("messages")) or dicts(data.get("messagesTree"))
    return bool(messages) and all("isCreatedByUser" in m for m in messages)


def read_librechat(data: Mapping[str, Any], reading: FileReading) -> Iterator[Entry]:
    nodes: list[Node] = []
    waiting = [
        (raw, None) for raw in reversed(dicts(data.get("messages")) or dicts(data.get("messagesTree")))
    ]
    while waiting:
        raw, parent = waiting.pop()
        node = _librechat_node(raw, parent)
        nodes.append(node)
        waiting += [(child, node.id) for child in reversed(dicts(raw.get("children")))]  # type: ignore[misc]
    if not any(node.parent for node in nodes):
        nodes = chain(nodes)
    options = table(data.get("options"))
    for node in nodes:
        if node.role == "assistant" and not node.model:
            node.model = str(first({**data, **options}, ("model", "endpoint")) or "")
    system = first(options, ("promptPrefix", "system", "instructions"))
    name = str(data.get("conversationId") or digest([], json.dumps(data, default=str), ""))
    yield from trees.entries(
        MessageTree(name, "librechat", nodes, "", system if isinstance(system, str) else ""), reading
    )


def _librechat_node(raw: Mapping[str, Any], parent: str | None) -> Node:
    above = raw.get("parentMessageId")
    known = above if isinstance(above, str) else None
    node = Node(
        str(raw.get("messageId") or ""),
        parent or known,
        "user" if str(raw.get("isCreatedByUser")).lower() == "true" else "assistant",
    )
    words: list[str] = []
    thoughts: list[str] = []
    for part in dicts(raw.get("content")):
        inner = part.get("text")
        inner = inner.get("value") if isinstance(inner, Mapping) else inner
        if part.get("type") == "text" and isinstance(inner, str):
            words.append(inner)
        elif part.get("type") == "think":
            thoughts.append(str(part.get("think") or ""))
    node.content = "\n\n".join(words).strip() or str(raw.get("text") or "").strip()
    node.thinking, node.at = "\n\n".join(thoughts), stamp(raw)
    node.model = str(raw.get("model") or "") if node.role == "assistant" else ""
    if str(raw.get("error") or "").lower() not in ("", "false"):
        node.content, node.role = "", ""
    elif str(raw.get("unfinished") or "").lower() not in ("", "false"):
        node.ending = "incomplete"
    node.ending = node.ending or ending_of(raw.get("finish_reason")) or ""
    if isinstance(raw.get("feedback"), dict):
        node.feedback = opinion_in(raw["feedback"])
    return node


def is_text_webui(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("internal"), list) and isinstance(data.get("visible"), list)


def read_text_webui(data: Mapping[str, Any], reading: FileReading) -> Iterator[Entry]:
    nodes: list[Node] = []
    for pair in data["internal"]:
        for role, words in zip(("user", "assistant"), pair if isinstance(pair, list) else [], strict=False):
            if isinstance(words, str) and words and not words.startswith("<|BEGIN-VISIBLE-CHAT|>"):
                nodes.append(Node(str(len(nodes)), None, role, words))
    name = digest([], json.dumps(data["internal"][:2], default=str), "")[:16]
    yield from trees.entries(MessageTree(name, "text-generation-webui", chain(nodes)), reading)


def is_sillytavern(data: Mapping[str, Any]) -> bool:
    return ("mes" in data and "is_user" in data) or ("chat_metadata" in data and "character_name" in data)


def read_sillytavern(
    records: Sequence[Mapping[str, Any]], reading: FileReading, name: str
) -> Iterator[Entry]:
    """One chat a file. An answer's swipes are answers to the same message, of which one is kept."""
    nodes: list[Node] = []
    parent: str | None = None
    for place, raw in enumerate(records):
        if "mes" not in raw or raw.get("is_system"):
            continue
        role = "user" if raw.get("is_user") else "assistant"
        swipes = [s for s in raw.get("swipes") or () if isinstance(s, str)]
        chosen = int(raw["swipe_id"]) if isinstance(raw.get("swipe_id"), int) else 0
        texts = swipes if role == "assistant" and len(swipes) > 1 else [str(raw["mes"])]
        extra = table(raw.get("extra"))
        for index, words in enumerate(texts):
            shown = len(texts) == 1 or index == chosen
            node = Node(
                f"{place}.{index}",
                parent,
                role,
                str(raw["mes"]) if shown else words,
                at=stamp(raw, ("send_date",)),
            )
            node.model = str(extra.get("model") or "") if role == "assistant" else ""
            node.thinking = str(extra.get("reasoning") or "") if shown else ""
            nodes.append(node)
        parent = f"{place}.{chosen if len(texts) > 1 and 0 <= chosen < len(texts) else 0}"
    begun = next((raw for raw in records if "chat_metadata" in raw), {})
    group = str(first(begun, ("create_date",)) or name)
    yield from trees.entries(MessageTree(group, "sillytavern", nodes, parent or ""), reading)
