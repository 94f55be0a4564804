"""``import``: histories and preference sets, of any kind, from files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback import config
from clawback.terminal import (
    as_record,
    confirm,
    current_home,
    emit,
    fold,
    in_walk,
    json_option,
    open_store,
    say,
)
from clawback.terminal.encryption import opened as opened_file
from clawback.terminal.encryption import unlocking

if TYPE_CHECKING:
    from clawback.extensions.importers.containers import Opened
    from clawback.extensions.importers.import_plan import ImportPlan
    from clawback.extensions.importers.importing import Options
    from clawback.extensions.importers.storing import ImportReport
    from clawback.extensions.importers.understanding import Understanding
    from clawback.store import Store

ASKS = "`clawback start` goes on: fifteen questions about answers that you had twice, then a first run."
OLD_NAMES = {"jsonl": "lines", "auto": ""}
"""Values of ``--format`` that have another name now."""


def _formats() -> list[str]:
    return [
        "auto", "jsonl", "claude-code", "reinforceclaw", "openclaw-rl", "argilla", "label-studio", "codex", "gemini-cli", "openclaw",
        "opencode", "hermes", "chatgpt", "claude.ai", "open-webui", "lm-studio", "librechat", "sillytavern", "messages", "pairs",
        "duels", "ranked", "hh-rlhf", "oasst",
    ]  # fmt: skip


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="PATH…")
@click.option(
    "--format", default="auto", show_default=True, type=click.Choice(_formats()), metavar="FORMAT",
    help=f"How it is written, where it is not recognised by its shape: {', '.join(_formats()[1:])}. jsonl: our own lines.",
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
@click.option("--mine", is_flag=True, help="Opinions in a set that strangers made count as yours.")
@click.option("--liked", is_flag=True, help="Answers of which the file says nothing are ones that you like.")
@click.option("--dry-run", is_flag=True, help="Show what was understood, and store nothing.")
@click.option(
    "--yes", "-y", is_flag=True, help="Store it without asking. Outside a terminal nothing is asked."
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
@as_record("clawback.extensions.importers.importing:Options", "reading")
def import_(
    paths: tuple[Path, ...], reading: Options, dry_run: bool, yes: bool, as_json: bool, **key: Any
) -> int:
    """Import histories and preference sets. Importing the same file twice adds nothing.

    PATH is a file, a folder or - for standard input: exports of ChatGPT, Claude.ai, Open WebUI, LM Studio, LibreChat; sessions of Claude Code,
    Codex, Gemini CLI, OpenClaw, opencode, Hermes; the layouts of TRL, OpenAI, ShareGPT, Alpaca, Argilla, Label Studio; CSV, Parquet, zip, gzip. What it
    is shows by its shape. A table says what was understood before anything is stored.

    \b
    clawback import chatgpt-export.zip
    clawback import ~/.claude/projects ~/.codex/sessions
    clawback import stars.csv --scale 1-5 --dry-run
    clawback import webui.db
    """
    from clawback.extensions.importers import containers
    from clawback.extensions.importers.importing import sources_of

    options = replace(
        reading,
        format=OLD_NAMES.get(reading.format, reading.format),
        required=config.load(current_home().config).privacy.require_consent,
    )
    workspace = containers.workspace_in(current_home().root / "tmp")
    with ExitStack() as stack:
        stack.callback(containers.remove, workspace)
        plain = [stack.enter_context(opened_file(path, **key)) for path in paths]
        opened = sources_of(plain, workspace)
        store = stack.enter_context(open_store())
        asks = sys.stdin.isatty() and sys.stdout.isatty() and not (yes or as_json or dry_run)
        shown = "nothing" if as_json else "all" if yes or asks or dry_run else "foreign"
        return _import(store, opened, options, only_show=dry_run, asks=asks, shown=shown)


def _import(
    store: Store, opened: Opened, options: Options, *, only_show: bool, asks: bool, shown: str
) -> int:
    """Show what was understood where somebody looks first, then store it."""
    from clawback.extensions.importers.import_plan import ImportPlan
    from clawback.extensions.importers.storing import ImportReport

    report, files = ImportReport(), []
    plan = ImportPlan(opened, options)
    if asks or only_show:
        files = plan.understand()
        if shown != "nothing":
            _show(files, opened.passed_over)
        if asks and any(file.formats for file in files) and not confirm("Store this?", default=True):
            return 0
    if not only_show:
        report, files = plan.store(store)
        if not asks and shown != "nothing":
            tables = [one for one in files if shown == "all" or not _is_plain(one)]
            _show(tables, opened.passed_over)
            report.notes = [
                n for n in report.notes if not any(n in one.notes for one in tables if one.formats)
            ]
    if asks:
        report.notes = []  # they stood in the tables
    return _result(plan, report, files, only_show=only_show, as_json=shown == "nothing")


def _is_plain(file: Understanding) -> bool:
    """Our own lines need no table: what was stored says all."""
    return set(file.formats) <= {"answers", "pairs"} and not file.guesses and not file.unread


def _show(files: Sequence[Understanding], passed_over: Sequence[str]) -> None:
    nothing = [one.name for one in files if not one.formats]
    for one in files:
        if one.formats:
            say("\n".join(one.lines()))
    if nothing and len(files) > 1:
        say(f"Without conversations: {_some(nothing)}.", "  ")
    if passed_over:
        say(f"Not looked at: {_some(passed_over)}.", "  ")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _result(
    plan: ImportPlan, report: ImportReport, files: list[Understanding], *, only_show: bool, as_json: bool
) -> int:
    from clawback.extensions.importers.import_plan import merge_problems

    problems, opened = plan.problems(report, files), plan.opened
    notes = list(dict.fromkeys(n for n in report.notes if not only_show))
    notes += list(filter(None, [plan.unknown(files)]))
    stored = f"{report.turns} turns and {report.feedback} pieces of feedback imported; {report.known} were known already."
    lines = ["Nothing was stored (--dry-run)." if only_show else stored]
    shown = merge_problems(problems)
    lines += [f"  {note}" for note in notes] + [f"  {problem}" for problem in shown[:20]]
    if len(shown) > 20:
        lines.append(f"  … and {len(shown) - 20} more")
    if report.feedback and any(one.regenerations for one in files) and not in_walk():
        lines.append(ASKS)
    data = {
        "turns": report.turns, "feedback": report.feedback, "known": report.known, "problems": problems, "notes": notes,
        "stored": not only_show, "files": [one.to_dict() for one in files], "passed_over": opened.passed_over,
    }  # fmt: skip
    emit(data, fold("\n".join(lines), "    "), as_json)
    return 1 if problems or not opened.sources else 0


import_.name = "import"
