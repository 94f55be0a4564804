"""A prompt as a policy: immutable, versioned, with its parent and origin; and the history of a prompt."""

from __future__ import annotations

import difflib
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clawback.errors import NotFound, UsageError
from clawback.files import replace as write
from clawback.prompts import sections as parts
from clawback.prompts.sections import PromptSection
from clawback.records import JsonObject, Message


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system prompt. ``text`` is the whole truth; its sections are read from it (``prompts.sections``).

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
        if len(self.text) > parts.LONGEST_PROMPT:
            raise UsageError(
                f"The prompt has {len(self.text):,} characters, above the limit of {parts.LONGEST_PROMPT:,}. Shorten it."
            )

    @classmethod
    def of(
        cls, sections: Mapping[str, str] | Sequence[PromptSection], version: int = 0, **metadata: Any
    ) -> Prompt:
        """From sections: ``Prompt.of({"role": "You are …", "tone": "Brief."})``."""
        listed = (
            [PromptSection(name, text) for name, text in sections.items()]
            if isinstance(sections, Mapping)
            else list(sections)
        )
        if unknown := [one.name for one in listed if one.name not in parts.NAMES]:
            raise UsageError(f"A prompt has no section {unknown[0]!r}. It has: {', '.join(parts.NAMES)}.")
        return cls(parts.render(listed), version, metadata)

    @property
    def sections(self) -> tuple[PromptSection, ...]:
        return parts.parse(self.text)

    @property
    def id(self) -> str:
        """Hash of what the text says: the same words are the same prompt, whatever their version. 16 hexadecimal digits."""
        lines = "\n".join(line.rstrip() for line in self.text.strip().splitlines())
        return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def system(self) -> str:
        """What the model is given."""
        return parts.spoken(self.text)

    def messages(self, conversation: str | Sequence[Message]) -> tuple[Message, ...]:
        """A conversation (or one question) with this prompt as its only system message; an empty prompt adds none."""
        said: Sequence[Message] = (
            ({"role": "user", "content": conversation},) if isinstance(conversation, str) else conversation
        )
        rest = tuple(one for one in said if one.get("role") not in ("system", "developer"))
        return ({"role": "system", "content": self.system}, *rest) if self.system else rest

    def section(self, name: str) -> str:
        """The text of a section, "" where there is none."""
        found = parts.named(self.sections, name)
        return found.text if found else ""

    def with_refinement(self, new_text: str, *, unlock: bool = False, **metadata: Any) -> Prompt:
        """The next version. Locked sections stay as they are, unless a person says ``unlock=True``.

        Metadata adds to what this one has; scores do not carry over, since they belong to the prompt that earned them.
        """
        if not unlock and any(one.locked for one in self.sections):
            new_text = parts.render(parts.keep_locked(self.sections, parts.parse(new_text)))
        inherited = {name: value for name, value in self.metadata.items() if name not in ("score", "reason")}
        return Prompt(new_text, self.version + 1, {**inherited, **metadata}, self.id)

    def with_sections(self, sections: Sequence[PromptSection], **metadata: Any) -> Prompt:
        """The next version, with these sections."""
        return self.with_refinement(parts.render(sections), **metadata)

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
    def from_dict(cls, state: Mapping[str, Any]) -> Prompt:
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
