"""Reads Codex's record of a session, ``~/.codex/sessions/…/rollout-….jsonl``.

Of an answer that is interrupted Codex keeps nothing but that it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from clawback.capture.exchanges import ERROR_CHARACTERS, Exchange, entries, moment
from clawback.endings import ending_of
from clawback.reminders import without_reminders

MARKS = (
    '"task_started"', '"turn_aborted"', '"task_complete"', '"item_completed"', '"user_message"', '"agent_message"',
    '"turn_context"', '"function_call', '"custom_tool_call', '"local_shell_call',
)  # fmt: skip


def read(lines: Iterable[str]) -> list[Exchange]:
    exchanges: list[Exchange] = []
    model = ""
    for entry in entries(lines, MARKS):
        payload, kind = entry.get("payload"), entry.get("type")
        if not isinstance(payload, dict):
            continue
        if kind == "turn_context":
            model = str(payload.get("model") or "") or model
        elif kind == "event_msg":
            _add_event(exchanges, payload, moment(entry.get("timestamp")))
        elif kind == "response_item" and exchanges:
            _add_tool(exchanges[-1], payload)
        if exchanges and model:
            exchanges[-1].model = model
    return [one for one in exchanges if one.requests or one.blocks or one.end in ("interrupted", "failed")]


def _add_event(exchanges: list[Exchange], payload: Mapping[str, object], at: float) -> None:
    kind, turn = payload.get("type"), str(payload.get("turn_id") or "")
    if kind == "task_started" or not exchanges or (turn and turn not in exchanges[-1].ids):
        exchanges.append(Exchange([turn]))
    last = exchanges[-1]
    item = payload.get("item") if kind == "item_completed" else None
    if isinstance(item, dict) and item.get("type") == "HookPrompt":  # a hook sent the answer back
        last.begin_again()
    if isinstance(item, dict):
        pieces = item.get("content")
        texts = [p for p in pieces if isinstance(p, dict)] if isinstance(pieces, list) else []
        text = "".join(str(p.get("text") or "") for p in texts)
        kind = {"UserMessage": "user_message", "AgentMessage": "agent_message"}.get(str(item.get("type")), "")
    else:
        text = str(payload.get("message") or "")
    if kind == "user_message" and (words := without_reminders(text)) and words not in last.requests:
        last.requests.append(words)
    elif kind == "agent_message" and (answer := text.strip()):
        last.blocks, last.at, last.stop = [answer], at, ""
        if not last.steps or last.steps[-1].get("content") != answer:  # it is told of twice
            last.add_text(f"message {len(last.steps)}", answer)
    elif kind == "turn_aborted":
        last.end = "interrupted"
    elif kind == "task_complete":
        error = payload.get("error")
        last.end = "failed" if error else "done"
        if error:
            _add_error(last, error)
        elif last.blocks:
            last.stop = "done"


def _add_error(exchange: Exchange, error: object) -> None:
    """Why a request failed. Some failures end an answer in a known way: at its limit of length, say."""
    words = str(error.get("message") or "") if isinstance(error, dict) else str(error)
    exchange.error = words.strip()[:ERROR_CHARACTERS]
    code = error.get("codex_error_info") if isinstance(error, dict) else None
    reason = code if isinstance(code, str) else words.partition("reason:")[2]
    if exchange.blocks and (ending := ending_of(reason)) and not exchange.open:
        exchange.stop = ending


def _add_tool(exchange: Exchange, payload: Mapping[str, object]) -> None:
    """A call, or what it returned. Calls that come without a result between them are of one response."""
    kind = str(payload.get("type"))
    call_id = payload.get("call_id") or payload.get("id")
    if kind.endswith("_output"):
        exchange.add_result(call_id, _output(payload.get("output")))
        return
    names = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
    if kind in names:
        name = payload.get("name") or ("shell" if kind == "local_shell_call" else "")
        exchange.add_call("", call_id, name, payload.get(names[kind]))


def _output(output: object) -> object:
    """A command's output; older versions wrap it into JSON."""
    if isinstance(output, str) and output.startswith("{"):
        try:
            output = json.loads(output)
        except (ValueError, RecursionError):
            return output
    return output
