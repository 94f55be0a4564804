"""``runs``: what training runs there were, their curves, and stopping or going on with one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from clawback.progress import describe, kl_of, sparkline
from clawback.terminal import CommandGroup, current_home, emit, fold, json_option, open_store, when

if TYPE_CHECKING:
    from clawback.records import JsonObject, Run


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    members={"report": "clawback.training_commands.report:report"},
)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@json_option
@click.pass_context
def runs(context: click.Context, limit: int, as_json: bool) -> None:
    """List training runs, newest first; show, stop or resume one.

    \b
    clawback runs
    clawback runs show 4
    clawback runs stop
    clawback runs resume
    """
    if context.invoked_subcommand:
        return
    with open_store() as store:
        found = store.runs(limit=limit)
    lines = []
    for run in found:
        used = f"{len(run.train_ids)}+{len(run.held_out_ids)} feedback"
        line = f"{run.id:>4}  {when(run.created_at)}  {run.state:<11} {run.algorithm:<10} {used:<15} {ending(run)}"
        lines.append(fold(line, " " * 6))
    emit(
        [asdict(run) | {"status": run.state} for run in found],
        "\n".join(lines) or "No runs yet. `clawback train` starts one.",
        as_json,
    )


def ending(run: Run) -> str:
    """What came of a run, or how far it is."""
    if run.version:
        return f"→ version {run.version}"
    if run.interrupted:
        return f"{describe(run.progress)}; `clawback train` goes on with it"
    return run.error or describe(run.progress) + (
        ", stopping" if run.status in ("running", "preparing") and run.stop_at else ""
    )


@runs.command()
@click.argument("run", type=int)
@json_option
def show(run: int, as_json: bool) -> None:
    """Show one run: its inputs, its result, and its curves.

    \b
    clawback runs show 4
    clawback runs show 4 --json
    """
    with open_store() as store:
        found, steps = store.run(run), store.steps(run)
    lines = [
        f"Run {found.id} · {found.state} · {found.algorithm} · {when(found.created_at)}",
        f"{len(found.train_ids)} pieces of feedback learned from, {len(found.held_out_ids)} held out · seed {found.seed}",
        ending(found),
        *curves(steps),
    ]
    emit(asdict(found) | {"status": found.state, "history": steps}, fold("\n".join(lines), "  "), as_json)


def curves(steps: list[JsonObject]) -> list[str]:
    """Loss, reward and KL over the steps, a line each: from where to where, and the way between."""
    if not steps:
        return ["No step of it has been measured."]
    lines = [f"{len(steps)} steps"]
    figures: dict[str, list[Any]] = {
        "loss": [s.get("loss") for s in steps],
        "reward": [s.get("reward") for s in steps],
        "KL": [kl_of(s) for s in steps],
    }
    for name, values in figures.items():
        known = [float(v) for v in values if v is not None]
        if known:
            lines.append(f"{name:<7} {known[0]:>8.3g} → {known[-1]:<8.3g} {sparkline(known)}")
    return lines


@runs.command()
@click.argument("run", type=int, required=False)
@json_option
def stop(run: int | None, as_json: bool) -> None:
    """Stop the current run after its step. Its checkpoint is kept; `runs resume` continues it. A run that is scheduled is taken back.

    \b
    clawback runs stop
    """
    from clawback import jobs
    from clawback.runs import schedule

    with open_store() as store:
        if run is None and store.current_run() is None and schedule.cancel(store):
            emit({"scheduled": None}, "The scheduled run is taken back.", as_json)
            return
    found = jobs.stop(current_home(), run)
    text = (
        f"Run {found.id} is stopped. `clawback runs resume` continues it."
        if found.status == "stopped"
        else f"Run {found.id} stops after the step under way ({describe(found.progress)}); `clawback runs` shows when it has. "
        "`clawback runs resume` continues it."
    )
    emit(asdict(found), text, as_json)


@runs.command()
@click.argument("run", type=int, required=False)
@click.option(
    "--background", is_flag=True, help="In a separate process; prints the run's number once it has begun."
)
@json_option
def resume(run: int | None, background: bool, as_json: bool) -> int:
    """Continue the newest run from its checkpoint, if it was stopped or its process died.

    \b
    clawback runs resume
    clawback runs resume --background
    """
    from clawback import jobs
    from clawback.runs.run_options import RunOptions
    from clawback.training_commands.train import in_background, train_here

    here = current_home()
    found = jobs.resumable(here, run)
    number = found.id if found.status == "stopped" else None  # one that died is taken up by itself
    if background:
        return in_background(here, as_json, RunOptions(resume=number))
    return train_here(here, as_json, RunOptions(resume=number))
