"""``move``: take everything that was learned to another base model."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError
from clawback.progress import describe
from clawback.terminal import current_home, emit, fold, json_option, needs

if TYPE_CHECKING:
    from clawback.extensions.moving.moving import Move
    from clawback.paths import Home
    from clawback.records import JsonObject

CHANGED = 0.1
"""Of the answers: from there on a rule counts as kept more often, or less."""


@click.command()
@click.option("--to", metavar="MODEL", help="The new base: whatever `clawback init --model` takes.")
@click.option(
    "--keep", type=click.Choice(["new", "old"]), help="End the move: which of the two answers from now on."
)
@click.option("--undo", is_flag=True, help="Go back to the model and version before the last move.")
@click.option("--dry-run", is_flag=True, help="With --to: say what it takes, and change nothing.")
@json_option
def move(to: str | None, keep: str | None, undo: bool, dry_run: bool, as_json: bool) -> int:
    """Learn everything again on another base model, compare both, and choose.

    With --to a process in the background learns from all ratings, remarks and rules on the new model. Then both models answer the same
    prompts, and the rules that each keeps are counted. Without options: how far it is, or the comparison. What answers now goes on
    answering until you choose; versions of the old model stay, and --undo goes back to them.

    \b
    clawback move --to ollama:qwen3:1.7b --dry-run
    clawback move --to ollama:qwen3:1.7b
    clawback move
    clawback move --keep new
    clawback move --undo
    """
    if sum((to is not None, keep is not None, undo)) > 1:
        raise UsageError("Name one of --to, --keep and --undo.")
    if dry_run and to is None:
        raise UsageError("--dry-run says what a move takes: name the model with --to.")
    here = current_home()
    if to is not None:
        return _begin(here, to, dry_run, as_json)
    if keep is not None or undo:
        return _choose(here, keep, as_json)
    return _show(here, as_json)


def _begin(here: Home, to: str, dry_run: bool, as_json: bool) -> int:
    from clawback.extensions.moving import moving

    if dry_run:
        plan = moving.plan(here, to)
        emit(asdict(plan), fold(plan.text(), " " * 10), as_json)
        return 0
    needs("torch")
    begun = moving.begin(here, to)
    process = moving.start(here)
    text = "\n".join(
        [
            f"{begun.to} learns in the background, from all that you have rated. {begun.origin} goes on answering.",
            *([begun.note] if begun.note else []),
            "`clawback move` shows how far it is, and then the comparison.",
        ]
    )
    emit(
        {"to": begun.to, "origin": begun.origin, "pid": process.pid, "note": begun.note},
        fold(text, "  "),
        as_json,
    )
    return 0


def _choose(here: Home, keep: str | None, as_json: bool) -> int:
    from clawback.extensions.moving import moving

    if keep == "old":
        text = moving.keep_old(here)
        emit({"kept": "old", "text": text}, text, as_json)
        return 0
    version = moving.keep_new(here) if keep == "new" else moving.undo(here)
    from clawback import config

    base = config.load(here.config).model.base
    name = f"version {version.number}" if version.number else "the model itself"
    text = f"{base} answers now ({name})."
    text += (
        " `clawback move --undo` goes back."
        if keep == "new"
        else " What the other model learned stays: `clawback versions`."
    )
    text += " A server that is running answers with the other model until it is started again."
    emit({"kept": keep or "undone", "base": base, "live": version.number}, text, as_json)
    return 0


def _show(here: Home, as_json: bool) -> int:
    from clawback.extensions.moving import moving

    held = moving.current(here)
    if held is None:
        emit({"move": None}, "No move is open. `clawback move --to MODEL` begins one.", as_json)
        return 0
    progress = moving.progress_of(here, held)
    data = asdict(held) | {"running": held.running, "interrupted": held.interrupted, "progress": progress}
    emit(data, "\n".join(fold(line, "  ") for line in lines(held, progress)), as_json)
    return 1 if held.phase == "failed" else 0


def status(here: Home) -> str:
    """The move in a line, for ``clawback status``; "" where none is open."""
    from clawback.extensions.moving import moving

    held = moving.current(here)
    if held is None:
        return ""
    first = lines(held, moving.progress_of(here, held))[0]
    return first + (" `clawback move` shows the comparison." if held.phase == "ready" else "")


def lines(held: Move, progress: JsonObject) -> list[str]:
    """A move as a person reads it."""
    head = f"From {held.origin} (version {held.live}) to {held.to}"
    if held.phase == "failed":
        return [
            f"{head}: it failed. {held.error}",
            f"`clawback move --to {held.to}` tries again; `clawback move --keep old` ends it.",
        ]
    if held.phase == "stop":
        return [f"{head}: it is ending."]
    if held.phase == "ready" and held.comparison:
        return [f"{head}: done.", *compared(held, held.comparison)]
    if held.interrupted:
        why = f" {held.error}" if held.error else ""
        return [
            f"{head}: it was interrupted.{why} `clawback move --to {held.to}` goes on; `clawback move --keep old` ends it."
        ]
    what = "comparing" if held.phase == "compare" else "learning"
    return [f"{head}: {what} ({describe(progress) if progress else 'starting'})."]


def compared(held: Move, comparison: JsonObject) -> list[str]:
    """What both models' answers showed."""
    from clawback.extensions.moving.moving import ASK

    new, old = comparison["new"], comparison["old"]
    held_back = (
        f", {comparison['held_back']} of them kept out of every run" if comparison["held_back"] else ""
    )
    text = [
        f"Both answered {comparison['prompts']} prompts ({comparison['answers']} answers each{held_back})."
    ]
    text += [f"On {held.to} the gate says: {comparison['gate']}."] if comparison["gate"] else []
    if not comparison["learned"]:
        text.append(f"What {held.to} learned did not pass its gate, so it is compared as it is.")
    text += ["", f"{'':<26}{'new':>8}{'old':>8}"]
    for label, name, form in (
        ("words per answer", "length", "{:.0f}"),
        ("empty answers", "empty", "{:.0%}"),
        ("answers that repeat", "repeating", "{:.0%}"),
    ):
        text.append(f"{label:<26}{form.format(new[name]):>8}{form.format(old[name]):>8}")
    text.append(
        f"Predicted rating of the new answers, less that of the old: {comparison['gain']:+.2f} ± {comparison['gain_sd']:.2f} (-2 to 2)"
    )
    text += ["", *_rules(comparison["rules"])]
    for number, pair in enumerate(comparison["examples"], 1):
        text += [
            "",
            f"{number}. {_short(pair['prompt'], 200)}",
            f"   new: {_short(pair['new'], 300)}",
            f"   old: {_short(pair['old'], 300)}",
        ]
    return [*text, "", ASK]


def _rules(rules: list[JsonObject]) -> list[str]:
    """Rules by what became of them: lost, gained, as before."""
    if not rules:
        return ["There is no rule that code can check, so none was counted (`clawback rules`)."]
    table = ["Rules kept              new   old"]
    groups: dict[str, list[JsonObject]] = {"lost": [], "gained": [], "as before": []}
    for rule in rules:
        gain = rule["candidate"] - rule["live"]
        groups["lost" if gain <= -CHANGED else "gained" if gain >= CHANGED else "as before"].append(rule)
    for name, group in groups.items():
        for rule in sorted(group, key=lambda one: one["candidate"] - one["live"]):
            p = min(rule["p_more"], rule["p_less"])
            unsure = " (may be chance)" if name != "as before" and p > 0.05 else ""
            table.append(
                f"  {name:<19}{rule['candidate']:>6.0%}{rule['live']:>6.0%}   {rule['rule']}{unsure}"
            )
    return table


def _short(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
