"""Drafts what was learned into an agent's own rules file (``CLAUDE.md``, ``AGENTS.md``): a marked block, shown as a diff.

It is written only when the user confirms. Only the block is ever changed: everything else in the file stays
byte for byte, and a block that somebody has edited is treated as theirs (they are told). The file must be in
the folder that is named, even after links are resolved.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from clawback.errors import UsageError
from clawback.files import replace

NAMES = ("CLAUDE.md", "AGENTS.md", "GEMINI.md")
BEGIN, END = "<!-- clawback: learned from your feedback -->", "<!-- /clawback -->"
MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class Draft:
    path: Path
    previous: str
    after: str

    @property
    def diff(self) -> str:
        name = self.path.name
        lines = difflib.unified_diff(
            self.previous.splitlines(), self.after.splitlines(), f"a/{name}", f"b/{name}", lineterm=""
        )
        return "\n".join(lines)


def draft(folder: Path, name: str, prompt: str) -> Draft:
    """The file with the prompt in it; with none, without the block. Raises ``UsageError`` for a name that is no rules file, a file outside the
    folder, or one that cannot be read."""
    if name not in NAMES:
        raise UsageError(f"{name} is no rules file that is known here. Name one of {', '.join(NAMES)}.")
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.")
    path = folder / name
    if path.is_symlink() or path.resolve().parent != folder.resolve():
        raise UsageError(f"{path} is a link to somewhere else, and only files in {folder} are written.")
    before = ""
    if path.exists():
        try:
            raw = path.read_bytes()
            before = raw.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read ({error}). Correct it first.") from error
        if len(raw) > MOST:
            raise UsageError(f"{path} is larger than {MOST} bytes: that is no rules file.")
    return Draft(path, before, _with_block(before, prompt.strip(), path))


def write(draft: Draft) -> None:
    """Raises ``UsageError`` where the file has changed since the draft was shown."""
    now = draft.path.read_bytes().decode("utf-8") if draft.path.exists() else ""
    if now != draft.previous:
        raise UsageError(f"{draft.path} has changed since: look at the new diff first.")
    replace(draft.path, draft.after.encode(), mode=None if draft.path.exists() else 0o644)


def _with_block(text: str, prompt: str, path: Path) -> str:
    begins, ends = text.count(BEGIN), text.count(END)
    if begins != ends or begins > 1:
        raise UsageError(
            f"The marks of Clawback's block in {path} do not fit together. Remove the block by hand."
        )
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join([BEGIN, *prompt.splitlines(), END]) if prompt else ""
    if begins:
        start, stop = text.index(BEGIN), text.index(END) + len(END)
        if stop < start:
            raise UsageError(
                f"The marks of Clawback's block in {path} do not fit together. Remove the block by hand."
            )
        if block:
            return text[:start] + block + text[stop:]
        return (
            text[:start].rstrip("\r\n")
            + (newline if text[:start].strip() else "")
            + text[stop:].lstrip("\r\n")
        )
    if not block:
        return text
    return text + (newline * (1 if text.endswith("\n") else 2) if text else "") + block + newline
