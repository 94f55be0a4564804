"""A program of its own that renders a few conversations with a chat template, under limits that the operating system enforces.

A template is a program that somebody else wrote. Standard input: {"template", "conversations", "args",
"bytes", "seconds"}; the last line on standard output: the length in characters of the longest rendering. A
template that refuses a conversation (as many do) is fine.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """``{% generation %} … {% endgeneration %}`` is what transformers adds to the language."""

    tags = {"generation"}

    def parse(self, parser: Any) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def limit(seconds: int, room: int) -> None:
    """Processor time, and memory beyond what this program has by now."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))


def refuse(message: str) -> None:
    raise TemplateError(message)


def main() -> None:
    asked = json.load(sys.stdin)
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, indent=None, **_: json.dumps(value, indent=indent)
    environment.globals |= {"raise_exception": refuse, "strftime_now": lambda _: "1 January 2026"}
    limit(asked["seconds"], asked["bytes"])
    longest = 0
    try:
        template = environment.from_string(asked["template"])
        for given in asked["conversations"]:
            made = 0
            try:
                for piece in template.generate(**given, **asked["args"]):
                    made += len(piece)
                    if made > asked["bytes"]:
                        break
            except MemoryError:
                raise
            except Exception:  # noqa: S110 — templates refuse in any way they like
                pass
            longest = max(longest, made)
    except TemplateError:
        pass  # transformers will say what is wrong with it
    print(longest)


if __name__ == "__main__":
    main()
