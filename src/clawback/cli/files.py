"""``export backup``: turns and their feedback out into files; and how encrypted files are opened."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from clawback.cli.common import as_record, current_home, emit, json_option, open_store
from clawback.cli.encryption import locking, passphrase
from clawback.errors import UsageError


@contextmanager
def opened(path: Path, identity: Path | None, phrase: bool) -> Iterator[Path]:
    """The file itself; where it is encrypted, what it holds, in a file of the home that is gone afterwards."""
    from clawback.privacy import age

    if not age.is_age(path):
        yield path
        return
    data = age.unlock(path, identity=identity, passphrase=passphrase(phrase, new=False))
    with own_file() as plain:
        plain.write_bytes(data)
        yield plain


@contextmanager
def own_file() -> Iterator[Path]:
    """A file that only its owner can read, in memory where the system has such a place, and gone afterwards."""
    shared = Path("/dev/shm")  # noqa: S108
    folder = tempfile.mkdtemp(dir=shared if os.access(shared, os.W_OK) else current_home().root)
    try:
        yield Path(folder) / "file"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _locked(path: Path, to: tuple[str, ...], phrase: bool, write: Callable[[Path], int]) -> int:
    """Have ``write`` write the file, encrypted where that was asked for; what it returns."""
    if not to and not phrase:
        return write(path)
    from clawback.privacy import age

    word = passphrase(phrase, new=True)
    with own_file() as plain:
        made = write(plain)
        age.lock(path, plain.read_bytes(), to=to, passphrase=word)
    return made


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """What is exported, in which format, and for whom it is encrypted."""

    everything: bool
    session: str
    person: str
    kind: Any
    layout: Any
    blind: bool
    to: tuple[str, ...]
    phrase: bool


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Unrated turns too.")
@click.option("--session", default="", metavar="NAME", help="All turns of one conversation.")
@click.option("--person", default="", metavar="NAME", help="What one rater said (`clawback raters`).")
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "trl", "openai", "argilla", "label-studio"]), default="jsonl", show_default=True,
    help="jsonl: our own, which loses nothing. trl, openai: what trainers read. The last two: records or tasks (JSON) that these tools read; "
    "Label Studio's configuration is written beside, as .xml.",
)  # fmt: skip
@click.option(
    "--layout", type=click.Choice(["dpo", "kto", "sft"]),
    help="trl, openai: pairs, answers with a thumb, or liked answers. Without it each layout that has rows goes into a file of its own (PATH-dpo.jsonl …).",
)  # fmt: skip
@click.option("--blind", is_flag=True, help="Leave all feedback out (argilla, label-studio).")
@locking
@json_option
@as_record(ExportOptions)
def export(path: Path, options: ExportOptions, as_json: bool) -> None:
    """Write turns with their feedback to a JSONL file that `clawback import` can read.

    \b
    clawback export mine.jsonl
    clawback export anna.jsonl --person slack:U024
    clawback export mine.jsonl --format trl --layout dpo
    clawback export tasks.json --format label-studio --all --blind
    clawback export for-ben.age --to age1…
    """
    from clawback.capture import annotation_tools, importers

    if options.kind != "jsonl" and (options.session or options.person):
        raise UsageError("--session and --person work only with --format jsonl.")
    if options.kind in ("jsonl", "trl", "openai") and options.blind:
        raise UsageError("--blind is for --format argilla and label-studio.")
    if options.layout and options.kind not in ("trl", "openai"):
        raise UsageError("--layout is for --format trl and openai.")
    if options.kind in ("trl", "openai"):
        _layouts(path, options.kind, options.layout, options.to, options.phrase, as_json)
        return
    if options.kind != "jsonl":
        with open_store() as store:
            count = _locked(
                path,
                options.to,
                options.phrase,
                lambda file: annotation_tools.export(
                    store, file, options.kind, everything=options.everything, blind=options.blind
                ),
            )
        if options.kind == "label-studio":
            path.with_suffix(".xml").write_text(annotation_tools.LABEL_CONFIG, "utf-8")
        emit({"path": str(path), "turns": count}, f"{count} turns written to {path}.", as_json)
        return
    with open_store() as store:
        count = _locked(
            path,
            options.to,
            options.phrase,
            lambda file: importers.export_file(
                store, file, everything=options.everything, session=options.session, person=options.person
            ),
        )
    emit({"path": str(path), "turns": count}, f"{count} turns written to {path}.", as_json)


def _layouts(path: Path, kind: str, layout: Any, to: tuple[str, ...], phrase: bool, as_json: bool) -> None:
    """Write one layout into the file, or each into a file of its own."""
    from clawback.capture.importers.export import LAYOUTS, export_layout

    known = LAYOUTS[kind]
    if layout and layout not in known:
        raise UsageError(f"{kind} has no layout {layout}: it has {' and '.join(known)}.")
    files = {layout: path} if layout else {name: path.with_name(f"{path.stem}-{name}{path.suffix}") for name in known}  # fmt: skip
    written: dict[str, int] = {}
    with open_store() as store:
        for name, file in files.items():
            write = partial(export_layout, store, format=kind, layout=name)
            count = _locked(file, to, phrase, write)
            if count or layout:
                written[str(file)] = count
            else:
                file.unlink(missing_ok=True)
    lines = [f"{count} rows written to {file}." for file, count in written.items()]
    lines = lines or ["Nothing that anybody liked, disliked, preferred or edited: no file was written."]
    lines.append("Remarks, notes and scores have no place in these layouts: `--format jsonl` keeps all.")
    emit({"files": written}, "\n".join(lines), as_json)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@locking
@json_option
def backup(path: Path, to: tuple[str, ...], phrase: bool, as_json: bool) -> None:
    """Copy the database, also while it is in use.

    The copy of an encrypted database needs the same key. With --to or --passphrase the file itself is encrypted, and the database in it needs no
    other key.

    \b
    clawback data backup ~/clawback-2026-11-21.db
    clawback data backup ~/clawback.age --passphrase
    """

    def write(file: Path) -> int:
        with open_store() as store:
            store.backup(file, plain=file != path)
        return 0

    _locked(path, to, phrase, write)
    emit({"path": str(path)}, f"The database was copied to {path}.", as_json)
