"""``init`` and ``doctor``: set it up, take it out, find out what is wrong."""

from __future__ import annotations

from pathlib import Path

import click

from clawback import config
from clawback.cli.common import current_home, emit, json_option
from clawback.errors import UsageError

AGENTS = ["claude-code"]
PRESETS = ["careful", "balanced", "aggressive"]


@click.command()
@click.option(
    "--yes", is_flag=True, help="Ask nothing; take what is named here, and the defaults for the rest."
)
@click.option("--remove", is_flag=True, help="Take out exactly what was put in. Ratings and versions stay.")
@click.option(
    "--agent", "agents", multiple=True, type=click.Choice([*AGENTS, "none"]),
    help="Whose turns to capture (repeatable).",
)  # fmt: skip
@click.option("--model", metavar="M", help="What to train: `embedded`, a folder, or a hub id.")
@click.option("--preset", type=click.Choice(PRESETS), help="How boldly to learn.")
@click.option(
    "--settings", type=click.Path(path_type=Path),
    help="Claude Code's settings.json, if it is not in the usual place ($CLAUDE_CONFIG_DIR or ~/.claude).",
)  # fmt: skip
@json_option
def init(
    yes: bool, remove: bool, agents: tuple[str, ...], model: str | None, preset: str | None,
    settings: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Set Clawback up with your agent, or take it out again.

    Says what it will change before it changes anything, merges with what is there, keeps a backup, and may be run
    as often as you like.

    \b
    clawback init
    clawback init --yes --agent claude-code --model embedded
    clawback init --remove
    """
    from clawback.capture import claude_code

    here = current_home()
    if remove:
        if not yes and not as_json:
            click.confirm("Take Clawback's hooks out of your agents' settings?", default=True, abort=True)
        changes = claude_code.uninstall(here, settings)
        emit(
            {"changed": [str(p) for p in changes]},
            _changed(changes, "There was nothing to take out."),
            as_json,
        )
        return
    chosen = list(agents) or (["claude-code"] if yes else _ask_agents())
    values = {
        "base": model or _ask("What should be trained (embedded, a folder, or a hub id)?", "embedded", yes)
    }
    how = preset or _ask("How boldly should it learn (careful, balanced, aggressive)?", "balanced", yes)
    if how not in PRESETS:
        raise UsageError(f"There is no preset {how!r}; take one of {', '.join(PRESETS)}.")
    if not yes:
        click.echo(
            f"This will write {here.config}" + ("" if "none" in chosen else " and Claude Code's settings:")
        )
        if "claude-code" in chosen:
            click.echo(claude_code.plan(here, settings))
        click.confirm("Go on?", default=True, abort=True)
    config.save(here.config, {"model": values, "training": {"preset": how}})
    changes = [here.config]
    if "claude-code" in chosen:
        changes += claude_code.install(here, settings)
    text = _changed(changes, "Everything was in place already.")
    text += (
        "\nUse your agent as always and type `/rl good` or `/rl bad` after a response (or `clawback good`)."
    )
    emit({"changed": [str(p) for p in changes], "model": values["base"], "preset": how}, text, as_json)


def _ask(question: str, default: str, yes: bool) -> str:
    return default if yes else str(click.prompt(question, default=default))


def _ask_agents() -> list[str]:
    return [
        str(click.prompt("Which agent's turns?", type=click.Choice([*AGENTS, "none"]), default=AGENTS[0]))
    ]


def _changed(paths: list[Path], nothing: str) -> str:
    return "\n".join(f"wrote {path}" for path in paths) or nothing


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
