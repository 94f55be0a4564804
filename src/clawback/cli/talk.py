"""``ask chat generate``: talk to a version."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clawback import config
from clawback.cli.common import current_home, emit, json_option, open_store
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.records import Turn

if TYPE_CHECKING:
    from clawback.engine.torch.policy import Policy
    from clawback.engine.types import Completion
    from clawback.records import Version
    from clawback.store import Store

BATCH = 64
KEYS = "[g]ood [b]ad [1-9,0] score [e]dit [enter] skip [q]uit"


def live_policy(store: Store) -> tuple[Version, Policy]:
    """The live version, ready; a damaged one is passed over (and said)."""
    from clawback import release

    here = current_home()
    if healed := release.heal(store, here):
        click.echo(f"The live version was damaged; version {healed.number} answers now.", err=True)
    version = store.live()
    return version, release.load(here, version)


def record(
    store: Store, session: str, messages: list[dict[str, str]], completion: Completion, version: int
) -> Turn:
    """Enter an answer as a turn, with the tokens that were sampled."""
    return store.add_turn(
        Turn(
            session=session,
            messages=tuple(messages),
            response=completion.text,
            agent="clawback",
            version=version,
            cwd=str(Path.cwd()),
            response_ids=completion.ids,
            response_logprobs=completion.logprobs,
        )
    )


@click.command()
@click.argument("text")
@click.option("--seed", type=int, help="The same seed gives the same answer.")
@json_option
def ask(text: str, seed: int | None, as_json: bool) -> None:
    """Ask the live version one thing. The answer is captured and can be rated.

    \b
    clawback ask "Tell me about the otter."
    clawback good
    """
    settings = config.load(current_home().config).generation
    with open_store() as store:
        version, policy = live_policy(store)
        messages = [{"role": "user", "content": text}]
        [[completion]] = policy.generate(
            [messages],
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            seed=fresh_seed() if seed is None else seed,
        )
        turn = record(store, f"ask:{uuid.uuid4().hex}", messages, completion, version.number)
    data = {"turn": turn.id, "version": version.number, "response": completion.text}
    emit(data, completion.text, as_json)


def fresh_seed() -> int:
    return int.from_bytes(os.urandom(4))


@click.command()
@click.option("--seed", type=int, help="The same seed gives the same answers.")
def chat(seed: int | None) -> None:
    """Talk to the live version; rate each answer with one key.

    \b
    clawback chat
    """
    settings = config.load(current_home().config).generation
    session, seed = f"chat:{uuid.uuid4().hex}", fresh_seed() if seed is None else seed
    messages: list[dict[str, str]] = []
    with open_store() as store:
        version, policy = live_policy(store)
        name = "the base model" if version.number == 0 else f"version {version.number}"
        click.echo(f"You are talking to {name}. An empty line or Ctrl-D ends it.")
        while text := prompt_line():
            messages.append({"role": "user", "content": text})
            [[completion]] = policy.generate(
                [messages], temperature=settings.temperature, max_tokens=settings.max_tokens, seed=seed
            )
            seed += 1
            click.echo(f"\n{completion.text}\n")
            turn = record(store, session, messages, completion, version.number)
            messages = [*messages, {"role": "assistant", "content": completion.text}]
            if not rate_by_key(store, turn):
                break


def prompt_line() -> str:
    try:
        return input("you> ").strip()
    except EOFError:
        return ""


def rate_by_key(store: Store, turn: Turn) -> bool:
    """One key says what the answer was worth; False when the person wants to leave."""
    from clawback import feedback

    click.echo(f"{KEYS} ", nl=False)
    key = click.getchar().lower()
    said = {"g": "good", "b": "bad", "e": "edit", "q": "quit"}.get(key, key if key.isdecimal() else "skipped")
    click.echo(said)
    if key in "gb":
        feedback.rate(store, turn.id, 1 if key == "g" else -1, source="chat")
    elif key.isdecimal():
        feedback.score(store, turn.id, int(key) or 10, source="chat")
    elif key == "e":
        written = click.edit(turn.response)
        if written is not None and written.rstrip("\n") != turn.response:
            feedback.edit(store, turn.id, written.rstrip("\n"), source="chat")
    if key in "gbe" or key.isdecimal():
        from clawback.cli.rate import start_training_if_due

        if start_training_if_due(store):
            click.echo("Enough ratings have come together: training started in the background.")
    return key not in ("q", "\x03", "\x04")


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
@click.option(
    "--version", "which", default="live", show_default=True, metavar="V", help="base, live, or a number."
)
@click.option(
    "--samples", default=1, show_default=True, type=click.IntRange(1, 1000), help="Answers to each prompt."
)
@click.option("--temperature", type=click.FloatRange(0, 10), help="0 is greedy (default: from the settings).")
@click.option(
    "--max-tokens", type=click.IntRange(1, 100_000), help="Longest answer (default: from the settings)."
)
@click.option("--seed", default=0, show_default=True, help="The same seed gives the same answers.")
@json_option
def generate(
    prompts: Path, output: Path, which: str, samples: int, temperature: float | None, max_tokens: int | None,
    seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Answer a file of prompts: {"prompt", "response", "version"} a line, in the order of the prompts.

    The file appears whole or not at all.

    \b
    clawback generate --prompts prompts.txt --output answers.jsonl
    clawback generate --prompts p.jsonl --output base.jsonl --version base --samples 4
    """
    from clawback import release
    from clawback.cli.train import progress_bar

    here = current_home()
    settings = config.load(here.config).generation
    asked = read_prompts(prompts)
    with open_store() as store:
        version = named_version(store, which)
    policy = release.load(here, version)
    beside = output.with_name(output.name + ".part")
    try:
        with beside.open("w", encoding="utf-8") as file, progress_bar(quiet=as_json) as follow:
            for start in range(0, len(asked), BATCH):
                follow({"phase": "answering", "step": start, "steps": len(asked)})
                batch = asked[start : start + BATCH]
                made = policy.generate(
                    batch,
                    samples=samples,
                    temperature=settings.temperature if temperature is None else temperature,
                    max_tokens=max_tokens or settings.max_tokens,
                    seed=seed + start,
                )
                for messages, completions in zip(batch, made, strict=True):
                    for completion in completions:
                        line = {
                            "prompt": messages[-1]["content"],
                            "response": completion.text,
                            "version": version.number,
                        }
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
            follow({"phase": "answering", "step": len(asked), "steps": len(asked)})
        beside.replace(output)
    except OSError as error:
        raise ClawbackError(f"The answers could not be written to {output}: {error}.") from error
    finally:
        beside.unlink(missing_ok=True)
    count = len(asked) * samples
    emit(
        {"answers": count, "version": version.number, "output": str(output)},
        f"{count} answers in {output}.",
        as_json,
    )


def named_version(store: Store, which: str) -> Version:
    if which in ("base", "live"):
        return store.version(0) if which == "base" else store.live()
    if not which.isdecimal():
        raise UsageError(f"There is no version {which!r}: name base, live, or a number.")
    return store.version(int(which))


def read_prompts(path: Path) -> list[list[dict[str, str]]]:
    """One conversation a line: plain text, or a JSON object with ``prompt``. Empty lines are passed over."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"The prompts cannot be read from {path}: {error}.") from error
    asked = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            asked.append([{"role": "user", "content": _prompt_of(line, path, number)}])
    if not asked:
        raise UsageError(f"There are no prompts in {path}.")
    return asked


def _prompt_of(line: str, path: Path, number: int) -> str:
    if not line.lstrip().startswith("{"):
        return line.strip()
    try:
        data: Any = json.loads(line)
    except ValueError:
        return line.strip()
    prompt = data.get("prompt")
    if not isinstance(prompt, str):
        raise UsageError(f"Line {number} of {path} has no `prompt`.")
    return prompt
