"""One file of text as it is, into the store or without one. The command goes by ``importing``, which unpacks files first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.capture import text_rows
from clawback.errors import NotFound, UsageError
from clawback.extensions.data_sets import lines
from clawback.extensions.data_sets.columns import ColumnSurvey
from clawback.extensions.data_sets.entries import BadLine, FileReading
from clawback.extensions.importers.containers import RecordList, json_rows
from clawback.extensions.importers.importing import DEFAULTS, Options, parsed, recognise, store_source
from clawback.extensions.importers.storing import ImportReport
from clawback.extensions.importers.understanding import Understanding
from clawback.records import Message

if TYPE_CHECKING:
    from clawback.store import Store


def import_file(store: Store, path: Path, options: Options = DEFAULTS, **values: Any) -> ImportReport:
    """Bring in every record of a file of text that can be read; the others are named in the report with their number. ``values``: changes of
    ``options`` by name. Raises ``NotFound`` when there is no such file.
    """
    options = replace(options, **values)
    if path.is_file():
        source = RecordList(path.name, path, lambda: json_rows(path))
    else:
        listed = list(text_rows.read(path))  # a pipe is read once
        source = RecordList(str(path), path, lambda: iter(listed))
    report = ImportReport()
    store_source(store, recognise(source, options), report, Understanding(source.name))
    return report


def import_transcripts(store: Store, path: Path) -> ImportReport:
    """Turns of Claude Code transcripts: one file, or every ``*.jsonl`` of a folder (sub-agents' are left out).

    What hooks or our own server captured is known. Raises ``NotFound``.
    """
    if not path.exists():
        raise NotFound(f"There is no file or folder {path}.")
    report = ImportReport()
    files = (
        [path] if path.is_file() else sorted(p for p in path.rglob("*.jsonl") if "subagents" not in p.parts)
    )
    for file in files:
        source = RecordList(file.name, file, lambda file=file: json_rows(file))  # type: ignore[misc]
        store_source(
            store, recognise(source, Options(format="claude-code")), report, Understanding(source.name)
        )
    return report


def scored_lines(
    path: Path, scale: str = "auto"
) -> Iterator[tuple[int, tuple[Message, ...], str, float | None]]:
    """(line number, messages, response, rating in [-1, 1] or None) of every line, without a store.

    Raises ``NotFound`` without a file, ``UsageError`` with its number at the first line that cannot be read.
    """
    listed = list(text_rows.read(path))
    survey = ColumnSurvey(scale)
    for row in listed:
        try:
            record = parsed(row)
        except BadLine:
            continue  # named below
        name, value = lines.opinion(lines.lowered(record)) if isinstance(record, dict) else ("", None)
        if name and not record.get("scale"):
            survey.add(name, value)
    reading = FileReading(survey.columns(adopt=False))
    for row in listed:
        try:
            record = parsed(row)
            if not isinstance(record, dict):
                raise BadLine("not a JSON object")
            messages, response = lines.conversation(record)
            ratings = [f.value for f in lines.feedback(record, reading) if f.kind == "rating"]
        except BadLine as error:
            raise UsageError(f"Line {row.number} of {path}: {error}.") from error
        yield row.number, messages, response, ratings[-1] if ratings else None
