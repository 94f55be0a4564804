"""What an import will do with each source: for the command, which shows it in a terminal, and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.extensions.importers import importing
from clawback.extensions.importers.programs import Program, program_of
from clawback.extensions.importers.storing import ImportReport
from clawback.extensions.importers.understanding import Understanding

if TYPE_CHECKING:
    from clawback.extensions.importers.containers import Opened, RecordList
    from clawback.extensions.importers.importing import Options, Recognised
    from clawback.store import Store


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A source with its reader: a program that takes a whole file, or the columns of its records."""

    source: RecordList
    program: Program | None
    recognised: Recognised | None


class ImportPlan:
    """The readers of all sources. Nothing is stored until ``store``."""

    def __init__(self, opened: Opened, options: Options) -> None:
        self.opened = opened
        self.sources = [self._plan(source, options) for source in opened.sources]

    @staticmethod
    def _plan(source: RecordList, options: Options) -> PlannedSource:
        program = program_of(source, options)
        return PlannedSource(
            source, program, importing.recognise(source, options) if program is None else None
        )

    def understand(self) -> list[Understanding]:
        """What each source holds; nothing is stored."""
        return list(self._understandings())

    def _understandings(self) -> Iterator[Understanding]:
        for planned in self.sources:
            if planned.recognised is not None:
                yield importing.understand(planned.recognised)
                continue
            counts = Understanding(planned.source.name)
            if planned.program is not None:
                counts.formats[planned.program.title] = 1
            yield counts

    def store(self, store: Store) -> tuple[ImportReport, list[Understanding]]:
        """Store all sources; what was stored in all, and what each held."""
        report, files = ImportReport(), []
        for planned in self.sources:
            counts = Understanding(planned.source.name)
            if planned.recognised is not None:
                importing.store_source(store, planned.recognised, report, counts)
                counts.notes = list(planned.recognised.columns.notes)
            elif planned.program is not None:
                counts.formats[planned.program.title] = 1
                _add_up(report, planned.program.store(store), counts)
            files.append(counts)
        return report, files

    def problems(self, report: ImportReport, files: list[Understanding]) -> list[str]:
        """What could not be read, each with its file where there are several."""
        several = len(files) > 1
        shown = [one for one in files if one.formats or not several]
        problems = [f"{one.name}, {p}" if several else p for one in shown for p in one.problems]
        named = {p for one in files for p in one.problems}
        return problems + [p for p in report.problems if p not in named]

    def unknown(self, files: list[Understanding]) -> str:
        """What to do where nothing was recognised, or there is nothing at all; "" where something was recognised."""
        if any(one.formats for one in files):
            return ""
        if not self.opened.sources:
            return "There is no file to read there."
        if not files:
            return "There is no file in it that can be read."
        unread = {name for one in files for name in one.unread}
        return (
            f"Nothing to store: {', '.join(sorted(unread))}."
            if unread
            else importing.unknown_sentence(self.opened.sources[0])
        )


def merge_problems(problems: Sequence[str]) -> list[str]:
    """``line 3: what is wrong`` once for all lines with the same fault, each with how many more there are."""
    lines: dict[str, list[str]] = {}
    for problem in problems:
        place, colon, text = problem.partition(": ")
        lines.setdefault(text if colon else problem, []).append(place if colon else "")
    return [
        f"{places[0]}{f' and {len(places) - 1} more' if len(places) > 1 else ''}: {text}"
        if places[0]
        else text
        for text, places in lines.items()
    ]


def _add_up(report: ImportReport, part: ImportReport, file: Understanding) -> None:
    for name in ("turns", "feedback", "known"):
        setattr(report, name, getattr(report, name) + getattr(part, name))
    report.problems += part.problems
    report.notes += part.notes
    file.turns, file.problems = part.turns + part.known, list(part.problems)
