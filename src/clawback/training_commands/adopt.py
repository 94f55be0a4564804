"""``adopt``: take an adapter of another trainer in as a version."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from clawback import config
from clawback.terminal import current_home, emit, fold, json_option, needs, open_store
from clawback.terminal.progress_bar import waiting


@click.command()
@click.argument("adapter", type=click.Path(path_type=Path))
@click.option("--same-base", is_flag=True, help="Its base is the one of this home under another name.")
@click.option("--no-gate", is_flag=True, help="Do not judge it now; `clawback versions check` does later.")
@json_option
def adopt(adapter: Path, same_base: bool, no_gate: bool, as_json: bool) -> int:
    """Take an adapter that another program trained in as a version.

    ADAPTER is a folder of PEFT (unsloth, axolotl, TRL) or mlx-lm with a LoRA for the base of this home. Where it came
    from is recorded with the version. The gate judges it by your ratings like any candidate, if there are some; it
    never goes live by itself. What cannot be read right (DoRA, PiSSA, modules_to_save) is refused by its name.

    \b
    clawback adopt ./outputs/checkpoint-120
    clawback adopt ~/unsloth/lora_model --same-base
    """
    needs("torch")
    from clawback.release import adoption

    here = current_home()
    with open_store() as store:
        with waiting("reading the adapter and the base", as_json):
            version = adoption.adopt(store, here, adapter, config.load(here.config), same_base=same_base)
        origin = version.origin["adapter"]
        text = (
            f"Version {version.number} is a candidate, adopted from {origin['folder']} ({origin['trainer']})."
        )
        report = None
        if no_gate or not any(store.count_ratings()):
            text += f" `clawback versions check {version.number}` judges it once you have rated some answers."
        else:
            from clawback.gate import adapter_gate
            from clawback.terminal.progress_bar import progress_bar

            with progress_bar(quiet=as_json) as follow:
                report = adapter_gate.gate(store, here, version.number, on_progress=follow)
            text += f"\n\n{fold(report.text(), '  ')}\n\n"
            text += (
                f"`clawback versions rollback {version.number}` makes it live."
                if report.accepted
                else "It does not go live."
            )
        data = {"version": asdict(store.version(version.number)), "report": report and report.to_dict()}
    emit(data, text, as_json)
    return 0
