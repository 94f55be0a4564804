"""The command line: thin, no logic. One file per command group, imported only when one of its commands is called.

Only here do errors become exit codes: 0 done, 1 failed (one sentence on stderr), 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from clawback.errors import ClawbackError, UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "init": "setup",
    "doctor": "setup",
    "good": "rate",
    "bad": "rate",
    "rate": "rate",
    "undo": "rate",
    "prefer": "rate",
    "edit": "rate",
    "critique": "rate",
    "status": "look",
    "inbox": "inbox",
    "turns": "look",
    "show": "look",
    "train": "train",
    "gate": "train",
    "runs": "train",
    "versions": "versions",
    "rollback": "versions",
    "reset": "versions",
    "compare": "versions",
    "ask": "talk",
    "chat": "talk",
    "generate": "talk",
    "import": "files",
    "export": "files",
    "backup": "files",
    "model": "model",
    "serve": "serve",
    "sessions": "serve",
    "trial": "serve",
    "survey": "serve",
    "publish": "publish",
    "service": "service",
    "judge": "judge",
    "raters": "judge",
    "channel": "channel",
    "mcp": "channel",
    "completion": "channel",
    "reward": "reward",
    "demo": "demo",
}
"""Command → the file under ``cli/`` that holds it, in the order that help lists them."""

SUMMARIES = {
    "init": "Set Clawback up, or take it out again (--remove).",
    "doctor": "Find out what is wrong, and how to mend it.",
    "good": "Rate the last turn as good.",
    "bad": "Rate the last turn as bad.",
    "rate": "Rate a turn from 1 to 10.",
    "undo": "Take the last feedback back.",
    "prefer": "Say that turn A is better than turn B.",
    "edit": "Say how a response should have read.",
    "critique": "Say in words what was wrong with a response.",
    "status": "Ratings, the live version, and what is running.",
    "inbox": "What is worth a rating, most informative first.",
    "turns": "List captured turns, newest first.",
    "show": "Show one turn and what was said about it.",
    "train": "Train a new version now.",
    "gate": "Judge a version against the live one.",
    "runs": "List training runs.",
    "versions": "List versions.",
    "rollback": "Go back to an older version.",
    "reset": "Start over from the base model (ratings are kept).",
    "compare": "Two versions side by side on the same prompts.",
    "ask": "Ask the live version one thing.",
    "chat": "Talk to the live version; rate with one key.",
    "generate": "Answer a file of prompts.",
    "import": "Bring turns in from a file.",
    "export": "Write turns with their feedback to a file.",
    "backup": "Copy the database while it is in use.",
    "model": "The embedded model: make it, where it is, what it is.",
    "serve": "Answer agents, record their turns, show the web page.",
    "trial": "Try a version on a share of the sessions until it proves better or worse.",
    "survey": "How you find a version after using it, from 1 to 5; how all versions stand.",
    "publish": "Make a version available to another inference server.",
    "service": "Keep the server running in the background.",
    "judge": "Let a judge model read what came after your answers.",
    "raters": "Who rates, how far they agree, and what deserves a second look.",
    "channel": "Talk to the live version, and rate, in Slack, Discord or Telegram.",
    "mcp": "Tools for any MCP client: rate, status, what is worth rating.",
    "completion": "Let the Tab key complete commands, in bash, zsh and fish.",
    "reward": "A model of what you like: train it, see what it is worth, score answers.",
    "sessions": "List conversations, or show one.",
    "demo": "The whole loop on the embedded model.",
}
"""What ``clawback --help`` shows: kept here so that help imports no command."""


class LazyGroup(click.Group):
    """Imports the file of a command when that command is called: rating must feel instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"clawback.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name if cmd_name != "import" else "import_")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The Tab key: names and summaries, and no command imported for them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(n, help=SUMMARIES[n]) for n in COMMANDS if n.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES[name]) for name in COMMANDS])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="clawback", prog_name="clawback")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def main_group(debug: bool) -> None:
    """Makes your own model better at what you like, from the feedback you already give.

    \b
    clawback demo            see the whole loop in a few minutes
    clawback init            set it up with your agent
    clawback good | bad      rate what you were just told
    clawback status          what it has learned so far
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. The console script calls this."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    try:
        result = main_group.main(args, prog_name="clawback", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return _say("Stopped. Nothing that was acknowledged is lost.", 130)
    except BrokenPipeError:
        # The reader has gone (`| head`): point stdout elsewhere so that the interpreter's last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except ClawbackError as error:
        if debug:
            raise
        return _say(f"clawback: {error}", 2 if isinstance(error, UsageError) else 1)
    except Exception as error:
        if debug:
            raise
        return _say(
            f"clawback: unexpected {type(error).__name__}: {error}. Run it with --debug to see where.", 1
        )


def _say(sentence: str, code: int) -> int:
    click.echo(sentence, err=True)
    return code
