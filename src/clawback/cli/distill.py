"""``distill``: the learned prompt goes into the adapter, where the weights are one's own."""

from __future__ import annotations

import click

from clawback.cli.common import current_home, json_option, needs
from clawback.cli.train import train_here
from clawback.runs.run_options import RunOptions


@click.command()
@click.option("--seed", type=int, help="The same feedback and seed give the same version.")
@click.option(
    "--preset",
    type=click.Choice(["careful", "balanced", "aggressive"]),
    help="How far the run may move the model.",
)
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
