"""A process that renders chat templates under limits that the operating system enforces. ``templates`` starts it.

Run as ``python -I template_worker.py``, with jinja2 alone. A template is a program that somebody else wrote, so each
rendering has its own limit of processor time and memory. Standard input: requests, each a length (8 bytes) and a pickle of
``{"template", "variables", "seconds", "bytes", "longest"}``. Standard output: answers, each a letter (``O`` the text,
``E`` an error of the template, ``L`` a limit), a length and UTF-8. A process that a limit of the system ends answers nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from jinja2 import Template, nodes
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

_LENGTH = 8
_ERROR_LETTERS = 2000


class GenerationTag(Extension):
    """``{% generation %} … {% endgeneration %}`` is what transformers adds to the language: a scope of its own."""

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller: Any) -> str:
        return str(caller())


class Dict:
    """``dict`` for templates, without the rest of the type."""

    def __call__(self, *values: object, **named: object) -> dict[Any, Any]:
        return dict(*values, **named)

    def fromkeys(self, *values: Any) -> dict[Any, Any]:
        return dict.fromkeys(*values)


class PlainNamespace(Namespace):
    """A namespace without names that begin with an underscore."""

    def __init__(*values: object, **named: object) -> None:
        self, *rest = values
        attributes = dict(*rest, **named)
        for name in attributes:
            _plain(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: object) -> None:
        _plain(name)
        Namespace.__setitem__(self, name, value)


def _plain(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no attribute {name!r}")


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False) -> str:  # fmt: skip
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@functools.lru_cache(maxsize=16)
def compiled(template: str) -> Template:
    """As transformers compiles it."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals |= {
        "raise_exception": _refuse,
        "strftime_now": lambda form: datetime.now().strftime(form),
        "dict": Dict(),
        "namespace": PlainNamespace,
    }
    return environment.from_string(template)


def limit(seconds: float, room: int) -> None:
    """Processor time and memory, both beyond what this process has used by now. Their end is this process's end."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, resource.getrlimit(resource.RLIMIT_AS)[1]))


def answer(request: dict[str, Any]) -> tuple[bytes, str]:
    limit(request["seconds"], request["bytes"])
    pieces: list[str] = []
    length = 0
    try:
        for piece in compiled(request["template"]).generate(request["variables"]):
            pieces.append(piece)
            length += len(piece)
            if length > request["longest"]:
                return b"L", ""
        return b"O", "".join(pieces)
    except MemoryError:
        return b"L", ""
    except Exception as error:  # templates refuse in any way they like
        return b"E", (str(error) or type(error).__name__)[:_ERROR_LETTERS]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        sys.exit()
    return data


def main() -> None:
    # What anything here prints is no answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        length = int.from_bytes(_read(sys.stdin.buffer, _LENGTH), "big")
        kind, text = answer(pickle.loads(_read(sys.stdin.buffer, length)))  # noqa: S301 — our parent's own
        data = text.encode("utf-8", "surrogatepass")
        answers.write(kind + len(data).to_bytes(_LENGTH, "big") + data)
        answers.flush()


if __name__ == "__main__":
    main()
