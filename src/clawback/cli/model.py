"""``clawback model``: the small model that ships with Clawback."""

from __future__ import annotations

from pathlib import Path

import click

from clawback.cli.common import current_home, emit, json_option


@click.group()
def model() -> None:
    """The embedded model: make it, where it is, what it is.

    \b
    clawback model path
    clawback model info --json
    clawback model make
    """


@model.command()
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
    from clawback.engine.embedded import build

    folder = output or current_home().models / f"embedded-{seed}"
    build.make(folder, seed=seed, progress=not as_json)
    emit({"path": str(folder)}, f"Made {folder}. Use it with: clawback init --model {folder}", as_json)


@model.command()
@json_option
def path(as_json: bool) -> None:
    """Where the embedded model is.

    \b
    clawback model path
    """
    from clawback.engine import embedded

    emit({"path": str(embedded.path())}, str(embedded.path()), as_json)


@model.command()
@json_option
def info(as_json: bool) -> None:
    """What the embedded model is and how it was made.

    \b
    clawback model info
    """
    from clawback.engine import embedded

    data = embedded.info()
    emit(data, "\n".join(f"{key:<16} {value}" for key, value in data.items()), as_json)
