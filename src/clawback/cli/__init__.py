"""The command line: thin, no logic. One file per command group, imported only when one of its commands is called.

Only here do errors become exit codes: 0 done, 1 failed, 2 wrong usage; each with one sentence on stderr, as ``{"error": …}`` with ``--json``.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import click

from clawback import __version__
from clawback.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

NOT_ON_WINDOWS = "Clawback does not run on Windows itself. It runs in WSL 2, which is Linux: docs/guides/windows.md has the steps."
EXTENSION = ""
"""In place of a file: an extension has the command (``plugins.COMMANDS``)."""
TRAINING = "clawback.training_commands."
DAILY: dict[str, tuple[str, str]] = {
    "init": ("setup", "Set Clawback up, or remove it (--remove)."),
    "start": ("start", "The first evening, step by step."),
    "status": ("inspect", "Ratings, the live version, and what is running."),
    "good": ("rate", "Rate the last turn as good."),
    "bad": ("rate", "Rate the last turn as bad."),
    "rate": ("rate", "Rate a turn from 1 to 10."),
    "undo": ("rate", "Take the last feedback back."),
    "edit": ("rate", "Say how a response should have read."),
    "prefer": ("rate", "Say that turn A is better than turn B."),
    "inbox": ("inbox", "What is worth a rating, most informative first."),
    "ask": ("chat", "Ask the live version one thing."),
    "chat": ("conversation", "Talk to the live version; rate with one key."),
    "train": (f"{TRAINING}train", "Train a new version now."),
    "versions": (f"{TRAINING}versions", "Versions: list, compare, check, roll back, publish."),
    "rules": ("rules", "What you want of every answer, and how often it was kept."),
    "import": (EXTENSION, "Bring histories and preference sets in."),
    "export": (EXTENSION, "Write turns with their feedback to a file."),
    "serve": ("serve", "Answer agents, record their turns, show the web page."),
    "doctor": ("setup", "Find out what is wrong, and how to fix it."),
    "config": ("settings", "Show and change the settings."),
}
"""The commands of every day: command → the file under ``cli/`` that holds it, or its module, and what it does. Kept here so that help imports no command."""
AREAS: dict[str, tuple[str, str]] = {
    "turns": ("inspect", "What was recorded: turns, conversations, remarks on them."),
    "runs": (f"{TRAINING}runs", "Training runs: list, show, stop, resume, report."),
    "model": ("model", "Which models this machine has, and what they are."),
    "move": (EXTENSION, "Take what was learned to another base model."),
    "adopt": (f"{TRAINING}adopt", "Take an adapter of another trainer in as a version."),
    "prompts": (f"{TRAINING}prompts", "Learned prompts, for models whose weights you lack."),
    "env": (f"{TRAINING}env", "Environments: play, train in them, look at episodes."),
    "connect": ("areas", "Slack, Discord, Telegram, MCP, a service, the Tab key."),
    "people": (EXTENSION, "Homes and tokens of people who share this server."),
    "raters": (EXTENSION, "Who rates, how far they agree; invite people."),
    "data": ("areas", "Backup, encryption, deletion, repair."),
    "lab": ("areas", "Judges, reward models, teachers, training elsewhere."),
    "demo": (EXTENSION, "The whole loop, with a simulated person."),
}
"""The rest, by what it is about; each has ``list`` or ``show`` where there is something to list."""
MOVED = {
    "show": "turns show",
    "sessions": "turns sessions",
    "critique": "turns remark",
    "report": "runs report",
    "gate": "versions check",
    "compare": "versions compare",
    "trial": "versions trial",
    "rollback": "versions rollback",
    "reset": "versions reset",
    "publish": "versions publish",
    "survey": "versions survey",
    "generate": "versions generate",
    "distill": "prompts distill",
    "gym": "env train",
    "episodes": "env episodes",
    "channel": "connect channel",
    "mcp": "connect mcp",
    "service": "connect service",
    "completion": "connect completion",
    "forget": "data forget",
    "prune": "data prune",
    "encryption": "data encryption",
    "backup": "data backup",
    "salvage": "data salvage",
    "judge": "lab judge",
    "reward": "lab reward",
    "baseline": "lab baseline",
    "hosted": "lab hosted",
    "federated": "lab federated",
}
"""Old name → new name. The old ones go on working and are in no help."""
COMMANDS = {name: file for name, (file, _) in (DAILY | AREAS).items()}
SUMMARIES = {name: summary for name, (_, summary) in (DAILY | AREAS).items()}


class LazyGroup(click.Group):
    """Imports the file of a command when that command is called: rating must feel instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return _there(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from clawback.terminal import find_command, load_command

        if cmd_name == "help":
            return load_command("areas:help_")
        if cmd_name in MOVED:
            area, _, name = MOVED[cmd_name].partition(" ")
            group = self.get_command(ctx, area)
            return group.get_command(ctx, name) if isinstance(group, click.Group) else None
        if file := COMMANDS.get(cmd_name):
            return load_command(f"{file}:{cmd_name}")
        return find_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in MOVED:
            from clawback.terminal import note_new_name

            note_new_name(ctx, args, f"clawback {args[0]}", f"clawback {MOVED[args[0]]}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The Tab key: names and summaries, and no command imported for them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(n, help=SUMMARIES[n]) for n in _there(COMMANDS) if n.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        wide = max(map(len, COMMANDS))
        for title, group in (
            ("Commands", DAILY),
            ("More, by what it is about (`clawback help turns`)", AREAS),
        ):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(wide), group[name][1]) for name in _there(group)])


def _there(names: Iterable[str]) -> list[str]:
    """The commands but for those of an extension whose folder is gone."""
    from clawback import plugins

    registered = plugins.built_in(plugins.COMMANDS)
    return [name for name in names if COMMANDS[name] != EXTENSION or name in registered]


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(__version__, prog_name="clawback")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
def main_group(debug: bool) -> None:
    """Make your own model better at what you like, from the feedback you give your agents.

    \b
    clawback start           set it up and train a first version
    clawback demo            see the whole loop in a few minutes
    clawback good | bad      rate the last answer
    clawback status          ratings, live version, what is running
    """


def console() -> NoReturn:
    """The console script: runs a command and ends the process.

    To take torch down in order takes more than a second of CPU time, in which a terminal shows nothing after the last word. So everything that
    wants to be closed is closed, and the process ends without it.
    """
    code = main()
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    if "torch" not in sys.modules or not all(thread.daemon for thread in others):
        sys.exit(code)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    options = args[: args.index("--")] if "--" in args else args
    debug, as_json = "--debug" in options, "--json" in options
    if debug:
        args.remove("--debug")
    if sys.platform == "win32":
        return _say(NOT_ON_WINDOWS, 1, as_json)
    try:
        result = main_group.main(args, prog_name="clawback", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt) as stop:
        if isinstance(stop, click.Abort) and stop.__cause__ is None and sys.stderr.isatty() and not as_json:
            sys.stderr.write("\n")  # it was a question: the cursor stands behind it
        return _say("Stopped. Nothing that was acknowledged is lost.", 130, as_json)
    except BrokenPipeError:
        # The reader has gone (`| head`): point stdout elsewhere so that the interpreter's last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        wrong_usage = isinstance(error, (UsageError, click.ClickException))
        if debug and not isinstance(error, click.ClickException):
            raise
        from clawback.terminal import sentences

        return _say(sentences.of(error), 2 if wrong_usage else 1, as_json)


def _say(sentence: str, code: int, as_json: bool) -> int:
    """On stderr, whatever was asked for: stdout holds what was asked for, or nothing."""
    if as_json:
        import json

        from clawback.installed import localize

        click.echo(json.dumps({"error": localize(sentence)}, ensure_ascii=False), err=True)
    else:
        from clawback.terminal import say

        say(sentence if code == 130 else f"clawback: {sentence}", "  ", err=True)
    return code
