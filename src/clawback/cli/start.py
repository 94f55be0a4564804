"""``start``: the first evening, by the commands that there are: set up, bring a history in, rate a few answers, train."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from clawback.cli.common import emit, fold, json_option, load_command, open_store
from clawback.errors import UsageError
from clawback.paths import home

ENOUGH = 16
"""Ratings after which a first run is proposed."""
QUESTIONS = 15
"""Answers that are asked about."""
EXPORTS = ("conversations*.json", "*chatgpt*.zip", "*claude*.zip", "*openwebui*.json", "*export*.zip")
"""How chat programs name what they export."""


@click.command()
@click.argument("history", required=False, type=click.Path(exists=True, path_type=Path))
@json_option
def start(history: Path | None, as_json: bool) -> None:
    """Walk through the first evening: set up, bring a history in, rate a few answers, train a first version.

    HISTORY is a file of earlier conversations (`clawback import --help` lists what is read). Each step asks first, and what is done is skipped.

    \b
    clawback start
    clawback start conversations.json
    """
    steps = plan(history)
    if as_json:
        emit([{"step": name, "done": done, "command": command} for name, done, command in steps], "", as_json)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        lines = [f"{'done' if done else 'next':<5} {name}: {command}" for name, done, command in steps]
        click.echo("\n".join(lines))
        return
    if not home().config.exists():
        headline("1 of 4", "Set up")
        run("setup:init", [])
    headline("2 of 4", "Earlier conversations")
    bring_in(history)
    headline("3 of 4", "A few ratings")
    rate_some()
    headline("4 of 4", "Train")
    train_now()


def plan(history: Path | None) -> list[tuple[str, bool, str]]:
    """The four steps: what each is, whether it is done, and the command that does it."""
    here = home()
    ready, turns, ratings, trained = here.config.exists(), 0, 0, False
    if here.database.exists():
        with open_store() as store:
            turns, ratings, trained = (
                store.count_turns(),
                sum(store.count_ratings()),
                bool(store.runs(limit=1, ids=False)),
            )
    return [
        ("set up", ready, "clawback init"),
        ("bring conversations in", turns > 0, f"clawback import {history or 'FILE'}"),
        ("rate a few answers", ratings >= ENOUGH, f"clawback inbox --rate --limit {QUESTIONS}"),
        ("train a first version", trained, "clawback train"),
    ]


def bring_in(history: Path | None) -> None:
    """Import the named file, or one of those that look like an export, if the person wants it."""
    if history is not None:
        run("files:import_", [str(history)])
        return
    for file in exports():
        if click.confirm(f"Is {file} an export of your chats that you want to bring in?", default=False):
            run("files:import_", [str(file)])
    with open_store() as store:
        count = store.count_turns()
    if count:
        click.echo(f"{count} answers are recorded.")
    else:
        click.echo(
            fold(
                "No answer is recorded yet. Use your agent, or `clawback chat`, then run `clawback start` again; or name a file: `clawback start FILE`."
            )
        )


def exports() -> list[Path]:
    """Files in the downloads folder that are named as chat programs name theirs, newest first."""
    folder = Path.home() / "Downloads"
    files = {file for pattern in EXPORTS for file in folder.glob(pattern) if file.is_file()}
    return sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)[:3]


def rate_some() -> None:
    """Ask about the most informative answers, until there are enough for a run."""
    with open_store() as store:
        turns, ratings = store.count_turns(), sum(store.count_ratings())
    if ratings >= ENOUGH:
        click.echo(f"There are {ratings} ratings already.")
    elif not turns:
        click.echo("There is nothing to rate yet.")
    elif click.confirm(f"Rate up to {QUESTIONS} answers now, with one key each?", default=True):
        run("inbox:inbox", ["--rate", "--limit", str(QUESTIONS)])


def train_now() -> None:
    """Start a run, if the ratings are enough for one and the person wants it."""
    from clawback.errors import ClawbackError
    from clawback.jobs import startable

    try:
        startable(home(), None)
    except ClawbackError as error:
        click.echo(fold(str(error)))
        return
    if click.confirm("Train a first version now, in the background?", default=True):
        run("train:train", ["--background"])


def headline(number: str, title: str) -> None:
    click.echo(f"\n{number}  {title}")


def run(command: str, arguments: Sequence[str]) -> None:
    """Another command, as if it were typed; what goes wrong in it is told, and the walk goes on."""
    from clawback.cli import sentences
    from clawback.errors import ClawbackError

    try:
        load_command(command).main(list(arguments), standalone_mode=False, prog_name="clawback")
    except (ClawbackError, click.ClickException, ImportError, OSError) as error:
        if isinstance(error, UsageError | ClawbackError | click.ClickException | ImportError):
            click.echo(fold(sentences.of(error)))
        else:
            raise
