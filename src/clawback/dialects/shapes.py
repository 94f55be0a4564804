"""The types and helpers that the dialects have in common."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clawback.dialects.parsing import Said, count, number, text
from clawback.records import Message

Json = dict[str, Any]
Body = Mapping[str, Any]
"""A request's JSON object, or a part of it."""
ANY_OBJECT: Json = {"type": "object"}
"""What JSON mode asks for."""


@dataclass(frozen=True, slots=True)
class TextField:
    """An object with one text in it: ``{"title": "…"}``, which is what agents ask for on their own account."""

    name: str
    most: int | None = None
    """Characters."""

    def around(self, text: str) -> str:
        return json.dumps({self.name: text.strip()[: self.most] or "…"}, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, read."""

    messages: tuple[Message, ...]
    """As OpenAI chat writes them, system and tool messages included."""
    model: str = ""
    stream: bool = False
    tools: tuple[Json, ...] = ()
    """``{"type": "function", "function": {"name", "description", "parameters"}}``."""
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    schema: Json | None = None
    """JSON schema that the answer must follow, if one was given."""
    form: Json | None = None
    """The JSON schema that the embedded model's answer is held to: the same, or any object at all in JSON mode."""
    must_call: bool = False
    """Whether the embedded model's answer has to be a call of one of ``tools``."""
    usage: bool = True
    """Whether a stream ends with a count of tokens."""
    logprobs: bool = False
    """Whether the log-prob of each token is told."""
    top: int = 0
    """Of how many of the likeliest tokens at each place it is told as well."""
    raw: str | None = None
    """Text to go on from as it stands, without a chat template."""

    @property
    def field(self) -> TextField | None:
        """The one text of that schema, where there is no more to it: then whatever the model says is put into it."""
        return None if self.form is None or self.tools else field(self.form)

    @property
    def needs_its_end(self) -> bool:
        """Whether what an answer is shows only once it is complete: a call or a document, or a text put into a document."""
        return self.field is not None or self.must_call or bool(self.form is not None and self.tools)


@dataclass(frozen=True, slots=True)
class DialectReply:
    """What the embedded model answered, for writing it down in a dialect."""

    id: str
    model: str
    created: int
    prompt_tokens: int
    tokens: int
    text: str
    calls: tuple[Message, ...]
    finished: bool
    """False: it was cut off at the most tokens allowed."""
    cached: int = 0
    """Tokens of the prompt that were read in an earlier turn."""
    stopped: str = ""
    """The stop string that ended it."""
    logprobs: tuple[tuple[str, float], ...] = ()
    """(token, log-prob), where they were asked for."""
    alternatives: tuple[tuple[tuple[str, float], ...], ...] = ()
    """The likeliest at each of those places."""


@dataclass(frozen=True, slots=True)
class DialectReading:
    """A dialect as far as it is read along on its way to an upstream and back."""

    name: str
    read: Callable[[Body], Asked]
    """The body of a request → what it asks. Raises ``ValueError`` for one that nobody could answer."""
    hear: Callable[[bytes], Said]
    """The bytes of a response → what it said. Whether they are events, lines or one answer is seen from them: labels are often wrong."""
    error: Callable[[int, str], Json]


@dataclass(frozen=True, slots=True)
class Dialect(DialectReading):
    """One in which the embedded model answers, too."""

    refuses: Callable[[Body], str]
    """What the body asks for that the embedded model does not do, in a sentence; "" for nothing."""
    write: Callable[[DialectReply], Json]
    """A whole answer as JSON."""
    open: Callable[[DialectReply], Iterator[bytes]]
    """The events before the first text."""
    delta: Callable[[DialectReply, str], bytes]
    """The event of one more piece of text."""
    close: Callable[[DialectReply, bool], Iterator[bytes]]
    """The events after the last text; ``True``: with a count of tokens."""
    stream_type: str = "text/event-stream"


def field(schema: object) -> TextField | None:
    """What a JSON schema asks for, where any text can be made to follow it; None for any other schema."""
    known = schema if isinstance(schema, dict) else {}
    properties = known.get("properties")
    if known.get("type") != "object" or not isinstance(properties, dict) or len(properties) != 1:
        return None
    [(name, value)] = properties.items()
    if not isinstance(value, dict) or value.get("type") != "string":
        return None
    most = value.get("maxLength")
    least = value.get("minLength", 0)
    plain = set(value) <= {"type", "description", "title", "minLength", "maxLength"} and least in (0, 1)
    rest = set(known) <= {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "description",
        "title",
        "$schema",
    }
    needed = known.get("required", [name])
    if not (plain and rest and needed in ([], [name]) and (most is None or (type(most) is int and most > 0))):
        return None
    return TextField(str(name), most)


def schema_in(layout: object) -> Json | None:
    """The schema of a request's ``response_format``: within ``json_schema``, as OpenAI's chat has it, or beside the type, as Anthropic, OpenAI's
    Responses, llama.cpp and Together have it (``{"type": "json_object", "schema": …}``). None where there is none."""
    known = layout if isinstance(layout, dict) else {}
    inner = known.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else known.get("schema")
    return schema if isinstance(schema, dict) else None


def form(layout: object) -> Json | None:
    """The schema that an answer is held to, as every dialect has one; None where text is asked for."""
    kind = layout.get("type") if isinstance(layout, dict) else None
    if kind not in ("json_object", "json_schema"):
        return None
    return schema_in(layout) or (ANY_OBJECT if kind == "json_object" else None)


def formless(layout: object, request: Asked) -> str:
    """What is wrong with a request's ``response_format``; "" for nothing."""
    if layout is None or (isinstance(layout, dict) and layout.get("type") in (None, "text")):
        return ""
    if request.form is None:
        return "a type is needed that is text, json_object or json_schema, the last with a schema."
    return ""


def event(data: Json, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def stops(value: object) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(s for s in texts if isinstance(s, str) and s)[:_MOST_STOPS]


def refused(body: Body, **done: object) -> str:
    """A sentence about the first of these fields that is set to something else than what is done; "" where none is."""
    for name, value in done.items():
        setting = body.get(name)
        if setting not in (None, value, {}, []):
            only = (
                "is not done here; leave it out"
                if value is None
                else f"can only be {str(value).lower()} here"
            )
            return f"{name} {only}."
    return ""


_RANGES = {"temperature": (0.0, 2.0), "top_p": (0.0, 1.0)}
_COUNTS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_STOPS = ("stop", "stop_sequences")
_MOST_STOPS = 16


def odd(body: Body) -> str:
    """A sentence about the first of the fields that say how to answer whose value is none of those that are possible; "" where all are.

    A client that says 0 or "5" means something by it, and would take an answer for the answer to that.
    """
    for name, (least, most) in _RANGES.items():
        value = number(body.get(name))
        if body.get(name) is not None and (value is None or not least <= value <= most):
            return f"{name}: a number from {least:g} to {most:g} is needed."
    for name in _COUNTS:
        if body.get(name) is not None and (count(body[name]) or 0) < 1:
            return f"{name}: a whole number of at least 1 is needed."
    if body.get("seed") is not None and count(body["seed"]) is None:
        return "seed: a whole number is needed."
    if body.get("stream") not in (None, False, True):
        return "stream: true or false is needed."
    for name in _STOPS:
        stop = body.get(name)
        texts = [stop] if isinstance(stop, str) else [] if stop is None else stop
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            return f"{name}: a text, or a list of texts, is needed."
        if len(texts) > _MOST_STOPS:
            return f"{name}: at most {_MOST_STOPS} texts are looked for."
    return ""


def picture(data: object, kind: object = "") -> Json:
    """A part that brings a picture along as base64. What kind it is its bytes will say; ``kind`` is what the request says of it."""
    return {"type": "image_url", "image_url": {"url": f"data:{text(kind)};base64,{text(data)}"}}


def function(name: object, description: object, parameters: object) -> Json:
    return {
        "type": "function",
        "function": {
            "name": text(name),
            "description": text(description),
            "parameters": parameters if isinstance(parameters, dict) else {},
        },
    }
