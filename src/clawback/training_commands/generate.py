"""``generate``: a version answers a file of prompts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from clawback import config
from clawback.errors import NotFound, UsageError
from clawback.files import whole_or_not
from clawback.terminal import (
    as_record,
    current_home,
    emit,
    json_option,
    named_version,
    needs,
    open_store,
    version_option,
)

BATCH = 64


@dataclass(frozen=True, slots=True)
class DrawOptions:
    """How answers are drawn."""

    samples: int
    best_of: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    max_tokens: int | None
    seed: int


@click.command()
@click.option(
    "--prompts",
    required=True,
    type=click.Path(path_type=Path),
    help="A prompt a line, or JSONL with `prompt`.",
)
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="Where the answers go (JSONL)."
)
@version_option()
@click.option(
    "--samples", default=1, show_default=True, type=click.IntRange(1, 1000), help="Answers to each prompt."
)
@click.option(
    "--best-of", type=click.IntRange(2, 1000), metavar="N",
    help="Sample N for each answer, and keep the one that the reward model scores highest.",
)  # fmt: skip
@click.option(
    "--temperature",
    type=click.FloatRange(0, 10),
    help="0 is greedy (default: from the settings, else the model's own).",
)
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Likewise.")
@click.option("--top-k", type=click.IntRange(0), help="Likewise; 0 is off.")
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 100_000),
    help="Longest answer (default: from the settings, else what the model allows).",
)
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same answers.")
@json_option
@as_record(DrawOptions)
def generate(prompts: Path, output: Path, which: str, options: DrawOptions, as_json: bool) -> None:
    """Answer a file of prompts. Writes {"prompt", "response", "version"} per line, in the order of the prompts.

    The output file is written atomically.

    \b
    clawback versions generate --prompts prompts.txt --output answers.jsonl
    clawback versions generate --prompts p.txt --output base.jsonl --version base
    clawback versions generate --prompts p.txt --output best.jsonl --best-of 8
    """
    needs("torch")
    from clawback import release
    from clawback.jobs import answering
    from clawback.terminal.progress_bar import progress_bar

    here = current_home()
    chosen = config.load(here.config)
    asked = read_prompts(prompts)
    pick = answering.picker(here, chosen, options.best_of) if options.best_of else None
    with open_store() as store:
        version = named_version(store, which)
    drawn = options.samples * (options.best_of or 1)
    at_once = max(1, BATCH // drawn)
    with whole_or_not(output) as file, progress_bar(quiet=as_json) as follow:
        follow({"phase": "load"})
        policy = release.load(here, version)
        for start in range(0, len(asked), at_once):
            follow({"phase": "answering", "step": start, "steps": len(asked)})
            batch = asked[start : start + at_once]
            made = policy.generate(
                batch,
                samples=drawn,
                sampling=policy.sampling.but(
                    temperature=options.temperature, top_p=options.top_p, top_k=options.top_k
                ),
                max_tokens=options.max_tokens,
                seed=options.seed + start,
            )
            for messages, completions in zip(batch, made, strict=True):
                if pick:
                    completions = pick(messages[-1]["content"], completions)
                for completion in completions:
                    line = {
                        "prompt": messages[-1]["content"],
                        "response": completion.text,
                        "version": version.number,
                    }
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
        follow({"phase": "answering", "step": len(asked), "steps": len(asked)})
    count = len(asked) * options.samples
    emit(
        {"answers": count, "version": version.number, "output": str(output)},
        f"{count} answers in {output}.",
        as_json,
    )


def read_prompts(path: Path) -> list[list[dict[str, str]]]:
    """One conversation a line: plain text, or a JSON object with ``prompt``. Empty lines are passed over.

    A file that begins with a JSON object is JSONL to its end, and a line that is none is an error.
    """
    try:
        # Not splitlines: it also splits at signs that are allowed within a JSON string.
        lines = [line.strip() for line in path.read_text("utf-8-sig").split("\n")]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise NotFound(f"The prompts cannot be read from {path}: {why}.") from error
    parsed = [(number, line, _parsed(line)) for number, line in enumerate(lines, 1) if line]
    if not parsed:
        raise UsageError(f"There are no prompts in {path}.")
    strict = isinstance(parsed[0][2], dict)
    asked = []
    for number, line, data in parsed:
        text = data.get("prompt") if isinstance(data, dict) else None if strict else line
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"Line {number} of {path} is not a JSON object with a `prompt`.")
        asked.append([{"role": "user", "content": text}])
    return asked


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
