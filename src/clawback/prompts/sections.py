"""Conversion between a prompt's text and its sections.

The text is what a person edits and what is kept in a file; the sections are what a search changes one at a time::

    You are a helpful assistant.

    ## Tone
    Friendly, but brief.

    ## Constraints (locked)
    - Never give medical advice.

What stands before the first heading is the role. ``(locked)`` says that no search may change the section; it is for the
person and the search, and ``spoken`` leaves it out of what the model reads. A heading with any other name is ordinary text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

ROLE = "role"
NAMES = (ROLE, "tone", "constraints", "examples", "format")
"""The sections, in the order that they are put in where a prompt has none yet."""
LONGEST_PROMPT = 100_000
"""Characters. A longer text is no prompt, and costs more tokens than it can be worth."""

_HEADING = re.compile(rf"#{{1,3}} ?({'|'.join(NAMES)})( \(locked\))?:?[ \t]*", re.IGNORECASE)
_ITEM = re.compile(r"(?:[-*•]|\d{1,3}[.)])[ \t]+")


@dataclass(frozen=True, slots=True)
class PromptSection:
    """One part of a prompt. ``locked``: stays as it is whatever a search or a model proposes."""

    name: str
    text: str
    locked: bool = False

    @property
    def rules(self) -> tuple[str, ...]:
        """Its lines, without the marks of a list: the smallest pieces that a search adds, drops and exchanges."""
        lines = (line.strip() for line in self.text.split("\n"))
        return tuple(_ITEM.sub("", line, count=1) for line in lines if line)


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[PromptSection, ...]:
    """The sections of a text, in its order; empty ones are left out. A name that comes twice is ordinary text the second time."""
    found: list[PromptSection] = []
    name, locked, lines = ROLE, False, list[str]()
    seen = {ROLE} if _before_heading(text) else set[str]()

    def close() -> None:
        body = "\n".join(lines).strip()
        if body:
            found.append(PromptSection(name, body, locked))

    for line in text.replace("\r\n", "\n").split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading and heading[1].lower() not in seen:
            close()
            name, locked, lines = heading[1].lower(), bool(heading[2]), []
            seen.add(name)
        else:
            lines.append(line)
    close()
    return tuple(found)


def render(sections: Iterable[PromptSection]) -> str:
    """The text of sections: ``parse`` gives them back. Lines inside a section that would read as a heading are indented."""
    return "\n\n".join(
        _block(section, first=not i, marks=True) for i, section in enumerate(_filled(sections))
    )


def spoken(text: str) -> str:
    """What the model reads: the same text without the marks that are for the search."""
    return re.sub(
        rf"^(#{{1,3}} ?(?:{'|'.join(NAMES)})) \(locked\)",
        r"\1",
        text.strip(),
        flags=re.IGNORECASE | re.MULTILINE,
    )


def named(sections: Sequence[PromptSection], name: str) -> PromptSection | None:
    """The section of that name, or None."""
    return next((one for one in sections if one.name == name), None)


def put(sections: Sequence[PromptSection], new: PromptSection) -> tuple[PromptSection, ...]:
    """With ``new`` in the place of the one of its name, or at its usual place among the others. A locked one stays as it is."""
    old = named(sections, new.name)
    if old is not None:
        return tuple(sections) if old.locked else tuple(new if one is old else one for one in sections)
    place = NAMES.index(new.name) if new.name in NAMES else len(NAMES)
    after = [i for i, one in enumerate(sections) if one.name in NAMES and NAMES.index(one.name) < place]
    at = after[-1] + 1 if after else (0 if place < len(NAMES) else len(sections))
    return (*sections[:at], new, *sections[at:])


def keep_locked(old: Sequence[PromptSection], new: Sequence[PromptSection]) -> tuple[PromptSection, ...]:
    """``new`` with every locked section of ``old`` as it was, at its place if it went missing; only ``old`` says what is locked."""
    locked = {one.name: one for one in old if one.locked}
    kept = tuple(locked.get(one.name, replace(one, locked=False)) for one in new)
    for section in locked.values():
        if named(kept, section.name) is None:
            kept = put(kept, section)
    return kept


def with_rule(sections: Sequence[PromptSection], name: str, rule: str) -> tuple[PromptSection, ...]:
    """With one more line in a section, as a list item except in the role."""
    old = named(sections, name)
    line = rule.strip() if name == ROLE else f"- {rule.strip()}"
    return put(sections, PromptSection(name, f"{old.text}\n{line}" if old else line))


def without_rule(sections: Sequence[PromptSection], name: str, rule: str) -> tuple[PromptSection, ...]:
    """Without a line; a section that is empty then goes."""
    old = named(sections, name)
    if old is None or old.locked:
        return tuple(sections)
    lines = [line for line in old.text.split("\n") if _ITEM.sub("", line.strip(), count=1) != rule]
    left = "\n".join(lines).strip()
    return tuple(replace(one, text=left) if one is old else one for one in sections if one is not old or left)


def _before_heading(text: str) -> bool:
    """Whether anything stands before the first heading: that is the role, and a later role heading is ordinary text."""
    for line in text.replace("\r\n", "\n").split("\n"):
        if _HEADING.fullmatch(line):
            return False
        if line.strip():
            return True
    return False


def _filled(sections: Iterable[PromptSection]) -> list[PromptSection]:
    return [one for one in sections if one.text.strip()]


def _block(section: PromptSection, *, first: bool, marks: bool) -> str:
    text = "\n".join(
        f" {line}" if _HEADING.fullmatch(line) else line for line in section.text.strip().split("\n")
    )
    if section.name == ROLE and first and not section.locked:
        return text
    return f"## {section.name.capitalize()}{' (locked)' if section.locked and marks else ''}\n{text}"
