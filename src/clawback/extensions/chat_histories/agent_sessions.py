"""Sessions as agents keep them: Claude Code, Codex, Gemini CLI, OpenClaw, opencode, Hermes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from clawback.capture.conversation_threads import plain_text as words_of_person
from clawback.capture.exchanges import Exchange, result_text
from clawback.endings import ending_of
from clawback.extensions.chat_histories import trees
from clawback.extensions.chat_histories.chats import read_history
from clawback.extensions.chat_histories.fields import first, stamp
from clawback.extensions.chat_histories.trees import MessageTree, Node, chain, step_nodes
from clawback.extensions.data_sets.entries import Entry, FileReading, Record, dicts, digest, moment, table
from clawback.extensions.data_sets.messages import calls_of, role_of, steps_of
from clawback.plugins import TRANSCRIPTS, load
from clawback.records import JsonObject, Message, Turn, text_of
from clawback.redact import redact, redact_all
from clawback.reminders import without_reminders

TRANSCRIPT = "claude-transcript:"
"""How the event ids of turns begin that come from a transcript of Claude Code."""


# ---------------------------------------------------------------------------------- records that hooks read as well


def is_claude_code(record: Record) -> bool:
    return (
        record.get("type") in ("user", "assistant")
        and isinstance(record.get("message"), dict)
        and "parentId" not in record
    )


def is_codex(record: Record) -> bool:
    kinds = ("session_meta", "response_item", "event_msg", "turn_context")
    return (record.get("type") in kinds and isinstance(record.get("payload"), dict)) or _is_old_codex(record)


def _is_old_codex(record: Record) -> bool:
    """A record of the first versions, which put nothing around an item."""
    parts = dicts(record.get("content")) if record.get("type") == "message" else []
    spoken = bool(parts) and all(part.get("type") in ("input_text", "output_text") for part in parts)
    return spoken or record.get("record_type") == "state" or {"id", "instructions", "git"} <= record.keys()


def _with_event(item: Record, at: object) -> Iterator[Record]:
    """The event that tells of a message, which the first versions did not write, and the item."""
    payload = table(item.get("payload"))
    event = {"user": "user_message", "assistant": "agent_message"}.get(str(payload.get("role")))
    words = text_of([{**part, "type": "text"} for part in dicts(payload.get("content"))]).strip()
    if (
        event
        and words
        and not words.startswith(("<environment_context>", "<user_instructions>", "# AGENTS.md"))
    ):
        yield {"type": "event_msg", "timestamp": at, "payload": {"type": event, "message": words}}
    yield item


def is_gemini(record: Record) -> bool:
    if isinstance(record.get("messages"), list) and "sessionId" in record:
        return any(m.get("type") in ("user", "gemini") for m in dicts(record["messages"]))
    return (
        record.get("type") in ("user", "gemini")
        and "content" in record
        and "message" not in record
        and "id" in record
    )


def read_claude_code(records: Sequence[Record], _reading: FileReading, name: str) -> Iterator[Entry]:
    """A transcript. Types that are not known are passed over, and so are failures without an answer; what was cut has its ``ending``."""
    yield from _of_exchanges(_exchanges("claude-code", records), "claude-code", name, TRANSCRIPT)


def read_codex(records: Sequence[Record], _reading: FileReading, name: str) -> Iterator[Entry]:
    begun: Record = next((r for r in records if "instructions" in r and "id" in r), {})
    items: list[Record] = [
        r if "payload" in r else {"type": "response_item", "payload": dict(r)} for r in records
    ]
    if not any(r.get("type") == "event_msg" for r in items):
        items = [event for item in items for event in _with_event(item, begun.get("timestamp"))]
    meta: Record = next((r["payload"] for r in items if r.get("type") == "session_meta"), begun)
    session = str(meta.get("id") or name)
    exchanges = [
        replace(one, session=session, cwd=one.cwd or str(meta.get("cwd") or ""))
        for one in _exchanges("codex", items)
    ]
    yield from _of_exchanges(exchanges, "codex", session, f"codex-rollout:{session}:")


def read_gemini(records: Sequence[Record], _reading: FileReading, name: str) -> Iterator[Entry]:
    session = next((str(r["sessionId"]) for r in records if r.get("sessionId")), name)
    exchanges = [replace(one, session=session) for one in _exchanges("gemini-cli", records)]
    yield from _of_exchanges(exchanges, "gemini-cli", session, f"gemini-chat:{session}:")


def _exchanges(agent: str, records: Iterable[Record]) -> list[Exchange]:
    """Raises ``NotFound`` where nothing reads the records of this agent."""
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    exchanges: list[Exchange] = load(TRANSCRIPTS, agent)(lines)
    return exchanges


def _of_exchanges(exchanges: Iterable[Exchange], agent: str, name: str, mark: str) -> Iterator[Entry]:
    """One entry with the answers of a session, each with all that was said before."""
    conversation: list[Message] = []
    turns: list[Turn] = []
    prompts = []
    for one in exchanges:
        asked = "\n\n".join(one.requests) or one.notice
        if not asked or not one.text or (one.notice and not conversation):
            continue
        question: Message = {"role": "user", "content": redact(asked)}
        if turns:
            turns[-1] = replace(turns[-1], next_state=(question,))
        # An answer keeps its own work alone: with all that came before, a session would grow with the square of its length.
        messages = (*conversation, question, *redact_all(one.work_before(one.text)))
        event = f"{mark}{_name_in(one, agent, name, len(turns))}"
        turns.append(_turn(one, messages, agent, name, event))
        prompts.append((tuple(one.ids), tuple(one.requests)))
        conversation += [question, {"role": "assistant", "content": redact(one.text)}]
    if turns:
        yield Entry(tuple(turns), prompts=tuple(prompts))


def _name_in(exchange: Exchange, agent: str, name: str, index: int) -> str:
    """The name of an answer in its session: the agent's own, or one that follows from its words and its index."""
    asked = "\n\n".join(exchange.requests) or exchange.notice
    if agent != "claude-code":
        return digest((), f"{2 * index + 1}{asked}", exchange.text)
    return exchange.name.split()[-1] if exchange.name.strip() else digest((), asked, f"{name}.jsonl")


def _turn(exchange: Exchange, messages: tuple[Message, ...], agent: str, name: str, event: str) -> Turn:
    return Turn(
        session=exchange.session or name,
        messages=messages,
        response=redact(exchange.text),
        agent=agent,
        ending=exchange.ending,
        model=exchange.model,
        cwd=exchange.cwd,
        event_id=event,
        created_at=exchange.at,
    )


# ------------------------------------------------------------------------------------------------- OpenClaw and pi


def is_openclaw(record: Record) -> bool:
    if record.get("type") == "session" and "version" in record and "cwd" in record:
        return True
    message = record.get("message")
    return (
        record.get("type") == "message"
        and isinstance(message, dict)
        and "role" in message
        and "parentId" in record
    )


def read_openclaw(records: Sequence[Record], reading: FileReading, name: str) -> Iterator[Entry]:
    """A session file of OpenClaw's, or of pi's, which it is built on: entries in a tree, the last of which is shown."""
    begun = next((r for r in records if r.get("type") == "session"), {})
    nodes = []
    for place, record in enumerate(records):
        if record is begun:
            continue
        parent = record.get("parentId")
        node = Node(str(record.get("id") or place), parent if isinstance(parent, str) else None, "")
        if record.get("type") == "message" and isinstance(record.get("message"), dict):
            _fill_openclaw(node, record["message"], record)
        nodes.append(node)
    if not any(node.parent for node in nodes):
        nodes = chain(nodes)
    last = next((node.id for node in reversed(nodes)), "")
    conversation = MessageTree(
        str(begun.get("id") or name), "openclaw", nodes, last, cwd=str(begun.get("cwd") or "")
    )
    yield from _with_prompts(conversation, reading)


def _fill_openclaw(node: Node, message: Record, record: Record) -> None:
    node.role, node.at = role_of(message.get("role")), stamp(record)
    blocks = dicts(message.get("content"))
    words = (
        "\n".join(str(b.get("text") or "") for b in blocks if b.get("type") == "text")
        if blocks
        else str(message.get("content") or "")
    )
    node.thinking = "\n".join(str(b.get("thinking") or "") for b in blocks if b.get("type") == "thinking")
    node.calls = calls_of([b for b in blocks if b.get("type") == "toolCall"])
    node.content = words.strip()
    if node.role == "user":
        node.content = without_reminders(words_of_person({"role": "user", "content": words}))
    if node.role == "tool":
        node.call_id = str(message.get("toolCallId") or "")
    node.model = str(message.get("model") or "")
    node.ending = ending_of(message.get("stopReason")) or "" if node.role == "assistant" else ""


def _with_prompts(conversation: MessageTree, reading: FileReading) -> Iterator[Entry]:
    """The same entries, with what hooks or our server may have captured of them."""
    for entry in trees.entries(conversation, reading):
        yield replace(entry, prompts=tuple(((), (turn.prompt,)) for turn in entry.turns))


# -------------------------------------------------------------------------------------------------------- opencode


def is_opencode(record: Record) -> bool:
    messages = dicts(record.get("messages"))
    return bool(messages) and all(
        isinstance(m.get("info"), dict) and isinstance(m.get("parts"), list) for m in messages
    )


def read_opencode(record: Record, reading: FileReading) -> Iterator[Entry]:
    """A session as ``opencode export`` writes it, or as its database and its folder of files hold it."""
    info = table(record.get("info"))
    if info and first(info, ("parentID", "parent_id")):
        return  # a sub-agent's
    nodes = [node for message in dicts(record["messages"]) for node in _opencode_nodes(message)]
    name = str(info.get("id") or digest([], json.dumps(record["messages"][:1], default=str), "")[:16])
    cwd = str(info.get("directory") or "")
    yield from _with_prompts(MessageTree(name, "opencode", chain(nodes), cwd=cwd), reading)


def _opencode_nodes(message: Record) -> list[Node]:
    """The message, and the results of the tools that it calls."""
    info, parts = message["info"], dicts(message["parts"])
    name, role = str(info.get("id") or ""), role_of(info.get("role"))
    blocks: list[JsonObject] = []
    for part in parts:
        if part.get("type") == "text" and not part.get("synthetic") and not part.get("ignored"):
            blocks.append({"type": "text", "text": str(part.get("text") or "").strip()})
        elif part.get("type") == "tool" and (state := table(part.get("state"))):
            result = first(state, ("output", "error"))
            call = {"id": part.get("callID"), "name": part.get("tool"), "arguments": state.get("input", {})}
            blocks.append(
                call | {"type": "tool_call", "output": "" if result is None else result_text(result)}
            )
    node = Node(name, None, role, at=moment(table(info.get("time")).get("created")))
    if role == "assistant":
        model = info.get("model")
        node.model = str(
            info.get("modelID") or (model.get("modelID") if isinstance(model, dict) else model) or ""
        )
    node.thinking = "\n".join(str(p.get("text") or "") for p in parts if p.get("type") == "reasoning").strip()
    error = info.get("error")
    node.ending = "error" if error else ending_of(info.get("finish")) or ""
    if isinstance(error, dict) and "abort" in str(error.get("name", "")).lower():
        node.ending = "interrupted"
    steps = steps_of(role, blocks) or [{"role": role, "content": ""}]
    if role == "user":
        steps = [{"role": role, "content": without_reminders(text_of(steps[0]["content"]))}]
    return step_nodes(node, steps)


# ---------------------------------------------------------------------------------------------------------- Hermes


def is_hermes(record: Record) -> bool:
    return isinstance(record.get("messages"), list) and (
        "session_start" in record or {"source", "started_at"} <= record.keys()
    )


def read_hermes(record: Record, reading: FileReading) -> Iterator[Entry]:
    """A session of Hermes Agent: its database's, its export's, or a session file of it."""
    if record.get("source") in ("tool", "subagent") or (
        record.get("parent_session_id") and record.get("source") == "delegate"
    ):
        return
    messages = [
        {"id": place, **m} for place, m in enumerate(dicts(record["messages"])) if m.get("active", 1) != 0
    ]
    name = first(record, ("session_id", "id"))
    for entry in read_history({**record, "id": name, "messages": messages, "agent": "hermes"}, reading):
        yield replace(entry, prompts=tuple(((), (turn.prompt,)) for turn in entry.turns))
