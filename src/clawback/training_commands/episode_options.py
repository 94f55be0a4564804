"""Options of the commands that play episodes (``env validate``, ``run``, ``eval``, ``train``), and the records that they fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import click

from clawback.environments.core import Split
from clawback.terminal import as_record

SPLIT = click.option(
    "--split", type=click.Choice(get_args(Split)), default="test", show_default=True, help="Which tasks."
)
SEED = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="The same seed, the same worlds."
)
SHOTS = click.option(
    "--shots",
    default="",
    metavar="N|FILE",
    help="Worked examples before each task: N that the environment solves, or a JSONL file's.",
)
ANSWER_SECONDS = click.option(
    "--answer-seconds",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    help="Longest that the environment may take for one answer.  [default: 120, or as it says itself]",
)
_PLAYED = (
    SPLIT,
    click.option(
        "--policy",
        "who",
        default="live",
        show_default=True,
        help="reference, live, base, a version, an OpenAI-style address, or module:function.",
    ),
    click.option("--model", default="", help="The model's name at that address."),
    click.option(
        "--key-env", default="OPENAI_API_KEY", show_default=True, help="The variable that holds its key."
    ),
    click.option(
        "--temperature", type=click.FloatRange(0, 2), help="For an address; else as the policy itself says."
    ),
    click.option("--max-tokens", type=click.IntRange(1), help="Longest reply."),
    SEED,
    click.option(
        "--turns",
        default=64,
        show_default=True,
        type=click.IntRange(1),
        help="Replies of an episode at most.",
    ),
    ANSWER_SECONDS,
    SHOTS,
)


@dataclass(frozen=True, slots=True)
class PlayerOptions:
    """Whose replies are played."""

    who: str
    model: str
    key_env: str
    temperature: float | None
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class EpisodeOptions:
    """How episodes are played."""

    split: Split
    seed: int
    turns: int
    seconds: float | None
    shots: str


def episode_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What every played episode can be told, as ``player`` and ``options``."""
    command = as_record(PlayerOptions, "player")(as_record(EpisodeOptions)(function))
    for option in reversed(_PLAYED):
        command = option(command)
    return command
