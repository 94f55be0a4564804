"""Ollama's own ``/api/chat`` and ``/api/generate``, recorded while they are proxied: one line of JSON per chunk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clawback.serve.dialects import shapes
from clawback.serve.dialects.assembler import AnswerAssembler
from clawback.serve.dialects.shapes import Asked, Json, Reading, Said


def read_chat(body: Mapping[str, Any]) -> Asked:
    given = shapes.dicts(body.get("messages"))
    if not given:
        raise ValueError("messages: a list with at least one message is needed")
    return _request(body, [_message(m) for m in given])


def read_generate(body: Mapping[str, Any]) -> Asked:
    prompt = shapes.text(body.get("prompt"))
    if not prompt:
        raise ValueError("prompt: a text is needed")
    system = shapes.text(body.get("system"))
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    return _request(body, [*messages, {"role": "user", "content": _seen(prompt, body.get("images"))}])


def _message(message: Json) -> Json:
    made: Json = {
        "role": shapes.text(message.get("role")) or "user",
        "content": shapes.text(message.get("content")),
    }
    made["content"] = _seen(made["content"], message.get("images"))
    if calls := _calls(message):
        made["tool_calls"] = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls
        ]
    if made["role"] == "tool":
        made["tool_call_id"] = shapes.text(message.get("tool_call_id") or message.get("tool_name"))
    return made


def _seen(text: str, images: Any) -> Any:
    """A text with the pictures that came beside it, as base64 without a kind."""
    if not isinstance(images, list) or not images:
        return text
    return [{"type": "text", "text": text}, *(shapes.picture(data) for data in images)]


def _request(body: Mapping[str, Any], messages: list[Json]) -> Asked:
    given = body.get("options")
    options = given if isinstance(given, dict) else {}
    layout = body.get("format")
    return Asked(
        messages=tuple(messages),
        model=shapes.text(body.get("model")),
        stream=body.get("stream") is not False,
        tools=tuple(t for t in shapes.dicts(body.get("tools")) if isinstance(t.get("function"), dict)),
        max_tokens=_limit(shapes.count(options.get("num_predict"))),
        temperature=shapes.number(options.get("temperature")),
        top_p=shapes.number(options.get("top_p")),
        top_k=shapes.count(options.get("top_k")),
        seed=shapes.count(options.get("seed")),
        stop=shapes.stops(options.get("stop")),
        schema=layout if isinstance(layout, dict) else None,
    )


def _limit(count: int | None) -> int | None:
    """Below zero: as many as it takes."""
    return count if count is not None and count > 0 else None


def hear(raw: bytes) -> Said:
    answer = AnswerAssembler()
    for data in shapes.bodies(raw):
        answer.model = answer.model or shapes.text(data.get("model"))
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


def _calls(message: Mapping[str, Any]) -> list[Json]:
    found = [
        (c.get("id"), c["function"])
        for c in shapes.dicts(message.get("tool_calls"))
        if isinstance(c.get("function"), dict)
    ]
    return [
        shapes.call(i, f.get("name"), json.dumps(f.get("arguments") or {}, ensure_ascii=False))
        for i, f in found
    ]


def error(_: int, message: str) -> Json:
    return {"error": message}


CHAT = Reading("ollama-chat", read_chat, hear, error)
GENERATE = Reading("ollama-generate", read_generate, hear, error)
