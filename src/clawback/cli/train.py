"""``train gate runs``: make a version now, judge one, and what runs there were."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from clawback.cli.common import current_home, emit, json_option, open_store
from clawback.cli.look import describe, when

OnProgress = Callable[[Mapping[str, Any]], None]


@contextmanager
def progress_bar(quiet: bool = False, lines: bool = False) -> Iterator[OnProgress]:
    """A bar on stderr that follows ``{"phase", "step", "steps", …}``; plain ``lines`` if asked, or where nobody is watching."""
    if quiet:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console, drawn = Console(stderr=True), sys.stderr.isatty() and not lines
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(30),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not drawn) as bar:
        tasks: dict[str, Any] = {}

        def follow(progress: Mapping[str, Any]) -> None:
            phase = str(progress.get("phase", ""))
            if said := announcement(progress):
                console.print(said, highlight=False, markup=False)
                return
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase, total=None, detail="")
                if not drawn:
                    console.print(f"{phase} …", highlight=False)
            bar.update(
                tasks[phase],
                completed=progress.get("step"),
                total=progress.get("steps"),
                detail=figures(progress),
            )

        yield follow


def announcement(progress: Mapping[str, Any]) -> str:
    """What is said once: the estimate before a run, and which algorithm was chosen and why."""
    if progress.get("phase") == "estimate":
        return str(progress["text"])
    if progress.get("phase") == "reward":
        return str(progress["note"])
    if progress.get("phase") == "plan":
        return f"Learning with {progress['algorithm']}" + (
            f": {progress['note']}" if progress.get("note") else ""
        )
    return ""


def figures(progress: Mapping[str, Any]) -> str:
    """The few numbers of a step that say how it goes."""
    shown = {"loss": "loss", "reward": "reward", "kl": "KL"}
    return "  ".join(f"{name} {progress[key]:.3g}" for key, name in shown.items() if key in progress)


@click.command()
@click.option(
    "--algorithm", metavar="A", help="auto, mis-po, reinforce, grpo, … (default: from the settings, auto)."
)
@click.option(
    "--preset", type=click.Choice(["careful", "balanced", "aggressive"]), help="How boldly to learn."
)
@click.option("--seed", type=int, help="The same feedback and seed give the same version.")
@click.option(
    "--background", is_flag=True, help="In a process of its own; `clawback status` shows how far it is."
)
@json_option
def train(
    algorithm: str | None, preset: str | None, seed: int | None, background: bool, as_json: bool
) -> None:
    """Train a new version now, from all feedback that stands, and let the gate decide.

    A run that was interrupted is finished first.

    \b
    clawback train
    clawback train --algorithm mis-po --preset careful
    clawback train --background
    """
    from clawback import jobs

    here = current_home()
    if background:
        started = jobs.start(here, algorithm=algorithm, preset=preset, seed=seed)
        text = "Training in the background." if started else "A run is training already."
        emit({"started": started}, f"{text} `clawback status` shows how far it is.", as_json)
        return
    with progress_bar(quiet=as_json) as follow:
        outcome = jobs.train_once(here, algorithm=algorithm, preset=preset, seed=seed, on_progress=follow)
    text = f"Version {outcome.version.number} ({outcome.run.algorithm})\n\n{outcome.report.text()}\n\n"
    text += (
        f"Version {outcome.version.number} is live. `clawback rollback` goes back."
        if outcome.live
        else "Nothing has changed: the version before it is still live."
    )
    emit(
        {"run": asdict(outcome.run), "version": asdict(outcome.version), "live": outcome.live}, text, as_json
    )


@click.command()
@click.argument("version", type=int)
@json_option
def gate(version: int, as_json: bool) -> int:
    """Judge a version against the live one (nothing is put live or taken back). Exits with 1 when it is not better.

    \b
    clawback gate 3
    """
    from clawback import release

    with open_store() as store, progress_bar(quiet=as_json) as follow:
        report = release.gate(store, current_home(), version, on_progress=follow)
    emit(report.to_dict(), report.text(), as_json)
    return 0 if report.accepted else 1


@click.command()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="How many.")
@json_option
def runs(limit: int, as_json: bool) -> None:
    """List training runs, newest first.

    \b
    clawback runs
    """
    with open_store() as store:
        found = store.runs(limit=limit)
    lines = []
    for run in found:
        end = f"→ version {run.version}" if run.version else run.error or describe(run.progress)
        used = f"{len(run.train_ids)}+{len(run.held_out_ids)} feedback"
        lines.append(
            f"{run.id:>4}  {when(run.created_at)}  {run.status:<8} {run.algorithm:<10} {used:<18} {end}"
        )
    emit(
        [asdict(run) for run in found],
        "\n".join(lines) or "No runs yet. `clawback train` starts one.",
        as_json,
    )
