"""``clawback demo``: see a model become what somebody likes."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback.cli.common import emit, json_option
from clawback.cli.train import progress_bar
from clawback.paths import Home

if TYPE_CHECKING:
    from clawback.demo import Demo, Look
    from clawback.engine.embedded.corpus import Prompt

DEFAULT_TASTE = "terse bullets, no apology"


@click.command()
@click.option(
    "--rounds", default=2, show_default=True, type=click.IntRange(1, 20), help="Rounds of 32 ratings."
)
@click.option("--taste", default=DEFAULT_TASTE, show_default=True, help="What the simulated person likes.")
@click.option(
    "--seed", default=0, show_default=True, help="Another seed is another person and other prompts."
)
@click.option("--algorithm", default="auto", show_default=True, help="auto, mis-po, reinforce, …")
@click.option(
    "--home",
    "folder",
    type=click.Path(path_type=Path),
    help="Keep everything here (default: a temporary folder).",
)
@click.option("--interactive", is_flag=True, help="You rate, with one key.")
@json_option
def demo(
    rounds: int, taste: str, seed: int, algorithm: str, folder: Path | None, interactive: bool, as_json: bool
) -> None:
    """See the whole loop in a few minutes: a small model answers, somebody taps good or bad, the model learns.

    Your own files are not touched: it has a home of its own.

    \b
    clawback demo
    clawback demo --interactive
    clawback demo --taste "metric units" --rounds 4 --json
    """
    from clawback.demo import Demo

    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clawback-demo-")))
        here = Demo(Home(folder), taste, seed=seed, noise=0.0 if interactive else 0.1, algorithm=algorithm)
        data = play(here, rounds, interactive, as_json)
    emit(data, "", True) if as_json else None


def play(here: Demo, rounds: int, interactive: bool, quiet: bool) -> dict[str, Any]:
    """The demo from beginning to end; what it shows, as data."""
    from rich.console import Console

    from clawback.demo import display

    console, began = Console(quiet=quiet), time.monotonic()
    if interactive:
        console.print(
            "Rate by what you like: an axis or two is enough (short, bullets, no emoji, metric units, …).\n",
            highlight=False,
        )
    else:
        console.print(
            f"[bold]A person who likes: {here.taste.name}.[/] One tap in ten is wrong. The model is not told.\n"
        )
    console.print("How the base model answers prompts that nobody will rate …")
    looks: list[Look] = [here.look()]
    console.print(display.bars(looks, not interactive))
    for number in range(1, rounds + 1):
        console.print(f"\nRound {number} of {rounds}: answer, rate, train, judge …")
        with progress_bar(quiet) as follow:
            done = here.round(rate=by_key if interactive else None, on_progress=follow)
        if done is None:
            console.print("No ratings, nothing to learn from.")
            break
        looks.append(done.look)
        display.show_round(console, done, looks, not interactive)
    best = looks[-1]
    if best.version:
        console.print()
        console.print(display.side_by_side(looks[0], best))
    back = take_back(here, best, console, not interactive)
    seconds = time.monotonic() - began
    console.print(
        f"\n{sum(r.ratings for r in here.rounds)} ratings, {seconds:.0f} s. Yours next: clawback init",
        highlight=False,
    )
    return summary(here, looks, back, seconds, not interactive)


def take_back(here: Demo, best: Look, console: Any, known: bool) -> dict[str, Any] | None:
    """Roll back, show that the older answer is back, and go forward again."""
    if best.version == 0:
        console.print("\nNo version went live, so there is nothing to roll back.")
        return None
    older = here.rollback()
    look = here.look()
    name = f"version {older.number}" if older.number else "the base model"
    liked = f" ({look.satisfaction:.0%} liked)" if known else ""
    console.print(
        f"\n[bold]clawback rollback[/]: {name} answers again{liked}.",
        highlight=False,
    )
    here.forward(best.version)
    console.print(
        f"[bold]clawback rollback {best.version}[/]: version {best.version} is live again.", highlight=False
    )
    return {"to": older.number, "satisfaction": look.satisfaction if known else None}


def summary(
    here: Demo, looks: list[Look], back: dict[str, Any] | None, seconds: float, known: bool
) -> dict[str, Any]:
    """What ``--json`` prints. How much is liked is null where only the person could say it."""
    last = here.rounds[-1] if here.rounds else None

    def liked(look: Look) -> float | None:
        return look.satisfaction if known else None

    return {
        "taste": here.taste.name if known else None,
        "seed": here.seed,
        "held_out_before": liked(looks[0]),
        "held_out_after": liked(looks[-1]),
        "facts_before": looks[0].facts,
        "facts_after": looks[-1].facts,
        "kl": looks[-1].kl,
        "ratings": sum(r.ratings for r in here.rounds),
        "algorithm": last.outcome.run.algorithm if last else None,
        "gate": last.outcome.report.to_dict() if last else None,
        "rollback": back,
        "rounds": [
            {
                "ratings": r.ratings,
                "good": r.good,
                "version": r.outcome.version.number,
                "live": r.outcome.live,
                "held_out": liked(r.look),
                "facts": r.look.facts,
                "kl": r.look.kl,
                "seconds": r.seconds,
            }
            for r in here.rounds
        ],
        "seconds": seconds,
    }


def by_key(prompt: Prompt, answer: str) -> int | None:
    """A real person: g or b, q for enough."""
    click.echo(f"\n> {prompt.text}\n{answer}\n[g]ood [b]ad [q] enough ", nl=False)
    while (key := click.getchar().lower()) not in "gbq\x03\x04":
        pass
    click.echo({"g": "good", "b": "bad"}.get(key, "enough"))
    return {"g": 1, "b": -1}.get(key)
