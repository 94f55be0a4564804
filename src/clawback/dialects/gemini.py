"""Gemini's ``models/NAME:generateContent`` and ``:streamGenerateContent``, recorded while they are proxied."""

from __future__ import annotations

import json
from collections.abc import Iterator

from clawback.dialects import parsing, shapes
from clawback.dialects.parsing import AnswerAssembler, Said, first_answer
from clawback.dialects.shapes import Asked, DialectReading, Json


def read(body: shapes.Body) -> Asked:
    contents = parsing.dicts(body.get("contents"))
    if not contents:
        raise ValueError("contents: a list with at least one content is needed")
    messages: list[Json] = []
    system = _either(body, "systemInstruction", "system_instruction")
    if isinstance(system, dict) and (text := _text(parsing.dicts(system.get("parts")))):
        messages.append({"role": "system", "content": text})
    for content in contents:
        messages += _messages(content)
    settings = _either(body, "generationConfig", "generation_config")
    settings = settings if isinstance(settings, dict) else {}
    schema = _either(settings, "responseSchema", "responseJsonSchema")
    return Asked(
        messages=tuple(messages),
        tools=tuple(_tools(body)),
        max_tokens=parsing.count(settings.get("maxOutputTokens")),
        temperature=parsing.number(settings.get("temperature")),
        top_p=parsing.number(settings.get("topP")),
        top_k=parsing.count(settings.get("topK")),
        seed=parsing.count(settings.get("seed")),
        stop=shapes.stops(settings.get("stopSequences")),
        schema=schema if isinstance(schema, dict) else None,
    )


def _messages(content: Json) -> Iterator[Json]:
    """One content → the results of tools, each a message of its own, then what was said and called."""
    role = "assistant" if content.get("role") == "model" else "user"
    parts = parsing.dicts(content.get("parts"))
    blocks: list[Json] = []
    for part in parts:
        if isinstance(came := part.get("functionResponse"), dict):
            result = json.dumps(came.get("response"), ensure_ascii=False, default=str)
            yield {"role": "tool", "tool_call_id": parsing.text(came.get("id")), "content": result}
        elif isinstance(data := _either(part, "inlineData", "inline_data"), dict):
            blocks.append(shapes.picture(data.get("data"), _either(data, "mimeType", "mime_type")))
        elif isinstance(_either(part, "fileData", "file_data"), dict):
            blocks.append({"type": "image_url", "image_url": {"url": ""}})
        elif "text" in part and not part.get("thought"):
            blocks.append({"type": "text", "text": parsing.text(part["text"])})
    calls = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in _calls(parts)
    ]
    if blocks or calls:
        plain = all(block["type"] == "text" for block in blocks)
        answer: Json = {"role": role, "content": "".join(b["text"] for b in blocks) if plain else blocks}
        yield {**answer, "tool_calls": calls} if calls else answer


def _tools(body: shapes.Body) -> Iterator[Json]:
    for tool in parsing.dicts(body.get("tools")):
        for one in parsing.dicts(_either(tool, "functionDeclarations", "function_declarations")):
            yield shapes.function(
                one.get("name"), one.get("description"), _either(one, "parameters", "parametersJsonSchema")
            )


def hear(raw: bytes) -> Said:
    """Server-sent events (``alt=sse``), or one JSON answer, or a list of them as it comes without ``alt``."""
    candidates: dict[int, AnswerAssembler] = {}
    model, blocked, failed = "", None, False
    for data in parsing.bodies(raw):
        model = model or parsing.text(data.get("modelVersion"))
        failed = failed or bool(data.get("error"))
        if isinstance(feedback := data.get("promptFeedback"), dict):
            blocked = blocked or feedback.get("blockReason")
        for candidate in parsing.dicts(data.get("candidates")):
            answer = candidates.setdefault(parsing.count(candidate.get("index")) or 0, AnswerAssembler())
            _add(answer, candidate)
    if blocked and not failed:
        candidates.setdefault(min(candidates, default=0), AnswerAssembler()).set_ending("filter")
    return first_answer(candidates, model, failed=failed, closed=False)


def _add(answer: AnswerAssembler, candidate: Json) -> None:
    content = candidate.get("content")
    for part in parsing.dicts(content.get("parts") if isinstance(content, dict) else None):
        if part.get("thought"):
            answer.thought(part.get("text"))
        elif isinstance(call := part.get("functionCall"), dict):
            answer.call(call.get("name"), call.get("args") or {}, call.get("id"), complete=True)
        else:
            answer.text(part.get("text"))
    answer.end(candidate.get("finishReason"))


def _text(parts: list[Json]) -> str:
    return "".join(parsing.text(p.get("text")) for p in parts if not p.get("thought"))


def _calls(parts: list[Json]) -> list[Json]:
    calls = [p["functionCall"] for p in parts if isinstance(p.get("functionCall"), dict)]
    return [parsing.call(c.get("id"), c.get("name"), c.get("args")) for c in calls]


def _either(body: shapes.Body, name: str, other: str) -> object:
    return body[name] if name in body else body.get(other)


def error(status: int, message: str) -> Json:
    kinds = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
    return {"error": {"code": status, "message": message, "status": kinds.get(status, "UNAVAILABLE")}}


READING = DialectReading("gemini", read, hear, error)
