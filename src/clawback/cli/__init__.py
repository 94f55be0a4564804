"""The command line: thin, no logic. One file per command group, imported only when one of its commands is called.

Only here do errors become exit codes: 0 done, 1 failed, 2 wrong usage; each with one sentence on stderr, as ``{"error": …}`` with ``--json``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Look": {
        "status": ("inspect", "Ratings, the live version, and what is running."),
        "turns": ("inspect", "List captured turns, newest first."),
        "show": ("inspect", "Show one turn and what was said about it."),
        "sessions": ("serve", "List conversations, or show one."),
        "runs": ("runs", "List training runs; show, stop or resume one."),
        "versions": ("versions", "List versions."),
        "report": ("report", "One HTML file that says how it goes."),
    },
    "Rate": {
        "good": ("rate", "Rate the last turn as good."),
        "bad": ("rate", "Rate the last turn as bad."),
        "rate": ("rate", "Rate a turn from 1 to 10."),
        "undo": ("rate", "Take the last feedback back."),
        "prefer": ("rate", "Say that turn A is better than turn B."),
        "edit": ("rate", "Say how a response should have read."),
        "critique": ("rate", "Say in words what was wrong with a response."),
        "inbox": ("inbox", "What is worth a rating, most informative first."),
        "judge": ("judge", "Let a judge model read what came after your answers."),
        "raters": ("raters", "Who rates, how far they agree; invite people."),
        "survey": ("serve", "Score a version from 1 to 5 after using it."),
    },
    "Learn": {
        "train": ("train", "Train a new version now."),
        "rules": ("rules", "What you want of every answer, and how often it was kept."),
        "reward": ("reward", "A model of what you like: train it, try it, score answers."),
        "hosted": ("hosted", "Train elsewhere, or be the trainer (Tinker's API)."),
        "gym": ("gym", "Train in an environment and compare."),
        "episodes": ("gym", "List episodes, or show one."),
        "prompts": ("prompts", "Learn a prompt for models whose weights you lack."),
        "baseline": ("baseline", "Have a teacher model answer a corpus of prompts."),
        "distill": ("distill", "Fold the learned prompt into your own model."),
        "federated": ("federated", "Train one adapter with others; turns stay private."),
        "demo": ("demo", "The whole loop, with a simulated person."),
        "env": ("env", "Environments: list, check, let a policy play one."),
    },
    "Release": {
        "gate": ("train", "Judge a version against the live one."),
        "compare": ("versions", "Two versions side by side on the same prompts."),
        "trial": ("serve", "Try a version on some of the sessions first."),
        "rollback": ("versions", "Go back to an older version."),
        "reset": ("versions", "Start over from the base model (ratings are kept)."),
        "publish": ("publish", "Make a version available to another server."),
        "adopt": ("adopt", "Take an adapter of another trainer in as a version."),
    },
    "Talk and serve": {
        "ask": ("chat", "Ask the live version one thing."),
        "chat": ("chat", "Talk to the live version; rate with one key."),
        "generate": ("generate", "Answer a file of prompts."),
        "serve": ("serve", "Answer agents, record their turns, show the web page."),
        "service": ("service", "Keep the server running in the background."),
        "people": ("people", "Homes and tokens of people who share this server."),
        "channel": ("channel", "Talk and rate in Slack, Discord or Telegram."),
        "mcp": ("channel", "Tools for any MCP client: rate, status, inbox."),
    },
    "Set up": {
        "init": ("setup", "Set Clawback up, or remove it (--remove)."),
        "doctor": ("setup", "Find out what is wrong, and how to fix it."),
        "config": ("settings", "Show and change the settings."),
        "model": ("model", "Which models this machine has, and what they are."),
        "import": ("files", "Bring turns in from a file."),
        "export": ("files", "Write turns with their feedback to a file."),
        "forget": ("privacy", "Delete turns for good, and train without them."),
        "prune": ("privacy", "Delete old turns and versions."),
        "encryption": ("encryption", "Encrypt the database on the disk."),
        "backup": ("files", "Copy the database while it is in use."),
        "salvage": ("salvage", "Save what can be read of a damaged database."),
        "completion": ("channel", "Set up completion with the Tab key."),
    },
}
"""What ``clawback --help`` shows: command → the file under ``cli/`` that holds it, and what it does. Kept here so that help imports no command."""
COMMANDS = {name: file for group in GROUPS.values() for name, (file, _) in group.items()}
SUMMARIES = {name: said for group in GROUPS.values() for name, (_, said) in group.items()}


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
        wide = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), said) for name, (_, said) in group.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="clawback", prog_name="clawback")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def main_group(debug: bool) -> None:
    """Make your own model better at what you like, from the feedback you give your agents.

    \b
    clawback demo            see the whole loop in a few minutes
    clawback init            set it up with your agent
    clawback good | bad      rate the last answer
    clawback status          ratings, live version, what is running
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. The console script calls this."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    options = args[: args.index("--")] if "--" in args else args
    debug, as_json = "--debug" in options, "--json" in options
    if debug:
        args.remove("--debug")
    try:
        result = main_group.main(args, prog_name="clawback", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return _say("Stopped. Nothing that was acknowledged is lost.", 130, as_json)
    except BrokenPipeError:
        # The reader has gone (`| head`): point stdout elsewhere so that the interpreter's last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        wrong_usage = isinstance(error, (UsageError, click.ClickException))
        if debug and not isinstance(error, click.ClickException):
            raise
        from clawback.cli import sentences

        return _say(sentences.of(error), 2 if wrong_usage else 1, as_json)


def _say(sentence: str, code: int, as_json: bool) -> int:
    """On stderr, whatever was asked for: stdout holds what was asked for, or nothing."""
    if as_json:
        import json

        click.echo(json.dumps({"error": sentence}, ensure_ascii=False), err=True)
    else:
        from clawback.cli.common import fold

        click.echo(fold(sentence if code == 130 else f"clawback: {sentence}", "  ", err=True), err=True)
    return code
