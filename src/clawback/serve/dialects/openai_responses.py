"""OpenAI's Responses API, as Codex uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawback.serve.dialects import shapes
from clawback.serve.dialects.shapes import Asked, Dialect, Json, Reply, Said, event

_KINDS = {"input_text": "text", "output_text": "text", "text": "text"}


def read(body: Mapping[str, Any]) -> Asked:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else shapes.dicts(given)
    if not items:
        raise ValueError("input: a text, or a list with at least one item, is needed")
    messages: list[Json] = []
    if instructions := shapes.text(body.get("instructions")):
        messages.append({"role": "system", "content": instructions})
    for item in items:
        _add(messages, item)
    style = body.get("text")
    layout = style.get("format") if isinstance(style, dict) else None
    return Asked(
        messages=tuple(messages),
        model=shapes.text(body.get("model")),
        stream=body.get("stream") is True,
        tools=tuple(
            shapes.function(t.get("name"), t.get("description"), t.get("parameters"))
            for t in shapes.dicts(body.get("tools"))
            if t.get("type") == "function"
        ),
        max_tokens=shapes.whole(body.get("max_output_tokens")),
        temperature=shapes.number(body.get("temperature")),
        top_p=shapes.number(body.get("top_p")),
        schema=layout.get("schema") if isinstance(layout, dict) else None,
        form=shapes.form(layout, layout.get("schema") if isinstance(layout, dict) else None),
    )


def _add(messages: list[Json], item: Json) -> None:
    kind = item.get("type", "message")
    if kind == "function_call":
        one = shapes.call(item.get("call_id"), item.get("name"), item.get("arguments"))
        made = {
            "id": one["id"],
            "type": "function",
            "function": {"name": one["name"], "arguments": one["arguments"]},
        }
        if messages and messages[-1]["role"] == "assistant":
            messages[-1].setdefault("tool_calls", []).append(made)
        else:
            messages.append({"role": "assistant", "content": "", "tool_calls": [made]})
    elif kind == "function_call_output":
        output = item.get("output")
        said = output if isinstance(output, str) else _content(output)
        messages.append({"role": "tool", "tool_call_id": shapes.text(item.get("call_id")), "content": said})
    elif kind == "message":
        role = shapes.text(item.get("role")) or "user"
        content = item.get("content")
        said = content if isinstance(content, str) else _content(content)
        messages.append({"role": "system" if role == "developer" else role, "content": said})


def _content(value: Any) -> Any:
    """Blocks → their text, or text and images where there are some."""
    blocks: list[Json] = []
    for block in shapes.dicts(value):
        if block.get("type") in _KINDS:
            blocks.append({"type": "text", "text": shapes.text(block.get("text"))})
        elif block.get("type") == "input_image":
            blocks.append({"type": "image_url", "image_url": {"url": shapes.text(block.get("image_url"))}})
    if all(b["type"] == "text" for b in blocks):
        return "\n".join(b["text"] for b in blocks)
    return blocks


def refuses(body: Mapping[str, Any]) -> str:
    style = body.get("text")
    layout = style.get("format") if isinstance(style, dict) else None
    if wrong := shapes.formless(layout, read(body)):
        return f"text.format: {wrong}"
    if body.get("previous_response_id") or body.get("conversation"):
        return "previous_response_id: conversations are not kept here; send all of it as input."
    included = body.get("include")
    if isinstance(included, list) and "message.output_text.logprobs" in included:
        return "include: log-probs are told by /v1/chat/completions alone."
    return shapes.refused(body, background=False, top_logprobs=0, prompt=None)


def hear(raw: bytes, stream: bool) -> Said:
    if not stream:
        return _said(shapes.parse(raw))
    items: list[Json] = []
    pieces: list[str] = []
    for data in shapes.events(raw):
        kind = data.get("type")
        if kind in ("response.completed", "response.incomplete") and isinstance(data.get("response"), dict):
            said = _said(data["response"])
            if said.text or said.calls:
                return said
            return _of(items, pieces, said.model, True)
        if kind == "response.output_item.done" and isinstance(data.get("item"), dict):
            items.append(data["item"])
        elif kind == "response.output_text.delta":
            pieces.append(shapes.text(data.get("delta")))
    return _of(items, pieces, "", False)


def _said(body: Json) -> Said:
    whole = body.get("object") == "response" and body.get("status") not in ("failed", "cancelled")
    return _of(shapes.dicts(body.get("output")), [], shapes.text(body.get("model")), whole)


def _of(items: list[Json], pieces: list[str], model: str, whole: bool) -> Said:
    texts = [
        shapes.text(block.get("text"))
        for item in items
        if item.get("type") == "message"
        for block in shapes.dicts(item.get("content"))
    ]
    calls = [
        shapes.call(i.get("call_id"), i.get("name"), i.get("arguments"))
        for i in items
        if i.get("type") == "function_call"
    ]
    return Said("\n".join(t for t in texts if t) or "".join(pieces), tuple(calls), model, whole)


def write(reply: Reply) -> Json:
    return _response(reply, "completed" if reply.finished else "incomplete", _items(reply))


def opening(reply: Reply) -> Iterator[bytes]:
    started = _response(reply, "in_progress", [])
    yield _event("response.created", 0, response=started)
    yield _event("response.in_progress", 1, response=started)
    item = {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    yield _event("response.output_item.added", 2, output_index=0, item=item)
    part = {"type": "output_text", "text": "", "annotations": []}
    yield _event("response.content_part.added", 3, **_at(reply), part=part)


def delta(reply: Reply, more: str) -> bytes:
    return _event("response.output_text.delta", 4, **_at(reply), delta=more, logprobs=[])


def closing(reply: Reply, _: bool) -> Iterator[bytes]:
    part = {"type": "output_text", "text": reply.text, "annotations": []}
    yield _event("response.output_text.done", 5, **_at(reply), text=reply.text, logprobs=[])
    yield _event("response.content_part.done", 6, **_at(reply), part=part)
    items = [_message(reply), *(_called(c) for c in reply.calls)]
    yield _event("response.output_item.done", 7, output_index=0, item=items[0])
    for place, item in enumerate(items[1:], 1):
        started = {**item, "arguments": "", "status": "in_progress"}
        yield _event("response.output_item.added", 6 + 2 * place, output_index=place, item=started)
        yield _event("response.output_item.done", 7 + 2 * place, output_index=place, item=item)
    kind = "completed" if reply.finished or reply.calls else "incomplete"
    yield _event(f"response.{kind}", 8 + 2 * len(reply.calls), response=_response(reply, kind, items))


def error(status: int, message: str) -> Json:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _at(reply: Reply) -> Json:
    return {"item_id": f"msg_{reply.id}", "output_index": 0, "content_index": 0}


def _event(kind: str, number: int, **fields: Any) -> bytes:
    return event({"type": kind, "sequence_number": number, **fields}, kind)


def _items(reply: Reply) -> list[Json]:
    said = [_message(reply)] if reply.text or not reply.calls else []
    return [*said, *(_called(c) for c in reply.calls)]


def _message(reply: Reply) -> Json:
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def _called(one: Mapping[str, Any]) -> Json:
    return {
        "id": f"fc_{one['id']}",
        "type": "function_call",
        "call_id": one["id"],
        "name": one["name"],
        "arguments": one["arguments"],
        "status": "completed",
    }


def _response(reply: Reply, status: str, output: list[Json]) -> Json:
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached},
        "output_tokens": reply.tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + reply.tokens,
    }
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None if status == "in_progress" else usage,
    }


DIALECT = Dialect("openai-responses", read, hear, error, refuses, write, opening, delta, closing)
