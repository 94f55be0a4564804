"""``prompts``: the prompt that was learned from feedback, where the weights are somebody else's (docs/prompts.md)."""

from __future__ import annotations

import difflib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError
from clawback.terminal import (
    VERSION,
    CommandGroup,
    as_record,
    confirm,
    current_home,
    emit,
    extension_commands,
    fold,
    json_option,
    named_version,
    needs,
    open_store,
    say,
    when,
)
from clawback.terminal.progress_bar import waiting
from clawback.training_commands.prompt_draft import draft

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.prompt_jobs.prompt_search import SearchOptions, SearchResult
    from clawback.records import Version

STAGES = {
    "initialisation": "Rate some more answers: a first search needs a few dozen ratings (`clawback prompts optimize`)",
    "online": "The live prompt answers and is rated",
    "refinement": "There are enough ratings for a search: `clawback prompts optimize` looks for a better prompt",
}
"""What each phase of learning a prompt asks of the person."""


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    members={
        "distill": "clawback.training_commands.train:distill",
        "rollback": "clawback.training_commands.versions:rollback",
        **extension_commands("prompts"),
    },
    renamed={"list": "history"},
)
@click.pass_context
def prompts(ctx: click.Context) -> None:
    """Learn a prompt from your feedback, for models whose weights you do not have.

    `clawback serve` appends the live prompt to your agent's system prompt. It is a plain file, prompt.md in Clawback's home. Edit it, then
    `clawback prompts use` puts your edit live.

    \b
    clawback prompts optimize --dry-run
    clawback prompts optimize
    clawback prompts show
    clawback prompts rollback
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


@prompts.command()
@click.option(
    "--calls",
    type=click.IntRange(min=8),
    help="Answers that may be asked for, the gate's too (default: from the settings, 200).",
)
@click.option(
    "--proposer",
    type=click.Choice(["templates", "model"]),
    help="Who writes new sentences (default: from the settings).",
)
@click.option("--seed", type=int, help="The same feedback, seed and answers give the same prompt.")
@click.option(
    "--engine",
    type=click.Choice(["reflect", "evolve", "gepa"]),
    default="reflect",
    show_default=True,
    help="How to search; gepa: needs the extra of that name.",
)
@click.option("--dry-run", is_flag=True, help="Only say what it would do, and the most it can cost.")
@click.option("--afresh", is_flag=True, help="Start anew instead of continuing a stopped search.")
@click.option("--yes", is_flag=True, help="Do not ask before calls are paid for.")
@json_option
@as_record("clawback.prompt_jobs.prompt_search:SearchOptions", "options")
def optimize(options: SearchOptions, dry_run: bool, afresh: bool, yes: bool, as_json: bool) -> int:
    """Search for a better prompt, and let the gate decide.

    It first prints the most that it can cost. Ctrl-C stops it; the same command continues, and nothing is paid for twice.

    \b
    clawback prompts optimize --dry-run
    clawback prompts optimize --calls 300 --yes
    clawback prompts optimize --proposer model
    """
    needs("numpy", "prompts")
    from clawback.prompt_jobs import prompt_learning

    here = current_home()
    if afresh:
        prompt_learning.forget(here)
    if dry_run:
        with waiting("reading the ratings", as_json):
            planned = prompt_learning.plan(here, options)
        emit(asdict(planned), planned.text(), as_json)
        return 0
    return search(here, options, yes=yes, as_json=as_json)


def search(
    here: Home, options: SearchOptions | None = None, *, yes: bool = False, as_json: bool = False
) -> int:
    """Say what it costs, search, and say what came of it."""
    from clawback.prompt_jobs import prompt_learning
    from clawback.prompt_jobs.prompt_search import DEFAULTS
    from clawback.terminal.progress_bar import progress_bar

    options = options or DEFAULTS
    with waiting("reading the ratings", as_json):
        planned = prompt_learning.plan(here, options)
    say(planned.text(), err=True)
    if planned.obstacle:
        return 2
    if not yes and sys.stdin.isatty():
        confirm("Begin?", default=True, abort=True, err=True)
    try:
        with progress_bar(quiet=as_json) as follow:
            found = prompt_learning.optimize(here, options, on_progress=follow)
    except KeyboardInterrupt:
        say("Stopped. What was paid for is kept: the same command continues from there.", err=True)
        return 130
    emit(found.to_dict(), fold(result_text(found), "  "), as_json)
    if found.unseen and found.report and found.report.accepted and sys.stdin.isatty() and not as_json:
        return accept(found.version) if found.version else 0
    return 0


def result_text(result: SearchResult) -> str:
    """What came of a search, for a person."""
    spent = f"{result.calls} calls, {result.tokens:,} tokens" + (
        f", {result.money:.2f} of money" if result.money else ""
    )
    notes = [f"Note: {note}" for note in result.notes]
    if result.version is None:
        return "\n".join([f"No prompt was better than the one as it is ({spent}; {result.stopped}).", *notes])
    number = result.version.number
    lines = [f"Version {number} ({spent}; {result.stopped})", "", result.version.prompt, ""]
    lines += [result.report.text(), ""] if result.report else []
    lines += notes
    if result.live:
        lines.append(f"Version {number} is live. `clawback prompts rollback` goes back.")
    elif result.version.status == "rejected":
        lines.append(f"Version {number} was rejected; the prompt stays as it was.")
    elif result.unseen and result.report and result.report.accepted:
        lines.append(
            f"Version {number} waits for your yes: it has {len(result.unseen)} sentences that you have neither said nor seen:"
        )
        lines += [f"  + {sentence}" for sentence in result.unseen]
        lines.append(f"`clawback prompts use {number}` accepts them.")
    elif result.report and result.report.accepted:
        lines.append(
            f"Version {number} is on trial (`clawback versions trial`); the prompt stays as it was until it is decided."
        )
    else:
        lines.append(
            f"Version {number} waits for answers: `clawback inbox --rate` asks which of two is better."
        )
    return "\n".join(lines)


def accept(version: Version) -> int:
    from clawback.gate import prompt_gate as prompt_gate

    if confirm("Put it live?", default=False, err=True):
        with open_store() as store:
            prompt_gate.by_hand(store, current_home(), store.version(version.number))
        say(f"Version {version.number} is live. `clawback prompts rollback` goes back.")
    return 0


def _new(sentence: str, authors: dict[str, list[str]]) -> str:
    """A sentence that waits for a yes, and who wrote it where that is known."""
    return f"  + {sentence}" + (f" (by {', '.join(authors[sentence])})" if sentence in authors else "")


@prompts.command()
@click.argument("version", type=VERSION, default="live")
@json_option
def show(version: str, as_json: bool) -> None:
    """Show a prompt, how it came about, and which of its sentences nobody has accepted yet.

    \b
    clawback prompts show
    clawback prompts show 3
    """
    from clawback.prompt_jobs import prompt_learning
    from clawback.release import prompted, screening

    here = current_home()
    with open_store() as store:
        waiting = prompted.edited(store, here)
        found = named_version(store, version)
        unseen = prompted.unseen(store, found) if found.status not in ("live", "retired") else []
        authors = screening.authors(store, unseen)
    stage = prompt_learning.phase(here)
    data = asdict(found) | {
        "unseen": unseen,
        "authors": authors,
        "phase": stage,
        "file": str(prompted.file(here)),
    }
    if not found.prompt:
        none = "No prompt is live" if found.status == "live" else f"Version {found.number} has no prompt"
        text = f"{none}. {STAGES[stage]}."
    else:
        head = f"Version {found.number} · {found.status} · {author(found)} · {when(found.created_at)}"
        text = f"{head}\n\n{prompted.source(found)}\n\n{STAGES[stage]}.\n"
        if unseen:
            text += "\nNobody has accepted these sentences yet:\n" + "\n".join(
                _new(one, authors) for one in unseen
            )
    if waiting is not None:
        text += f"\nYour edit of {prompted.file(here)} is version {waiting.number}: `clawback prompts use {waiting.number}` puts it live."
    emit(data, fold(text, "  "), as_json)


@prompts.command()
@json_option
def history(as_json: bool) -> None:
    """List the versions that brought another prompt, oldest first.

    \b
    clawback prompts history
    """
    from clawback.release import prompted

    with open_store() as store:
        found = prompted.changes(store)
        live = store.live()
    lines = []
    for version in found:
        mark = "▶" if version.prompt == live.prompt else " "
        why = str((version.report or {}).get("reasons", [""])[0])
        lines.append(
            f"{mark} {version.number:>3}  {when(version.created_at)}  {version.status:<9} {author(version):<9} {len(version.prompt):>5} characters  {why}".rstrip()
        )
    emit(
        [asdict(v) for v in found],
        "\n".join(fold(one, " " * 10) for one in lines) or "No prompt was learned yet.",
        as_json,
    )


def author(version: Version) -> str:
    return str(version.origin.get("author", "")) or "nobody"


@prompts.command()
@click.argument("first", type=VERSION, required=False)
@click.argument("second", type=VERSION, required=False)
@json_option
def diff(first: str | None, second: str | None, as_json: bool) -> None:
    """Show what changed between two prompts. With one version: from its parent's; with none: what your edit of the file changes.

    \b
    clawback prompts diff
    clawback prompts diff 3
    clawback prompts diff 2 5
    """
    from clawback.release import prompted

    with open_store() as store:
        if first is None:
            old, new = store.live(), prompted.edited(store, current_home()) or store.live()
            if new.number == old.number and old.parent is not None:
                old = store.version(old.parent)
        elif second is None:
            new = named_version(store, first)
            old = store.version(new.parent or 0)
        else:
            old, new = named_version(store, first), named_version(store, second)
    lines = difflib.unified_diff(
        prompted.source(old).splitlines(),
        prompted.source(new).splitlines(),
        f"version {old.number}",
        f"version {new.number}",
        lineterm="",
    )
    text = "\n".join(lines)
    emit({"from": old.number, "to": new.number, "diff": text}, text or "They say the same.", as_json)


@prompts.command()
@click.argument("version", type=VERSION, required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the prompt from a file.",
)
@click.option("--yes", is_flag=True, help="Do not ask: its sentences were read.")
@json_option
def use(version: str | None, path: Path | None, yes: bool, as_json: bool) -> None:
    """Put a prompt live because you say so: a version, a file, or your edit of prompt.md.

    Its new sentences are shown first. Its record says that no evaluation found it to be better.

    \b
    clawback prompts use 4
    clawback prompts use --file my-prompt.md
    clawback prompts use
    """
    from clawback import feedback
    from clawback.gate import prompt_gate as prompt_gate
    from clawback.prompts import Prompt
    from clawback.release import prompted, screening

    here = current_home()
    with open_store() as store:
        if path is not None:
            written = Prompt(path.read_text("utf-8").strip())
            found = prompted.propose(store, written.text, spoken=written.system, origin={"author": "hand"})
        elif version is not None:
            found = named_version(store, version)
        else:
            edit = prompted.edited(store, here)
            if edit is None:
                raise UsageError(
                    f"{prompted.file(here)} holds the live prompt unchanged. Edit it, or name a version or a --file."
                )
            found = edit
        if found.status == "live":
            raise UsageError(f"Version {found.number} is live already.")
        unseen = prompted.unseen(store, found) if found.status not in ("live", "retired") else []
        warnings = screening.alarms(found.prompt, screening.quotable(feedback.samples(store)))
        if not yes:
            say(found.prompt + "\n", err=True)
            authors = screening.authors(store, unseen)
            for one in unseen:
                say(f"new:{_new(one, authors)[3:]}", err=True)
            for one in warnings:
                say(f"Careful: {one}.", err=True)
            confirm(f"Put version {found.number} live?", abort=True, err=True)
        now = prompt_gate.by_hand(store, here, found)
    emit(
        asdict(now) | {"accepted_sentences": unseen, "warnings": list(warnings)},
        f"Version {now.number} is live. `clawback prompts rollback` goes back.",
        as_json,
    )


prompts.add_command(draft)
