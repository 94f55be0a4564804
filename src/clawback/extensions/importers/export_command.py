"""``export``: turns with their feedback, written to files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from clawback.errors import UsageError
from clawback.terminal import as_record, emit, json_option, open_store
from clawback.terminal.encryption import locking, write_encrypted


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
    from clawback.extensions import importers
    from clawback.extensions.importers import annotation_tools

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
            count = write_encrypted(
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
        count = write_encrypted(
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
    from clawback.extensions.importers.export import LAYOUTS, export_layout

    known = LAYOUTS[kind]
    if layout and layout not in known:
        raise UsageError(f"{kind} has no layout {layout}: it has {' and '.join(known)}.")
    files = {layout: path} if layout else {name: path.with_name(f"{path.stem}-{name}{path.suffix}") for name in known}  # fmt: skip
    written: dict[str, int] = {}
    with open_store() as store:
        for name, file in files.items():
            write = partial(export_layout, store, format=kind, layout=name)
            count = write_encrypted(file, to, phrase, write)
            if count or layout:
                written[str(file)] = count
            else:
                file.unlink(missing_ok=True)
    lines = [f"{count} rows written to {file}." for file, count in written.items()]
    lines = lines or ["Nothing that anybody liked, disliked, preferred or edited: no file was written."]
    lines.append("Remarks, notes and scores have no place in these layouts: `--format jsonl` keeps all.")
    emit({"files": written}, "\n".join(lines), as_json)
