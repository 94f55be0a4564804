"""Parsing of what clients and providers send: JSON values of any type, the events of a response, and the answer that they add up to.

The dialects translate their events into calls of ``AnswerAssembler``, and none of them keeps a state of its own. Providers differ from
the specifications that they follow: contents are lists, tool calls come without an index or repeat their name in every piece, an ending
has another word. What they mean by it is decided here, once for all dialects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clawback.endings import ending_of
from clawback.records import CUT, Ending, JsonObject, Message

_THOUGHTS = (
    "thinking",
    "reasoning",
    "thought",
    "reasoning.text",
    "reasoning.summary",
    "reasoning_text",
    "summary_text",
)
"""Types of a part that is a thought."""
_WORDS = ("text", "thinking", "reasoning", "content", "summary", "refusal")
"""Fields in which a part has its words."""
_REASONING = ("reasoning_content", "reasoning", "thinking", "reasoning_text", "thought")
"""Fields of a message that hold a thought, by provider."""


MOST_UNPACKED = 64 * 2**20


def decompress(raw: bytes, encoding: str) -> bytes:
    """A body without its ``Content-Encoding``. Raises ``ValueError`` for one that cannot be read, or is larger than 64 MiB."""
    if encoding in ("", "identity"):
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise ValueError(f"The content-encoding {encoding!r} is not read here; gzip, deflate and none are.")
    import zlib

    reading = zlib.decompressobj(47 if "gzip" in encoding else 15)
    try:
        made = reading.decompress(raw, MOST_UNPACKED)
    except zlib.error:
        raise ValueError(f"The body is not {encoding}.") from None
    if reading.unconsumed_tail or not reading.eof:
        raise ValueError(f"The body is cut off, or larger than {MOST_UNPACKED} bytes when unpacked.")
    return made


def to_utf8(raw: bytes, charset: str) -> bytes:
    """A text in the character set that its label names, as UTF-8; unchanged where it names none that is known."""
    import codecs

    try:
        name = codecs.lookup(charset).name if charset else "utf-8"
    except LookupError:
        return raw
    if name in ("utf-8", "ascii", "utf-8-sig"):
        return raw
    return raw.decode(name, "replace").encode()


MOST_MESSAGES = 10_000
_HALVES = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape of half a character; of a whole one there are two in a row."""
_PAIRS = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")
MOST_PARTS = 100_000


def request_body(raw: bytes, encoding: str = "") -> JsonObject:
    """The JSON object of a request. Raises ``ValueError`` for anything else, and for one in more pieces than any conversation has:
    reading a million of them holds everything else up, and nothing else can run meanwhile.
    """
    raw = decompress(raw, encoding)
    if raw.count(b"{") + raw.count(b"[") > MOST_PARTS:
        raise ValueError(f"The body has more than {MOST_PARTS} parts.")
    try:
        body = json.loads(raw)
        if _HALVES.search(raw):
            body = storable(body)
    except (ValueError, RecursionError):
        raise ValueError("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise ValueError("The body is not a JSON object.")
    for name in ("messages", "input", "contents"):
        if isinstance(body.get(name), list) and len(body[name]) > MOST_MESSAGES:
            raise ValueError(f"{name}: more than {MOST_MESSAGES} are not read.")
    return body


def storable(value: object) -> Any:
    """The same with every text such as can be stored and read by a tokenizer: ``"\\ud83d"`` is valid JSON, and half a character.
    Two halves that belong together become one, any other a sign that says so.
    """
    if isinstance(
        value, str
    ):  # a decoder would ask about each half in turn, and nothing else could run meanwhile
        return _LONE.sub("\ufffd", _PAIRS.sub(_character, value))
    if isinstance(value, dict):
        return {storable(key): storable(inner) for key, inner in value.items()}
    return [storable(inner) for inner in value] if isinstance(value, list) else value


def _character(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


@dataclass(frozen=True, slots=True)
class Said:
    """A response, read."""

    text: str
    calls: tuple[Message, ...] = ()
    """Tools that it calls: ``{"id", "name", "arguments"}``, arguments as JSON text."""
    model: str = ""
    ending: Ending = ""
    """Why it ended."""
    thinking: str = ""
    """What was thought before it, where the dialect tells that apart."""
    unknown: str = ""
    """The provider's word for why it ended, where nobody knows that word."""

    @property
    def says_something(self) -> bool:
        """Whether there is anything to keep: a text, or a tool that is called."""
        return bool(self.text.strip() or self.calls)


def parse(raw: bytes) -> JsonObject:
    """A JSON object; {} for anything else."""
    value = _loaded(raw)
    return value if isinstance(value, dict) else {}


def dicts(value: object) -> list[JsonObject]:
    """The mappings in a list; [] for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def count(value: object) -> int | None:
    """A count; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


_EVENT = re.compile(rb"(?:data|event|id|retry)?:")
"""How a line of server-sent events begins; a comment begins with the colon."""
DONE: JsonObject = {"type": "[DONE]"}
"""Stands for the last event of OpenAI's streams, which is no JSON."""


def is_events(raw: bytes) -> bool:
    """Whether bytes are server-sent events, whatever they are labelled as."""
    return _EVENT.match(_bare(raw[:4096])) is not None


def bodies(raw: bytes) -> Iterator[JsonObject]:
    """The JSON objects of a response: of server-sent events, of one answer, of a list of answers, or of lines."""
    if is_events(raw):
        yield from events(raw)
    elif isinstance(value := _loaded(raw), (dict, list)):
        yield from dicts([value] if isinstance(value, dict) else value)
    else:
        yield from lines(raw)


def events(raw: bytes) -> Iterator[JsonObject]:
    """The JSON of each server-sent event, and ``DONE``; others (comments, half of one) are skipped."""
    for block in _bare(raw).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        pieces = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        event = _event(b"\n".join(pieces))
        # Several in one block: a provider that leaves out the empty lines between them.
        found = [event] if event or len(pieces) < 2 else [_event(piece) for piece in pieces]
        yield from (one for one in found if one)


def _event(data: bytes) -> JsonObject:
    return DONE if data == b"[DONE]" else parse(data) if data else {}


def _bare(raw: bytes) -> bytes:
    """Without a mark of the byte order, and without what is empty at the beginning."""
    return raw.removeprefix(b"\xef\xbb\xbf").lstrip()


def _loaded(raw: bytes) -> object:
    """JSON; None for anything else. Text that is no UTF-8 is taken for what older servers write."""
    raw = _bare(raw)
    try:
        return json.loads(raw)
    except UnicodeDecodeError:
        pass
    except (ValueError, RecursionError):
        return None
    try:
        return json.loads(raw.decode("cp1252", "replace"))
    except (ValueError, RecursionError):
        return None


def lines(raw: bytes) -> Iterator[JsonObject]:
    """The JSON object of each line; others are skipped."""
    for line in raw.split(b"\n"):
        if line.strip() and (document := parse(line)):
            yield document


def call(identifier: object, name: object, arguments: object) -> JsonObject:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": text(identifier), "name": text(name), "arguments": given}


class AnswerAssembler:
    """``text``, ``thought``, ``call``, ``end`` as they come, then ``answer``."""

    def __init__(self) -> None:
        self.model = ""
        self._texts: dict[Hashable, list[str]] = {}
        self._thoughts: dict[Hashable, list[str]] = {}
        self._calls: list[_Call] = []
        self._ending: Ending | None = None
        self._unknown = ""

    def text(self, piece: object, block: Hashable = 0) -> None:
        """A piece of the answer. Blocks are joined by a line break."""
        self._texts.setdefault(block, []).append(text(piece))

    def replace_text(self, text: str, block: Hashable = 0) -> None:
        """The complete text of a block, of which pieces may have come before."""
        self._texts[block] = [text]

    def thought(self, piece: object, block: Hashable = 0) -> None:
        """A piece of what is thought before the answer."""
        self._thoughts.setdefault(block, []).append(text(piece))

    def replace_thought(self, text: str, block: Hashable = 0) -> None:
        self._thoughts[block] = [text]

    def content(self, content: object, block: Hashable = 0) -> None:
        """The content of a message or a delta: a text, a part, or a list of parts, of which some may be thoughts."""
        if isinstance(content, (str, dict)):
            content = [content]
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, dict) else ""
            if kind == "refusal":
                self.refusal(words_of(part), block)
            elif kind in _THOUGHTS:
                self.thought(words_of(part), block)
            else:
                self.text(words_of(part), block)

    def message(self, message: JsonObject, block: Hashable = 0) -> None:
        """A message or a delta as OpenAI's chat API writes it, and as the providers that follow it do."""
        self.content(message.get("content"), block)
        thoughts = (words_of(message.get(name)) for name in _REASONING)
        details = words_of(message.get("reasoning_details"))
        self.thought(next(filter(None, thoughts), details), block)
        if isinstance(refusal := message.get("refusal"), str) and refusal:
            self.refusal(refusal, block)
        for part in dicts(message.get("tool_calls")):
            function = part.get("function")
            function = function if isinstance(function, dict) else part.get("custom")
            if isinstance(function, dict):
                name, arguments = function.get("name"), function.get("arguments", function.get("input"))
                self.call(name, arguments, part.get("id"), count(part.get("index")))
        if isinstance(function := message.get("function_call"), dict):
            self.call(function.get("name"), function.get("arguments"), None, -1)

    def refusal(self, words: str, block: Hashable = 0) -> None:
        """What is said in place of an answer."""
        self.text(words, block)
        self.set_ending("refusal")

    def call(
        self,
        name: object,
        arguments: object,
        identifier: object = None,
        index: int | None = None,
        *,
        complete: bool = False,
    ) -> None:
        """A tool call, or a piece of one. ``index``: its place, which several providers leave out. ``complete``: no piece follows."""
        name, identifier = text(name), text(identifier)
        known = None if complete else self._open_call(name, identifier, index)
        if known is None:
            known = _Call(index)
            self._calls.append(known)
        known.id = known.id or identifier
        known.add_name(name)
        known.add_arguments(arguments)

    def replace_call(self, call: JsonObject, index: int) -> None:
        """The complete call at a place, which may have come before."""
        known = next((one for one in self._calls if one.index == index), None)
        if known is None:
            known = _Call(index)
            self._calls.append(known)
        known.id, known.name, known.arguments = call["id"], call["name"], call["arguments"]

    def _open_call(self, name: str, identifier: str, index: int | None) -> _Call | None:
        """The call that a piece belongs to; None where it begins another one."""
        bare = index is None and not identifier and not name
        alike = self._calls if bare else [one for one in self._calls if one.index == index]
        if not alike:
            return None
        known = alike[-1]
        if identifier and known.id and identifier != known.id:
            # A piece without a name goes on whatever its id says: a server of 2024 gave each piece another id.
            same = next((one for one in alike if one.id == identifier), None)
            return same or (None if name or index is None else known)
        if index is None and not identifier and name and known.arguments:
            return known if name.startswith(known.name) and not known.is_complete else None
        return known

    def end(self, word: object) -> None:
        """The provider's word for why the answer ended; nothing where it names none."""
        ending = ending_of(word)
        if ending is not None:
            self.set_ending(ending)
            self._unknown = self._unknown or ("" if ending else str(word)[:60])

    def set_ending(self, ending: Ending) -> None:
        """What cut an answer is not undone by a later word of its end."""
        if self._ending not in CUT:
            self._ending = ending

    def close(self) -> None:
        """The answer has ended, and nobody says why."""
        if self._ending is None:
            self._ending = ""

    def answer(self) -> Said:
        """As far as it has come. One whose end never came is incomplete."""
        return Said(
            storable(_joined(self._texts)),
            tuple(storable(call.written()) for call in self._calls if call.name or call.arguments),
            self.model,
            "incomplete" if self._ending is None else self._ending,
            storable(_joined(self._thoughts)),
            self._unknown,
        )


class _Call:
    def __init__(self, index: int | None) -> None:
        self.index, self.id, self.name, self.arguments = index, "", "", ""

    @property
    def is_complete(self) -> bool:
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True

    def add_name(self, piece: str) -> None:
        """A name that comes again, as a whole or so far, is the same name; one that comes before any arguments in another piece goes on."""
        if piece.startswith(self.name):
            self.name = piece or self.name
        elif not self.arguments and piece not in self.name:
            self.name += piece

    def add_arguments(self, piece: object) -> None:
        if isinstance(piece, (Mapping, list)):
            piece = json.dumps(piece, ensure_ascii=False)
        more = text(piece)
        if not (more == self.arguments and self.is_complete):  # a provider repeats all of them at the end
            self.arguments += more

    def written(self) -> JsonObject:
        return call(self.id, self.name, self.arguments)


def first_answer(choices: Mapping[int, AnswerAssembler], model: str, *, failed: bool, closed: bool) -> Said:
    """The answer of the choice with the least index, whichever came first; an empty one without any.

    Args:
        failed: the provider reported an error.
        closed: the provider said that the answer is complete.
    """
    first = choices[min(choices)] if choices else AnswerAssembler()
    first.model = model
    if failed:
        first.set_ending("error")
    if closed:
        first.close()
    return first.answer()


def words_of(value: object) -> str:
    """All text of a part, however deep its provider puts it."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(words_of(part) for part in value)
    if isinstance(value, dict):
        return next((text for name in _WORDS if (text := words_of(value.get(name)))), "")
    return ""


def _joined(blocks: Mapping[Hashable, list[str]]) -> str:
    texts = ("".join(pieces) for pieces in blocks.values())
    return "\n".join(text for text in texts if text)
