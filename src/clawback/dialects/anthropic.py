"""Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clawback.dialects import parsing, shapes
from clawback.dialects.parsing import AnswerAssembler, Said
from clawback.dialects.shapes import Asked, Dialect, DialectReply, Json, event
from clawback.records import text_of

_RUN_BY_PROVIDER = ("web_search", "web_fetch", "code_execution", "mcp_toolset", "tool_search")
"""How types of tools begin that Anthropic's own servers run: no client answers a call of these."""


def read(body: shapes.Body) -> Asked:
    items = parsing.dicts(body.get("messages"))
    if not items:
        raise ValueError("messages: a list with at least one message is needed")
    messages: list[Json] = []
    if system := text_of(body.get("system")):
        messages.append({"role": "system", "content": system})
    for message in items:
        messages += _messages(message)
    style = body.get("output_config")
    layout = style.get("format") if isinstance(style, dict) else None
    return Asked(
        messages=tuple(messages),
        model=parsing.text(body.get("model")),
        stream=body.get("stream") is True,
        tools=tuple(
            shapes.function(t.get("name"), t.get("description"), t.get("input_schema"))
            for t in parsing.dicts(body.get("tools"))
            if not parsing.text(t.get("type")).startswith(_RUN_BY_PROVIDER)
        ),
        max_tokens=parsing.count(body.get("max_tokens")),
        temperature=parsing.number(body.get("temperature")),
        top_p=parsing.number(body.get("top_p")),
        top_k=parsing.count(body.get("top_k")),
        stop=shapes.stops(body.get("stop_sequences")),
        schema=shapes.schema_in(layout),
        form=shapes.form(layout),
    )


def _messages(message: Json) -> list[Json]:
    """One message with blocks → tool results, each a message of its own, then what was said."""
    role, content = parsing.text(message.get("role")) or "user", message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    results: list[Json] = []
    blocks: list[Json] = []
    calls: list[Json] = []
    for block in parsing.dicts(content):
        kind = block.get("type")
        if kind == "tool_result":
            results.append(
                {
                    "role": "tool",
                    "tool_call_id": parsing.text(block.get("tool_use_id")),
                    "content": _result(block.get("content")),
                }
            )
        elif kind == "tool_use":
            one = parsing.call(block.get("id"), block.get("name"), block.get("input"))
            calls.append(
                {
                    "id": one["id"],
                    "type": "function",
                    "function": {"name": one["name"], "arguments": one["arguments"]},
                }
            )
        elif kind == "text":
            blocks.append({"type": "text", "text": parsing.text(block.get("text"))})
        elif kind == "image":
            blocks.append(_image(block.get("source")))
    if not blocks and not calls:
        return results
    plain = all(block["type"] == "text" for block in blocks)
    answer: Json = {"role": role, "content": text_of(blocks) if plain else blocks}
    return [*results, {**answer, "tool_calls": calls} if calls else answer]


def _result(result: object) -> object:
    """What a tool returned: its text, or text and pictures where there are some, such as what a tool sees of the screen."""
    blocks = parsing.dicts(result)
    if all(block.get("type") != "image" for block in blocks):
        return text_of(result)
    known = [block for block in blocks if block.get("type") in ("text", "image")]
    return [
        _image(b.get("source"))
        if b["type"] == "image"
        else {"type": "text", "text": parsing.text(b.get("text"))}
        for b in known
    ]


def _image(source: object) -> Json:
    source = source if isinstance(source, dict) else {}
    if source.get("type") == "base64":
        return shapes.picture(source.get("data"), source.get("media_type"))
    return {"type": "image_url", "image_url": {"url": parsing.text(source.get("url"))}}


def refuses(body: shapes.Body) -> str:
    style = body.get("output_config")
    wrong = shapes.formless(style.get("format") if isinstance(style, dict) else None, read(body))
    return f"output_config.format: {wrong}" if wrong else ""


def hear(raw: bytes) -> Said:
    answer = AnswerAssembler()
    calls: set[int] = set()
    for data in parsing.bodies(raw):
        kind, place = data.get("type"), parsing.count(data.get("index")) or 0
        change = data.get("delta")
        change = change if isinstance(change, dict) else {}
        if kind == "message" or (kind is None and isinstance(data.get("content"), list)):
            _read_message(answer, data)
        elif kind == "message_start" and isinstance(data.get("message"), dict):
            answer.model = parsing.text(data["message"].get("model"))
        elif kind == "content_block_start" and isinstance(data.get("content_block"), dict):
            _begin(answer, data["content_block"], place)
            calls |= {place} if data["content_block"].get("type") == "tool_use" else set()
        elif kind == "content_block_delta":
            answer.text(change.get("text"), place)
            answer.thought(change.get("thinking"), place)
            if place in calls:
                answer.call(None, change.get("partial_json"), None, place)
        elif kind == "message_delta":
            answer.end(change.get("stop_reason"))  # a client may leave before message_stop
        elif kind == "message_stop":
            answer.close()
        elif kind == "error" or (kind is None and data.get("error")):
            answer.set_ending("error")
    return answer.answer()


def _read_message(answer: AnswerAssembler, message: Json) -> None:
    answer.model = parsing.text(message.get("model"))
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else parsing.dicts(content)
    for place, block in enumerate(blocks):
        _begin(answer, block, place)
        if block.get("type") == "tool_use":
            answer.call(None, block.get("input") or {}, None, place)
    answer.end(message.get("stop_reason"))
    answer.close()


def _begin(answer: AnswerAssembler, block: Json, index: int) -> None:
    """A block as a stream begins it, or a whole one. Tools that the provider runs itself are no calls of the model's."""
    kind = block.get("type")
    if kind == "text":
        answer.text(block.get("text"), index)
    elif kind == "thinking":
        answer.thought(block.get("thinking"), index)
    elif kind == "tool_use":
        answer.call(block.get("name"), "", block.get("id"), index)


def write(reply: DialectReply) -> Json:
    content: list[Json] = [{"type": "text", "text": reply.text}] if reply.text or not reply.calls else []
    content += [
        {"type": "tool_use", "id": c["id"], "name": c["name"], "input": _input(c)} for c in reply.calls
    ]
    return {**_head(reply), "content": content, "stop_reason": _reason(reply), "usage": _usage(reply)}


def opening(reply: DialectReply) -> Iterator[bytes]:
    start = {
        **_head(reply),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_usage(reply), "output_tokens": 0},
    }
    yield event({"type": "message_start", "message": start}, "message_start")
    yield _start(0, {"type": "text", "text": ""})


def delta(_: DialectReply, more: str) -> bytes:
    change = {"type": "text_delta", "text": more}
    return event({"type": "content_block_delta", "index": 0, "delta": change}, "content_block_delta")


def closing(reply: DialectReply, _: bool) -> Iterator[bytes]:
    yield _stop(0)
    for place, one in enumerate(reply.calls, 1):
        yield _start(place, {"type": "tool_use", "id": one["id"], "name": one["name"], "input": {}})
        change = {"type": "input_json_delta", "partial_json": one["arguments"]}
        yield event({"type": "content_block_delta", "index": place, "delta": change}, "content_block_delta")
        yield _stop(place)
    change = {"stop_reason": _reason(reply), "stop_sequence": reply.stopped or None}
    yield event({"type": "message_delta", "delta": change, "usage": _usage(reply)}, "message_delta")
    yield event({"type": "message_stop"}, "message_stop")


def error(status: int, message: str) -> Json:
    kinds = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
    kinds |= {
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
    return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


def _start(index: int, block: Json) -> bytes:
    return event(
        {"type": "content_block_start", "index": index, "content_block": block}, "content_block_start"
    )


def _stop(index: int) -> bytes:
    return event({"type": "content_block_stop", "index": index}, "content_block_stop")


def _head(reply: DialectReply) -> Json:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "stop_sequence": reply.stopped or None,
    }


def _input(call: Mapping[str, Any]) -> object:
    try:
        return json.loads(call["arguments"])
    except ValueError:
        return {}


def _reason(reply: DialectReply) -> str:
    if reply.calls:
        return "tool_use"
    if reply.stopped:
        return "stop_sequence"
    return "end_turn" if reply.finished else "max_tokens"


def _usage(reply: DialectReply) -> Json:
    return {
        "input_tokens": reply.prompt_tokens - reply.cached,
        "cache_read_input_tokens": reply.cached,
        "output_tokens": reply.tokens,
    }


DIALECT = Dialect("anthropic", read, hear, error, refuses, write, opening, delta, closing)
