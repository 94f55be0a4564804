"""A prompt as a policy: immutable, with its versions and their history, its text as sections, and the comparison of two prompts' rules.

The text is what a person edits and what is kept in a file; the sections are what a search changes one at a time::

    You are a helpful assistant.

    ## Tone
    Friendly, but brief.

    ## Constraints (locked)
    - Never give medical advice.

What stands before the first heading is the role. ``(locked)`` says that no search may change the section; it is for the
person and the search, and ``spoken`` leaves it out of what the model reads. A heading with any other name is ordinary text.

The rules of a prompt are its lines, by section. Two prompts' rules are added, missing, equal in meaning or in common.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from clawback.errors import NotFound, UsageError
from clawback.files import replace as write
from clawback.records import JsonObject, Message

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


Rule = tuple[str, str]
"""(section, line)."""

ALIKE = 0.6
"""Share of words in common from which on two lines are taken to say the same."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_NOT = re.compile(
    r"(?:no|not|never|nor|without|avoid|none|stop|don['’]?t|doesn['’]?t|cannot|can['’]?t|neither)"
)
_EMPTY = frozenset(["a", "an", "the", "to", "of", "in", "on", "at", "for", "and", "or", "be", "is", "are", "as", "it", "its", "that", "this", "with", "your", "you", "my", "i", "please", "always"])  # fmt: skip


def rules(prompt: Prompt) -> list[Rule]:
    """Every line with the section that it stands in, in order."""
    return [(section.name, line) for section in prompt.sections for line in section.rules]


def added(old: Prompt, new: Prompt) -> list[Rule]:
    """Lines of ``new`` that ``old`` has not."""
    had = set(rules(old))
    return [one for one in rules(new) if one not in had]


def missing(wanted: Iterable[Rule], prompt: Prompt) -> list[Rule]:
    """Those of ``wanted`` that the prompt neither has nor says in other words."""
    has = [line for _, line in rules(prompt)]
    return [one for one in wanted if not any(alike(one[1], line) for line in has)]


def with_earned(prompt: Prompt, earned: Sequence[Rule]) -> Prompt:
    """With the rules that won a race put back where a proposal left them out."""
    sections = prompt.sections
    for name, line in missing(earned, prompt):
        sections = with_rule(sections, name, line)
    return Prompt(render(sections), prompt.version, prompt.metadata, prompt.parent) if sections != prompt.sections else prompt  # fmt: skip


def merged(prompt: Prompt, other: Prompt, base: Prompt) -> Prompt:
    """``prompt`` with what ``other`` added to and took from ``base``, their common ancestor: no model is asked."""
    sections = prompt.sections
    came = set(rules(other))
    for name, line in rules(base):
        if (name, line) not in came:
            sections = without_rule(sections, name, line)
    for name, line in added(base, other):
        if not any(alike(line, had) for section in sections for had in section.rules):
            sections = with_rule(sections, name, line)
    return prompt.with_sections(sections, author="merge", other=other.id)


def alike(first: str, other: str) -> bool:
    """Whether two lines say the same, by their words. "Use emoji" and "Use no emoji" do not."""
    if first == other:
        return True
    a, b = _words(first), _words(other)
    if negated(first) != negated(other) or not a or not b:
        return False
    return len(a & b) / len(a | b) >= ALIKE


@lru_cache(maxsize=4096)
def negated(line: str) -> bool:
    """Whether a line forbids rather than asks."""
    return any(_NOT.fullmatch(word) for word in _WORD.findall(line.lower()))


def distance(prompt: Prompt, other: Prompt) -> float:
    """How far apart two prompts are in meaning, 0 to 1: share of lines on either side that the other does not say."""
    a, b = [line for _, line in rules(prompt)], [line for _, line in rules(other)]
    apart = sum(not any(alike(x, y) for y in b) for x in a) + sum(not any(alike(x, y) for y in a) for x in b)
    return apart / (len(a) + len(b)) if a or b else 0.0


@lru_cache(maxsize=4096)
def _words(line: str) -> frozenset[str]:
    return frozenset(_stem(w) for w in _WORD.findall(line.lower()) if w not in _EMPTY)


def _stem(word: str) -> str:
    """Without the commonest endings of English; other languages are compared as they are written."""
    for ending in ("ing", "ed", "es", "s", "ly"):
        if len(word) > len(ending) + 3 and word.endswith(ending):
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system prompt. ``text`` is the whole truth; its sections are read from it (``prompts.prompt``).

    Attributes:
        text: as a person edits it.
        version: its number in a history; a refinement has the next one.
        metadata: how it came to be (``author``, ``reason``, scores …); JSON values.
        parent: ``id`` of the prompt that it was made from, "" for a first one.
    """

    text: str
    version: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent: str = ""

    def __post_init__(self) -> None:
        if len(self.text) > LONGEST_PROMPT:
            raise UsageError(
                f"The prompt has {len(self.text):,} characters, above the limit of {LONGEST_PROMPT:,}. Shorten it."
            )

    @classmethod
    def of(
        cls, sections: Mapping[str, str] | Sequence[PromptSection], version: int = 0, **metadata: object
    ) -> Prompt:
        """From sections: ``Prompt.of({"role": "You are …", "tone": "Brief."})``."""
        listed = (
            [PromptSection(name, text) for name, text in sections.items()]
            if isinstance(sections, Mapping)
            else list(sections)
        )
        if unknown := [one.name for one in listed if one.name not in NAMES]:
            raise UsageError(f"A prompt has no section {unknown[0]!r}. It has: {', '.join(NAMES)}.")
        return cls(render(listed), version, metadata)

    @property
    def sections(self) -> tuple[PromptSection, ...]:
        return parse(self.text)

    @property
    def id(self) -> str:
        """Hash of what the text says: the same words are the same prompt, whatever their version. 16 hexadecimal digits."""
        lines = "\n".join(line.rstrip() for line in self.text.strip().splitlines())
        return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def system(self) -> str:
        """What the model is given."""
        return spoken(self.text)

    def messages(self, conversation: str | Sequence[Message]) -> tuple[Message, ...]:
        """A conversation (or one question) with this prompt as its only system message; an empty prompt adds none."""
        said: Sequence[Message] = (
            ({"role": "user", "content": conversation},) if isinstance(conversation, str) else conversation
        )
        rest = tuple(one for one in said if one.get("role") not in ("system", "developer"))
        return ({"role": "system", "content": self.system}, *rest) if self.system else rest

    def section(self, name: str) -> str:
        """The text of a section, "" where there is none."""
        found = named(self.sections, name)
        return found.text if found else ""

    def with_refinement(self, new_text: str, *, unlock: bool = False, **metadata: object) -> Prompt:
        """The next version. Locked sections stay as they are, unless a person says ``unlock=True``.

        Metadata adds to what this one has; scores do not carry over, since they belong to the prompt that earned them.
        """
        if not unlock and any(one.locked for one in self.sections):
            new_text = render(keep_locked(self.sections, parse(new_text)))
        inherited = {name: value for name, value in self.metadata.items() if name not in ("score", "reason")}
        return Prompt(new_text, self.version + 1, {**inherited, **metadata}, self.id)

    def with_sections(self, sections: Sequence[PromptSection], **metadata: Any) -> Prompt:
        """The next version, with these sections."""
        return self.with_refinement(render(sections), **metadata)

    def diff(self, other: Prompt) -> str:
        """What changed from this one to ``other``, as a unified diff ("" where nothing did)."""
        lines = difflib.unified_diff(
            self.text.splitlines(),
            other.text.splitlines(),
            f"v{self.version}",
            f"v{other.version}",
            lineterm="",
        )
        return "\n".join(lines)

    def to_dict(self) -> JsonObject:
        return {
            "text": self.text,
            "version": self.version,
            "metadata": dict(self.metadata),
            "parent": self.parent,
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, object]) -> Prompt:
        """Raises ``UsageError`` where it is no prompt."""
        text, version = state.get("text"), state.get("version", 0)
        metadata, parent = state.get("metadata") or {}, state.get("parent") or ""
        if not (isinstance(text, str) and isinstance(version, int) and isinstance(metadata, Mapping) and isinstance(parent, str)):  # fmt: skip
            raise UsageError("This is no prompt: it needs a `text`, and a `version` that is a whole number.")
        return cls(text, version, dict(metadata), parent)

    def __str__(self) -> str:
        return self.text


class PromptHistory:
    """The versions of one prompt, oldest first, and which of them is current. Nothing is ever removed."""

    def __init__(self, prompts: Sequence[Prompt] = ()) -> None:
        self._prompts = list(prompts)
        self._at = len(self._prompts) - 1

    def append(self, prompt: Prompt) -> None:
        """Add a version and make it the current one."""
        self._prompts.append(prompt)
        self._at = len(self._prompts) - 1

    @property
    def current(self) -> Prompt:
        """Raises ``NotFound`` while it is empty."""
        if not self._prompts:
            raise NotFound("This history holds no prompt yet: append one.")
        return self._prompts[self._at]

    def rollback(self, version: int | None = None) -> Prompt:
        """Make an earlier version current again (the one before where none is named). Raises ``NotFound``."""
        if version is None:
            if self._at < 1:
                raise NotFound("There is no earlier prompt to go back to.")
            self._at -= 1
            return self.current
        places = [i for i, one in enumerate(self._prompts) if one.version == version]
        if not places:
            raise NotFound(f"There is no prompt v{version}; there are {len(self)} versions.")
        self._at = places[-1]
        return self.current

    def diff(self, old: int, new: int) -> str:
        """Between two places in the history (negative ones count from the end)."""
        return self._prompts[old].diff(self._prompts[new])

    def save(self, path: Path) -> None:
        """As JSON, atomically, readable by its owner alone."""
        kept = {
            "prompts": [one.to_dict() for one in self._prompts],
            "current": self._at,
            "saved_at": time.time(),
        }
        write(path, json.dumps(kept, ensure_ascii=False, indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> PromptHistory:
        """Raises ``UsageError`` for a damaged file: it is never taken for an empty one."""
        try:
            kept = json.loads(path.read_text("utf-8"))
            made = cls([Prompt.from_dict(one) for one in kept["prompts"]])
            made._at = int(kept["current"])
            if made._prompts and not 0 <= made._at < len(made._prompts):
                raise ValueError("it names a version that is not there")
        except FileNotFoundError:
            raise NotFound(f"There is no prompt history at {path}.") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"The prompt history {path} is damaged ({error}). Restore it from a backup or remove it.") from error  # fmt: skip
        return made

    def __len__(self) -> int:
        return len(self._prompts)

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self._prompts)

    def __getitem__(self, index: int) -> Prompt:
        return self._prompts[index]
