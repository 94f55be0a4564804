"""Chats of programs that run at home: LM Studio, LibreChat, SillyTavern, text-generation-webui."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from clawback.endings import ending_of
from clawback.extensions.chat_histories import trees
from clawback.extensions.chat_histories.fields import first, opinion_in, stamp
from clawback.extensions.chat_histories.trees import MessageTree, Node, chain, step_nodes
from clawback.extensions.data_sets.entries import Entry, FileReading, Record, dicts, digest, moment, table
from clawback.extensions.data_sets.messages import role_of, steps_of
from clawback.records import Ending, JsonObject

_LM_STUDIO_ENDINGS: dict[str, Ending] = {
    "eosFound": "done", "toolCalls": "done", "stopStringFound": "stop", "maxPredictedTokensReached": "length",
    "contextLengthReached": "length", "userStopped": "interrupted", "modelUnloaded": "interrupted", "failed": "error",
}  # fmt: skip


def is_lm_studio(data: Record) -> bool:
    messages = dicts(data.get("messages"))
    return bool(messages) and all(isinstance(m.get("versions"), list) for m in messages)


def read_lm_studio(data: Record, reading: FileReading) -> Iterator[Entry]:
    """A ``.conversation.json``: each message has its versions, of which one is selected."""
    name = str(first(data, ("id", "createdAt", "name")) or "")
    nodes: list[Node] = []
    parent: str | None = None
    for place, raw in enumerate(dicts(data["messages"])):
        selected = raw.get("currentlySelected")
        names = []
        for index, version in enumerate(dicts(raw["versions"])):
            for node in _lm_studio_nodes(f"{place}.{index}", parent, version):
                node.at = moment(data.get("createdAt")) + place if data.get("createdAt") else 0.0
                nodes.append(node)
            names.append(f"{place}.{index}")
        if names:
            parent = (
                names[selected] if isinstance(selected, int) and 0 <= selected < len(names) else names[-1]
            )
    name = f"{name}-{digest([], json.dumps(dicts(data['messages'])[:1], default=str), '')[:8]}"
    fields = dicts(table(data.get("perChatPredictionConfig")).get("fields"))
    own = next((f.get("value") for f in fields if f.get("key") == "llm.prediction.systemPrompt"), None)
    system = own or data.get("systemPrompt")
    yield from trees.entries(
        MessageTree(name, "lm-studio", nodes, parent or "", system if isinstance(system, str) else ""),
        reading,
    )


def _lm_studio_nodes(name: str, parent: str | None, version: Record) -> list[Node]:
    node = Node(name, parent, role_of(version.get("role")))
    blocks: list[JsonObject] = []
    thoughts: list[str] = []
    for step in [version, *dicts(version.get("steps"))]:
        thought = table(step.get("style")).get("type") == "thinking"
        if step is not version and step.get("type") != "contentBlock":
            continue
        if thought:
            thoughts += [p["text"] for p in dicts(step.get("content")) if isinstance(p.get("text"), str)]
        else:
            blocks += dicts(step.get("content"))
        if info := table(step.get("genInfo")):
            node.model = str(first(info, ("indexedModelIdentifier", "identifier")) or "")
            node.ending = _LM_STUDIO_ENDINGS.get(str(table(info.get("stats")).get("stopReason")), "")
    if not node.model and node.role == "assistant":
        node.model = str(table(version.get("senderInfo")).get("senderName") or "")
    node.thinking = "\n".join(thoughts).strip()
    return step_nodes(node, steps_of(node.role, blocks) or [{"role": node.role, "content": ""}])


def is_librechat(data: Record) -> bool:
    messages = dicts(data.get("messages")) or dicts(data.get("messagesTree"))
    return bool(messages) and all("isCreatedByUser" in m for m in messages)


def read_librechat(data: Record, reading: FileReading) -> Iterator[Entry]:
    nodes: list[Node] = []
    listed = dicts(data.get("messages")) or dicts(data.get("messagesTree"))
    waiting: list[tuple[JsonObject, str | None]] = [(raw, None) for raw in reversed(listed)]
    while waiting:
        raw, parent = waiting.pop()
        node = _librechat_node(raw, parent)
        steps = steps_of(node.role, dicts(raw.get("content"))) if node.role else []
        nodes += step_nodes(node, steps) if len(steps) > 1 else [node]
        waiting += [(child, node.id) for child in reversed(dicts(raw.get("children")))]
    if not any(raw.get("parentMessageId") or raw.get("children") for raw in listed):
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


def _librechat_node(raw: Record, parent: str | None) -> Node:
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
    if raw.get("feedback"):
        node.feedback = opinion_in(raw["feedback"])
    return node


def is_text_webui(data: Record) -> bool:
    return isinstance(data.get("internal"), list) and isinstance(data.get("visible"), list)


def read_text_webui(data: Record, reading: FileReading) -> Iterator[Entry]:
    nodes: list[Node] = []
    for pair in data["internal"]:
        for role, words in zip(("user", "assistant"), pair if isinstance(pair, list) else [], strict=False):
            if isinstance(words, str) and words and not words.startswith("<|BEGIN-VISIBLE-CHAT|>"):
                nodes.append(Node(str(len(nodes)), None, role, words))
    name = digest([], json.dumps(data["internal"][:2], default=str), "")[:16]
    yield from trees.entries(MessageTree(name, "text-generation-webui", chain(nodes)), reading)


def is_sillytavern(data: Record) -> bool:
    return ("mes" in data and "is_user" in data) or ("chat_metadata" in data and "character_name" in data)


def read_sillytavern(records: Sequence[Record], reading: FileReading, name: str) -> Iterator[Entry]:
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
