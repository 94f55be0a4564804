"""``init`` and ``doctor``: set it up, take it out, find out what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback.cli.common import current_home, emit, json_option
from clawback.errors import UsageError

if TYPE_CHECKING:
    from clawback.jobs.setup import Proposal, Seen

PRESETS = ["careful", "balanced", "aggressive"]


@click.command()
@click.option(
    "--yes", is_flag=True, help="Ask nothing; take what is named here, and the defaults for the rest."
)
@click.option("--remove", is_flag=True, help="Take out exactly what was put in. Ratings and versions stay.")
@click.option(
    "--agent", "agents", multiple=True, metavar="AGENT",
    help="Whose turns to capture (repeatable): claude-code, codex, openclaw, gemini-cli, …, or none.",
)  # fmt: skip
@click.option("--model", metavar="M", help="What to train: `embedded`, a folder, or a hub id.")
@click.option("--upstream", metavar="URL", help="A server that answers in place of our own: vLLM, Ollama, ….")
@click.option("--preset", type=click.Choice(PRESETS), help="How boldly to learn.")
@click.option(
    "--settings", type=click.Path(path_type=Path),
    help="The agent's settings file, if it is not in the usual place (with one --agent).",
)  # fmt: skip
@click.option(
    "--service/--no-service", default=None, help="Keep `clawback serve` running (systemd, launchd)."
)
@click.option("--dry-run", is_flag=True, help="Say what would be changed, and change nothing.")
@json_option
def init(
    yes: bool, remove: bool, agents: tuple[str, ...], model: str | None, upstream: str | None, preset: str | None,
    settings: Path | None, service: bool | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Set Clawback up with your agents, or take it out again.

    Looks at what is on this machine and proposes; says what it will change before it changes anything, merges with what is
    there, keeps what was there before, and may be run as often as you like.

    \b
    clawback init
    clawback init --yes --agent claude-code --model embedded
    clawback init --dry-run
    clawback init --remove
    """
    from clawback.jobs import setup

    here = current_home()
    if settings is not None and len(agents) != 1:
        raise UsageError("--settings names the file of one agent: say which, with one --agent.")
    if remove:
        _remove(yes or as_json, list(agents), settings, as_json)
        return
    ask = not (yes or as_json or dry_run)
    seen = setup.look()
    if ask:
        click.echo(setup.describe(seen))
    proposed = setup.propose(seen, list(agents), model, preset, upstream, service)
    if ask:
        proposed = _ask(seen, proposed, model, preset, bool(agents), service)
    lines = setup.plan(here, proposed, settings)
    if dry_run:
        emit({"would_change": lines}, "This would change:\n  " + "\n  ".join(lines), as_json)
        return
    if ask:
        click.echo("This will change:\n  " + "\n  ".join(lines))
        click.confirm("Go on?", default=True, abort=True)
    changed, notes = setup.carry_out(here, proposed, settings)
    text = "\n".join([*_wrote(changed, "Everything was in place already."), *notes])
    data: dict[str, Any] = {
        "changed": [str(p) for p in changed],
        "agents": proposed.agents,
        "model": proposed.model,
        "preset": proposed.preset,
        "notes": notes,
    }
    emit(data, text, as_json)


def _remove(quiet: bool, agents: list[str], settings: Path | None, as_json: bool) -> None:
    from clawback.jobs import setup

    here = current_home()
    if not quiet:
        click.confirm("Take Clawback out of your agents' settings?", default=True, abort=True)
    changed = setup.take_out(here, agents, settings)
    text = "\n".join(_wrote(changed, "There was nothing to take out."))
    emit({"changed": [str(p) for p in changed]}, text, as_json)


def _ask(
    seen: Seen, proposed: Proposal, model: str | None, preset: str | None, named: bool, service: bool | None
) -> Proposal:
    """Each proposal is the default of its question; what was given on the command line is not asked again."""
    from dataclasses import replace

    if not named:
        said = click.prompt(
            "Whose turns should be captured (names with commas between them, or none)",
            default=",".join(proposed.agents) or "none",
        )
        proposed = replace(
            proposed, agents=[a.strip() for a in str(said).split(",") if a.strip() not in ("", "none")]
        )
    if model is None:
        said = click.prompt(
            "What should be trained (embedded, a folder, or a hub id)", default=proposed.model
        )
        proposed = replace(proposed, model=str(said))
    if preset is None:
        kinds = click.Choice(PRESETS)
        proposed = replace(
            proposed, preset=str(click.prompt("How boldly", type=kinds, default=proposed.preset))
        )
    if service is None and seen.service:
        keep = click.confirm("Keep `clawback serve` running in the background", default=proposed.service)
        proposed = replace(proposed, service=keep)
    return proposed


def _wrote(paths: list[Path], nothing: str) -> list[str]:
    return [f"wrote {path}" for path in paths] or [nothing]


@click.command()
@json_option
def doctor(as_json: bool) -> int:
    """Find out what is wrong, and say how to mend it. Exits with 1 when something is.

    \b
    clawback doctor
    """
    from clawback.jobs import health

    findings = health.check(current_home())
    sign = {True: "ok ", False: "BAD"}
    lines = [
        f"{sign[f['ok']]}  {f['what']}" + (f"\n     → {f['fix']}" if not f["ok"] else "") for f in findings
    ]
    emit(findings, "\n".join(lines), as_json)
    return 0 if all(f["ok"] for f in findings) else 1
