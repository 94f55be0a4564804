"""Ollama's own ``/api/chat`` and ``/api/generate``: a stream is one line of JSON per chunk."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from clawback.dialects import parsing, shapes
from clawback.dialects.parsing import AnswerAssembler, Said
from clawback.dialects.shapes import Asked, Dialect, DialectReply, Json

LINES = "application/x-ndjson"


def read_chat(body: shapes.Body) -> Asked:
    messages = parsing.dicts(body.get("messages"))
    if not messages:
        raise ValueError("messages: a list with at least one message is needed")
    return _request(body, [_message(m) for m in messages])


def read_generate(body: shapes.Body) -> Asked:
    prompt = parsing.text(body.get("prompt"))
    if not prompt:
        raise ValueError("prompt: a text is needed")
    system = parsing.text(body.get("system"))
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    return _request(body, [*messages, {"role": "user", "content": _seen(prompt, body.get("images"))}])


def _message(message: Json) -> Json:
    converted: Json = {
        "role": parsing.text(message.get("role")) or "user",
        "content": parsing.text(message.get("content")),
    }
    converted["content"] = _seen(converted["content"], message.get("images"))
    if calls := _calls(message):
        converted["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls
        ]
    if converted["role"] == "tool":
        converted["tool_call_id"] = parsing.text(message.get("tool_call_id") or message.get("tool_name"))
    return converted


def _seen(text: str, images: object) -> object:
    """A text with the pictures that came beside it, as base64 without a kind."""
    if not isinstance(images, list) or not images:
        return text
    return [{"type": "text", "text": text}, *(shapes.picture(data) for data in images)]


def _request(body: shapes.Body, messages: list[Json]) -> Asked:
    given = body.get("options")
    options = given if isinstance(given, dict) else {}
    layout = body.get("format")
    return Asked(
        messages=tuple(messages),
        model=parsing.text(body.get("model")),
        stream=body.get("stream") is not False,
        tools=tuple(t for t in parsing.dicts(body.get("tools")) if isinstance(t.get("function"), dict)),
        max_tokens=_limit(parsing.count(options.get("num_predict"))),
        temperature=parsing.number(options.get("temperature")),
        top_p=parsing.number(options.get("top_p")),
        top_k=parsing.count(options.get("top_k")),
        seed=parsing.count(options.get("seed")),
        stop=shapes.stops(options.get("stop")),
        schema=layout if isinstance(layout, dict) else None,
        form=shapes.ANY_OBJECT
        if layout == "json"
        else layout
        if isinstance(layout, dict) and layout
        else None,
    )


def _limit(count: int | None) -> int | None:
    """Below zero: as many as it takes."""
    return count if count is not None and count > 0 else None


def hear(raw: bytes) -> Said:
    answer = AnswerAssembler()
    for data in parsing.bodies(raw):
        answer.model = answer.model or parsing.text(data.get("model"))
        answer.text(data.get("response"))
        answer.thought(data.get("thinking"))
        if isinstance(message := data.get("message"), dict):
            answer.content(message.get("content"))
            answer.thought(message.get("thinking"))
            for call in _calls(message):
                answer.call(call["name"], call["arguments"], call["id"], complete=True)
        if data.get("error"):
            answer.set_ending("error")
        if data.get("done") is True:
            answer.end(data.get("done_reason"))
            answer.close()
    return answer.answer()


def _calls(message: Mapping[str, object]) -> list[Json]:
    functions = [
        (c.get("id"), c["function"])
        for c in parsing.dicts(message.get("tool_calls"))
        if isinstance(c.get("function"), dict)
    ]
    return [
        parsing.call(i, f.get("name"), json.dumps(f.get("arguments") or {}, ensure_ascii=False))
        for i, f in functions
    ]


def error(_: int, message: str) -> Json:
    return {"error": message}


def refuses(body: shapes.Body) -> str:
    """Options that would change the answer and are not followed. Those about the machine (``num_ctx``, ``keep_alive``) have no meaning here."""
    layout, options = body.get("format"), body.get("options")
    if layout not in (None, "", "json") and not isinstance(layout, dict):
        return "format: json or a JSON schema is needed."
    options = options if isinstance(options, dict) else {}
    if wrong := shapes.odd(options) or shapes.refused(
        options, presence_penalty=0, frequency_penalty=0, mirostat=0, min_p=0
    ):
        return f"options: {wrong}"
    filled = {name: value for name, value in body.items() if value != ""}
    return shapes.refused(filled, suffix=None, raw=False, context=None, template=None)


def write_chat(reply: DialectReply) -> Json:
    return {
        **_head(reply),
        "message": {"role": "assistant", "content": reply.text, **_called(reply)},
        **_end(reply),
    }


def write_generate(reply: DialectReply) -> Json:
    return {**_head(reply), "response": reply.text, **_end(reply)}


def opening(_: DialectReply) -> Iterator[bytes]:
    yield from ()


def chat_delta(reply: DialectReply, more: str) -> bytes:
    return _line({**_head(reply), "message": {"role": "assistant", "content": more}, "done": False})


def generate_delta(reply: DialectReply, more: str) -> bytes:
    return _line({**_head(reply), "response": more, "done": False})


def chat_closing(reply: DialectReply, _: bool) -> Iterator[bytes]:
    if reply.calls:
        message = {"role": "assistant", "content": "", **_called(reply)}
        yield _line({**_head(reply), "message": message, "done": False})
    yield _line({**_head(reply), "message": {"role": "assistant", "content": ""}, **_end(reply)})


def generate_closing(reply: DialectReply, _: bool) -> Iterator[bytes]:
    yield _line({**_head(reply), "response": "", **_end(reply)})


def loaded(body: shapes.Body) -> Json | None:
    """The answer to a request that only has the model loaded: one without a prompt or messages. None for any other."""
    if body.get("messages") or body.get("prompt"):
        return None
    reply = {"message": {"role": "assistant", "content": ""}} if "messages" in body else {"response": ""}
    now = datetime.now(UTC).isoformat()
    model = parsing.text(body.get("model"))
    return {"model": model, "created_at": now, **reply, "done": True, "done_reason": "load"}


def _line(data: Json) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode() + b"\n"


def _head(reply: DialectReply) -> Json:
    return {"model": reply.model, "created_at": datetime.fromtimestamp(reply.created, UTC).isoformat()}


def _called(reply: DialectReply) -> Json:
    """Arguments are an object here, where OpenAI's APIs have a text."""
    calls = [
        {"id": c["id"], "function": {"name": c["name"], "arguments": parsing.parse(c["arguments"].encode())}}
        for c in reply.calls
    ]
    return {"tool_calls": calls} if calls else {}


def _end(reply: DialectReply) -> Json:
    nanoseconds = max(1, int((time.time() - reply.created) * 1e9))
    return {
        "done": True,
        "done_reason": "stop" if reply.finished or reply.calls else "length",
        "total_duration": nanoseconds,
        "load_duration": 0,
        "prompt_eval_count": reply.prompt_tokens,
        "prompt_eval_duration": 0,
        "eval_count": reply.tokens,
        "eval_duration": nanoseconds,
    }


CHAT = Dialect(
    "ollama-chat", read_chat, hear, error, refuses, write_chat, opening, chat_delta, chat_closing, LINES
)
GENERATE = Dialect(
    "ollama-generate", read_generate, hear, error, refuses, write_generate, opening, generate_delta, generate_closing, LINES
)  # fmt: skip
