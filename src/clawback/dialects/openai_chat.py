"""OpenAI's chat completions API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clawback.dialects import parsing, shapes
from clawback.dialects.parsing import AnswerAssembler, Said, first_answer
from clawback.dialects.shapes import Asked, Dialect, DialectReply, Json, event

MOST_BESIDE = 20


def read(body: shapes.Body) -> Asked:
    messages = parsing.dicts(body.get("messages"))
    if not messages:
        raise ValueError("messages: a list with at least one message is needed")
    style = body.get("response_format")
    options = body.get("stream_options")
    limit = parsing.count(body.get("max_completion_tokens"))
    return Asked(
        messages=tuple(messages),
        model=parsing.text(body.get("model")),
        stream=body.get("stream") is True,
        tools=tuple(t for t in parsing.dicts(body.get("tools")) if isinstance(t.get("function"), dict)),
        max_tokens=limit if limit is not None else parsing.count(body.get("max_tokens")),
        temperature=parsing.number(body.get("temperature")),
        top_p=parsing.number(body.get("top_p")),
        top_k=parsing.count(body.get("top_k")),
        seed=parsing.count(body.get("seed")),
        stop=shapes.stops(body.get("stop")),
        schema=shapes.schema_in(style),
        form=shapes.form(style),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        logprobs=body.get("logprobs") is True,
        top=max(0, min(parsing.count(body.get("top_logprobs")) or 0, MOST_BESIDE)),
    )


def refuses(body: shapes.Body) -> str:
    if wrong := shapes.formless(body.get("response_format"), read(body)):
        return f"response_format: {wrong}"
    if body.get("top_logprobs") and not (
        body.get("logprobs") is True and 0 < (parsing.count(body["top_logprobs"]) or 0) <= MOST_BESIDE
    ):
        return f"top_logprobs: a whole number up to {MOST_BESIDE}, together with logprobs: true."
    return shapes.refused(
        body, n=1, logit_bias=None, presence_penalty=0, frequency_penalty=0, functions=None, audio=None, modalities=["text"]
    )  # fmt: skip


def hear(raw: bytes) -> Said:
    """The first choice: that with the least index, whichever comes first."""
    choices: dict[int, AnswerAssembler] = {}
    model, failed, closed = "", False, False
    for data in parsing.bodies(raw):
        model = model or parsing.text(data.get("model"))
        failed = failed or (bool(data.get("error")) and not data.get("choices"))
        closed = closed or data is parsing.DONE
        for place, choice in enumerate(parsing.dicts(data.get("choices"))):
            index = parsing.count(choice.get("index"))
            _add(choices.setdefault(place if index is None else index, AnswerAssembler()), choice)
            if data.get("error"):
                choices[place if index is None else index].set_ending("error")
    return first_answer(choices, model, failed=failed, closed=closed)


def _add(answer: AnswerAssembler, choice: Json) -> None:
    """A choice of a whole answer, or a piece of one."""
    complete = choice.get("message")
    change = complete if isinstance(complete, dict) else choice.get("delta")
    if isinstance(change, dict):
        answer.message(change)
    if choice.get("finish_reason") == "stop" and parsing.text(choice.get("stop_reason")):
        answer.end("stop_sequence")  # vLLM says which stop string it was
    else:
        answer.end(choice.get("finish_reason"))
    if isinstance(complete, dict):
        answer.close()


def write(reply: DialectReply) -> Json:
    message: Json = {"role": "assistant", "content": reply.text or (None if reply.calls else "")}
    if reply.calls:
        message["tool_calls"] = [_written(c, None) for c in reply.calls]
    choice = {"index": 0, "message": message, "logprobs": _logprobs(reply), "finish_reason": _reason(reply)}
    return {**head(reply, "chatcmpl", "chat.completion"), "choices": [choice], "usage": usage_of(reply)}


def opening(reply: DialectReply) -> Iterator[bytes]:
    yield _chunk(reply, {"role": "assistant", "content": ""})


def delta(reply: DialectReply, more: str) -> bytes:
    return _chunk(reply, {"content": more})


def closing(reply: DialectReply, usage: bool) -> Iterator[bytes]:
    for place, one in enumerate(reply.calls):
        yield _chunk(reply, {"tool_calls": [_written(one, place)]})
    yield _chunk(reply, {}, _reason(reply), _logprobs(reply))
    if usage:
        yield event(
            {**head(reply, "chatcmpl", "chat.completion.chunk"), "choices": [], "usage": usage_of(reply)}
        )
    yield b"data: [DONE]\n\n"


def error(status: int, message: str) -> Json:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _written(call: Mapping[str, object], index: int | None) -> Json:
    entry = {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": call["arguments"]},
    }
    return entry if index is None else {"index": index, **entry}


def head(reply: DialectReply, prefix: str, kind: str) -> Json:
    """What an answer, or a piece of it, begins with in both of OpenAI's older APIs. ``prefix``: of the id."""
    return {"id": f"{prefix}-{reply.id}", "object": kind, "created": reply.created, "model": reply.model}


def _logprobs(reply: DialectReply) -> Json | None:
    """Of a stream all at once, with its end: what is held back for a stop string is not cut where tokens are."""
    if not reply.logprobs:
        return None
    beside = reply.alternatives or ((),) * len(reply.logprobs)
    entries = [
        {**_token_logprob(*one), "top_logprobs": [_token_logprob(*other) for other in others]}
        for one, others in zip(reply.logprobs, beside, strict=True)
    ]
    return {"content": entries, "refusal": None}


def _token_logprob(token: str, logprob: float) -> Json:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _chunk(
    reply: DialectReply, change: Json, reason: str | None = None, logprobs: Json | None = None
) -> bytes:
    choice = {"index": 0, "delta": change, "logprobs": logprobs, "finish_reason": reason}
    return event({**head(reply, "chatcmpl", "chat.completion.chunk"), "choices": [choice]})


def _reason(reply: DialectReply) -> str:
    return "tool_calls" if reply.calls else "stop" if reply.finished else "length"


def usage_of(reply: DialectReply) -> Json:
    """The numbers of tokens of an answer."""
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.tokens,
        "total_tokens": reply.prompt_tokens + reply.tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached},
    }


DIALECT = Dialect("openai-chat", read, hear, error, refuses, write, opening, delta, closing)
