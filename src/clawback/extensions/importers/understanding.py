"""What was understood of a file: counted entry by entry, and shown as a table before anything is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from clawback.extensions.data_sets.entries import ASKED_AGAIN, CORRECTED, KEPT, BoundedCounter, Entry
from clawback.records import OWNER, Feedback, JsonObject

_GUESSES = {
    KEPT: "branches kept",
    ASKED_AGAIN: "questions asked again",
    CORRECTED: "answers corrected by the next message",
}
_NUMBERS = (
    "conversations", "turns", "good", "bad", "preferences", "edits", "remarks", "regenerations", "kept_shorter", "kept_longer",
    "unread_records",
)  # fmt: skip
MOST_PROBLEMS = 20
"""Problems that are shown; the others are counted."""


@dataclass(slots=True)
class Understanding:
    """The counts of one file."""

    name: str
    formats: Counter[str] = field(default_factory=Counter)
    """Title of a format → entries."""
    stranger: bool = False
    """Strangers made the set."""
    conversations: int = 0
    turns: int = 0
    good: int = 0
    bad: int = 0
    scales: Counter[str] = field(default_factory=Counter)
    preferences: int = 0
    edits: int = 0
    remarks: int = 0
    guesses: Counter[str] = field(default_factory=Counter)
    people: Counter[str] = field(default_factory=BoundedCounter)
    models: Counter[str] = field(default_factory=Counter)
    regenerations: int = 0
    kept_shorter: int = 0
    kept_longer: int = 0
    unread: Counter[str] = field(default_factory=BoundedCounter)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unread_records: int = 0

    def add(self, entry: Entry, title: str) -> None:
        self.formats[title] += 1
        self.conversations += bool(entry.turns)
        self.turns += len(entry.turns)
        for turn in entry.turns:
            if turn.model and (turn.model in self.models or len(self.models) < 200):
                self.models[turn.model] += 1
        for opinion in (*entry.feedback, *(one for _, one in entry.links)):
            self._count(opinion)
        for chosen, other in entry.regenerations:
            self.regenerations += 1
            self.kept_shorter += chosen < other
            self.kept_longer += chosen > other

    def _count(self, opinion: Feedback) -> None:
        if opinion.kind == "implicit":
            self.guesses[opinion.author] += 1
            return
        self.people[opinion.person or OWNER] += 1
        if opinion.kind == "rating":
            self.good += opinion.value > 0
            self.bad += opinion.value < 0
            self.scales[opinion.scale] += 1
            self.remarks += bool(opinion.text)
        self.preferences += opinion.kind == "preference"
        self.edits += opinion.kind == "edit"
        self.remarks += opinion.kind == "critique"

    def refuse(self, problem: str) -> None:
        self.unread_records += 1
        if len(self.problems) < 1000:
            self.problems.append(problem)

    def to_dict(self) -> JsonObject:
        """For ``--json``."""
        regenerations = {
            "number": self.regenerations,
            "kept_shorter": self.kept_shorter,
            "kept_longer": self.kept_longer,
        }
        scales = {k or "-1/1": v for k, v in self.scales.items()}
        return {
            "file": self.name, "formats": dict(self.formats), "conversations": self.conversations, "turns": self.turns,
            "ratings": {"good": self.good, "bad": self.bad, "scales": scales},
            "preferences": self.preferences, "edits": self.edits, "remarks": self.remarks, "guesses": dict(self.guesses),
            "regenerations": regenerations, "people": dict(self.people), "models": dict(self.models),
            "not_understood": dict(self.unread), "notes": self.notes, "problems": self.problems,
        }  # fmt: skip

    def lines(self) -> list[str]:
        """The table: a line for what there is."""
        shown = [
            ("format", ", ".join(self.formats) or "not known"),
            ("conversations", f"{self.conversations:,}"),
            ("answers", f"{self.turns:,}{_listed(self.models, ' by ')}"),
            ("ratings", self._ratings()),
            ("preferences", f"{self.preferences:,}" if self.preferences else ""),
            ("edits", f"{self.edits:,}" if self.edits else ""),
            ("remarks", f"{self.remarks:,}" if self.remarks else ""),
            (
                "guesses",
                "; ".join(f"{number:,} {_GUESSES.get(name, name)}" for name, number in self.guesses.items()),
            ),
            ("", self.regenerated()),
            ("whose", self._whose()),
            (
                "not understood",
                "; ".join(f"{name} ({number:,})" for name, number in self.unread.most_common(12)),
            ),
            ("not read", f"{self.unread_records:,} records" if self.unread_records else ""),
        ]
        rows = [f"  {label:<15} {value}" for label, value in shown if value]
        return [self.name, *rows, *(f"  {note}" for note in self.notes)]

    def regenerated(self) -> str:
        """What the regenerations say of length; "" without any."""
        if not self.regenerations:
            return ""
        more, what = max((self.kept_shorter, "shorter"), (self.kept_longer, "longer"))
        return (
            f"in {more:,} of {self.regenerations:,} regenerations you kept the {what} answer" if more else ""
        )

    def _ratings(self) -> str:
        number = sum(self.scales.values())
        if not number:
            silent = self.turns and not (self.people or self.guesses)
            return "none: `--liked` counts each answer as one that you like" if silent else ""
        named = [
            f"{count:,} from {scale.replace('-', ' to ', 1)}" for scale, count in self.scales.items() if scale
        ]
        return f"{number:,}: {self.good:,} good, {self.bad:,} bad" + (
            f" ({', '.join(named)})" if named else ""
        )

    def _whose(self) -> str:
        if not self.people:
            return ""
        words = _listed(
            Counter({("yours" if who == OWNER else who): number for who, number in self.people.items()}), ""
        )
        hint = (
            "; a set that strangers made: `--mine` makes the opinions yours"
            if self.stranger and OWNER not in self.people
            else ""
        )
        return words + hint


def _listed(counts: Counter[str], start: str) -> str:
    if not counts:
        return ""
    names = [f"{name} ({number:,})" for name, number in counts.most_common(4)]
    rest = len(counts) - len(names)
    return start + ", ".join(names) + (f" and {rest} more" if rest > 0 else "")


def total(files: Sequence[Understanding]) -> Understanding:
    """All files as one, for the last line."""
    summary = Understanding("all")
    for one in files:
        for name in _NUMBERS:
            setattr(summary, name, getattr(summary, name) + getattr(one, name))
        for name in ("formats", "scales", "guesses", "people", "models", "unread"):
            getattr(summary, name).update(getattr(one, name))
    return summary
