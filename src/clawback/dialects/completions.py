"""OpenAI's older completions API: a text to continue, without a chat."""

from __future__ import annotations

from collections.abc import Iterator

from clawback.dialects import openai_chat, parsing, shapes
from clawback.dialects.parsing import AnswerAssembler, Said, first_answer
from clawback.dialects.shapes import Asked, Dialect, DialectReply, Json, event


def read(body: shapes.Body) -> Asked:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str) or not prompt:
        raise ValueError("prompt: one text is needed")
    options = body.get("stream_options")
    return Asked(
        messages=({"role": "user", "content": prompt},),
        model=parsing.text(body.get("model")),
        stream=body.get("stream") is True,
        max_tokens=16 if body.get("max_tokens") is None else parsing.count(body.get("max_tokens")),
        temperature=parsing.number(body.get("temperature")),
        top_p=parsing.number(body.get("top_p")),
        seed=parsing.count(body.get("seed")),
        stop=shapes.stops(body.get("stop")),
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        raw=prompt,
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
    return first_answer(choices, model, failed=failed, closed=closed)


def write(reply: DialectReply) -> Json:
    return {**_part(reply, reply.text, _reason(reply)), "usage": openai_chat.usage_of(reply)}


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
    return {**openai_chat.head(reply, "cmpl", "text_completion"), "choices": [choice]}


DIALECT = Dialect(
    "openai-completions", read, hear, openai_chat.error, refuses, write, opening, delta, closing
)
