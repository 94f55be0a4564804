"""Files that need more than their records to be read: databases and records of other trainers, and what was annotated of our own export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, get_args

from clawback.extensions.data_sets.entries import BadLine, Consent
from clawback.extensions.importers import annotation_tools, peers
from clawback.extensions.importers.containers import RecordList
from clawback.extensions.importers.importing import Options, parsed
from clawback.extensions.importers.storing import ImportReport

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.store import Store

NAMES = ("reinforceclaw", "openclaw-rl")
"""Formats of ``--format`` that are read here alone."""


@dataclass(frozen=True, slots=True)
class Program:
    """A reader that takes a whole file."""

    title: str
    store: Callable[[Store], ImportReport]


def program_of(source: RecordList, options: Options) -> Program | None:
    """The reader of a file, by the option or by what it holds; None where its records say all."""
    consent: Consent = options.consent or ("no" if options.required else "")
    path, licence = source.path, options.licence
    if options.format == "reinforceclaw" or (not options.format and _is_reinforceclaw(source)):
        return Program(
            "ReinforceClaw",
            lambda store: peers.import_reinforceclaw(store, path, consent=consent, licence=licence),
        )
    if options.format in ("", "openclaw-rl", "argilla", "label-studio"):
        records = list(islice(_records(source), 20))
        if options.format == "openclaw-rl" or any(
            {"session_id", "turn", "response_text"} <= r.keys() for r in records
        ):
            return Program(
                "OpenClaw-RL",
                lambda store: peers.import_openclaw_rl(store, path, consent=consent, licence=licence),
            )
        for tool in get_args(annotation_tools.Tool):
            if options.format in ("", tool) and any(annotation_tools.is_ours(r, tool) for r in records):
                return Program(
                    f"our own export, annotated in {tool}",
                    partial(annotation_tools.import_file, path=path, tool=tool),
                )
    return None


def _is_reinforceclaw(source: RecordList) -> bool:
    if source.table != "feedback":
        return False
    record = next(_records(source), {})
    return {"prompt", "response", "rating"} <= record.keys() and bool(
        {"rollout_context", "adapter_version", "trained"} & record.keys()
    )


def _records(source: RecordList) -> Iterator[JsonObject]:
    for row in source.read():
        try:
            record = parsed(row)
        except BadLine:
            continue
        if isinstance(record, dict):
            yield record
