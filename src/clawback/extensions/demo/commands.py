"""``clawback demo``: see a model become what somebody likes."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback.config import EMBEDDED
from clawback.errors import UsageError
from clawback.installed import localize
from clawback.paths import Home
from clawback.terminal import as_record, current_home, emit, json_option, needs, say
from clawback.terminal.progress_bar import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from clawback.extensions.demo import Demo, Look
    from clawback.extensions.demo.corpus import TopicPrompt
    from clawback.extensions.demo.loop import Choose, Rate
    from clawback.records import JsonObject


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What is shown."""

    model: str
    rounds: int | None
    taste: str | None
    seed: int
    algorithm: str
    folder: Path | None
    interactive: bool


@click.command()
@click.option(
    "--model",
    default=EMBEDDED,
    show_default=True,
    metavar="M",
    help="Another base, such as smollm2: everyday questions, and minutes to hours.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 20), help="Rounds of 32 ratings. [default: 2, 1 for another model]"
)
@click.option(
    "--taste",
    help="What the simulated person likes (a wrong name lists them). With --interactive: measure this taste, too.",
)
@click.option(
    "--seed", default=0, show_default=True, help="Another seed is another person and other prompts."
)
@click.option("--algorithm", default="auto", show_default=True, help="auto, mis-po, reinforce, …")
@click.option(
    "--home",
    "folder",
    type=click.Path(path_type=Path),
    help="Keep everything in this new or empty folder (default: a temporary one).",
)
@click.option("--interactive", is_flag=True, help="You rate, with one key.")
@click.option(
    "--cloud",
    is_flag=True,
    help="Learn a prompt for a model whose weights are not available. Offline, under a minute.",
)
@json_option
@as_record(DemoOptions)
def demo(options: DemoOptions, cloud: bool, as_json: bool) -> None:
    """See the whole loop in a few minutes: a small model answers, a simulated person rates, the model is trained.

    Your own files are not touched: it uses a separate home. (If a GGUF file must be converted first, the result is kept under your models.)

    \b
    clawback demo
    clawback demo --interactive
    clawback demo --cloud
    clawback demo --model smollm2
    clawback demo --taste "metric units" --rounds 4 --json
    clawback demo --home ./demo && CLAWBACK_HOME=./demo clawback versions
    """
    folder = options.folder
    if cloud:
        if options.interactive or options.rounds or options.model != EMBEDDED:
            raise UsageError(
                "--cloud has a model and a person of its own: leave --interactive, --rounds and --model out."
            )
        in_the_cloud(folder, options.taste, options.seed, as_json)
        return
    needs("torch")
    from rich.console import Console

    from clawback.extensions.demo import Demo
    from clawback.extensions.demo.worlds import world

    if options.interactive and not sys.stdin.isatty():
        raise UsageError(
            "To rate with one key a terminal is needed: run it in one, or leave --interactive out."
        )
    base = options.model if options.model == EMBEDDED else checked(options.model, quiet=as_json)
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clawback-demo-")))
        here = Demo(
            Home(folder.resolve()),
            options.taste if options.interactive or options.taste is not None else world(base).taste,
            base=base,
            seed=options.seed,
            noise=0.0 if options.interactive else 0.1,
            algorithm=options.algorithm,
        )
        from clawback.extensions.demo.loop import RATINGS

        # What is said to the person who rates must not end up in the JSON.
        console = Console(stderr=as_json, quiet=as_json and not options.interactive)
        data = play(
            here,
            options.rounds or (2 if base == EMBEDDED else 1),
            console,
            rate=by_key(RATINGS) if options.interactive else None,
            choose=choice_by_key if options.interactive else None,
        )
    if as_json:
        emit(data, "", True)


def in_the_cloud(folder: Path | None, taste: str | None, seed: int, as_json: bool) -> None:
    """The demo for a model whose weights nobody has."""
    needs("uvicorn", "proxy")
    needs("numpy", "proxy")
    from rich.console import Console

    from clawback.extensions.demo import cloud_display
    from clawback.extensions.demo.cloud_demo import CloudDemo

    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clawback-demo-")))
        here = stack.enter_context(CloudDemo(Home(folder.resolve()), taste, seed=seed))
        data = cloud_display.play(here, Console(quiet=as_json))
    if as_json:
        emit(data, "", True)


def checked(model: str, *, quiet: bool) -> str:
    """A base by its name, and how long a run on it may take. Raises ``UsageError`` for what is no model."""
    from clawback.admin import model_choice
    from clawback.models import local_models

    found = local_models.find()
    base, note = model_choice.check(model, found)
    if note and not quiet:
        say(note)
    one = next((one for one in found if one.name == base), None)
    if one is not None and not quiet:
        say(
            f"{base}: {model_choice.verdict(one, model_choice.machine())}, on a machine with nothing else to do."
        )
    return base


def play(
    here: Demo, rounds: int, console: Console, rate: Rate | None = None, choose: Choose | None = None
) -> JsonObject:
    """The demo from beginning to end; what it shows, as data. ``rate``, ``choose``: a real person instead of the simulated one."""
    from clawback.extensions.demo import display

    began = time.monotonic()
    if rate is None and here.taste is not None:
        console.print(
            f"[bold]Somebody who likes: {here.taste.name}.[/] The model is not told. One tap in ten is wrong.\n"
        )
    console.print("How the base model answers prompts that nobody will rate:")
    with progress_bar(console.quiet) as follow:
        looks: list[Look] = [here.look(follow)]
    console.print(display.bars(looks))
    for _ in range(rounds):
        console.print()
        # A bar that is redrawn would wipe out the question, so a person's round has lines instead.
        with progress_bar(console.quiet, lines=rate is not None) as follow:
            done = here.round(rate=rate, on_progress=follow, choose=choose)
        if done is None:
            console.print("No ratings, so there is nothing to learn from.")
            break
        looks.append(done.look)
        display.show_round(console, done, looks)
        if done.enough:
            break
    console.print()
    console.print(display.side_by_side(looks[0], looks[-1]))
    if here.taste is None:
        console.print("\nWhat your taps changed, as shares of the answers:")
        console.print(display.changes(looks[0], looks[-1]))
    back = take_back(here, looks, console)
    seconds = time.monotonic() - began
    ratings = sum(r.ratings for r in here.rounds)
    console.print(
        f"\n{ratings} ratings, {seconds:.0f} s. Yours next: {localize('`clawback init`')}",
        highlight=False,
        markup=False,
    )
    return summary(here, looks, back, seconds)


def take_back(here: Demo, looks: list[Look], console: Console) -> JsonObject | None:
    """Roll back, show that the older version's very answers are back, and go forward again."""
    from clawback.extensions.demo import display

    newest = looks[-1]
    if newest.version == 0:
        console.print("\nNo version went live, so there is nothing to roll back.")
        return None
    older = here.rollback()
    with progress_bar(console.quiet) as follow:
        look = here.look(follow)
    before = next((one for one in looks if one.version == older.number), None)
    same = before is not None and before.answers == look.answers
    liked = "" if look.satisfaction is None else f", {look.satisfaction:.0%} of its answers liked"
    word = "the same answers as before" if same else "but not the same answers as before"
    console.print(
        f"\n[bold]$ clawback versions rollback[/]\n{display.name(older.number)} answers again: {word}{liked}.",
        highlight=False,
    )
    prompt, answer = look.answers[0]
    console.print(f"> {prompt}\n{answer}", highlight=False, markup=False)
    here.forward(newest.version)
    console.print(
        f"[bold]$ clawback versions rollback {newest.version}[/]\n{display.name(newest.version)} is live again.",
        highlight=False,
    )
    return {"to": older.number, "satisfaction": look.satisfaction, "same_answers": same}


def summary(here: Demo, looks: list[Look], back: JsonObject | None, seconds: float) -> JsonObject:
    trained = [r.outcome for r in here.rounds if r.outcome]
    last = trained[-1] if trained else None
    return {
        "taste": here.taste.name if here.taste else None,
        "seed": here.seed,
        "held_out_before": looks[0].satisfaction,
        "held_out_after": looks[-1].satisfaction,
        "held_out_answers": len(looks[0].answers),
        "facts_before": looks[0].facts,
        "facts_after": looks[-1].facts,
        "habits_before": dict(looks[0].habits),
        "habits_after": dict(looks[-1].habits),
        "kl": looks[-1].kl,
        "ratings": sum(r.ratings for r in here.rounds),
        "algorithm": last.run.algorithm if last else None,
        "gate": last.report.to_dict() if last else None,
        "rollback": back,
        "rounds": [
            {
                "ratings": r.ratings,
                "good": r.good,
                "version": r.outcome.version.number if r.outcome else None,
                "live": bool(r.outcome and r.outcome.live),
                "algorithm": r.outcome.run.algorithm if r.outcome else None,
                "gate": r.outcome.report.summary() if r.outcome else r.why,
                "questions": r.questions,
                "held_out": r.look.satisfaction,
                "facts": r.look.facts,
                "kl": r.look.kl,
                "seconds": r.seconds,
            }
            for r in here.rounds
        ],
        "seconds": seconds,
    }


def by_key(total: int) -> Rate:
    """A real person, asked ``total`` times a round: g or b, enter for no opinion, q for enough."""
    from clawback.terminal import one_key

    asked = count()

    def rate(prompt: TopicPrompt, answer: str) -> int | None:
        say(f"\n[{next(asked) % total + 1}/{total}] {prompt.text}\n{answer}", err=True)
        question = "[g]ood [b]ad [enter] skip [q] enough "
        while (key := one_key(question, err=True)) not in MEANINGS:
            question = ""
        word, value = MEANINGS[key]
        say(word, err=True)
        return value

    return rate


def choice_by_key(prompt: TopicPrompt, first: str, second: str) -> int | None:
    """A real person, asked which of two answers is better: 1 or 2, enter for neither, q for enough."""
    from clawback.terminal import one_key

    say(f"\nWhich is better, for the gate? {prompt.text}\n\n[1] {first}\n\n[2] {second}", err=True)
    ways = {"1": 1, "2": -1, "\r": 0, "\n": 0, "q": None, "": None}
    question = "[1] or [2] is better, [enter] neither, [q] enough "
    while (key := one_key(question, err=True)) not in ways:
        question = ""
    say({1: "1", -1: "2", 0: "neither", None: "enough"}[ways[key]], err=True)
    return ways[key]


MEANINGS: dict[str, tuple[str, int | None]] = {
    "g": ("good", 1),
    "b": ("bad", -1),
    "\r": ("skipped", 0),
    "\n": ("skipped", 0),
    "q": ("enough", None),
    "": ("enough", None),
}


@click.command()
@click.option(
    "--output", type=click.Path(path_type=Path), help="The folder (default: in your Clawback home)."
)
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same model.")
@json_option
def make(output: Path | None, seed: int, as_json: bool) -> None:
    """Train the embedded model from nothing, from text that is generated on the spot (minutes).

    The one that ships was made like this; you need it only to make another.

    \b
    clawback model make
    clawback model make --output ./mine --seed 1
    """
    from clawback.extensions.demo import build

    folder = output or current_home().models / f"embedded-{seed}"
    build.make(folder, seed=seed, progress=not as_json)
    emit({"path": str(folder)}, f"Made {folder}. Use it with `clawback init --model {folder}`.", as_json)
