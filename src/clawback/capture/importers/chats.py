"""Exports of chat programs: ChatGPT, Claude.ai, DeepSeek, Grok, Open WebUI, LM Studio, LibreChat, SillyTavern, and others by their shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from clawback import scales
from clawback.capture.importers import trees
from clawback.capture.importers.entries import BadLine, Entry, Reading, dicts, digest, moment
from clawback.capture.importers.messages import calls_of, message_of, role_of
from clawback.capture.importers.trees import Conversation, Node, chain
from clawback.endings import ending_of
from clawback.records import Ending, Feedback

_PARENTS = (
    "parent",
    "parentId",
    "parent_id",
    "parentMessageId",
    "parent_message_id",
    "parent_message_uuid",
    "parent_response_id",
)
_IDS = ("id", "uuid", "messageId", "message_id", "_id")
_STAMPS = (
    "created_at",
    "createdAt",
    "create_time",
    "timestamp",
    "created",
    "send_date",
    "date",
    "updated_at",
    "inserted_at",
)
_STAMPS_OF_OPINIONS = ("updated_at", "created_at", "create_time", "createdAt")
_OPINIONS = (
    "rating",
    "feedback",
    "vote",
    "thumbs",
    "liked",
    "like",
    "reaction",
    "annotation",
    "chat_feedback",
)
_DETAILS = re.compile(
    r"<details type=\"(\w+)\"[^>]*>\s*(?:<summary>.*?</summary>)?\s*(.*?)</details>\s*", re.DOTALL
)


def first(data: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of these fields that has a value; None without."""
    return next((data[name] for name in names if data.get(name) not in (None, "")), None)


def stamp(data: Mapping[str, Any], names: Sequence[str] = _STAMPS) -> float:
    return moment(first(data, names))


def opinion_in(value: Any, at: float = 0.0, person: str = "") -> list[Feedback]:
    """A thumb, a score or a word, with what stands beside it; [] for what is none."""
    inner: Mapping[str, Any] = value if isinstance(value, Mapping) else {"rating": value}
    details = inner.get("details")
    score = details.get("rating") if isinstance(details, Mapping) else None
    sign = first(inner, ("rating", "type", "value", "score", "vote"))
    tags = (
        inner.get("tags")
        if isinstance(inner.get("tags"), list) and not inner.get("reason") and "details" not in inner
        else []
    )
    tag = inner.get("tag")
    named = tag.get("key") or tag.get("label") if isinstance(tag, Mapping) else tag
    words = [inner.get("reason"), *(tags or []), named, inner.get("comment"), inner.get("text")]
    note = ": ".join(
        dict.fromkeys(str(w).replace("_", " ").strip() for w in words if isinstance(w, str) and w.strip())
    )
    if isinstance(score, (int, float)) and not isinstance(score, bool) and 1 <= score <= 10:
        plain = scales.value_of(score, scales.TEN)
        return [
            Feedback(
                0, "rating", plain, note, created_at=at, person=person, score=float(score), scale=scales.TEN
            )
        ]
    if isinstance(sign, bool):
        return [Feedback(0, "rating", 1.0 if sign else -1.0, note, created_at=at, person=person)]
    if isinstance(sign, (int, float)) and sign in (1, -1):
        return [Feedback(0, "rating", float(sign), note, created_at=at, person=person)]
    if isinstance(sign, str) and (plain_sign := scales.sign_of(sign)) is not None:
        return [Feedback(0, "rating", plain_sign, note, created_at=at, person=person)]
    return []


def picture_parts(words: str, files: Any) -> Any:
    """The text, with the pictures that lie beside it."""
    shown = [
        f["url"]
        for f in dicts(files)
        if f.get("type") == "image" and str(f.get("url", "")).startswith("data:image/")
    ]
    if not shown:
        return words
    return [
        *({"type": "image_url", "image_url": {"url": url}} for url in shown),
        *([{"type": "text", "text": words}] if words else []),
    ]


# -------------------------------------------------------------------------------------------------------- ChatGPT


def is_chatgpt(data: Mapping[str, Any]) -> bool:
    mapping = data.get("mapping")
    return isinstance(mapping, dict) and all(
        isinstance(n, dict) and "message" in n for n in list(mapping.values())[:5]
    )


def read_chatgpt(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
    """A conversation of ChatGPT's export; DeepSeek's has the same tree."""
    agent = (
        "deepseek"
        if any("fragments" in (n.get("message") or {}) for n in data["mapping"].values())
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
    current = data.get("current_node")
    yield from trees.entries(
        Conversation(name, agent, nodes, current if isinstance(current, str) else ""), reading
    )


def _chatgpt_node(name: str, parent: str | None, message: dict[str, Any], reading: Reading) -> Node | None:
    if isinstance(message.get("fragments"), list):
        return _deepseek_node(name, parent, message)
    author = message.get("author")
    role = role_of(author if isinstance(author, Mapping) else message.get("role"))
    content = (
        message.get("content")
        if isinstance(message.get("content"), dict)
        else {"parts": [message.get("content")]}
    )
    raw_meta = message.get("metadata")
    meta: dict[str, Any] = raw_meta if isinstance(raw_meta, dict) else {}
    kind = str(content.get("content_type") or "text")
    if (
        role == "system"
        or meta.get("is_visually_hidden_from_conversation")
        or kind in ("user_editable_context", "model_editable_context")
    ):
        words = _parts(content, reading)
        return Node(name, parent, "system", words) if role == "system" and words else None
    node = Node(
        name, parent, role, at=stamp(message, ("create_time",)), model=str(meta.get("model_slug") or "")
    )
    if kind in ("thoughts", "reasoning_recap"):
        return None
    words = _parts(content, reading)
    recipient = str(message.get("recipient") or "all")
    if role == "assistant" and (recipient != "all" or kind == "code"):
        node.calls = [{"id": name, "type": "function", "function": {"name": recipient, "arguments": words}}]
    else:
        node.content = words
    if role == "tool":
        node.call_id = parent or ""
    finish = meta.get("finish_details")
    why = finish.get("type") if isinstance(finish, dict) else None
    node.ending = cast(
        "Ending", ending_of(why) or ("incomplete" if message.get("status") == "in_progress" else "")
    )
    return node


def _parts(content: Mapping[str, Any], reading: Reading) -> str:
    words = []
    for part in content.get("parts") if isinstance(content.get("parts"), list) else [content.get("text")]:
        if isinstance(part, str):
            words.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            words.append(part["text"])
        elif isinstance(part, dict):
            reading.unread[f"parts of the kind {part.get('content_type', 'unknown')}"] += 1
    return "\n".join(w for w in words if w).strip()


def _deepseek_node(name: str, parent: str | None, message: dict[str, Any]) -> Node:
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


def is_chatgpt_feedback(data: Mapping[str, Any]) -> bool:
    return (
        {"conversation_id", "rating", "id"} <= data.keys() and "prompt" not in data and "messages" not in data
    )


def read_chatgpt_feedback(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
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


# ------------------------------------------------------------------------------------------------------- Claude.ai


def is_claude(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("chat_messages"), list)


def read_claude(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
    nodes = []
    for raw in dicts(data["chat_messages"]):
        words, thinking, calls = [], [], []
        for block in dicts(raw.get("content")):
            kind = block.get("type")
            if kind == "text" and isinstance(block.get("text"), str):
                words.append(block["text"])
            elif kind == "thinking":
                thinking.append(str(block.get("thinking") or ""))
            elif kind == "tool_use":
                calls += calls_of([{**block, "arguments": block.get("input", {})}])
            elif kind not in ("tool_result", "token_budget"):
                reading.unread[f"blocks of the kind {kind}"] += 1
        spoken = "\n\n".join(w for w in words if w.strip()) or str(raw.get("text") or "")
        for attached in dicts(raw.get("attachments")):
            if isinstance(attached.get("extracted_content"), str):
                spoken += f"\n\n{attached['extracted_content']}"
        node = Node(
            str(raw.get("uuid") or ""),
            None,
            role_of(raw.get("sender")),
            spoken.strip(),
            at=stamp(raw),
            thinking="\n\n".join(thinking),
        )
        parent = raw.get("parent_message_uuid")
        node.parent = parent if isinstance(parent, str) else None
        node.model = str(raw.get("model") or data.get("model") or "")
        node.ending = cast("Ending", ending_of(raw.get("stop_reason")) or "")
        node.feedback = (
            opinion_in(raw["chat_feedback"], stamp(raw["chat_feedback"]))
            if isinstance(raw.get("chat_feedback"), dict)
            else []
        )
        nodes.append(node)
    if not any(node.parent for node in nodes):
        nodes = chain(nodes)
    current = str(data.get("current_leaf_message_uuid") or "")
    yield from trees.entries(
        Conversation(str(data.get("uuid") or digest([], str(data), "")), "claude.ai", nodes, current), reading
    )


# ------------------------------------------------------------------------------------------------------ Open WebUI


def _webui_history(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    chat = data.get("chat") if isinstance(data.get("chat"), dict) else data
    if isinstance(chat, dict) and isinstance(chat.get("chat"), dict):
        chat = chat["chat"]
    history = chat.get("history") if isinstance(chat, dict) else None
    return chat if isinstance(history, dict) and isinstance(history.get("messages"), dict) else None


def is_open_webui(data: Mapping[str, Any]) -> bool:
    return _webui_history(data) is not None


def read_open_webui(data: Mapping[str, Any], reading: Reading, person: str = "") -> Iterator[Entry]:
    conversation = _webui_conversation(data, person)
    if conversation is None:
        raise BadLine("there is no conversation")
    yield from trees.entries(conversation, reading)


def _webui_conversation(data: Mapping[str, Any], person: str = "") -> Conversation | None:
    chat = _webui_history(data)
    if chat is None:
        return None
    nodes = [
        _webui_node(str(name), raw, person)
        for name, raw in chat["history"]["messages"].items()
        if isinstance(raw, dict)
    ]
    params = chat.get("params") if isinstance(chat.get("params"), dict) else {}
    system = first({**chat, **params}, ("system", "system_prompt"))
    name = str(
        first(data, ("id", "chat_id"))
        or first(chat, ("id",))
        or digest([], json.dumps(chat, default=str), "")
    )
    return Conversation(
        name,
        "open-webui",
        nodes,
        str(chat["history"].get("currentId") or ""),
        system if isinstance(system, str) else "",
    )


def _webui_node(name: str, raw: Mapping[str, Any], person: str) -> Node:
    parent = raw.get("parentId")
    words, thinking = _without_details(str(raw.get("content") or ""))
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


def _without_details(words: str) -> tuple[str, str]:
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


def read_open_webui_feedback(data: Mapping[str, Any], reading: Reading, person: str = "") -> Iterator[Entry]:
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


# ------------------------------------------------------------------------------------------------------- LM Studio

_LM_STUDIO_ENDINGS: dict[str, Ending] = {
    "eosFound": "done", "toolCalls": "done", "stopStringFound": "stop", "maxPredictedTokensReached": "length",
    "contextLengthReached": "length", "userStopped": "interrupted", "modelUnloaded": "interrupted", "failed": "error",
}  # fmt: skip


def is_lm_studio(data: Mapping[str, Any]) -> bool:
    messages = dicts(data.get("messages"))
    return bool(messages) and all(isinstance(m.get("versions"), list) for m in messages)


def read_lm_studio(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
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
        Conversation(name, "lm-studio", nodes, parent or "", system if isinstance(system, str) else ""),
        reading,
    )


def _lm_studio_node(name: str, parent: str | None, version: Mapping[str, Any]) -> Node:
    node = Node(name, parent, role_of(version.get("role")))
    words, thoughts = [], []
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


# ------------------------------------------------------------------------------------------------------- LibreChat


def is_librechat(data: Mapping[str, Any]) -> bool:
    messages = dicts(data.get("messages")) or dicts(data.get("messagesTree"))
    return bool(messages) and all("isCreatedByUser" in m for m in messages)


def read_librechat(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
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
    options = data.get("options") if isinstance(data.get("options"), dict) else {}
    for node in nodes:
        if node.role == "assistant" and not node.model:
            node.model = str(first({**data, **options}, ("model", "endpoint")) or "")
    system = first(options, ("promptPrefix", "system", "instructions"))
    name = str(data.get("conversationId") or digest([], json.dumps(data, default=str), ""))
    yield from trees.entries(
        Conversation(name, "librechat", nodes, "", system if isinstance(system, str) else ""), reading
    )


def _librechat_node(raw: Mapping[str, Any], parent: str | None) -> Node:
    above = raw.get("parentMessageId")
    known = above if isinstance(above, str) else None
    node = Node(
        str(raw.get("messageId") or ""),
        parent or known,
        "user" if raw.get("isCreatedByUser") else "assistant",
    )
    words, thoughts = [], []
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
    if raw.get("error"):
        node.content, node.role = "", ""
    elif raw.get("unfinished"):
        node.ending = "incomplete"
    node.ending = node.ending or cast("Ending", ending_of(raw.get("finish_reason")) or "")
    if isinstance(raw.get("feedback"), dict):
        node.feedback = opinion_in(raw["feedback"])
    return node


# ------------------------------------------------------------------------------------------ Grok, text-generation-webui


def is_grok(data: Mapping[str, Any]) -> bool:
    return (
        isinstance(data.get("conversation"), dict)
        and bool(dicts(data.get("responses")))
        and "response" in dicts(data["responses"])[0]
    )


def read_grok(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
    nodes = []
    for one in dicts(data["responses"]):
        raw = one.get("response")
        if isinstance(raw, dict):
            node = _plain_node(raw, len(nodes))
            node.role = "user" if str(raw.get("sender")).lower() == "human" else "assistant"
            nodes.append(node)
    nodes = nodes if any(n.parent for n in nodes) else chain(nodes)
    yield from trees.entries(Conversation(str(first(data["conversation"], _IDS)), "grok", nodes), reading)


def is_text_webui(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("internal"), list) and isinstance(data.get("visible"), list)


def read_text_webui(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
    nodes = []
    for pair in data["internal"]:
        for role, words in zip(("user", "assistant"), pair if isinstance(pair, list) else [], strict=False):
            if isinstance(words, str) and words and not words.startswith("<|BEGIN-VISIBLE-CHAT|>"):
                nodes.append(Node(str(len(nodes)), None, role, words))
    name = digest([], json.dumps(data["internal"][:2], default=str), "")[:16]
    yield from trees.entries(Conversation(name, "text-generation-webui", chain(nodes)), reading)


# ------------------------------------------------------------------------------------------------------- by the shape


def is_history(data: Mapping[str, Any]) -> bool:
    """A conversation whose messages have names or times, as programs keep them and data sets do not."""
    messages = dicts(data.get("messages")) or dicts(data.get("conversation")) or dicts(data.get("turns"))
    if not messages or "chosen" in data or "response" in data:
        return False
    return all(message_of(m) is not None or _fragments(m) for m in messages) and any(
        first(m, (*_IDS, *_STAMPS)) is not None for m in messages
    )


def read_history(data: Mapping[str, Any], reading: Reading) -> Iterator[Entry]:
    messages = dicts(data.get("messages")) or dicts(data.get("conversation")) or dicts(data.get("turns"))
    nodes = [_plain_node(raw, place) for place, raw in enumerate(messages)]
    nodes = nodes if any(n.parent for n in nodes) else chain(nodes)
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
        Conversation(
            name, agent, nodes, current, system if isinstance(system, str) else "", tools=tools or []
        ),
        reading,
    )


def _fragments(raw: Mapping[str, Any]) -> list[str]:
    """Texts of a message that is kept in fragments."""
    parts = [f.get("part") for f in dicts(raw.get("fragments"))]
    return [p["text"] for p in parts if isinstance(p, dict) and isinstance(p.get("text"), str)]


def _plain_node(raw: Mapping[str, Any], place: int) -> Node:
    pieces = _fragments(raw)
    message = message_of({**raw, "content": "\n".join(pieces)} if pieces else raw) or {
        "role": "",
        "content": "",
    }
    ancestors = raw.get("ancestors")
    parent = first(raw, _PARENTS) or (ancestors[-1] if isinstance(ancestors, list) and ancestors else None)
    name = first(raw, _IDS)
    node = Node(
        str(name if name is not None else f"m{place}"),
        str(parent) if parent is not None else None,
        str(message["role"]),
    )
    node.content, node.calls = message["content"], list(message.get("tool_calls") or [])
    node.call_id, node.at = str(message.get("tool_call_id") or ""), stamp(raw)
    model = first(raw, ("model", "model_name", "modelId", "model_slug", "modelID"))
    node.model = model if isinstance(model, str) and node.role == "assistant" else ""
    thinking = first(raw, ("thinking", "reasoning_content", "reasoning"))
    node.thinking = thinking if isinstance(thinking, str) else ""
    node.ending = cast("Ending", ending_of(first(raw, ("finish_reason", "stop_reason"))) or "")
    for field in _OPINIONS:
        if node.role == "assistant" and raw.get(field) is not None and (found := opinion_in(raw[field])):
            node.feedback = found
            break
    return node


def is_message(data: Mapping[str, Any]) -> bool:
    """A record that is one message of a conversation."""
    return (
        message_of(data) is not None
        and any(name in data for name in ("role", "from", "isCreatedByUser", "sender"))
        and "prompt" not in data
    )


_GROUPS = ("thread_id", "conversation_id", "conversationId", "session_id", "chat_id", "sessionId", "chatId")


def read_messages(records: Sequence[Mapping[str, Any]], reading: Reading, name: str) -> Iterator[Entry]:
    """Messages, one a record: conversations by what names them, else all of them are one."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for raw in records:
        groups.setdefault(str(first(raw, _GROUPS) or name), []).append(raw)
    for group, listed in groups.items():
        if all("isCreatedByUser" in raw for raw in listed):
            yield from read_librechat({"conversationId": group, "messages": list(listed)}, reading)
        else:
            yield from read_history({"id": group, "messages": [dict(raw) for raw in listed]}, reading)


def is_sillytavern(data: Mapping[str, Any]) -> bool:
    return ("mes" in data and "is_user" in data) or ("chat_metadata" in data and "character_name" in data)


def read_sillytavern(records: Sequence[Mapping[str, Any]], reading: Reading, name: str) -> Iterator[Entry]:
    """One chat a file. An answer's swipes are answers to the same message, of which one is kept."""
    nodes: list[Node] = []
    parent: str | None = None
    for place, raw in enumerate(records):
        if "mes" not in raw or raw.get("is_system"):
            continue
        role = "user" if raw.get("is_user") else "assistant"
        swipes = [s for s in raw.get("swipes") or () if isinstance(s, str)]
        chosen = raw.get("swipe_id") if isinstance(raw.get("swipe_id"), int) else 0
        texts = swipes if role == "assistant" and len(swipes) > 1 else [str(raw["mes"])]
        extra = raw.get("extra") if isinstance(raw.get("extra"), dict) else {}
        for index, words in enumerate(texts):
            shown = len(texts) == 1 or index == chosen
            node = Node(
                f"{place}.{index}",
                parent,
                role,
                str(raw["mes"]) if shown else words,
                at=stamp(raw, ("send_date",)),
            )
            node.model = str((extra or {}).get("model") or "") if role == "assistant" else ""
            node.thinking = str((extra or {}).get("reasoning") or "") if shown else ""
            nodes.append(node)
        parent = f"{place}.{chosen if len(texts) > 1 and 0 <= chosen < len(texts) else 0}"
    begun = next((raw for raw in records if "chat_metadata" in raw), {})
    group = str(first(begun, ("create_date",)) or name)
    yield from trees.entries(Conversation(group, "sillytavern", nodes, parent or ""), reading)
