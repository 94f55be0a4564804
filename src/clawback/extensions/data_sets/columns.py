"""What all records of a file say together of their columns: the scale of numbers, the column that rates, and the fields that nobody reads."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from clawback import scales
from clawback.errors import UsageError
from clawback.extensions.data_sets.entries import (
    MOST_NAMES,
    BadLine,
    BoundedCounter,
    Columns,
    Record,
    is_nothing,
)

RATES = re.compile(
    r"rat(e|ing)|scor|stars?\b|thumb|label|helpful|quality|(dis)?likes?\b|votes?|reward|weight|prefer|grade|good|bad\b|correct|annotat|chosen|rejected|feedback",
    re.IGNORECASE,
)
"""Names of fields that look like ratings: they are named where nobody reads them."""
_ADOPTED = (
    r"(?:\w+_)?ratings?(?:_value)?", r"(?:\w+_)?scores?", r"(?:\w+_)?stars?", r"(?:\w+_)?thumbs?(?:_up)?", r"(?:\w+_)?votes?",
    r"(?:is_)?liked?s?", r"(?:\w+_)?feedback(?:_score)?", r"upvoted?", r"overall(?:_quality)?", r"helpful(?:ness)?",
    r"quality", r"(?:\w+_)?grade", r"is_good|good", r"label",
)  # fmt: skip
"""Names of columns that are read as the rating where no field is called so, the surest first: one whose values are words for good and bad or say their scale."""
_OTHER_MEASURES = re.compile(
    r"tox|harm|hate|risk|unsafe|sever|bias|spam|error|loss|perplex|difficult|similar|distance|length|latenc|confiden|down_?vote|bleu|rouge|bert",
    re.IGNORECASE,
)
"""Scores that are no opinion of an answer, or for which less is better: ``--rating-field`` reads them."""
_MOST_VALUES = 4096
"""Different values of a column that are kept."""


@dataclass(slots=True)
class _Column:
    """The values of one column, in bounded memory."""

    numbers: Counter[float] = field(default_factory=Counter)
    low: float = float("inf")
    high: float = float("-inf")
    integral: bool = True
    total: int = 0
    words: int = 0
    """Values that are words or signs for good and bad, or true and false."""
    other: int = 0
    few: set[Any] = field(default_factory=set)

    def add(self, value: object) -> None:
        if isinstance(value, (str, bool, int, float)) and len(self.few) <= 64 and len(str(value)) <= 64:
            self.few.add(value)
        if isinstance(value, bool) or (isinstance(value, str) and scales.sign_of(value) is not None):
            self.words += 1
            return
        try:
            plain = plain_number(value)
        except BadLine:
            plain = None
        if plain is None:
            says_scale = isinstance(value, str) and _typed(value) is not None  # ★★★★☆, 4/5
            self.words, self.other = self.words + says_scale, self.other + (not says_scale)
            return
        self.total += 1
        self.low, self.high = min(self.low, plain), max(self.high, plain)
        self.integral = self.integral and plain == int(plain)
        if plain in self.numbers or len(self.numbers) < _MOST_VALUES:
            self.numbers[plain] += 1

    @property
    def sample(self) -> list[float]:
        """Values that have the same lowest, highest and steps as all of them, and are many where there are many."""
        steps = (
            [] if self.integral else [next(v for v in self.numbers if v != int(v))] if self.numbers else []
        )
        few = [self.low, self.high, *steps] if self.total > 1 else [self.low]
        return few + [self.low] * min(max(self.total - len(few), 0), 5)

    @property
    def median(self) -> float:
        half, seen = sum(self.numbers.values()) / 2, 0
        for value in sorted(self.numbers):
            seen += self.numbers[value]
            if seen >= half:
                return value
        return 0.0


class ColumnSurvey:
    """Reads the columns of a file record by record."""

    def __init__(self, scale: str = "auto", rating_field: str = "") -> None:
        """Raises ``UsageError`` for a scale that is none."""
        if scale != "auto":
            scales.ends(scale)
        self.scale, self.rating_field = scale, rating_field
        self.rating: dict[str, _Column] = {}
        """Columns that are certainly ratings."""
        self.candidates: dict[str, _Column] = {}
        self.watched: dict[str, _Column] = {}
        self.unread: Counter[str] = BoundedCounter()

    def add(self, name: str, value: object) -> None:
        """A value of a column that a reader takes for a rating."""
        self.rating.setdefault(name, _Column()).add(value)

    def offer(self, record: Record, read: frozenset[str] | set[str]) -> None:
        """All other fields of a record: perhaps one of them is the rating."""
        for name, value in record.items():
            key = str(name).lower()
            if key == self.rating_field.lower() or key in read or is_nothing(value):
                continue
            self.unread[str(name)] += 1
            if not isinstance(value, (list, dict)) and (
                name in self.candidates or len(self.candidates) < MOST_NAMES
            ):
                self.candidates.setdefault(str(name), _Column()).add(value)

    def watch(self, record: Record) -> None:
        """Keep the different values of short fields: what a verdict means may follow from all of them."""
        for name, value in record.items():
            key = str(name).lower()
            few = key in self.watched or len(self.watched) < MOST_NAMES
            if few and isinstance(value, (str, bool, int, float)):
                self.watched.setdefault(key, _Column()).add(value)

    def columns(self, *, adopt: bool) -> Columns:
        """What was found. ``adopt``: a column may be taken for the rating by its name and values."""
        columns = Columns(rating_field=self.rating_field)
        for name, column in self.rating.items():
            if column.total:
                _read_scale(columns, name, column, self.scale, refused=adopt)
        opinions = sum(column.total + column.words for column in self.rating.values())
        if adopt and not opinions and not self.rating_field:
            self._adopt(columns)
        columns.values = {
            name: frozenset(column.few)
            for name, column in (self.watched | self.candidates | self.rating).items()
            if len(column.few) <= 64
        }
        columns.notes += _unread_notes(self.unread)
        return columns

    def _adopt(self, columns: Columns) -> None:
        for pattern in _ADOPTED:
            for name, column in self.candidates.items():
                named = re.fullmatch(
                    pattern, re.sub(r"[ -]+", "_", name), re.IGNORECASE
                ) and not _OTHER_MEASURES.search(name)
                if column.other or not named:
                    continue
                if column.total and (clear := _clear_scale(column, self.scale)):
                    columns.scale_of[name] = clear
                elif column.total:
                    continue
                columns.rating_field = name
                words = f" from {clear.replace('-', ' to ', 1)}" if column.total else ""
                columns.notes.append(f"`{name}` is read as the rating{words}.")
                self.unread.pop(name, None)
                return


def _clear_scale(column: _Column, scale: str) -> str:
    """The scale of a column, "" where its values do not say it."""
    if scale != "auto":
        low, high = scales.ends(scale)
        return scale if low <= column.low and column.high <= high else ""
    try:
        return scales.of_column(column.sample)
    except UsageError:
        return ""


def _read_scale(columns: Columns, name: str, column: _Column, scale: str, *, refused: bool) -> None:
    signed = name == "rating"
    try:
        clear = scales.of_column(column.sample, signed=signed)
        if clear == "0-100" and column.median <= 10:
            raise UsageError("most scores are small, and some are over 10: give `--scale LOW-HIGH`")
    except UsageError as error:
        if scale == "auto":
            columns.unclear[name] = str(error)
            lost = " Those lines were not imported." if refused else ""
            columns.notes.append(f"`{name}` was not read: {error}.{lost}")
            return
        clear = scale
    if scale != "auto" and not (signed and clear == "-1-1"):
        clear = scale
    columns.scale_of[name] = clear
    if not (signed and clear == "-1-1"):
        low, high = scales.ends(clear)
        columns.notes.append(
            f"`{name}` is read as a score from {low:g} to {high:g} (`--scale` says otherwise)."
        )


def _unread_notes(unread: Counter[str]) -> list[str]:
    rating = sorted(n for n in unread if RATES.search(n) and not n.lower().endswith(("id", "_at")))
    notes = [
        f"`{name}` looks like a rating and was not read ({unread[name]} lines): `--rating-field {name}` reads it."
        for name in rating[:10]
    ]
    others = sorted(unread.keys() - set(rating))
    return notes + ([f"Not read: {', '.join(f'`{name}`' for name in others[:20])}."] if others else [])


def plain_number(value: object) -> float | None:
    """A number that does not say its scale; None for anything else. Raises ``BadLine`` for a score outside the scale that it names."""
    if isinstance(value, str):
        score = None if scales.sign_of(value) is not None else typed_score(value)
        says_scale = any(c.isalpha() or c in "/%★⭐" for c in value)
        return score[0] if score and (not score[1] or not says_scale) else None
    if (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and value == value
        and abs(value) < 1e9
    ):
        return float(value)
    return None


def _typed(words: str) -> tuple[float, str] | None:
    try:
        return typed_score(words)
    except BadLine:
        return None


def typed_score(words: str) -> tuple[float, str] | None:
    """A number, or a score as a person types it, with its scale. Raises ``BadLine`` for one outside its scale."""
    try:
        return float(words), ""
    except ValueError:
        pass
    try:
        return scales.score_in(words)
    except UsageError as error:
        raise BadLine(f"{words!r}: {error}") from error
