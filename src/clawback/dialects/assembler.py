"""Puts an answer together: the dialects translate their events into these calls, and none of them keeps a state of its own.

Providers differ from the specifications that they follow: contents are lists, tool calls come without an index or repeat their
name in every piece, an ending has another word. What they mean by it is decided here, once for all dialects.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from typing import Any

from clawback.dialects import shapes
from clawback.dialects.shapes import Json, Said
from clawback.endings import ending_of
from clawback.records import CUT, Ending

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


class AnswerAssembler:
    """``text``, ``thought``, ``call``, ``end`` as they come, then ``answer``."""

    def __init__(self) -> None:
        self.model = ""
        self._texts: dict[Hashable, list[str]] = {}
        self._thoughts: dict[Hashable, list[str]] = {}
        self._calls: list[_Call] = []
        self._ending: Ending | None = None
        self._unknown = ""

    def text(self, piece: Any, block: Hashable = 0) -> None:
        """A piece of the answer. Blocks are joined by a line break."""
        self._texts.setdefault(block, []).append(shapes.text(piece))

    def replace_text(self, text: str, block: Hashable = 0) -> None:
        """The complete text of a block, of which pieces may have come before."""
        self._texts[block] = [text]

    def thought(self, piece: Any, block: Hashable = 0) -> None:
        """A piece of what is thought before the answer."""
        self._thoughts.setdefault(block, []).append(shapes.text(piece))

    def replace_thought(self, text: str, block: Hashable = 0) -> None:
        self._thoughts[block] = [text]

    def content(self, content: Any, block: Hashable = 0) -> None:
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

    def message(self, message: Json, block: Hashable = 0) -> None:
        """A message or a delta as OpenAI's chat API writes it, and as the providers that follow it do."""
        self.content(message.get("content"), block)
        thoughts = (words_of(message.get(name)) for name in _REASONING)
        details = words_of(message.get("reasoning_details"))
        self.thought(next(filter(None, thoughts), details), block)
        if isinstance(refusal := message.get("refusal"), str) and refusal:
            self.refusal(refusal, block)
        for part in shapes.dicts(message.get("tool_calls")):
            function = part.get("function")
            function = function if isinstance(function, dict) else part.get("custom")
            if isinstance(function, dict):
                name, arguments = function.get("name"), function.get("arguments", function.get("input"))
                self.call(name, arguments, part.get("id"), shapes.count(part.get("index")))
        if isinstance(function := message.get("function_call"), dict):
            self.call(function.get("name"), function.get("arguments"), None, -1)

    def refusal(self, words: str, block: Hashable = 0) -> None:
        """What is said in place of an answer."""
        self.text(words, block)
        self.set_ending("refusal")

    def call(
        self,
        name: Any,
        arguments: Any,
        identifier: Any = None,
        index: int | None = None,
        *,
        complete: bool = False,
    ) -> None:
        """A tool call, or a piece of one. ``index``: its place, which several providers leave out. ``complete``: no piece follows."""
        name, identifier = shapes.text(name), shapes.text(identifier)
        known = None if complete else self._open_call(name, identifier, index)
        if known is None:
            known = _Call(index)
            self._calls.append(known)
        known.id = known.id or identifier
        known.add_name(name)
        known.add_arguments(arguments)

    def replace_call(self, call: Json, index: int) -> None:
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

    def end(self, word: Any) -> None:
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
            _joined(self._texts),
            tuple(one.written() for one in self._calls if one.name or one.arguments),
            self.model,
            "incomplete" if self._ending is None else self._ending,
            _joined(self._thoughts),
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

    def add_arguments(self, piece: Any) -> None:
        if isinstance(piece, (Mapping, list)):
            piece = json.dumps(piece, ensure_ascii=False)
        text = shapes.text(piece)
        if not (text == self.arguments and self.is_complete):  # a provider repeats all of them at the end
            self.arguments += text

    def written(self) -> Json:
        return shapes.call(self.id, self.name, self.arguments)


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


def words_of(value: Any) -> str:
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
