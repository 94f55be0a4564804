"""``start``: the first evening, by the commands that there are: set up, bring a history in, answer fifteen questions, train."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback import plugins
from clawback.errors import UsageError
from clawback.paths import home
from clawback.terminal import confirm, current_home, emit, json_option, load_command, open_store, say

if TYPE_CHECKING:
    from clawback.store import Store

QUESTIONS = 15
"""Questions that are asked before a first run is proposed."""
NIGHT = "02:00"
"""When a run of this night starts."""
EXPORTS = ("conversations*.json", "*chatgpt*.zip", "*claude*.zip", "*openwebui*.json", "*export*.zip")
"""How chat programs name what they export."""


@click.command()
@click.argument("history", required=False, type=click.Path(exists=True, path_type=Path))
@json_option
def start(history: Path | None, as_json: bool) -> None:
    """Walk through the first evening: set up, bring a history in, answer fifteen questions, train a first version.

    HISTORY is a file of earlier conversations (`clawback import --help` lists what is read). Each step asks first, and what is done is skipped.
    The questions are which of two answers to one of your prompts is better, those first that tell most.

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
        say("\n".join(lines))
        return
    if not home().config.exists():
        headline("1 of 4", "Set up")
        run("setup:init", [])
    headline("2 of 4", "Earlier conversations")
    if not bring_in(history):
        return  # the rest is about answers
    headline("3 of 4", "Fifteen questions")
    ask_some()
    headline("4 of 4", "Train")
    train_now()


def plan(history: Path | None) -> list[tuple[str, bool, str]]:
    """The four steps: what each is, whether it is done, and the command that does it."""
    here = home()
    ready, turns, words, trained = here.config.exists(), 0, 0, False
    if here.database.exists():
        with open_store() as store:
            turns, words = store.count_turns(), words_so_far(store)
            trained = bool(store.runs(limit=1, ids=False))
    return [
        ("set up", ready, "clawback init"),
        ("bring conversations in", turns > 0, f"clawback import {history or 'FILE'}"),
        ("answer a few questions", words >= QUESTIONS, f"clawback inbox --pairs --rate --limit {QUESTIONS}"),
        ("train a first version", trained, "clawback train"),
    ]


def words_so_far(store: Store) -> int:
    """How many of the newest ratings, comparisons and edits stand, counted up to ``QUESTIONS``."""
    return len(store.feedback(newest=QUESTIONS, outright=True))


def bring_in(history: Path | None) -> int:
    """Import the named file, or one of those that look like an export, if the person wants it. How many answers are recorded then."""
    for file in [history] if history else exports():
        if history or confirm(f"Is {file} an export of your chats that you want to bring in?", default=False):
            run(plugins.where(plugins.COMMANDS, "import"), [str(file)])
    with open_store() as store:
        count = store.count_turns()
    if count and not history:
        say(f"{count} answers are recorded.")
    elif not count:
        say(
            "No answer is recorded yet. Use your agent, or `clawback chat`, then run `clawback start` again; or name a file: `clawback start FILE`."
        )
    return count


def exports() -> list[Path]:
    """Files in the downloads folder that are named as chat programs name theirs, newest first."""
    folder = Path.home() / "Downloads"
    files = {file for pattern in EXPORTS for file in folder.glob(pattern) if file.is_file()}
    return sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)[:3]


def ask_some() -> None:
    """Ask which of two answers is better, as often as it tells most; where there are no two, draw some or ask for ratings. What was answered stays, whenever the person stops."""
    from clawback.admin.rating_inbox import Inbox

    with open_store() as store:
        words = words_so_far(store)
    if words >= QUESTIONS:
        say("You have answered enough for a first run.")
        return
    left = QUESTIONS - words
    if Inbox(current_home()).pairs(1):
        question = f"Up to {left} questions: which of two answers is better? One key each"
        if confirm(question, default=True):
            run("inbox:inbox", ["--pairs", "--rate", "--limit", str(left)])
    elif can_draw() and confirm(
        "Draw two answers to some of your prompts, and say which is better?", default=True
    ):
        run("inbox:inbox", ["--draw", "--rate", "--limit", str(left)])
    with open_store() as store:
        left = QUESTIONS - words_so_far(store)
    if left > 0 and confirm(f"Rate up to {left} single answers, with one key each?", default=True):
        run("inbox:inbox", ["--rate", "--limit", str(left)])


def can_draw() -> bool:
    """Whether what draws answers is installed."""
    from importlib.util import find_spec

    return find_spec("torch") is not None


def train_now() -> None:
    """Start a run now or in the night, if the answers are enough for one and the person wants it."""
    from clawback.errors import ClawbackError
    from clawback.jobs import startable

    try:
        startable(home(), None)
    except ClawbackError as error:
        say(str(error))
        return
    choice = click.prompt(
        f"Train a first version: now, tonight at {NIGHT}, or later?",
        type=click.Choice(["now", "tonight", "later"]),
        default="now",
        show_choices=False,
    )
    if choice == "later":
        say("`clawback train` starts a run whenever you like.")
        return
    run("clawback.training_commands.train:train", ["--background"] if choice == "now" else ["--at", NIGHT])


def headline(number: str, title: str) -> None:
    say(f"\n{number}  {title}")


def run(command: str, arguments: Sequence[str]) -> None:
    """Another command, as if it were typed; what goes wrong in it is told, and the walk goes on."""
    from clawback.errors import ClawbackError
    from clawback.terminal import sentences

    try:
        load_command(command).main(list(arguments), standalone_mode=False, prog_name="clawback", obj="start")
    except (ClawbackError, click.ClickException, ImportError, OSError) as error:
        if isinstance(error, UsageError | ClawbackError | click.ClickException | ImportError):
            say(sentences.of(error))
        else:
            raise
