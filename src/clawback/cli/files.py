"""``import export backup``: turns and their feedback in and out of files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from clawback import config
from clawback.cli.common import current_home, emit, json_option, open_store
from clawback.cli.encryption import locking, passphrase, unlocking
from clawback.errors import UsageError


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", default="jsonl", show_default=True,
    type=click.Choice(["jsonl", "claude-code", "reinforceclaw", "openclaw-rl", "argilla", "label-studio"]),
    help="claude-code: a transcript, or a folder of them; reinforceclaw: its database; openclaw-rl: a record file"
    " (with FILE_prm.jsonl beside it); the last two: what was annotated there.",
)  # fmt: skip
@click.option(
    "--scale", default="auto", show_default=True, metavar="LOW-HIGH",
    help="The scale of the scores, such as 1-5 or 0-100; auto reads it from all of them, and asks where they do not say it.",
)  # fmt: skip
@click.option(
    "--rating-field", default="", metavar="NAME", help="A field to read as the rating, such as `helpfulness`."
)
@click.option(
    "--person",
    default="",
    metavar="NAME",
    help="Whose opinions these are where a line names nobody (default: yours).",
)
@click.option(
    "--consent", type=click.Choice(["yes", "no"]),
    help="Whether the author agreed to training; no: only to look at. A line's own `consent` overrides it.",
)  # fmt: skip
@click.option(
    "--licence", default="", metavar="L", help="Under which it came, such as CC-BY-4.0; kept with each turn."
)
@unlocking
@json_option
def import_(
    path: Path,
    kind: Any,
    scale: str,
    rating_field: str,
    person: str,
    consent: Any,
    licence: str,
    identity: Path | None,
    phrase: bool,
    as_json: bool,
) -> int:
    """Import turns from a file. Importing the same file twice adds nothing.

    Each line (or entry of a JSON list) is {"prompt" or "messages", "response", "rating" (-1/1, true, "up") or "score", "note",
    "edit", "critique", "person", "ending" (done, length, filter …), "consent" (true/false), "licence"}, or a pair {"prompt", "chosen", "rejected"}.

    \b
    clawback import rated.jsonl
    clawback import stars.jsonl --scale 1-5
    clawback import ~/.claude/projects --format claude-code
    clawback import ~/.reinforceclaw/reinforceclaw.db --format reinforceclaw
    """
    from clawback.capture import annotation_tools, importers, peers

    with open_store() as store, _opened(path, identity, phrase) as path:
        required = config.load(current_home().config).privacy.require_consent
        agreed: Any = consent or ("no" if required else "")
        if kind == "claude-code":
            report = importers.import_transcripts(store, path)
        elif kind == "reinforceclaw":
            report = peers.import_reinforceclaw(store, path, consent=agreed, licence=licence)
        elif kind == "openclaw-rl":
            report = peers.import_openclaw_rl(store, path, consent=agreed, licence=licence)
        elif kind in ("argilla", "label-studio"):
            report = annotation_tools.import_file(store, path, kind)
        else:
            report = importers.import_file(
                store,
                path,
                scale=scale,
                consent=consent or "",
                licence=licence,
                required=required,
                person=person,
                rating_field=rating_field,
            )
    lines = [
        f"{report.turns} turns and {report.feedback} pieces of feedback imported; {report.known} were known already."
    ]
    lines += [f"  {note}" for note in report.notes]
    lines += [f"  {problem}" for problem in report.problems[:20]]
    if len(report.problems) > 20:
        lines.append(f"  … and {len(report.problems) - 20} more")
    emit(asdict(report), "\n".join(lines), as_json)
    return 1 if report.problems else 0


import_.name = "import"


@contextmanager
def _opened(path: Path, identity: Path | None, phrase: bool) -> Iterator[Path]:
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


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Unrated turns too.")
@click.option("--session", default="", metavar="NAME", help="All turns of one conversation.")
@click.option("--person", default="", metavar="NAME", help="What one rater said (`clawback raters`).")
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "argilla", "label-studio"]), default="jsonl", show_default=True,
    help="Records or tasks (JSON) that these tools read; Label Studio's configuration is written beside, as .xml.",
)  # fmt: skip
@click.option("--blind", is_flag=True, help="Leave all feedback out (argilla, label-studio).")
@locking
@json_option
def export(
    path: Path,
    everything: bool,
    session: str,
    person: str,
    kind: Any,
    blind: bool,
    to: tuple[str, ...],
    phrase: bool,
    as_json: bool,
) -> None:
    """Write turns with their feedback to a JSONL file that `clawback import` can read.

    \b
    clawback export mine.jsonl
    clawback export anna.jsonl --person slack:U024
    clawback export tasks.json --format label-studio --all --blind
    clawback export for-ben.age --to age1…
    """
    from clawback.capture import annotation_tools, importers

    if kind != "jsonl" and (session or person):
        raise UsageError("--session and --person work only with --format jsonl.")
    if kind == "jsonl" and blind:
        raise UsageError("--blind is for --format argilla and label-studio.")
    if kind != "jsonl":
        with open_store() as store:
            count = _locked(
                path,
                to,
                phrase,
                lambda file: annotation_tools.export(store, file, kind, everything=everything, blind=blind),
            )
        if kind == "label-studio":
            path.with_suffix(".xml").write_text(annotation_tools.LABEL_CONFIG, "utf-8")
        emit({"path": str(path), "turns": count}, f"{count} turns written to {path}.", as_json)
        return
    with open_store() as store:
        count = _locked(
            path,
            to,
            phrase,
            lambda file: importers.export_file(
                store, file, everything=everything, session=session, person=person
            ),
        )
    emit({"path": str(path), "turns": count}, f"{count} turns written to {path}.", as_json)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@locking
@json_option
def backup(path: Path, to: tuple[str, ...], phrase: bool, as_json: bool) -> None:
    """Copy the database, also while it is in use.

    The copy of an encrypted database needs the same key. With --to or --passphrase the file itself is encrypted, and the database in it needs no
    other key.

    \b
    clawback backup ~/clawback-2026-11-21.db
    clawback backup ~/clawback.age --passphrase
    """

    def write(file: Path) -> int:
        with open_store() as store:
            store.backup(file, plain=file != path)
        return 0

    _locked(path, to, phrase, write)
    emit({"path": str(path)}, f"The database was copied to {path}.", as_json)
