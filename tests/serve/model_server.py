"""A model's server for client libraries: it answers as OpenAI's, Anthropic's and Ollama's servers do, whole and streamed.

What it says follows from the request: JSON where a schema is given, a call where a tool is required or a question is about
the weather, what the tool said after that, and else a sentence about the animal that is asked about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from clawback.inference import wire

Json = dict[str, Any]
ANIMAL = {"name": "otter", "legs": 4, "kind": "mammal"}
CITY = {"city": "Vienna"}
SUNNY = "It is sunny in Vienna."
PICTURE = "A red dot."
USAGE = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}


class Answer:
    """What is said to a request: a text, or a call."""

    def __init__(self, text: str = "", name: str = "", arguments: Json | None = None) -> None:
        self.text, self.name, self.arguments = text, name, arguments or {}

    @property
    def pieces(self) -> list[str]:
        return re.findall(r"\s*\S+", self.text) or [self.text]


def answer_to(body: Json) -> Answer:
    words = json.dumps(body, ensure_ascii=False)
    tools = body.get("tools") or []
    names = [t.get("name") or t.get("function", {}).get("name") for t in tools]
    choice = body.get("tool_choice")
    named = (
        (choice.get("name") or choice.get("function", {}).get("name")) if isinstance(choice, dict) else None
    )
    required = (
        named or choice in ("required", "any") or (isinstance(choice, dict) and choice.get("type") == "any")
    )
    if "sunny" in words:
        documents = [name for name in names if name != "weather"]
        return Answer(name=documents[0], arguments=ANIMAL) if required and documents else Answer(SUNNY)
    if required or (tools and "weather in" in words):
        if "weather in" in words and "weather" in names:
            return Answer(name="weather", arguments=CITY)
        return Answer(name=named or names[0], arguments=ANIMAL)
    if '"schema"' in words or body.get("format"):
        return Answer(json.dumps(ANIMAL))
    if "image" in words:
        return Answer(PICTURE)
    animals = re.findall(r"about the (\w+)", words)
    return Answer(f"All about the {animals[-1] if animals else 'rest'}.")


# ------------------------------------------------------------------------------------------------------ the dialects


def event(data: Json, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + f"data: {json.dumps(data)}\n\n".encode()


def chat(answer: Answer, body: Json) -> Iterator[bytes]:
    head = {"id": "chatcmpl-1", "created": 1, "model": body["model"], "system_fingerprint": "fp_1"}
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": answer.name, "arguments": json.dumps(answer.arguments)},
    }
    reason = "tool_calls" if answer.name else "stop"
    if not body.get("stream"):
        message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.name:
            message["tool_calls"] = [call]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        yield json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": USAGE}).encode()
        return
    head["object"] = "chat.completion.chunk"

    def chunk(delta: Json, end: str | None = None) -> bytes:
        return event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}], "usage": None})

    yield chunk({"role": "assistant", "content": "" if answer.text else None})
    if answer.name:
        function = {"name": answer.name, "arguments": ""}
        yield chunk({"tool_calls": [{"index": 0, **call, "function": function}]})
        written = json.dumps(answer.arguments)
        for piece in (written[:5], written[5:]):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    else:
        for piece in answer.pieces:
            yield chunk({"content": piece})
    yield chunk({}, reason)
    if (body.get("stream_options") or {}).get("include_usage"):
        yield event({**head, "choices": [], "usage": USAGE})
    yield b"data: [DONE]\n\n"


def responses(answer: Answer, body: Json) -> Iterator[bytes]:
    part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
    item: Json = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    if answer.name:
        written = json.dumps(answer.arguments)
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": answer.name, "arguments": written, "status": "completed"}  # fmt: skip
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 14,
    }
    complete: Json = {
        "id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "model": body["model"], "output": [item],
        "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage,
    }  # fmt: skip
    if not body.get("stream"):
        yield json.dumps(complete).encode()
        return
    started = {**complete, "status": "in_progress", "output": [], "usage": None}
    place = {"output_index": 0, "item_id": item["id"]}
    empty = {"content": []} if answer.text else {"arguments": ""}
    events: list[tuple[str, Json]] = [
        ("response.created", {"response": started}),
        ("response.in_progress", {"response": started}),
        (
            "response.output_item.added",
            {"output_index": 0, "item": {**item, "status": "in_progress", **empty}},
        ),
    ]
    if answer.name:
        events += [
            ("response.function_call_arguments.delta", {**place, "delta": item["arguments"]}),
            ("response.function_call_arguments.done", {**place, "arguments": item["arguments"]}),
        ]
    else:
        place["content_index"] = 0
        events.append(("response.content_part.added", {**place, "part": {**part, "text": ""}}))
        events += [
            ("response.output_text.delta", {**place, "delta": piece, "logprobs": []})
            for piece in answer.pieces
        ]
        events += [
            ("response.output_text.done", {**place, "text": answer.text, "logprobs": []}),
            ("response.content_part.done", {**place, "part": part}),
        ]
    events += [
        ("response.output_item.done", {"output_index": 0, "item": item}),
        ("response.completed", {"response": complete}),
    ]
    for number, (kind, data) in enumerate(events):
        yield event({"type": kind, "sequence_number": number, **data}, kind)


def messages(answer: Answer, body: Json) -> Iterator[bytes]:
    head = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "stop_sequence": None,
    }
    reason = "tool_use" if answer.name else "end_turn"
    block: Json = {"type": "text", "text": answer.text}
    if answer.name:
        block = {"type": "tool_use", "id": "toolu_1", "name": answer.name, "input": answer.arguments}
    usage = {"input_tokens": 9, "output_tokens": 5}
    if not body.get("stream"):
        yield json.dumps({**head, "content": [block], "stop_reason": reason, "usage": usage}).encode()
        return
    empty = {"input": {}} if answer.name else {"text": ""}
    deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
    if answer.name:
        written = json.dumps(answer.arguments)
        deltas = [
            {"type": "input_json_delta", "partial_json": part} for part in ("", written[:5], written[5:])
        ]
    start = {**head, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    yield event({"type": "message_start", "message": start}, "message_start")
    yield event(
        {"type": "content_block_start", "index": 0, "content_block": {**block, **empty}},
        "content_block_start",
    )
    yield event({"type": "ping"}, "ping")
    for delta in deltas:
        yield event({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")
    yield event({"type": "content_block_stop", "index": 0}, "content_block_stop")
    end = {"stop_reason": reason, "stop_sequence": None}
    yield event({"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}}, "message_delta")
    yield event({"type": "message_stop"}, "message_stop")


def ollama(answer: Answer, body: Json, path: str) -> Iterator[bytes]:
    head = {"model": body["model"], "created_at": "2026-11-27T10:00:00.000000Z"}
    end = {
        "done": True, "done_reason": "stop", "total_duration": 5, "load_duration": 1, "prompt_eval_count": 9,
        "prompt_eval_duration": 1, "eval_count": 5, "eval_duration": 3,
    }  # fmt: skip

    def line(text: str, **more: Any) -> bytes:
        calls = more.pop("calls", None)
        message = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        content = {"message": message} if path == "/api/chat" else {"response": text}
        return json.dumps({**head, **content, **more}).encode() + b"\n"

    calls = [{"function": {"name": answer.name, "arguments": answer.arguments}}] if answer.name else None
    if body.get("stream") is False:
        yield line(answer.text, calls=calls, **end)
        return
    if calls:
        yield line("", calls=calls, done=False)
    else:
        for piece in answer.pieces:
            yield line(piece, done=False)
    yield line("", **end)


class ModelServer:
    """An ASGI app; ``got`` keeps (path, headers, body) of each request."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], Json]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        path, raw = scope["path"], await wire.body(receive)
        dialects = {"/v1/chat/completions": chat, "/v1/responses": responses, "/v1/messages": messages}
        if path not in dialects and not path.startswith("/api/"):
            await wire.respond(send, 200, b'{"object": "list", "data": []}')
            return
        body = json.loads(raw or b"{}")
        self.got.append((path, wire.headers(scope), body))
        answer = answer_to(body)
        native = path.startswith("/api/")
        pieces = ollama(answer, body, path) if native else dialects[path](answer, body)
        streamed = body.get("stream", native)
        kind = b"application/json"
        if streamed:
            kind = b"application/x-ndjson" if native else b"text/event-stream; charset=utf-8"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
