"""OpenAI's older completions API: a text to continue, without a chat."""

from __future__ import annotations

from collections.abc import Iterator

from clawback.dialects import openai_chat, parsing, shapes
from clawback.dialects.parsing import AnswerAssembler, Said
from clawback.dialects.shapes import Asked, Dialect, DialectReply, Json, event


def read(body: shapes.Body) -> Asked:
    given = body.get("prompt")
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if not isinstance(given, str) or not given:
        raise ValueError("prompt: one text is needed")
    options = body.get("stream_options")
    return Asked(
        messages=({"role": "user", "content": given},),
        model=parsing.text(body.get("model")),
        stream=body.get("stream") is True,
        max_tokens=16 if body.get("max_tokens") is None else parsing.count(body.get("max_tokens")),
        temperature=parsing.number(body.get("temperature")),
        top_p=parsing.number(body.get("top_p")),
        seed=parsing.count(body.get("seed")),
        stop=shapes.stops(body.get("stop")),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        raw=given,
    )


def refuses(body: shapes.Body) -> str:
    return shapes.refused(
        body, n=1, best_of=1, echo=False, suffix=None, logprobs=None, logit_bias=None, presence_penalty=0, frequency_penalty=0
    )  # fmt: skip


def hear(raw: bytes) -> Said:
    choices: dict[int, AnswerAssembler] = {}
    model, failed, closed = "", False, False
    for data in parsing.bodies(raw):
        model = model or parsing.text(data.get("model"))
        failed = failed or bool(data.get("error"))
        closed = closed or data is parsing.DONE or bool(data.get("usage") and not parsing.is_events(raw))
        for place, choice in enumerate(parsing.dicts(data.get("choices"))):
            index = parsing.count(choice.get("index"))
            answer = choices.setdefault(place if index is None else index, AnswerAssembler())
            answer.text(choice.get("text"))
            answer.end(choice.get("finish_reason"))
    first = choices[min(choices)] if choices else AnswerAssembler()
    first.model = model
    if failed:
        first.set_ending("error")
    if closed:
        first.close()
    return first.answer()


def write(reply: DialectReply) -> Json:
    usage = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.tokens,
        "total_tokens": reply.prompt_tokens + reply.tokens,
        "prompt_tokens_details": {"cached_tokens": reply.cached},
    }
    return {**_part(reply, reply.text, _reason(reply)), "usage": usage}


def opening(_: DialectReply) -> Iterator[bytes]:
    yield from ()


def delta(reply: DialectReply, more: str) -> bytes:
    return event(_part(reply, more, None))


def closing(reply: DialectReply, usage: bool) -> Iterator[bytes]:
    yield event(_part(reply, "", _reason(reply)))
    if usage:
        yield event({**write(reply), "choices": []})
    yield b"data: [DONE]\n\n"


def _reason(reply: DialectReply) -> str:
    return "stop" if reply.finished else "length"


def _part(reply: DialectReply, text: str, reason: str | None) -> Json:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    head = {
        "id": f"cmpl-{reply.id}",
        "object": "text_completion",
        "created": reply.created,
        "model": reply.model,
    }
    return {**head, "choices": [choice]}


DIALECT = Dialect(
    "openai-completions", read, hear, openai_chat.error, refuses, write, opening, delta, closing
)
