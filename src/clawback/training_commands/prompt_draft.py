"""``prompts draft``: what was learned, for an agent's own rules file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError
from clawback.terminal import VERSION, confirm, emit, json_option, named_version, open_store, say

if TYPE_CHECKING:
    from clawback.records import JsonObject


@click.command()
@click.option(
    "--file", "name", default="CLAUDE.md", show_default=True, help="CLAUDE.md, AGENTS.md or GEMINI.md."
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The project's folder (default: this one).",
)
@click.option(
    "--version", "which", type=VERSION, default="live", show_default=True, metavar="V", help="Whose prompt."
)
@click.option("--remove", is_flag=True, help="Take the block out again.")
@click.option("--yes", is_flag=True, help="Write it without asking.")
@json_option
def draft(name: str, folder: Path, which: str, remove: bool, yes: bool, as_json: bool) -> None:
    """Write the learned prompt into an agent's own rules file, as a diff that you accept. For agents that do not use the proxy.

    \b
    clawback prompts draft --file CLAUDE.md
    clawback prompts draft --file AGENTS.md --folder ~/project --yes
    clawback prompts draft --remove
    """
    from clawback.prompt_jobs import prompt_drafts
    from clawback.release import prompted

    with open_store() as store:
        found = named_version(store, which)
        if not remove and not found.prompt:
            raise UsageError(
                f"Version {found.number} has no prompt. `clawback prompts optimize` looks for one."
            )
        if not remove and found.status not in ("live", "retired") and prompted.unseen(store, found):
            raise UsageError(
                f"Some sentences of version {found.number} were never accepted: `clawback prompts use {found.number}` first."
            )
    made = prompt_drafts.draft(folder, name, "" if remove else found.prompt)
    data: JsonObject = {"file": str(made.path), "diff": made.diff, "written": False}
    if not made.diff:
        emit(data, f"{made.path} says so already.", as_json)
        return
    if not as_json:
        say(made.diff)
    if yes or (
        sys.stdin.isatty() and not as_json and confirm(f"Write {made.path}?", default=False, err=True)
    ):
        prompt_drafts.write(made)
        emit(data | {"written": True}, f"{made.path} was written.", as_json)
        return
    emit(data, "Nothing was written (--yes writes it).", as_json)
