"""``train``, ``prompts distill``, ``versions check``: make a version now, judge one."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback.errors import DoesNotFit, NotFound, UsageError
from clawback.paths import Home
from clawback.progress import describe, phase_name
from clawback.runs import run_options
from clawback.runs.run_options import RunOptions
from clawback.terminal import (
    VERSION,
    as_record,
    current_home,
    emit,
    fold,
    json_option,
    named_version,
    needs,
    one_key,
    open_store,
    ray_option,
    say,
)
from clawback.terminal.progress_bar import progress_bar, waiting

if TYPE_CHECKING:
    from clawback.jobs.seams import Launch
    from clawback.jobs.training_job import RunResult
    from clawback.records import Version

PRESET = click.option(
    "--preset",
    type=click.Choice(["careful", "balanced", "aggressive"]),
    help="How far the run may move the model.",
)
SEED = click.option("--seed", type=int, help="The same feedback and seed give the same version.")
FOLLOW = "`clawback status` shows how far it is."


@click.command()
@click.option(
    "--algorithm", metavar="A", help="auto, mis-po, reinforce, grpo, … (default: from the settings, auto)."
)
@PRESET
@SEED
@click.option(
    "--processes",
    "process_count",
    type=click.IntRange(1, 64),
    help="Number of processes that share each step.",
)
@click.option("--shard", is_flag=True, help="Split the base among them, too (FSDP2): each holds a part.")
@click.option(
    "--config",
    "accelerate",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Take processes and machines from a file of `accelerate config`.",
)
@ray_option("Let the machines of this Ray cluster draw fresh answers", "Number of workers that draw.")
@click.option(
    "--draw",
    default="",
    metavar="vllm|URL|here",
    help="What draws fresh answers: a vLLM that the run starts, one at an address, or the run itself (docs/vllm.md).",
)
@click.option(
    "--background", is_flag=True, help="In a separate process; prints the run's number once it has begun."
)
@click.option(
    "--at", "clock", default="", metavar="HH:MM",
    help="In a separate process, the next time the clock shows this (`runs stop` takes it back).",
)  # fmt: skip
@click.option("--anyway", is_flag=True, help="Train also where there is little to gain, or nothing was read.")
@json_option
@as_record(RunOptions)
def train(
    options: RunOptions,
    process_count: int | None,
    accelerate: str | None,
    background: bool,
    clock: str,
    as_json: bool,
) -> int:
    """Train a new version now, from all feedback, and let the gate decide whether it goes live.

    No run starts where the live version's answers are liked nearly as much as they could be, or where nothing can be read from the ratings yet and there
    are no edits, comparisons, rules or notes, unless --anyway is given.

    An interrupted run is finished first. Ctrl-C stops the run; `clawback runs resume` continues it. With --processes each process holds the
    base and computes a share of each step's gradient; with --shard the base is split among them, too. With --ray the machines of a cluster draw
    the fresh answers, with --draw a vLLM does. On several machines set MASTER_ADDR, MASTER_PORT and NNODES, and start
    the others with their NODE_RANK (docs/scale.md).

    \b
    clawback train
    clawback train --algorithm mis-po --preset careful
    clawback train --background
    clawback train --at 02:00
    clawback train --processes 2
    clawback train --processes 2 --shard
    clawback train --config accelerate.yaml
    clawback train --ray auto
    clawback train --draw vllm
    """
    needs("torch")
    from clawback import jobs
    from clawback.jobs import seams

    here = current_home()
    if said := seams.launched():
        say(f"clawback: {said}", err=True)
    count, shard = _layout(process_count, options.shard, accelerate)
    if run_options.machine_number() > 0:
        return _help_out(count)
    options = options.changed(processes=count, shard=shard)
    _check_places(options, run_options.machine_count(), background or bool(clock))
    if clock:
        return at_a_time(here, clock, as_json, options)
    if background:
        jobs.startable(here, options.algorithm)
        return in_background(here, as_json, options)
    return train_here(here, as_json, options)


def _layout(processes: int | None, shard: bool, accelerate: str | None) -> tuple[int, bool]:
    """Processes, and whether the base is split among them: by the options, else by a file of accelerate."""
    if accelerate is None:
        return processes or 1, shard
    layout = _accelerate_layout(Path(accelerate))
    return processes or layout.processes, shard or layout.shard


def _help_out(processes: int) -> int:
    """Compute shares of the run of the first machine; the exit code."""
    from clawback.jobs import seams

    first = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    machine = f"This machine ({run_options.machine_number() + 1} of {run_options.machine_count()})"
    text = f"{machine} computes shares of the run at {first}, once that has begun, and learns nothing of its own. Ctrl-C ends it."
    say(text, err=True)
    return seams.help_out(processes)


def _accelerate_layout(path: Path) -> Launch:
    """What a file of accelerate says, with a line for each of its keys; its variables go into the environment."""
    from clawback.jobs import seams

    layout = seams.from_accelerate(path)
    for line in layout.answers:
        say(f"{path.name}: {line}", "  ", err=True)
    for name, value in layout.variables.items():
        os.environ.setdefault(name, value)
    return layout


def _check_places(options: RunOptions, machines: int, background: bool) -> None:
    """Raises ``UsageError`` where the options about processes and machines contradict each other."""
    several = options.processes * machines > 1
    if background and (several or options.shard or options.ray or options.draw):
        raise UsageError(
            "A run in the background has one process: leave --background (or --at) out, or --processes, --ray and --draw."
        )
    if options.draw and options.ray:
        raise UsageError("Fresh answers are drawn by a cluster (--ray) or by a vLLM (--draw), not by both.")
    if options.shard and not several:
        raise UsageError("--shard shares the base out among processes: name how many with --processes.")


def at_a_time(here: Home, clock: str, as_json: bool, options: RunOptions) -> int:
    """Have a process of its own start the run at this time of day. Raises ``ClawbackError`` where no run could begin."""
    from clawback import jobs
    from clawback.runs import schedule

    moment = schedule.next_moment(clock)
    jobs.startable(here, options.algorithm)
    with open_store() as store:
        schedule.schedule(here, store, moment, options)
    emit({"scheduled": moment.isoformat(timespec="minutes")}, schedule.sentence(moment), as_json)
    return 0


def in_background(here: Home, as_json: bool, options: RunOptions) -> int:
    """Train in a process of its own, and say which run it is once that has begun. Raises ``ClawbackError`` where it fails before."""
    from clawback import jobs

    process = jobs.start(here, options)
    if process is None:
        with open_store() as store:
            run = store.current_run()
        name = f"Run {run.id}" if run else "A run"
        emit(
            {"started": False, "run": run.id if run else None},
            f"{name} is training already. {FOLLOW}",
            as_json,
        )
        return 0
    try:
        with waiting("preparing", quiet=as_json) as say:
            run = jobs.begun(here, process, on_progress=lambda progress: say(phase_name(progress)))
    except KeyboardInterrupt:  # ends the waiting alone: the process is of a session of its own
        run = None
    if run:
        text = f"Run {run.id} is training in the background ({run.algorithm}). {FOLLOW}"
    else:
        with open_store() as store:
            run = store.current_run()
        name = f"Run {run.id}" if run else f"The run of process {process.pid}"
        text = f"{name} is still being prepared. `clawback status` shows what it does, and why it failed if it does."
    emit({"started": True, "run": run.id if run else None}, text, as_json)
    return 0


def train_here(here: Home, as_json: bool, options: RunOptions) -> int:
    """Train in this process with a bar, and say what came of it. Ctrl-C leaves a run that can be gone on with."""
    try:
        from clawback.feedback.news import mark_seen

        with progress_bar(quiet=as_json) as follow:
            follow({"phase": "preparation"})
            from clawback import jobs

            outcome = jobs.train_once(here, options, on_progress=follow)
    except KeyboardInterrupt:
        say(interrupted(here), err=True)
        return 130
    except DoesNotFit as error:
        return instead(here, error, as_json)
    with open_store() as store:
        mark_seen(store, outcome.version.number)  # it is told now
    text = f"Version {outcome.version.number} ({outcome.run.algorithm})\n\n{fold(outcome.report.text(), '  ')}\n\n"
    text += became(outcome)
    if outcome.prompt:
        text += "\n" + of_its_sentence(outcome.prompt)
    emit(
        {"run": asdict(outcome.run), "version": asdict(outcome.version), "live": outcome.live, "prompt": asdict(outcome.prompt) if outcome.prompt else None}, text, as_json
    )  # fmt: skip
    return 0


def instead(here: Home, error: DoesNotFit, as_json: bool) -> int:
    """Where a run does not fit the machine: a prompt can be learned from the same taps, by one key. Raises the error where nobody is there to press it."""
    if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise DoesNotFit(
            f"{error} Or learn a prompt from the same ratings: `clawback prompts optimize`."
        ) from error

    say(f"clawback: {error}", "  ", err=True)
    say("The same ratings can teach a prompt: the model stays as it is.", err=True)
    if one_key("[p] learn a prompt  [any other key] leave ", err=True) != "p":
        say("", err=True)
        return 1
    say("a prompt", err=True)
    from clawback import config
    from clawback.training_commands.prompts import search

    given = config.load(here.config)
    if not (given.prompts.url or given.serve.upstream):
        # The model that cannot be trained here can still answer.
        config.save(here.config, {"prompts": {"api": "local"}})
    return search(here, as_json=False)


def became(outcome: RunResult) -> str:
    """What a run's version is now, in a sentence."""
    number, before = outcome.version.number, outcome.report.against
    if outcome.live:
        return f"Version {number} is live. `clawback versions rollback` goes back."
    if outcome.version.status == "rejected":
        return f"Version {number} was rejected; version {before} stays live."
    waits = (
        "is on trial (`clawback versions trial`)"
        if outcome.report.accepted
        else "waits for your word (`clawback inbox --rate` asks which of two answers is better)"
    )
    return f"Version {number} {waits}; version {before} stays live."


def of_its_sentence(version: Version) -> str:
    """What became of the sentence that a rejected adapter was to learn."""
    said = f"What it was to learn, said as a prompt ({version.prompt.splitlines()[-1]!r})"
    if version.status == "live":
        return f"{said}, is version {version.number}, and live. `clawback prompts distill` tries to fold it into the weights."
    if version.status == "candidate":
        return f"{said}, is version {version.number}, and waits: `clawback prompts show {version.number}`."
    return f"{said}, was no better either (version {version.number})."


def interrupted(here: Home) -> str:
    """Mark the run that Ctrl-C ended as stopped, and say how it is gone on with."""
    from clawback import jobs

    try:
        run = jobs.stop(here)
    except NotFound:
        return "Stopped before a run had begun. Your ratings are safe."
    return (
        f"Run {run.id} was stopped ({describe(run.progress)}). Your ratings are safe. `clawback runs resume` continues it, "
        "`clawback train` begins a new one."
    )


@click.command()
@SEED
@PRESET
@json_option
def distill(seed: int | None, preset: str | None, as_json: bool) -> int:
    """Train your own model to answer without the live prompt as it does with it. The gate decides.

    Answers are sampled under the prompt, and the best are learned without it. The new version needs no prompt: requests are shorter,
    and it works wherever the adapter is loaded.

    \b
    clawback prompts distill
    clawback prompts distill --preset careful
    """
    needs("torch")
    return train_here(current_home(), as_json, RunOptions(preset=preset, seed=seed, fold=True))


@click.command()
@click.argument("version", type=VERSION)
@json_option
def gate(version: str, as_json: bool) -> int:
    """Evaluate a version against the live one, without putting anything live. Exits with 1 if it is not better.

    For a version with another prompt, answers are requested from the model of [prompts], which may cost money.

    \b
    clawback versions check 3
    """
    from clawback.gate import adapter_gate
    from clawback.release import prompted

    with open_store() as store, progress_bar(quiet=as_json) as follow:
        chosen, live = named_version(store, version), store.live()
        if chosen.prompt != live.prompt and chosen.path == live.path and prompted.searched(store, chosen):
            from clawback.prompt_jobs import prompt_learning

            report = prompt_learning.judge_one(current_home(), chosen.number, on_progress=follow)
        else:
            report = adapter_gate.gate(store, current_home(), chosen.number, on_progress=follow)
    emit(report.to_dict(), fold(report.text(), "  "), as_json)
    return 0 if report.accepted else 1
