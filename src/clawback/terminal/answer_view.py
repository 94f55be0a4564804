"""How an answer looks while it comes: rendered Markdown on a terminal, the text itself in a pipe."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

from clawback.terminal.output import CONTROL_SIGNS

if TYPE_CHECKING:
    from rich.live import Live

FIRST_SIGNS = 40
"""A first piece up to this length is on one line of any terminal."""
FRAME_SECONDS = 0.05
"""The least time between two drawings of the paragraph that is being written."""
_FENCE = re.compile(r"^ {0,3}(```|~~~)")


class AnswerView:
    """``write`` each piece, then ``end``. Finished paragraphs are rendered and stay; the one that is being written is drawn anew with each piece."""

    def __init__(self) -> None:
        self.rendered = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.rest = ""
        """The text after the last finished paragraph."""
        self.live: Live | None = None
        self.drawn = 0.0
        self.written = False
        self.blocks = 0

    def write(self, piece: str) -> None:
        """Show a further piece."""
        self.written = True
        if not self.rendered:
            sys.stdout.write(piece)
            sys.stdout.flush()
            return
        self.rest = (self.rest + piece.translate(CONTROL_SIGNS)).lstrip("\n")
        while (end := paragraph_end(self.rest)) is not None:
            self._print(self.rest[:end])
            self.rest = self.rest[end:].lstrip("\n")
        if time.monotonic() - self.drawn >= FRAME_SECONDS:
            self._draw()

    def end(self) -> None:
        """Render what is left; the cursor stands on a new line. Nothing where nothing was written."""
        if not self.rendered and self.written:
            sys.stdout.write("\n")
            sys.stdout.flush()
        if self.live is not None:
            self.live.stop()
            self.live = None
        if self.rest.strip():
            self._print(self.rest)
        self.rest = ""

    def _draw(self) -> None:
        raw = self.live is None and len(self.rest) < FIRST_SIGNS and "\n" not in self.rest
        if raw:  # what draws the rest takes longer to import than the first word takes to come
            sys.stdout.write(self.rest)
            sys.stdout.flush()
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if raw:
            sys.stdout.write("\r\x1b[K")
        if self.live is None:
            self.live = Live(console=Console(highlight=False), auto_refresh=False, transient=True)
            self.live.start()
        console = self.live.console
        lines = Text(self.rest).wrap(console, console.width)
        self.live.update(Text("\n").join(lines[-max(console.height - 2, 1) :]), refresh=True)
        self.drawn = time.monotonic()

    def _print(self, block: str) -> None:
        from rich.console import Console

        console = self.live.console if self.live else Console(highlight=False)
        if self.blocks:
            console.print()
        console.print(markdown(block))
        self.blocks += 1


def paragraph_end(text: str) -> int | None:
    """Where the first finished paragraph of a text ends: at a blank line outside a block of code that more text follows at the margin.

    >>> paragraph_end("One.\\n\\nTwo"), paragraph_end("One.\\n\\n"), paragraph_end("```\\na\\n\\nb")
    (4, None, None)
    """
    fenced, start, blank = "", 0, None
    for line in text.splitlines(keepends=True):
        if (found := _FENCE.match(line)) and fenced in ("", found[1]):
            fenced = "" if fenced else found[1]
        if not fenced and not line.strip():
            blank = start if blank is None and start else blank
        elif blank is not None and not line[0].isspace():
            return blank - 1
        elif line.strip():
            blank = None
        start += len(line)
    return None


def markdown(text: str) -> object:
    """A text as rich renders Markdown: line breaks are kept, tags are text, and addresses are shown."""
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown

    page = Markdown("", hyperlinks=False)
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    page.parsed = parser.parse(hard_breaks(text))
    return page


def hard_breaks(text: str) -> str:
    """Every line break outside code as one that Markdown keeps."""
    fenced, lines = "", []
    for line in text.split("\n"):
        if (found := _FENCE.match(line)) and fenced in ("", found[1]):
            fenced = "" if fenced else found[1]
            lines.append(line)
        else:
            lines.append(line if fenced or not line.strip() else line.rstrip() + "  ")
    return "\n".join(lines)
