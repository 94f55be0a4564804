"""``hosted``: a trainer elsewhere. Ask one whether it is fit, and which jobs of ours it holds; other extensions add commands to the group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError
from clawback.records import JsonObject
from clawback.terminal import CommandGroup, current_home, emit, extension_commands, fold, json_option
from clawback.terminal.progress_bar import waiting

if TYPE_CHECKING:
    from clawback.extensions.hosted.hosted_training import Where
    from clawback.extensions.hosted.trainer_http import Wire


@click.group(cls=CommandGroup, members=extension_commands("lab.hosted"))
def hosted() -> None:
    """Train on a remote server, through Tinker's API or Fireworks': `clawback config set hosted.url URL`.

    \b
    clawback lab hosted serve
    clawback config set hosted.url http://127.0.0.1:8753
    clawback lab hosted check
    clawback train
    """


@hosted.command()
@json_option
def check(as_json: bool) -> int:
    """Ask the remote trainer what it can do, and whether it has your model. Costs nothing.

    \b
    clawback lab hosted check
    """
    from clawback import config
    from clawback.extensions.hosted import hosted_run as elsewhere

    here = current_home()
    settings = config.load(here.config)
    if not settings.hosted.url:
        raise UsageError(
            "No trainer is named. Set one: `clawback config set hosted.url http://127.0.0.1:8753`."
        )
    with waiting(f"asking {settings.hosted.url}", as_json):
        place = elsewhere.where(here, settings)
        elsewhere.present(here, settings)
        models = _models(place)
    known, cap = place.model in models, place.cap
    limits = [f"{cap.tokens:,} tokens" if cap.tokens else "", f"{cap.money:g} in money" if cap.money else ""]
    text = "\n".join(
        (
            f"{place.url} answers and takes the key.",
            f"{place.model} can be trained there."
            if known
            else f"{place.model} is not among its models ({', '.join(models[:8]) or 'none'}). Set [hosted] model.",
            f"A run may use {' and '.join(filter(None, limits)) or 'as much as it takes: set [hosted] max_money or max_tokens'}.",
        )
    )
    emit(
        {"url": place.url, "models": models, "model": place.model, "known": known}, fold(text, "  "), as_json
    )
    return 0 if known else 1


def _models(trainer: Where) -> list[str]:
    """The names of the models that can be trained there."""
    from clawback.extensions.hosted import hosted_run as elsewhere
    from clawback.extensions.hosted.trainer_http import Wire

    wire = Wire(trainer.url, trainer.key, min(trainer.timeout, 20.0))
    if trainer.shape:
        return [trainer.model] if _shaped(wire, trainer.shape) else []
    capabilities: JsonObject = wire.get(elsewhere.CAPABILITIES).json()
    models = capabilities.get("supported_models")
    return [
        str(model.get("model_name", ""))
        for model in (models if isinstance(models, list) else [])
        if isinstance(model, dict)
    ]


def _shaped(wire: Wire, shape: str) -> bool:
    """Whether the key has an account, and the account the training shape."""
    from clawback.extensions.hosted import fireworks_machines as fireworks

    fireworks.account(wire)
    return bool(fireworks.deployment_shape(wire, shape))


@hosted.command()
@click.option("--delete", is_flag=True, help="Delete them, and what samples for them.")
@json_option
def jobs(delete: bool, as_json: bool) -> int:
    """List the trainers at Fireworks that Clawback made and that still exist. They cost by the hour.

    A run deletes its own; one that was killed leaves its trainer for up to half an hour, to go on with.

    \b
    clawback lab hosted jobs
    clawback lab hosted jobs --delete
    """
    from clawback import config
    from clawback.extensions.hosted import fireworks_machines as fireworks
    from clawback.extensions.hosted import hosted_run as elsewhere
    from clawback.extensions.hosted.trainer_http import Wire

    here = current_home()
    settings = config.load(here.config)
    if settings.hosted.provider != "fireworks" or not settings.hosted.url:
        raise UsageError("Only Fireworks has such jobs: `clawback config set hosted.provider fireworks`.")
    with waiting("asking the trainer", quiet=as_json):
        place = elsewhere.where(here, settings)
        elsewhere.present(here, settings)
        wire = Wire(place.url, place.key, min(place.timeout, 20.0))
        of = fireworks.account(wire)
        found = fireworks.jobs(wire, of)
        gone = [name for name, _ in found if delete and fireworks.end(wire, of, name)]
    lines = [f"{name}  {'deleted' if name in gone else state}" for name, state in found] or [
        "No trainer of ours."
    ]
    rows = [{"name": name, "state": state, "deleted": name in gone} for name, state in found]
    emit(rows, "\n".join(lines), as_json)
    return 0 if not delete or len(gone) == len(found) else 1
