"""``import export backup``: turns and their feedback in and out of files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from clawback import config
from clawback.cli.common import current_home, emit, json_option, open_store


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--format", "kind", type=click.Choice(["jsonl", "claude-code"]), default="jsonl", show_default=True,
    help="claude-code: a transcript, or a folder of them.",
)  # fmt: skip
@click.option(
    "--scale", type=click.Choice(["auto", "1-10", "0-1"]), default="auto", show_default=True,
    help="What a `score` in the file means.",
)  # fmt: skip
@click.option(
    "--consent", type=click.Choice(["yes", "no"]),
    help="Whether whoever it is from agreed to training; no: kept to look at. A line's own `consent` outweighs it.",
)  # fmt: skip
@click.option(
    "--licence", default="", metavar="L", help="Under which it came, such as CC-BY-4.0; kept with each turn."
)
@json_option
def import_(path: Path, kind: str, scale: str, consent: Any, licence: str, as_json: bool) -> int:
    """Bring turns in from a file; the same file twice brings nothing twice.

    Each line is {"prompt" or "messages", "response", "rating" (-1/1) or "score", "note", "edit",
    "consent" (true/false), "licence"}.

    \b
    clawback import rated.jsonl
    clawback import scores.jsonl --scale 0-1
    clawback import ~/.claude/projects --format claude-code
    """
    from clawback.capture import importers

    with open_store() as store:
        if kind == "claude-code":
            report = importers.import_transcripts(store, path)
        else:
            required = config.load(current_home().config).privacy.require_consent
            report = importers.import_file(
                store, path, scale=scale, consent=consent or "", licence=licence, required=required
            )
    lines = [
        f"{report.turns} turns and {report.feedback} pieces of feedback brought in; {report.known} were known already."
    ]
    lines += [f"  {problem}" for problem in report.problems[:20]]
    if len(report.problems) > 20:
        lines.append(f"  … and {len(report.problems) - 20} more")
    emit(asdict(report), "\n".join(lines), as_json)
    return 1 if report.problems else 0


import_.name = "import"


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Unrated turns too.")
@click.option("--session", default="", metavar="NAME", help="All turns of one conversation.")
@click.option("--person", default="", metavar="NAME", help="What one rater said (`clawback raters`).")
@json_option
def export(path: Path, everything: bool, session: str, person: str, as_json: bool) -> None:
    """Write turns with their feedback to a JSONL file that `clawback import` reads.

    \b
    clawback export mine.jsonl
    clawback export anna.jsonl --person slack:U024
    """
    from clawback.capture import importers

    with open_store() as store:
        count = importers.export_file(store, path, everything=everything, session=session, person=person)
    emit({"path": str(path), "turns": count}, f"{count} turns written to {path}.", as_json)


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@json_option
def backup(path: Path, as_json: bool) -> None:
    """Copy the database while it is in use (turns may go on being captured meanwhile).

    \b
    clawback backup ~/clawback-2026-11-21.db
    """
    with open_store() as store:
        store.backup(path)
    emit({"path": str(path)}, f"The database was copied to {path}.", as_json)
