"""The way of an import: open what is there, recognise it, read its columns, show what was understood, store it.

A file is read twice or three times, record by record, so that its size does not matter: once for its columns (a scale is never guessed from one
record), once to show what it holds where somebody looks first, once to store it.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.capture.text_rows import Row
from clawback.errors import UsageError
from clawback.extensions.data_sets import annotated, lines
from clawback.extensions.data_sets.columns import ColumnSurvey
from clawback.extensions.data_sets.entries import BadLine, Columns, Consent, Entry, FileReading, Record
from clawback.extensions.importers import formats
from clawback.extensions.importers.containers import Opened, RecordList, open_path
from clawback.extensions.importers.formats import LINES, Format, Recogniser, format_of, whole_format_of
from clawback.extensions.importers.storing import Importer, ImportReport
from clawback.extensions.importers.understanding import Understanding

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.store import Store


MOST_MISSING = 1_000
"""Problems that are named."""
BATCH = 100
"""Entries that are stored with one sync of the disk."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is to be read, as the command's options say it."""

    format: str = ""
    scale: str = "auto"
    """Of numbers whose column does not say it (``1-5``)."""
    rating_field: str = ""
    """A field to read as the rating."""
    person: str = ""
    """Whose opinions these are where a record names nobody: the owner's."""
    mine: bool = False
    liked: bool = False
    consent: Consent = ""
    """Of records that name none, as is ``licence``."""
    licence: str = ""
    required: bool = False
    """Without consent a record is never trained on."""


DEFAULTS = Options()


@dataclass(slots=True)
class Recognised:
    """A source whose columns have been read."""

    source: RecordList
    options: Options
    columns: Columns
    file_format: Format | None
    records: int

    def entries(self, understanding: Understanding) -> Iterator[tuple[Format, Entry]]:
        """All entries that can be read; what cannot is named in ``understanding``."""
        reading = FileReading(
            self.columns,
            self.options.person,
            self.options.rating_field,
            self.options.mine,
            self.options.liked,
            understanding.unread,
        )
        if self.file_format is not None:
            yield from self._of_whole(self.file_format, reading, understanding)
            return
        known = Recogniser()
        for row in self.source.read():
            try:
                layout, record = self._format(row, known)
                for entry in layout.entries(record, reading):
                    _check(entry)
                    yield layout, entry
            except BadLine as error:
                understanding.refuse(f"line {row.number}: {error}")
            except (UnicodeError, OverflowError, RecursionError) as error:
                understanding.refuse(
                    f"line {row.number}: holds what cannot be stored ({type(error).__name__})"
                )

    def _format(self, row: Row, known: Recogniser) -> tuple[Format, Any]:
        record = parsed(row)
        layout = (
            formats.BY_NAME[self.options.format]
            if self.options.format in formats.BY_NAME
            else known.format_of(record)
        )
        if layout is None or layout.of_file:
            if not isinstance(record, dict):
                raise BadLine("not a JSON object")
            layout = LINES  # its reader says what is missing
        return layout, record

    def _of_whole(
        self, format: Format, reading: FileReading, understanding: Understanding
    ) -> Iterator[tuple[Format, Entry]]:
        if format.stranger:
            reading = replace(reading, person=reading.author(format.stranger))
        records = self._records(format, understanding)
        if format.conversation is None:
            parts: Iterable[Sequence[Mapping[str, Any]]] = [list(records)]
        else:
            parts = by_conversation(records, format.conversation)
        for part in parts:
            try:
                for entry in format.read(part, reading, Path(self.source.path).stem):
                    _check(entry)
                    yield format, entry
            except BadLine as error:
                name = format.conversation(part[0]) if format.conversation and part else ""
                understanding.refuse(f"conversation {name}: {error}" if name else f"{error}")
            except (UnicodeError, OverflowError, RecursionError) as error:
                understanding.refuse(f"holds what cannot be stored ({type(error).__name__})")

    def _records(self, format: Format, understanding: Understanding) -> Iterator[JsonObject]:
        """The records that are objects; the last line of a session is often half written, and passed over."""
        for row in self.source.read():
            try:
                record = parsed(row)
            except BadLine as error:
                if format.name not in ("claude-code", "codex", "gemini-cli", "openclaw"):
                    understanding.refuse(f"line {row.number}: {error}")
                continue
            if isinstance(record, dict):
                yield record


def parsed(row: Row) -> Any:
    """The record of a row. Raises ``BadLine``."""
    try:
        return row.decoded()
    except ValueError as error:
        raise BadLine(str(error)) from error


def _check(entry: Entry) -> None:
    """Raises ``UnicodeError`` for text that no database takes, before anything of the entry is stored."""
    for turn in entry.turns:
        f"{turn.response}{turn.messages}{turn.session}{turn.model}{turn.thinking}".encode()
        "".join(str(m.get("content")) for m in turn.messages).encode()
    for opinion in entry.feedback:
        f"{opinion.text}{opinion.person}".encode()


def recognise(source: RecordList, options: Options) -> Recognised:
    """Look at all records of a source: which format, which columns."""
    if options.format and options.format not in formats.BY_NAME:
        raise UsageError(f"There is no format `{options.format}`. Known are: {', '.join(formats.BY_NAME)}.")
    rows = source.read()
    sample = list(islice(rows, formats.SAMPLE))
    whole = whole_format_of([row for row in map(_parsed_or_none, sample) if row is not None])
    if options.format:
        chosen = formats.BY_NAME[options.format]
        whole = chosen if chosen.of_file else None
    survey = ColumnSurvey(options.scale, options.rating_field)
    people: set[str] = set()
    own, number, known = 0, 0, Recogniser()
    for part in (sample, rows):
        for row in part:
            number += 1
            record = _parsed_or_none(row)
            if record is None or whole is not None:
                continue
            layout = formats.BY_NAME[options.format] if options.format else known.format_of(record)
            own += _look(survey, people, layout, record, options)
    columns = survey.columns(adopt=own > 0)
    if people:
        columns.values["person"] = frozenset(people)
    return Recognised(source, options, columns, whole, number)


def _parsed_or_none(row: Row) -> Any:
    try:
        record = parsed(row)
    except BadLine:
        return None
    return record if isinstance(record, dict) else None


def _look(
    survey: ColumnSurvey, people: set[str], format: Format | None, record: JsonObject, options: Options
) -> int:
    """Read the columns of a record; whether it is one of our own, in which any field may be the rating."""
    if format is None:
        format = LINES
    if format.person is not None and len(people) < 1000:
        people.add(format.person(record))
    if format.scores is not None:
        if format is LINES and options.rating_field and record.get(options.rating_field) is not None:
            survey.add(options.rating_field, record[options.rating_field])
        else:
            try:
                for name, value in format.scores(record):
                    survey.add(name, value)
            except BadLine:
                pass
    if format is LINES:
        survey.offer(record, lines.fields_read(record))
        return 1
    if format.name in ("duels", "arena", "helpsteer-pairs", "pairs") or format.scores is annotated.scores:
        survey.watch(record)
    return 0


def store_source(
    store: Store, recognised: Recognised, report: ImportReport, understanding: Understanding
) -> None:
    """Store all entries of a source, some at a time with one sync of the disk; what is known already is passed over."""
    options = recognised.options
    importer = Importer(store, report, options.consent, options.licence, options.required)
    linked = False
    entries = recognised.entries(understanding)
    while batch := list(islice(entries, BATCH)):
        with store.together():
            for layout, entry in batch:
                importer.add(entry, history=layout.kind == "history")
                understanding.add(entry, layout.title)
                understanding.stranger = understanding.stranger or bool(layout.stranger)
                linked = linked or bool(entry.links)
    report.notes += [n for n in recognised.columns.notes if n not in report.notes]
    report.problems += understanding.problems
    if linked:
        _store_links(store, recognised, importer, report)


def _store_links(store: Store, recognised: Recognised, importer: Importer, report: ImportReport) -> None:
    """What entries say of turns of others, when all turns are there."""
    entries = (entry for _, entry in recognised.entries(Understanding("")) if entry.links)
    while batch := list(islice(entries, BATCH)):
        with store.together():
            for entry in batch:
                for missing in importer.link(entry):
                    what = (
                        "a preference: the turn {!r}, which it is over, is not in the file"
                        if entry.turns
                        else "a rating: the answer {!r}, which it is about, is not here"
                    )
                    if len(report.problems) < MOST_MISSING:
                        report.problems.append(what.format(missing))


def understand(recognised: Recognised) -> Understanding:
    """What a source holds, without storing anything."""
    understanding = Understanding(recognised.source.name)
    for one, entry in recognised.entries(understanding):
        understanding.add(entry, one.title)
        understanding.stranger = understanding.stranger or bool(one.stranger)
    understanding.notes = list(recognised.columns.notes)
    return understanding


def unknown_sentence(source: RecordList) -> str:
    """What to do with a file of which nothing was recognised; "" where only its records were refused."""
    row = next(iter(source.read()), None)
    record = _parsed_or_none(row) if row is not None else None
    if row is None:
        return f"{source.name} is empty."
    if record is not None and (layout := format_of(record)) is not None:
        return (
            "" if not layout.of_file else f"{source.name} is a history of {layout.title} without an answer."
        )
    fields = f" Its fields are {', '.join(f'`{name}`' for name in list(record)[:12])}." if record else ""
    return f"{source.name} is in no format that is known.{fields} Known are those of `clawback import --help`, or lines with `prompt` and `response`."


def sources_of(
    paths: Sequence[Path], workspace: Path, progress: Callable[[str], None] = lambda _: None
) -> Opened:
    """All sources of all paths."""
    every = Opened([], [])
    for path in paths:
        progress(str(path))
        opened = open_path(path, workspace)
        every.sources += opened.sources
        every.passed_over += opened.passed_over
    # What is about messages of other files comes after them.
    every.sources.sort(key=lambda source: "feedback" in source.name.rsplit("/", 1)[-1])
    return every


def by_conversation(records: Iterable[Record], name_of: Callable[[Record], str]) -> Iterator[list[Record]]:
    """The records of each conversation in their order, conversations in that of their first record."""
    with closing(
        sqlite3.connect("")
    ) as db:  # a database without a name is a file that is gone when it is closed
        db.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, conversation TEXT, record BLOB)")
        rows = ((name_of(record), pickle.dumps(dict(record))) for record in records)
        db.executemany("INSERT INTO records (conversation, record) VALUES (CAST(? AS TEXT), ?)", rows)
        db.execute("CREATE INDEX by_conversation ON records (conversation, number)")
        names = db.execute("SELECT conversation FROM records GROUP BY conversation ORDER BY min(number)")
        for (name,) in names:
            listed = db.execute("SELECT record FROM records WHERE conversation = ? ORDER BY number", (name,))
            yield [pickle.loads(record) for (record,) in listed]  # noqa: S301 — written above
