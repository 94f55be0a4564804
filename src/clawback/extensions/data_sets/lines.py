"""Records with a prompt and an answer, under our own names of fields or those that others use, and what somebody thinks of the answer.

    {"prompt" or "messages", "response", "rating" (-1/1, true, "up", 👍) or "score" (with "scale"), "note", "edit", "critique", "person", …}

``messages`` may end with the answer; then ``response`` is not needed. ``feedback`` is a list of all that was said, as `clawback export` writes it; where
it is there it alone counts. The scale of a number is read from the whole column (``columns``), never from a single record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clawback import scales
from clawback.errors import UsageError
from clawback.extensions.data_sets.columns import plain_number, typed_score
from clawback.extensions.data_sets.entries import (
    BadLine,
    Columns,
    Entry,
    FileReading,
    Record,
    answer_text,
    dicts,
    digest,
    ending,
    is_nothing,
    messages_of,
    moment,
    number,
    text,
)
from clawback.extensions.data_sets.messages import (
    LISTS,
    calls_of,
    conversation_of,
    is_openai,
    message_of,
    reply_of,
    transcript,
)
from clawback.records import FEEDBACK_KINDS, Feedback, JsonObject, Message, Turn, text_of
from clawback.redact import redact

PROMPTS = (
    "prompt", "instruction", "question", "query", "user_prompt", "user_message", "input", "user", "human", "request",
    "prompt_text", "user_input", "inputs",
)  # fmt: skip
ANSWERS = (
    "response", "completion", "output", "answer", "assistant", "reply", "generation", "generated_text", "model_response",
    "model_output", "assistant_response", "bot_response", "bot", "llm_output", "response_text", "completion_text",
    "prediction", "outputs", "responses", "target", "ai_response", "assistant_message",
)  # fmt: skip
_REQUESTS = ("input", "inputs", "request", "body")
_ASKED = ("messages", "contents")
CONTEXTS = ("input", "context", "inputs")
"""What an ``instruction`` is about, in the layouts of Alpaca and Dolly."""
SYSTEMS = ("system", "system_prompt", "system_message", "systeminstruction", "system_instruction")
NOTES = ("note", "comment", "comments", "remark", "reason", "rationale", "feedback")
EDITS = ("edit", "edited_response", "corrected_response", "correction", "revised_response", "improved_response")  # fmt: skip
MODELS = ("model", "model_name", "model_id", "generator")
TIMES = ("created_at", "datetime_utc", "timestamp", "sent_at", "sentat", "time", "date", "created")
READ = frozenset(
    ["prompt", "messages", "response", "rating", "score", "scale", "note", "edit", "critique", "person", "feedback", "session", "agent", "model", "event_id", "created_at", "consent", "licence", "license", "chosen", "rejected", "split", "source", "id", "prompt_id", "ending", "finish_reason", "stop_reason", "tools", "calls", "thinking", "next_state", "cwd", "kind", "parallel_tool_calls", "annotator", "annotation_id", "lead_time", "updated_at"]
)  # fmt: skip
"""Fields of our own that are read, and those that say nothing of an answer."""


def plain_name(name: object) -> str:
    """The name of a field as we write it."""
    if isinstance(name, str) and name.isascii() and name.islower() and name.isidentifier():
        return _NAMES.get(name, name)
    plain = str(name).strip().lower().replace(" ", "_").replace("-", "_")
    return _NAMES.get(plain, plain)


def lowered(data: Record) -> JsonObject:
    """The record with names of fields as we write them: small letters, underscores."""
    plain = {plain_name(name): value for name, value in data.items()}
    return _with_request(plain) if any(isinstance(plain.get(n), Mapping) for n in _REQUESTS) else plain


_NAMES = {
    "frage": "prompt", "antwort": "response", "bewertung": "rating", "kommentar": "note",
    "réponse": "response", "commentaire": "note", "pregunta": "prompt", "respuesta": "response", "valoración": "rating",
    "comentario": "note", "问题": "prompt", "提问": "prompt", "回答": "response", "答案": "response", "评分": "rating", "评论": "note",
}  # fmt: skip
"""Headings of tables in other languages."""


def _with_request(data: JsonObject) -> JsonObject:
    """The fields of a request that stands in the record as an object, as in logs of APIs and in OpenAI's pairs."""
    for name in _REQUESTS:
        inner = data.get(name)
        if isinstance(inner, Mapping) and (held := {*_ASKED, *PROMPTS} & inner.keys()):
            rest = {k: v for k, v in data.items() if k != name}
            if answer := _first(rest, ANSWERS):
                rest["response"] = rest.pop(answer)
            return {k: inner[k] for k in (*held, "model", "tools", *SYSTEMS) if k in inner} | rest
    return data


def _first(data: Record, names: tuple[str, ...]) -> str:
    return next((name for name in names if data.get(name) not in (None, "", [])), "")


def names_of(data: Record) -> tuple[str, str]:
    """The fields that hold the question (or the conversation) and the answer; "" for one that is missing."""
    prompt = _first(data, PROMPTS)
    answer = next((name for name in ANSWERS if name != prompt and data.get(name) not in (None, "", [])), "")
    messages = next(
        (name for name in LISTS if isinstance(data.get(name), (list, tuple, str)) and data.get(name)), ""
    )
    if messages and (messages == "messages" or not (prompt and answer)):
        return messages, answer if answer in ("response", "completion") else ""
    return prompt, answer


def fields_read(data: Record) -> frozenset[str]:
    """The fields of a record that are read, or that say nothing of an answer."""
    names = {name for name in names_of(lowered(data)) if name}
    words = {*NOTES, *EDITS, *MODELS, *TIMES, *SYSTEMS, *(CONTEXTS if "instruction" in names else ()), "history"}  # fmt: skip
    read = READ | names | words | {name for name in ("label", "kto_tag") if isinstance(data.get(name), bool)}
    return read | {str(name).lower() for name in data if plain_name(name) in read}


def fits(data: Record) -> bool:
    """Whether a record holds a question and an answer to it."""
    prompt, answer = names_of(lowered(data))
    return bool(prompt and answer) or (prompt in LISTS and messages_under(lowered(data), prompt) is not None)


def messages_under(data: Record, name: str) -> list[Message] | None:
    value = data[name]
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                value = json.loads(value)
            except ValueError:
                return None
        else:
            return transcript(value)
    if is_openai(value):
        return list(value)
    return conversation_of(value)


def conversation(data: Record) -> tuple[tuple[Message, ...], str]:
    """The messages of a record and the words that answer them. Raises ``BadLine``."""
    messages, answer = _answered(lowered(data))
    if not answer_text(answer):
        raise BadLine("`response` is missing")
    return messages, answer["content"]


def _answered(data: Record) -> tuple[tuple[Message, ...], Message]:
    """The messages of a record and the answer to them, which may call tools in place of words. Raises ``BadLine``."""
    if data.get("calls") and not data.get("response"):  # our own lines: an answer that is calls alone
        return with_tools(data, list(messages_of(data.get("messages")))), {"role": "assistant", "content": ""}
    name, answer = names_of(data)
    response: Any = data.get(answer) if answer else None
    if name in LISTS or ("messages" in data and not name):
        read = messages_under(data, name) if name else None
        messages = list(messages_of(read if read is not None else data.get(name or "messages")))
    else:
        messages = list(messages_of(question_of(data, name)))
    messages = with_system(data, messages)
    response = reply_of(response)
    if isinstance(response, Mapping):
        held = next((response[n] for n in ANSWERS if isinstance(response.get(n), str)), None)
        response = held if held is not None and message_of(response) is None else [response]
    if isinstance(response, list):  # the answer as messages: all but the last led to it
        written = conversation_of(response)
        if written is None:
            raise BadLine(f"`{answer}` is neither text nor messages")
        messages, response = [*messages, *messages_of(written)], None
    calls: Any = None
    if len(messages) > 1 and messages[-1].get("role") == "assistant":
        own = text_of(messages[-1].get("content"))
        if response is None or response == own:
            calls, response, messages = messages[-1].get("tool_calls"), own, messages[:-1]
    if not isinstance(response, str) or not (response.strip() or calls):
        raise BadLine("`response` is missing")
    reply = {"role": "assistant", "content": redact(response)} | ({"tool_calls": calls} if calls else {})
    return with_tools(data, messages), reply


def calls_in(answer: Message) -> list[JsonObject]:
    """The calls of tools of an answer, as a turn keeps them."""
    return [{"id": call["id"], **call["function"]} for call in calls_of(answer.get("tool_calls"))]


def question_of(data: Record, name: str) -> list[Message]:
    prompt = data.get(name) if name else None
    if isinstance(prompt, str) and prompt.lstrip().startswith('[{"') and (read := messages_under(data, name)):
        return read
    if isinstance(prompt, list):
        return prompt if is_openai(prompt) or (read := conversation_of(prompt)) is None else read
    if not isinstance(prompt, str) or not prompt.strip():
        raise BadLine("`prompt` or `messages` is missing")
    if read := transcript(prompt):
        return read
    about = next(
        (data[c] for c in CONTEXTS if c != name and isinstance(data.get(c), str) and data[c].strip()), ""
    )
    words = f"{prompt}\n\n{about}" if about and name == "instruction" else prompt
    earlier = conversation_of(data.get("history")) or []
    return [*earlier, {"role": "user", "content": words}]


def with_system(data: Record, messages: list[Message]) -> list[Message]:
    name = _first(data, SYSTEMS)
    system = data.get(name) if name else None
    if isinstance(system, (list, Mapping)):  # Bedrock's and Gemini's, in parts
        parts = system if isinstance(system, list) else system.get("parts", [system])
        system = text_of((message_of({"role": "system", "content": parts}) or {}).get("content"))
    if isinstance(system, str) and system.strip() and not any(m.get("role") == "system" for m in messages):
        return [{"role": "system", "content": redact(system)}, *messages]
    return messages


def with_tools(data: Record, messages: list[Message]) -> tuple[Message, ...]:
    """The tools that the model could call stand in the first message: templates pass over what they do not know."""
    tools = data.get("tools") or [{"type": "function", "function": f} for f in dicts(data.get("functions"))]
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError:
            tools = None
    if isinstance(tools, list) and tools and messages and "tools" not in messages[0]:
        messages = [{**messages[0], "tools": tools}, *messages[1:]]
    return tuple(messages)


# ------------------------------------------------------------------------------------------------------- opinions


def opinion(row: Record, rating_field: str = "") -> tuple[str, Any]:
    """The field that says how good the answer is, and what it holds; ("", None) where none does."""
    for name in (rating_field, "rating", "score"):
        if name and not is_nothing(row.get(name)):
            # An exported rating has both, and then the score is what was given.
            both = name == "rating" and not is_nothing(row.get("score")) and row.get("scale")
            return ("score", row["score"]) if both else (name, row[name])
    thumb = row.get("feedback")
    if isinstance(thumb, bool) or (isinstance(thumb, str) and scales.sign_of(thumb) is not None):
        return "feedback", thumb
    return next(
        ((name, row[name]) for name in ("label", "kto_tag") if isinstance(row.get(name), bool)), ("", None)
    )


def author_of(data: Record, reading: FileReading) -> str:
    """Whose opinions a record holds; "" for the owner's."""
    if not reading.mine and not reading.person and "annotation_id" in data and data.get("annotator"):
        return f"label-studio:{data['annotator']}"  # its tables
    return text(data, "person") or reading.person


def feedback(data: Record, reading: FileReading) -> Iterator[Feedback]:
    """What a record says of its answer; ``turn_id`` is 0. Raises ``BadLine``."""
    who = author_of(data, reading)
    if isinstance(data.get("feedback"), list):
        yield from (_feedback_of_entry(one) for one in data["feedback"] if not _worse_turn(one))
        return
    name, value = opinion(data, reading.columns.rating_field)
    note = text(data, "note") or next((data[n] for n in NOTES if isinstance(data.get(n), str)), "")
    note = "" if note and scales.sign_of(note) is not None else note
    if note and not name and plain_number(note) is not None:
        raise BadLine(
            "its remark is a number: `--rating-field NAME` reads a column as the rating, of which more is better"
        )
    if name:
        yield rating(name, value, reading.columns, note, who, text(data, "scale"))
    elif note:
        yield Feedback(0, "critique", 0.0, note, person=who)
    elif reading.liked:
        yield Feedback(0, "rating", 1.0, person=who)
    for field in ("edit", *EDITS[1:]):
        if edit := text(data, field):
            yield Feedback(0, "edit", 0.0, edit, person=who)
            break
    if critique := text(data, "critique"):
        yield Feedback(0, "critique", 0.0, critique, person=who)


def rating(
    name: str, value: object, columns: Columns, note: str = "", who: str = "", scale: str = ""
) -> Feedback:
    """A rating as a file has it: a word or sign for good or bad, a score with its scale, or a number of a column. Raises ``BadLine``."""
    if isinstance(value, bool):
        return Feedback(0, "rating", 1.0 if value else -1.0, note, person=who)
    if isinstance(value, str) and (sign := scales.sign_of(value)) is not None:
        return Feedback(0, "rating", sign, note, person=who)
    score = plain_number(value)
    if score is None:
        typed = typed_score(value) if isinstance(value, str) else None
        if typed is None:
            raise BadLine(f"`{name}` is not a number, nor a word such as good or bad")
        score, scale = typed
    else:
        scale = scale or columns.scale_of.get(name, "")
        if not scale:
            why = columns.unclear.get(name, "give `--scale LOW-HIGH`")
            raise BadLine(f"`{name}` {score:g} is on a scale that is not clear: {why}")
    low, high = _ends(scale)
    if not low <= score <= high:
        raise BadLine(f"`{name}` {score:g} is not between {low:g} and {high:g}")
    if name == "rating" and scale == "-1-1":
        return Feedback(0, "rating", score, note, person=who)
    return Feedback(0, "rating", scales.value_of(score, scale), note, person=who, score=score, scale=scale)


def _ends(scale: str) -> tuple[float, float]:
    try:
        return scales.ends(scale)
    except UsageError as error:
        raise BadLine(str(error)) from error


def _worse_turn(entry: object) -> str:
    return entry["over"] if isinstance(entry, dict) and isinstance(entry.get("over"), str) else ""


def preferences(data: Record) -> Iterator[tuple[str, Feedback]]:
    """(event id of the worse turn, preference) of a record. Raises ``BadLine``."""
    for one in data["feedback"] if isinstance(data.get("feedback"), list) else ():
        if over := _worse_turn(one):
            yield over, _feedback_of_entry(one)


def _feedback_of_entry(entry: object) -> Feedback:
    if not isinstance(entry, dict) or entry.get("kind") not in FEEDBACK_KINDS:
        raise BadLine(f"an entry of `feedback` has no kind of {', '.join(FEEDBACK_KINDS)}")
    value = number(entry.get("value", 0.0), "value")
    if not -1 <= value <= 1:
        raise BadLine(f"a value of {value:g} is outside -1 to 1")
    score = None if entry.get("score") is None else number(entry["score"], "score")
    at = number(entry.get("created_at", 0.0), "created_at")
    scale = text(entry, "scale")
    if scale:
        _ends(scale)
    return Feedback(0, entry["kind"], value, text(entry, "text"), person=text(entry, "person"), created_at=at, score=score, scale=scale)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- whole records


def turn_of(data: Record, messages: tuple[Message, ...], response: str, event: str = "") -> Turn:
    """The turn of a record. Raises ``BadLine``."""
    consent = data.get("consent")
    if consent is not None and not isinstance(consent, bool):
        raise BadLine("`consent` is neither true nor false")
    at = number(data["created_at"], "created_at") if isinstance(data.get("created_at"), (int, float)) else moment(data.get(_first(data, TIMES)))  # fmt: skip
    model = data.get(_first(data, MODELS))
    return Turn(
        session=str(data.get("session") or "import"),
        messages=messages,
        response=response,
        agent=str(data.get("agent") or "import"),
        kind="side" if data.get("kind") == "side" else "main",
        model=model if isinstance(model, str) else "",
        cwd=text(data, "cwd"),
        event_id=event or f"import:{digest(messages, response, str(data.get('session', '')))}",
        created_at=at,
        consent="" if consent is None else "yes" if consent else "no",
        licence=text(data, "licence") or (data["license"] if isinstance(data.get("license"), str) else ""),
        ending=ending(data),
        calls=tuple(c for c in data.get("calls") or () if isinstance(c, dict)),
        next_state=tuple(m for m in data.get("next_state") or () if isinstance(m, dict)),
        thinking=text(data, "thinking"),
    )


def read(data: Record, reading: FileReading) -> Iterator[Entry]:
    """The entry of a record: one turn, or of a conversation that nobody rates one for each of its answers."""
    original, data = data, lowered(data)
    name, answer = names_of(data)
    rated = opinion(data, reading.columns.rating_field)[0] or any(
        f in data for f in ("feedback", "edit", "critique", "note")
    )
    if name in LISTS and not answer and not rated:
        messages = messages_under(data, name)
        if messages is not None and _several(messages):
            yield from answers_of(data, messages, reading)
            return
    asked, reply = _answered(data)
    opinions = tuple(feedback({**data, **original}, reading))
    fields = data if data.get("calls") else {**data, "calls": calls_in(reply)}
    turn = turn_of(fields, asked, answer_text(reply) and reply["content"], text(data, "event_id"))
    yield Entry((turn,), opinions, tuple((over, one) for over, one in preferences(data)))


def _several(messages: list[Message]) -> bool:
    weights = any("weight" in m for m in messages)
    return weights or sum(m.get("role") == "assistant" and bool(answer_text(m)) for m in messages) > 1


def answers_of(data: Record, messages: list[Message], reading: FileReading) -> Iterator[Entry]:
    """A turn for each answer that a user's message follows, or nothing. ``weight`` 1: the file wants it learned, so that it counts as good;
    0 says nothing of it."""
    clean = list(with_tools(data, with_system(data, list(messages_of(messages)))))
    session = str(data.get("session") or f"import:{digest(clean, '', '')[:16]}")
    turns: list[Turn] = []
    liked: list[Feedback] = []
    bare = [{k: v for k, v in m.items() if k != "weight"} for m in clean]
    for index, message in enumerate(bare):
        following = bare[index + 1 : index + 2]
        words = answer_text(message) if message.get("role") == "assistant" else ""
        if not words or index == 0 or (following and following[0].get("role") not in ("user", "system")):
            continue
        weight = clean[index].get("weight")
        if weight == 1 or (reading.liked and weight is None):
            liked.append(Feedback(len(turns), "rating", 1.0, person=reading.person))
        turns.append(turn_of({**data, "session": session}, tuple(bare[:index]), redact(words)))
    if not turns:
        raise BadLine("there is no answer in the conversation")
    yield Entry(tuple(turns), tuple(liked))
