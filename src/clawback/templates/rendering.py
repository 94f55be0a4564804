"""The text form of a conversation: chat templates, rendered in a process with limits, and plain labelled text.

A template is a program that somebody else wrote, whoever chose the model: ``{{ 'x'|center(10**9) }}`` takes a gigabyte.
``install`` puts a bounded renderer in the place of the one that transformers compiles, so that
``tokenizer.apply_chat_template`` prepares conversations as ever and the program of the template runs in
``template_worker.py``. One such process serves all templates; it is started when first needed and replaced when a limit ends it.

A base model without a chat template is shown ``User: … Assistant:`` and goes on to write the whole dialogue. Its answer ends at the line in which the
next speaker begins; what follows is neither shown, stored nor learned.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import pickle
import re
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.errors import ModelError

if TYPE_CHECKING:
    from clawback.records import JsonObject

SECONDS, WALL_SECONDS, MEGABYTES = 5, 60, 256
"""For a rendering: processor time, time where the machine is busy, and memory beyond the conversation's own."""
SLACK, FACTOR = 100_000, 16
"""Characters that a template may add to a conversation, and how many times over it may write it."""
_WORKER = Path(__file__).with_name("template_worker.py")
_LENGTH = 8
_NATIVE = "_compile_jinja_template"


class EndlessTemplate(ModelError):
    """A rendering passed a limit."""


class TemplateWorker:
    """The process that renders, and the pipes to it. One request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A fork of this program starts a process of its own, and holds no lock of its parent's threads."""
        self._lock, self._process = threading.Lock(), None

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """The text. Raises ``TemplateError`` where the template refuses the conversation, ``EndlessTemplate`` at a limit."""
        from jinja2.exceptions import TemplateError

        size = len(_pickled(variables))
        longest = SLACK + FACTOR * size
        request = {
            "template": template, "variables": variables, "seconds": SECONDS, "longest": longest,
            "bytes": (MEGABYTES << 20) + 2 * FACTOR * size,
        }  # fmt: skip
        with self._lock:
            kind, text = self._exchange(_pickled(request), 4 * longest)
        if kind == b"O":
            return text
        if kind == b"E":
            raise TemplateError(text)
        raise EndlessTemplate(
            f"The chat template of this model has no end: a conversation takes it more than {SECONDS} s, {MEGABYTES} MB "
            f"or {FACTOR} times its text. Fetch the model from where you trust it, or replace its chat template."
        )

    def _exchange(self, request: bytes, most: int) -> tuple[bytes, str]:
        """The kind of the answer and its text; no kind where the process did not answer within its limits."""
        process = self._running()
        try:
            assert process.stdin
            process.stdin.write(len(request).to_bytes(_LENGTH, "big") + request)
            process.stdin.flush()
            kind, text = _answer(process, most)
        except (EOFError, OSError, TimeoutError):
            kind, text = b"", ""
        except BaseException:  # interrupted within an exchange: the next answer would be this one's
            self._end()
            raise
        if kind not in (b"O", b"E"):
            self._end()
        return kind, text

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, started where there is none."""
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close() if pipe else None


def _pickled(value: Any) -> bytes:
    """Every text in full, also where two are one object: the length is that of the conversation."""
    data = io.BytesIO()
    pickler = pickle.Pickler(data, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    return data.getvalue()


def _answer(process: subprocess.Popen[bytes], most: int) -> tuple[bytes, str]:
    assert process.stdout
    until = time.monotonic() + WALL_SECONDS
    data = bytearray()
    size = head = 1 + _LENGTH
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while len(data) < size:
            if not ready.select(max(0.0, until - time.monotonic())):
                raise TimeoutError
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                raise EOFError
            data += piece
            if size == head and len(data) >= head:
                size += int.from_bytes(data[1:head], "big")
                if size > most:
                    raise EOFError
    return bytes(data[:1]), data[head:].decode("utf-8", "surrogatepass")


_worker = TemplateWorker()


class Bounded:
    """What transformers takes for a compiled template."""

    def __init__(self, template: str) -> None:
        self.template = template

    def render(self, **variables: Any) -> str:
        return _worker.render(self.template, variables)


def install() -> None:
    """From now on no chat template is compiled or run in this process."""
    from transformers.utils import chat_template_utils

    if not hasattr(chat_template_utils, _NATIVE):
        raise ModelError(
            "This version of transformers renders chat templates in a way that is not known here, so their limits would not "
            "hold. Install the version that Clawback's constraints.txt names."
        )
    setattr(chat_template_utils, _NATIVE, Bounded)


def check(template: str, args: Mapping[str, Any]) -> None:
    """Raises ``ModelError`` for a template that, on a few ordinary conversations, takes more time, memory or text than any would."""
    install()
    _check(template, json.dumps(dict(args), sort_keys=True, default=str))


@functools.lru_cache(maxsize=32)
def _check(template: str, args: str) -> None:
    from jinja2.exceptions import TemplateError

    for messages, tools in _conversations():
        variables = {"messages": messages, "tools": tools, "add_generation_prompt": True, **json.loads(args)}
        with contextlib.suppress(TemplateError):  # transformers will say what is wrong with it
            _worker.render(template, variables)


def _conversations() -> list[tuple[list[JsonObject], list[JsonObject] | None]]:
    """As they come: one question, one with a system message that goes back and forth, a long one, and one with tools."""
    turns = [{"role": "user", "content": "What now?"}, {"role": "assistant", "content": "That depends."}]
    asked = [{"role": "user", "content": "And then?"}]
    schema = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
    return [
        (asked, None),
        ([{"role": "system", "content": "Be brief."}, *turns, *asked], None),
        (turns * 40 + asked, None),
        (turns + asked, [{"type": "function", "function": schema}]),
    ]


LABELS = ("User", "Assistant", "System")
"""As ``Chat`` writes them."""
_NEXT = re.compile(rf"(?:\A|\n)[ \t]*[*_#>]{{0,4}}[ \t]*(?:{'|'.join(LABELS)})[ \t]*[*_]{{0,3}}[ \t]*:")
"""A label at the beginning of a line, in bold or not."""
_BEGUN = re.compile(r"(?:\A|\n)[ \t]*[*_#>]{0,4}[ \t]*(?P<word>[A-Za-z]*)(?P<rest>[ \t]*[*_]{0,3}[ \t]*)\Z")
_SEEN = 24
"""Tokens at the end of an answer among which a label stands."""


class NextSpeaker:
    """Finds the next speaker's label in what a model writes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def last_tokens(self) -> frozenset[int]:
        """Tokens with a colon: a label ends with one of them, so that an answer is looked at after these alone."""
        names = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        return frozenset(i for i, name in enumerate(names) if ":" in str(name) or str(name) == "<0x3A>")

    def answer_end(self, text: str) -> int | None:
        """Where the answer in a text ends, the space before the label left out; None where nobody else speaks."""
        found = _NEXT.search(text)
        return None if found is None else len(text[: found.start()].rstrip())

    def certain(self, text: str) -> int:
        """How many characters of a text that goes on belong to the answer, whatever comes: its end may be the beginning of a label."""
        begun = _BEGUN.search(text)
        word = begun["word"] if begun else ""
        if begun and any(
            label == word or (label.startswith(word) and not begun["rest"].strip()) for label in LABELS
        ):
            text = text[: begun.start()]
        return len(text.rstrip())

    def spoke(self, ids: Sequence[int]) -> bool:
        """Whether the last of these tokens ends a label."""
        if not ids or ids[-1] not in self.last_tokens:
            return False
        first = max(0, len(ids) - _SEEN)
        text = str(self.tokenizer.decode(list(ids[first:]), skip_special_tokens=True))
        found = _NEXT.search(text)
        return found is not None and (found.start() > 0 or first == 0 or text.startswith("\n"))

    def cut(self, ids: Sequence[int]) -> int | None:
        """How many of the tokens are the answer: at least one, and no token of the label; None where nobody else speaks.

        A token that ends the answer and begins the line break before the label is kept as it was drawn.
        """
        if not any(token in self.last_tokens for token in ids):
            return None
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
        place = self.answer_end(text)
        if place is None:
            return None
        low, high = 1, len(ids)
        while low < high:
            middle = (low + high) // 2
            if len(str(self.tokenizer.decode(list(ids[:middle]), skip_special_tokens=True))) >= place:
                high = middle
            else:
                low = middle + 1
        return low
