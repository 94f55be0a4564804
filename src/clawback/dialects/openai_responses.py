"""OpenAI's Responses API, as Codex uses it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from clawback.dialects import parsing, shapes
from clawback.dialects.parsing import AnswerAssembler, Said, words_of
from clawback.dialects.shapes import Asked, Dialect, DialectReply, Json, event

_KINDS = {"input_text": "text", "output_text": "text", "text": "text"}


def read(body: shapes.Body) -> Asked:
    value = body.get("input")
    items = [{"role": "user", "content": value}] if isinstance(value, str) else parsing.dicts(value)
    if not items:
        raise ValueError("input: a text, or a list with at least one item, is needed")
    messages: list[Json] = []
    if instructions := parsing.text(body.get("instructions")):
        messages.append({"role": "system", "content": instructions})
    for item in items:
        _add(messages, item)
    style = body.get("text")
    layout = style.get("format") if isinstance(style, dict) else None
    return Asked(
        messages=tuple(messages),
        model=parsing.text(body.get("model")),
        stream=body.get("stream") is True,
        tools=tuple(
            shapes.function(t.get("name"), t.get("description"), t.get("parameters"))
            for t in parsing.dicts(body.get("tools"))
            if t.get("type") == "function"
        ),
        max_tokens=parsing.count(body.get("max_output_tokens")),
        temperature=parsing.number(body.get("temperature")),
        top_p=parsing.number(body.get("top_p")),
        schema=shapes.schema_in(layout),
        form=shapes.form(layout),
    )


def _add(messages: list[Json], item: Json) -> None:
    """An item, as a message or a part of one: what the model said and called between two others is one message."""
    kind = parsing.text(item.get("type")) or "message"
    if kind == "message":
        role = parsing.text(item.get("role")) or "user"
        content = item.get("content")
        text = content if isinstance(content, str) else _content(content)
        role = "system" if role == "developer" else role
        if role == "assistant" and isinstance(text, str):
            answer = _answer(messages)
            answer["content"] = "\n".join(filter(None, (answer["content"], text)))
        else:
            messages.append({"role": role, "content": text})
    elif kind.endswith("_output"):
        content = _output(item.get("output"))
        messages.append(
            {"role": "tool", "tool_call_id": parsing.text(item.get("call_id")), "content": content}
        )
    elif call := _call(item):
        answer = _answer(messages)
        function = {"name": call["name"], "arguments": call["arguments"]}
        answer.setdefault("tool_calls", []).append(
            {"id": call["id"], "type": "function", "function": function}
        )
    elif kind.endswith(("compaction", "compaction_summary")) and (text := words_of(item)):
        messages.append({"role": "user", "content": text})  # what is left of the conversation before


def _output(output: object) -> object:
    """What a tool gave back: a text, blocks, what a tool saw of the screen, or whatever a built-in tool tells."""
    if isinstance(output, dict) and "image_url" in output:
        output = [{"type": "input_image", "image_url": output["image_url"]}]
    content = output if isinstance(output, str) else _content(output)
    return content or json.dumps(output, ensure_ascii=False, default=str)


def _answer(messages: list[Json]) -> Json:
    """The model's message that an item belongs to."""
    if not (messages and messages[-1]["role"] == "assistant" and isinstance(messages[-1]["content"], str)):
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


_NO_ARGUMENTS = ("type", "id", "call_id", "status", "name", "encrypted_content", "result")
"""Fields of a call that say nothing of what it does. ``result`` is a picture that was drawn."""


def _call(item: Json) -> Json | None:
    """A call of any kind of tool, of those too that the provider runs itself; None for another item.

    Freeform tools (``apply_patch``) take a text, which becomes the argument ``input``; built-in ones say what they do in fields of their own.
    """
    kind = parsing.text(item.get("type"))
    if not kind.endswith("_call"):
        return None
    name = parsing.text(item.get("name")) or kind.removesuffix("_call")
    if kind == "function_call":
        arguments = item.get("arguments")
    else:
        arguments = {k: v for k, v in item.items() if k not in _NO_ARGUMENTS and v not in (None, "", [], {})}
    return parsing.call(item.get("call_id") or item.get("id"), name, arguments)


def _content(value: object) -> object:
    """Blocks → their text, or text and images where there are some."""
    blocks: list[Json] = []
    for block in parsing.dicts(value):
        if block.get("type") in _KINDS:
            blocks.append({"type": "text", "text": parsing.text(block.get("text"))})
        elif block.get("type") == "input_image":
            blocks.append({"type": "image_url", "image_url": {"url": parsing.text(block.get("image_url"))}})
    if all(b["type"] == "text" for b in blocks):
        return "\n".join(b["text"] for b in blocks)
    return blocks


def refuses(body: shapes.Body) -> str:
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


def hear(raw: bytes) -> Said:
    answer, items = AnswerAssembler(), 0
    for data in parsing.bodies(raw):
        kind = parsing.text(data.get("type"))
        index = parsing.count(data.get("output_index"))
        place = items if index is None else index
        if data.get("object") == "response":
            answer = _read_response(data, "", answer)
        elif kind in _LAST and isinstance(data.get("response"), dict):
            answer = _read_response(data["response"], kind.removeprefix("response."), answer)
        elif kind == "response.output_item.done" and isinstance(data.get("item"), dict):
            _item(answer, data["item"], place)
            items += 1
        elif kind == "response.output_item.added" and isinstance(data.get("item"), dict):
            if data["item"].get("type") == "function_call":
                _item(answer, data["item"], place)
        elif kind == "response.function_call_arguments.delta":
            answer.call("", data.get("delta"), None, place)
        elif kind == "response.output_text.delta":
            answer.text(data.get("delta"), (place, parsing.count(data.get("content_index")) or 0))
        elif kind == "response.refusal.delta":
            answer.refusal(
                parsing.text(data.get("delta")), (place, parsing.count(data.get("content_index")) or 0)
            )
        elif kind.startswith("response.reasoning") and kind.endswith(".delta"):
            answer.thought(data.get("delta"), place)
        elif kind in ("error", "response.error") or (not kind and data.get("error")):
            answer.set_ending("error")
    return answer.answer()


_LAST = tuple(f"response.{word}" for word in ("completed", "incomplete", "failed", "cancelled", "done"))


def _read_response(body: Json, status: str, pieces: AnswerAssembler) -> AnswerAssembler:
    """A whole response; where it comes without what was said (as a proxy may send it), that of the pieces before it."""
    answer = AnswerAssembler()
    for place, item in enumerate(parsing.dicts(body.get("output"))):
        _item(answer, item, place)
    answer = answer if answer.answer().says_something else pieces
    answer.model = parsing.text(body.get("model"))
    details = body.get("incomplete_details")
    status = parsing.text(body.get("status")) or status
    if status == "incomplete" and isinstance(details, dict):
        answer.end(details.get("reason"))
    answer.end(status)
    if status not in ("in_progress", "queued"):
        answer.close()
    return answer


def _item(answer: AnswerAssembler, item: Json, index: int) -> None:
    """An item as a whole: what came of it in pieces is the same."""
    kind = item.get("type")
    if kind == "message":
        content = item.get("content")
        parts = [{"text": content}] if isinstance(content, str) else parsing.dicts(content)
        for part, block in enumerate(parts):
            answer.replace_text(words_of(block), (index, part))
            if block.get("type") == "refusal":
                answer.set_ending("refusal")
    elif kind == "reasoning":
        parts = parsing.dicts(item.get("summary")) + parsing.dicts(item.get("content"))
        if words := "\n".join(filter(None, map(words_of, parts))):
            answer.replace_thought(words, index)
    elif call := _call(item):
        answer.replace_call(call, index)


def write(reply: DialectReply) -> Json:
    return _response(reply, "completed" if reply.finished else "incomplete", _items(reply))


def opening(reply: DialectReply) -> Iterator[bytes]:
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


def delta(reply: DialectReply, more: str) -> bytes:
    return _event("response.output_text.delta", 4, **_at(reply), delta=more, logprobs=[])


def closing(reply: DialectReply, _: bool) -> Iterator[bytes]:
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


def _at(reply: DialectReply) -> Json:
    return {"item_id": f"msg_{reply.id}", "output_index": 0, "content_index": 0}


def _event(kind: str, number: int, **fields: object) -> bytes:
    return event({"type": kind, "sequence_number": number, **fields}, kind)


def _items(reply: DialectReply) -> list[Json]:
    messages = [_message(reply)] if reply.text or not reply.calls else []
    return [*messages, *(_called(c) for c in reply.calls)]


def _message(reply: DialectReply) -> Json:
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def _called(call: Mapping[str, object]) -> Json:
    return {
        "id": f"fc_{call['id']}",
        "type": "function_call",
        "call_id": call["id"],
        "name": call["name"],
        "arguments": call["arguments"],
        "status": "completed",
    }


def _response(reply: DialectReply, status: str, output: list[Json]) -> Json:
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
