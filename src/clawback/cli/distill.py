"""``distill``: the learned prompt goes into the adapter, where the weights are one's own."""

from __future__ import annotations

import click

from clawback.cli.common import current_home, json_option, needs
from clawback.cli.train import train_here


@click.command()
@click.option("--seed", type=int, help="The same feedback and seed give the same version.")
@click.option(
    "--preset", type=click.Choice(["careful", "balanced", "aggressive"]), help="How boldly to learn."
)
@json_option
def distill(seed: int | None, preset: str | None, as_json: bool) -> int:
    """Fold the live prompt into your own model: answers drawn under it, the best ones learned without it. The gate decides.

    The version that comes of it needs no prompt: its requests are shorter, and it answers so wherever the adapter goes.

    \b
    clawback distill
    clawback distill --preset careful
    """
    needs("torch")
    return train_here(current_home(), as_json, preset=preset, seed=seed, fold=True)
