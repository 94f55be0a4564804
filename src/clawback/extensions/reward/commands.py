"""``reward train|eval|score``: a model of what you like, what it is worth, and its scores for answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clawback.terminal import CommandGroup, as_record, current_home, emit, json_option, quantity

if TYPE_CHECKING:
    from clawback.extensions.reward.encoder import EncoderSettings
    from clawback.records import JsonObject

DATA = click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Scored answers (JSONL as for import) instead of your ratings.",
)
SCALE = click.option(
    "--scale", default="auto", show_default=True, metavar="LOW-HIGH",
    help="The scale of the scores, such as 1-5; auto reads it from all of them.",
)  # fmt: skip


@click.group(cls=CommandGroup)
def reward() -> None:
    """Train a reward model on your ratings, evaluate it, and score answers with it.

    \b
    clawback lab reward train
    clawback lab reward eval
    clawback lab reward score answers.jsonl --output scored.jsonl
    """


@reward.command()
@DATA
@SCALE
@click.option(
    "--encoder", default="embedded", show_default=True, metavar="E",
    help="embedded or states:MODEL (hidden states of a causal model), or an encoder (folder, hub id) to fine-tune.",
)  # fmt: skip
@click.option("--revision", help="Commit, branch or tag of a hub id.")
@click.option("--targets", type=click.Choice(["values", "ranks"]), default="values", show_default=True,
              help="ranks: for skewed scores, where only the order is to be learned.")  # fmt: skip
@click.option(
    "--members", type=click.IntRange(1, 20), default=3, show_default=True, help="Seeds in the ensemble."
)
@click.option(
    "--epochs",
    type=click.IntRange(1, 1000),
    help="At most; it stops early (default: 60 on hidden states, 8 for an encoder).",
)
@click.option("--max-length", type=click.IntRange(16, 8192), default=512, show_default=True,
              help="Tokens of prompt and response together.")  # fmt: skip
@click.option("--hold-out", type=click.FloatRange(0, 0.9), default=0.2, show_default=True,
              help="Share of the prompts kept out, to say what it is worth.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="The same seed and answers give the same model.")
@json_option
@as_record("clawback.extensions.reward.encoder:EncoderSettings", "settings")
def train(
    data: Path | None, scale: str, settings: EncoderSettings, hold_out: float, seed: int, as_json: bool
) -> None:
    """Train the reward model on your ratings, or on a file; it replaces the previous one.

    \b
    clawback lab reward train
    clawback lab reward train --data scored.jsonl --scale 0-1 --targets ranks
    clawback lab reward train --encoder ./MiniLM-L6
    """
    from clawback.extensions.reward import rewarding
    from clawback.terminal.progress_bar import progress_bar

    here = current_home()
    rated = rewarding.ratings(here, data, scale)
    with progress_bar(quiet=as_json) as follow:
        made = rewarding.train(here, rated, settings, seed=seed, held_out=hold_out, on_progress=follow)
    lines = [f"{made.name}: {len(made.members)} members, trained on {made.rows} answers."]
    if made.held_out:
        lines.append(made.held_out.text())
    emit(made.to_dict(), "\n".join(lines), as_json)


@reward.command("eval")
@DATA
@SCALE
@click.option("--folds", type=click.IntRange(2, 20), help="Cross-validate afresh instead, by prompt (slow).")
@click.option("--similarity/--no-similarity", default=True, show_default=True,
              help="Also the similarity baseline, on your base model's hidden states.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="For the folds.")
@json_option
def evaluate(
    data: Path | None, scale: str, folds: int | None, similarity: bool, seed: int, as_json: bool
) -> int:
    """Evaluate the reward model on unseen prompts, beside length and similarity; 95 % intervals.

    On your own ratings it also checks whether its scores rise over the versions while your ratings do not; then it exits with 1.

    \b
    clawback lab reward eval
    clawback lab reward eval --data scored.jsonl --folds 5 --json
    """
    from clawback.extensions.reward import encoder, reward_files, rewarding
    from clawback.terminal.progress_bar import progress_bar

    here = current_home()
    card = reward_files.read(here.reward)
    rated = rewarding.ratings(here, data, scale, all_of_them=True)
    embed = rewarding.base_vectors(here) if similarity else None
    with progress_bar(quiet=as_json) as follow:
        follow({"phase": "evaluate"})
        if folds:
            found = rewarding.cross_validate(
                rated,
                encoder.EncoderSettings(**card.settings),
                folds,
                seed=seed,
                embed=embed,
                on_progress=follow,
            )
        else:
            found = rewarding.evaluate(here, rated, embed)
    text = f"{card.name}\n{found.text()}"
    values: JsonObject = {"name": card.name} | found.to_dict()
    opened = None
    if data is None:
        model, _ = rewarding.load(here)
        gap = rewarding.watch(model, rated, card.trained)
        values["gap"] = {"opened": gap.opened, "best": gap.best, "sizes": gap.sizes}
        opened = gap.opened
    if opened is not None:
        text += "\nThe model promises more than you say of its versions: train it again before it is used any further."
    emit(values, text, as_json)
    return 1 if opened is not None else 0


@reward.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--output", type=click.Path(path_type=Path), help="Where the scores go (JSONL; default: stdout)."
)
@click.option(
    "--as", "scale", type=click.Choice(["0-1", "1-10", "signed"]), default="0-1", show_default=True,
    help="Range of the scores; signed: -1 to 1.",
)  # fmt: skip
@click.option(
    "--judge",
    is_flag=True,
    help="By the [judge] model instead: a grade from 1 to 10, the median of its votes.",
)
@json_option
def score(path: Path, output: Path | None, scale: str, judge: bool, as_json: bool) -> None:
    """Score answers: writes each line of the file with `reward`, `expected` (calibrated) and `doubt`.

    Lines are {"prompt" or "messages", "response"}. `doubt` is the standard deviation between the ensemble members, on the requested
    scale. A judge gives only `reward`.

    \b
    clawback lab reward score answers.jsonl
    clawback lab reward score answers.jsonl --output scored.jsonl --as 1-10
    clawback lab reward score answers.jsonl --judge
    """
    from clawback.extensions.reward import rewarding
    from clawback.files import whole_or_not
    from clawback.rewards.composite import SIGNED, UNIT
    from clawback.terminal.progress_bar import progress_bar

    target = {"0-1": UNIT, "1-10": (1.0, 10.0), "signed": SIGNED}[scale]
    pairs = rewarding.pairs(path)
    with progress_bar(quiet=as_json or output is None) as follow:
        name, scores = rewarding.score(current_home(), pairs, judge=judge, on_progress=follow)
    rows = [
        {"prompt": prompt, "response": response} | one.to_dict(target)
        for (prompt, response), one in zip(pairs, scores, strict=True)
    ]
    if output is None:
        if as_json:
            emit({"model": name, "scores": rows}, "", True)
        else:
            for row in rows:
                click.echo(json.dumps(row, ensure_ascii=False))
        return
    with whole_or_not(output) as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    emit(
        {"model": name, "answers": len(rows), "output": str(output)},
        f"{quantity(len(rows), 'score')} in {output}.",
        as_json,
    )
