"""OpenAI's chat completions API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from clawback.serve.dialects import shapes
from clawback.serve.dialects.shapes import Asked, Dialect, Json, Reply, Said, event

MOST_BESIDE = 20


def read(body: Mapping[str, Any]) -> Asked:
    messages = shapes.dicts(body.get("messages"))
    if not messages:
        raise ValueError("messages: a list with at least one message is needed")
    style = body.get("response_format")
    schema = style.get("json_schema") if isinstance(style, dict) else None
    inner = schema.get("schema") if isinstance(schema, dict) else None
    options = body.get("stream_options")
    limit = shapes.whole(body.get("max_completion_tokens"))
    return Asked(
        messages=tuple(messages),
        model=shapes.text(body.get("model")),
        stream=body.get("stream") is True,
        tools=tuple(t for t in shapes.dicts(body.get("tools")) if isinstance(t.get("function"), dict)),
        max_tokens=limit if limit is not None else shapes.whole(body.get("max_tokens")),
        temperature=shapes.number(body.get("temperature")),
        top_p=shapes.number(body.get("top_p")),
        top_k=shapes.whole(body.get("top_k")),
        seed=shapes.whole(body.get("seed")),
        stop=shapes.stops(body.get("stop")),
        schema=schema if isinstance(schema, dict) else None,
        form=shapes.form(style, inner),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        logprobs=body.get("logprobs") is True,
        top=max(0, min(shapes.whole(body.get("top_logprobs")) or 0, MOST_BESIDE)),
    )


def refuses(body: Mapping[str, Any]) -> str:
    if wrong := shapes.formless(body.get("response_format"), read(body)):
        return f"response_format: {wrong}"
    if body.get("top_logprobs") and not (
        body.get("logprobs") is True and 0 < (shapes.whole(body["top_logprobs"]) or 0) <= MOST_BESIDE
    ):
        return f"top_logprobs: a whole number up to {MOST_BESIDE}, together with logprobs: true."
    return shapes.refused(
        body, n=1, logit_bias=None, presence_penalty=0, frequency_penalty=0, functions=None, audio=None, modalities=["text"]
    )  # fmt: skip


def hear(raw: bytes, stream: bool) -> Said:
    return _hear_stream(raw) if stream else _hear_whole(shapes.parse(raw))


def _hear_whole(body: Json) -> Said:
    choices = shapes.dicts(body.get("choices"))
    message = choices[0].get("message") if choices else None
    if not isinstance(message, dict):
        return Said("", whole=False)
    return Said(
        shapes.text(message.get("content")),
        _calls(message.get("tool_calls")),
        shapes.text(body.get("model")),
        thinking=_thought(message),
    )


def _thought(message: Json) -> str:
    """As vLLM and llama.cpp name it, and as OpenRouter and Ollama do."""
    return shapes.text(message.get("reasoning_content")) or shapes.text(message.get("reasoning"))


def _hear_stream(raw: bytes) -> Said:
    pieces: list[str] = []
    thoughts: list[str] = []
    calls: dict[int, Json] = {}
    model, whole = "", False
    for data in shapes.events(raw):
        model = model or shapes.text(data.get("model"))
        for choice in shapes.dicts(data.get("choices"))[:1]:
            delta = choice.get("delta")
            whole = whole or choice.get("finish_reason") is not None
            if not isinstance(delta, dict):
                continue
            pieces.append(shapes.text(delta.get("content")))
            thoughts.append(_thought(delta))
            for part in shapes.dicts(delta.get("tool_calls")):
                place = shapes.whole(part.get("index")) or 0
                known = calls.setdefault(place, {"id": "", "name": "", "arguments": ""})
                given = part.get("function")
                known["id"] = known["id"] or shapes.text(part.get("id"))
                if isinstance(given, dict):
                    known["name"] += shapes.text(given.get("name"))
                    known["arguments"] += shapes.text(given.get("arguments"))
    return Said("".join(pieces), tuple(calls[i] for i in sorted(calls)), model, whole, "".join(thoughts))


def _calls(value: Any) -> tuple[Json, ...]:
    found = [(c.get("id"), c["function"]) for c in shapes.dicts(value) if isinstance(c.get("function"), dict)]
    return tuple(shapes.call(i, f.get("name"), f.get("arguments")) for i, f in found)


def write(reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = [_written(c, None) for c in reply.calls]
    choice = {"index": 0, "message": message, "logprobs": _logprobs(reply), "finish_reason": _reason(reply)}
    return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def opening(reply: Reply) -> Iterator[bytes]:
    yield _chunk(reply, {"role": "assistant", "content": ""})


def delta(reply: Reply, more: str) -> bytes:
    return _chunk(reply, {"content": more})


def closing(reply: Reply, usage: bool) -> Iterator[bytes]:
    for place, one in enumerate(reply.calls):
        yield _chunk(reply, {"tool_calls": [_written(one, place)]})
    yield _chunk(reply, {}, _reason(reply), _logprobs(reply))
    if usage:
        yield event({**_head(reply, "chat.completion.chunk"), "choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def error(status: int, message: str) -> Json:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _written(one: Mapping[str, Any], place: int | None) -> Json:
    made = {
        "id": one["id"],
        "type": "function",
        "function": {"name": one["name"], "arguments": one["arguments"]},
    }
    return made if place is None else {"index": place, **made}


def _head(reply: Reply, kind: str) -> Json:
    return {"id": f"chatcmpl-{reply.id}", "object": kind, "created": reply.created, "model": reply.model}


def _logprobs(reply: Reply) -> Json | None:
    """Of a stream all at once, with its end: what is held back for a stop string is not cut where tokens are."""
    if not reply.logprobs:
        return None
    beside = reply.beside or ((),) * len(reply.logprobs)
    told = [
        {**_told(*one), "top_logprobs": [_told(*other) for other in others]}
        for one, others in zip(reply.logprobs, beside, strict=True)
    ]
    return {"content": told, "refusal": None}


def _told(token: str, logprob: float) -> Json:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _chunk(reply: Reply, change: Json, reason: str | None = None, logprobs: Json | None = None) -> bytes:
    choice = {"index": 0, "delta": change, "logprobs": logprobs, "finish_reason": reason}
    return event({**_head(reply, "chat.completion.chunk"), "choices": [choice]})


def _reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop" if reply.finished else "length"


def _usage(reply: Reply) -> Json:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.tokens,
        "total_tokens": reply.prompt_tokens + reply.tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached},
    }


DIALECT = Dialect("openai-chat", read, hear, error, refuses, write, opening, delta, closing)
