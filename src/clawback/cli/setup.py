"""``init`` and ``doctor``: set it up, take it out, find out what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from clawback.errors import ClawbackError, UsageError
from clawback.paths import tidied, tidy
from clawback.terminal import as_record, confirm, current_home, emit, fold, in_walk, json_option, say
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from clawback.admin.installation import MachineSeen, SetupOptions, SetupProposal
    from clawback.records import JsonObject

LONG_COMMAND = 30
"""Characters of a command up to which the column of the next steps is widened for it."""
PRESETS = ["careful", "balanced", "aggressive"]
T = TypeVar("T")


@click.command()
@click.option(
    "--yes", is_flag=True, help="Ask nothing; take what is named here, and the defaults for the rest."
)
@click.option("--remove", is_flag=True, help="Remove exactly what was added. Ratings and versions stay.")
@click.option(
    "--agent", "agents", multiple=True, metavar="AGENT",
    help="Whose turns to capture (repeatable): claude-code, codex, openclaw, gemini-cli, …, or none.",
)  # fmt: skip
@click.option(
    "--model",
    metavar="M",
    help="What to train: `smollm2`, a GGUF file, ollama:NAME, lmstudio:NAME, a folder, a hub id, or `embedded`.",
)
@click.option("--upstream", metavar="URL", help="A server that answers in place of our own: vLLM, Ollama, ….")
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    help="How far a run may move the model: careful drifts least, aggressive learns fastest.",
)
@click.option(
    "--settings", type=click.Path(path_type=Path),
    help="The agent's settings file, if it is not in the usual place (with one --agent).",
)  # fmt: skip
@click.option(
    "--service/--no-service", default=None, help="Keep `clawback serve` running (systemd, launchd)."
)
@click.option("--dry-run", is_flag=True, help="Say what would be changed, and change nothing.")
@json_option
@as_record("clawback.admin.installation:SetupOptions", "wanted")
def init(yes: bool, remove: bool, wanted: SetupOptions, dry_run: bool, as_json: bool) -> None:
    """Set Clawback up with your agents, or remove it.

    It detects agents and models on this machine and proposes a set-up. It shows every change first, merges with existing settings and keeps
    a copy of them. You may run it as often as you like.

    \b
    clawback init
    clawback init --yes --agent claude-code --model smollm2
    clawback init --model ollama:llama3.2
    clawback init --dry-run
    clawback init --remove
    """
    from clawback.admin import installation

    here = current_home()
    if wanted.settings is not None and len(wanted.agents) != 1:
        raise UsageError("--settings names the file of one agent: say which, with one --agent.")
    if remove:
        _remove(yes or as_json, list(wanted.agents), wanted.settings, as_json)
        return
    ask = not (yes or as_json or dry_run)
    with waiting("looking for agents and models", as_json):
        seen = installation.look()
    if ask:
        say(
            "Clawback trains a local model on what you rate; cloud models that your agents\n"
            "use stay as they are. Nothing is written before you agree.\n"
        )
        say(installation.describe(seen), " " * 4)
    proposed = installation.propose(seen, wanted, here)
    if ask:
        proposed = _ask(seen, proposed, wanted)
    lines = installation.plan(here, proposed, wanted.settings)
    if dry_run:
        emit(
            {"would_change": lines},
            fold("This would change:\n  " + "\n  ".join(map(tidied, lines)), "    "),
            as_json,
        )
        return
    if ask:
        say("\nThis will change:\n  " + "\n  ".join(map(tidied, lines)), "    ")
        confirm("Go on?", default=True, abort=True)
    with waiting("setting up", as_json):
        changed, notes = installation.carry_out(here, proposed, wanted.settings)
    if ask:
        notes = [note for note in notes if note != proposed.note]  # said when the model was named
    _report(proposed, changed, notes, as_json)


def _report(proposed: SetupProposal, changed: list[Path], notes: list[str], as_json: bool) -> None:
    """What was written, what was noticed, and what to type next."""
    from clawback.admin import installation

    next_steps = installation.next_steps(proposed)
    wide = max((len(command) for command, _ in next_steps if len(command) <= LONG_COMMAND), default=0)
    lines = [*_wrote(changed, "Everything was in place already."), *notes]
    if not in_walk():
        lines += ["Next:", *(f"  {command:<{wide}}  {what}" for command, what in next_steps)]
    data: JsonObject = {
        "changed": [str(p) for p in changed],
        "agents": proposed.agents,
        "model": proposed.model,
        "preset": proposed.preset,
        "notes": notes,
        "next": [command for command, _ in next_steps],
    }
    emit(data, fold("\n".join(lines), " " * 4), as_json)


def _remove(quiet: bool, agents: list[str], settings: Path | None, as_json: bool) -> None:
    from clawback.admin import installation

    here = current_home()
    if not quiet:
        confirm("Take Clawback out of your agents' settings?", default=True, abort=True)
    changed = installation.take_out(here, agents, settings)
    lines = _wrote(changed, "There was nothing to take out.")
    if here.root.exists():
        lines.append(f"Your ratings and versions stay in {tidy(here.root)}, until you delete that folder.")
    emit({"changed": [str(p) for p in changed]}, fold("\n".join(lines), " " * 4), as_json)


def _ask(seen: MachineSeen, proposed: SetupProposal, wanted: SetupOptions) -> SetupProposal:
    """Each proposal is the default of its question; what was given on the command line is not asked again."""
    from dataclasses import replace

    from clawback.admin import installation
    from clawback.capture import agent_integration

    if not wanted.agents:
        known = f"{', '.join(agent_integration.names())}; several with commas, or none"
        say("\n" + click.wrap_text(known, 78, "  ", "  "))
        question = "Whose turns should be captured"
        default = ",".join(proposed.agents) or "none"
        agents = _until(question, default, lambda said: installation.check_agents(said.split(",")))
        proposed = replace(proposed, agents=agents)
    if wanted.model is None:
        say("\n  a number or a name of the list above, a folder, a GGUF file, or a hub id")
        question = "What should be trained"
        base, note = _until(question, proposed.model, lambda said: installation.check_model(said, seen))
        proposed = replace(proposed, model=base, note=note)
        if note:
            say(note, "  ")
    if wanted.preset is None:
        said = "\n".join(f"  {name:<11} {what}" for name, what in installation.PRESETS.items())
        say("\n" + fold(said, " " * 14))
        question = f"Preset ({', '.join(PRESETS)})"
        proposed = replace(proposed, preset=_until(question, proposed.preset, _preset))
    if wanted.service is None and seen.service:
        keep = confirm("Keep `clawback serve` running in the background", default=proposed.service)
        proposed = replace(proposed, service=keep)
    return proposed


def _until(question: str, default: str, check: Callable[[str], T]) -> T:
    """Ask until the answer can be used; each time it cannot, say why."""
    while True:
        try:
            return check(str(click.prompt(question, default=default)))
        except ClawbackError as error:
            say(str(error), "  ")


def _preset(text: str) -> str:
    """Raises ``UsageError``."""
    from clawback.terminal.sentences import nearest

    if (chosen := text.strip().lower()) in PRESETS:
        return chosen
    meant = nearest(text, PRESETS)
    raise UsageError(
        f"There is no preset `{text}`; there are {', '.join(PRESETS)}."
        + (f" Did you mean `{meant}`?" if meant else "")
    )


def _wrote(paths: list[Path], nothing: str) -> list[str]:
    return [f"{'wrote' if path.exists() else 'removed'} {tidy(path)}" for path in paths] or [nothing]


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Find out what is wrong, and say how to fix it. Exits with 1 if something is.

    \b
    clawback doctor
    """
    from clawback.admin import health

    with waiting("looking", as_json):
        findings = health.check(current_home())
    sign = {True: "ok ", False: "BAD"}
    lines = [
        fold(tidied(f"{sign[f['ok']]}  {f['what']}" + (f"\n     → {f['fix']}" if f["fix"] else "")), " " * 7)
        for f in findings
    ]
    wrong = sum(not f["ok"] for f in findings)
    lines.append(
        f"\n{wrong} thing{'' if wrong == 1 else 's'} to mend."
        if wrong
        else "\nEverything is in order. Next: `clawback status`"
    )
    emit(findings, "\n".join(lines), as_json)
    return 0 if all(f["ok"] for f in findings) else 1
