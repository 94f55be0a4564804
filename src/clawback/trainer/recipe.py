"""The settings of a run (``Recipe``), those of single algorithms among them, and the conditions under which it began.

Settings of single algorithms and of single sources of examples: which there are, and a check of those that are set.

``[training.options.grpo]`` holds what ``grpo`` has a field for, ``[training.options.rollouts]`` what fresh answers are drawn by,
and so on. ``training.overrides.extra``, where all of them once stood together, is still read.

Under which conditions a run began. A run that is taken up again has the same, whatever the settings and the rules are by then.

The settings of a run (``Recipe``): every number that decides it, chosen by preset, model size and kind of model.

Large models take the rates that ReinforceClaw's sweeps around 31 B parameters found (its table is in
``docs/training.md``). A model of a few million parameters does not move at all at those rates; it needs rates
about a hundred times higher, and between the two the rate falls geometrically with size.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args

from clawback.config import GateSection, Preset
from clawback.errors import UsageError
from clawback.models import Bucket, Kind, ModelInfo
from clawback.records import JsonObject

SOURCES = {
    "distilled": ("sources.distilled", "DistilSettings"),
    "rollouts": ("sources.fresh_answers", "RolloutSettings"),
    "graded": ("sources.graded", "GradingSettings"),
    "episodes": ("learning.episode_examples", "EpisodeSettings"),
}
"""Name → module of a source of examples, and the class of its settings. The modules stand above this one."""
FREE = "extra"
"""A field of this name in an algorithm takes all settings that it has no field for."""


def option_types() -> dict[str, type]:
    """Every part that has settings, by name: the class whose fields they are. Raises ``ImportError`` where training is not installed."""
    import importlib

    from clawback.rl import algorithms

    found: dict[str, type] = {
        name: algorithms.find(name) for name in (*algorithms.names(), *algorithms.ENVIRONMENT)
    }
    for name, (module, kind) in SOURCES.items():
        found[name] = getattr(importlib.import_module(f"clawback.{module}"), kind)
    return found


def check_options(options: Mapping[str, Mapping[str, Any]], extra: Mapping[str, object]) -> None:
    """Raises ``UsageError`` for a part, a name or a value that nobody takes, with the nearest that somebody does."""
    if not options and not extra:
        return
    try:
        known = option_types()
    except ImportError:  # said where it is trained
        return
    for part, values in options.items():
        if part not in known:
            raise UsageError(
                f"There is no algorithm and no source `{part}` in training.options{_near(part, known)} "
                f"Choose one of: {', '.join(sorted(known))}."
            )
        if not isinstance(values, Mapping):
            raise UsageError(f"`training.options.{part}` takes values by name, not `{values}`.")
        for name, value in values.items():
            _check_one({part: known[part]}, f"training.options.{part}", name, value)
    for name, value in extra.items():
        _check_one(known, "training.overrides.extra", name, value)


def _check_one(known: Mapping[str, type], where: str, name: str, value: object) -> None:
    fields = {part: _fields(kind) for part, kind in known.items()}
    if any(FREE in of_part for of_part in fields.values()):
        return
    holders = {part: of_part[name] for part, of_part in fields.items() if name in of_part}
    if not holders:
        names = sorted({field for of_part in fields.values() for field in of_part})
        has = (
            f"It has: {', '.join(names)}."
            if len(known) == 1
            else "Each algorithm has its own in training.options."
        )
        raise UsageError(f"There is no setting `{name}` in {where}{_near(name, names)} {has}")
    import msgspec

    failures = []
    for kind in holders.values():
        try:
            msgspec.convert(value, kind)
            return
        except msgspec.ValidationError as error:
            failures.append(str(error))
    raise UsageError(f"`{where}.{name}` cannot be `{value}`: {failures[0]}.")


def _fields(kind: type) -> dict[str, Any]:
    """Field → type."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _near(name: str, known: typing.Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else "."


@dataclass(frozen=True, slots=True)
class RunRules:
    """The person's rules, as they were when the run began."""

    sentences: tuple[str, ...] = ()
    """Of rules that a model may be told of."""
    features: tuple[tuple[str, str], ...] = ()
    """A rule's text and its check, of each that the reader looks at."""
    judge: str = ""
    """What judges the rules that code cannot check; "" where nothing does."""
    by_people: bool = False
    """One of the sentences is somebody's, and not of the hand-written list."""

    def __bool__(self) -> bool:
        return bool(self.sentences or self.features)


@dataclass(frozen=True, slots=True)
class RunConditions:
    """How and where a run works, beside its settings."""

    processes: int = 1
    """By how many processes a step's gradient is made."""
    shard: bool = False
    """Whether they share the base out, too."""
    draw: str = ""
    """What draws its fresh answers, where it is not the run itself: ``vllm``, or an address."""
    hosted: str = ""
    """Address of the trainer that it is trained at."""
    system: str = ""
    """A learned prompt that it folds into the adapter."""
    anyway: bool = False
    """Whether somebody wants it also where nothing can be read from the ratings."""
    rules: RunRules = RunRules()
    drift: tuple[float, float] = (GateSection().max_kl, GateSection().max_kl_per_token)
    """How far the gate lets a version's answers drift from the base: nats an answer, and nats a token of longer ones."""
    gym: Mapping[str, Any] | None = None
    """What a run on episodes plays, as ``jobs.play_options.Wish`` has it."""


NAMES = frozenset(field.name for field in fields(RunConditions))
"""Until 0.2 these stood in a recipe's ``extra``, among the settings of its parts."""


def conditions_of(recipe: Mapping[str, object]) -> RunConditions:
    """The conditions in a recipe as it was recorded with a run, of this version or an earlier one."""
    import msgspec

    return msgspec.convert(with_conditions(recipe).get("conditions") or {}, RunConditions)


def with_conditions(values: Mapping[str, Any]) -> dict[str, object]:
    """The values of a recorded recipe, with what an earlier version wrote among its further settings where it belongs."""
    extra = values.get("extra") or {}
    earlier = {name: extra[name] for name in extra if name in NAMES}
    if not earlier:
        return dict(values)
    rest = {name: value for name, value in extra.items() if name not in NAMES}
    return {**values, "extra": rest, "conditions": {**(values.get("conditions") or {}), **earlier}}


MICRO_RATE = 1e-3
"""Learning rate of the balanced preset up to 50 million parameters; 1e-4 moves nothing there, 1e-2 collapses."""
FULL_RATE = 0.1
"""Of an adapter's learning rate, where all weights are trained (docs/training.md)."""
_LARGE_RATE = 5e-6
_SIZE_RATE: dict[Bucket, float] = {"tiny": 1.6, "small": 1.4, "mid": 1.2, "large": 1.0, "xl": 0.8}
_TOTAL_CUT = ((100e9, 1.0), (250e9, 0.6), (500e9, 0.45), (math.inf, 0.35))
_MOE_CUT = ((4.0, 0.95), (10.0, 0.85), (20.0, 0.70), (math.inf, 0.55))


@dataclass(frozen=True, slots=True)
class _PresetRow:
    rate: float
    kl: float
    steps: int
    band: tuple[float, float]
    positive_weight: float


_PRESETS: dict[str, _PresetRow] = {
    "careful": _PresetRow(0.6, 0.0020, 24, (0.996, 1.001), 1.0),
    "balanced": _PresetRow(1.0, 0.0010, 32, (0.994, 1.002), 1.2),
    "aggressive": _PresetRow(1.6, 0.0005, 48, (0.992, 1.004), 1.2),
}

_BATCHES: dict[Bucket, tuple[int, int, int]] = {  # batch, accumulation, rank
    "micro": (8, 1, 16),
    "tiny": (8, 1, 16),
    "small": (6, 1, 16),
    "mid": (4, 2, 16),
    "large": (3, 2, 16),
    "xl": (2, 4, 8),
}


@dataclass(frozen=True, slots=True)
class _Own:
    """Factors on the preset's figures."""

    rate: float = 1.0
    kl: float = 1.0
    steps: float = 1.0
    batch: int = 1


_ALGORITHMS: dict[str, _Own] = {
    "auto": _Own(kl=20.0),
    "grpo": _Own(kl=20.0),  # its answers are fresh every round, so drift adds up
    "trpo": _Own(steps=0.125, batch=8),  # few steps of a known length, each on many answers
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of a run. Those that an algorithm has a field for are handed to it by name."""

    algorithm: str = "auto"
    preset: str = "balanced"
    bucket: Bucket = "micro"
    kind: Kind = "dense"

    learning_rate: float = MICRO_RATE
    steps: int = 32
    """Optimizer steps; more are made where it takes more to see every rating once."""
    batch: int = 8
    """Answers that go through the loss together."""
    accumulation: int = 1
    """Batches an optimizer step."""
    rank: int = 16
    alpha: int = 16
    full: bool = False
    """Train all weights of the decoder's layers in place of an adapter; rank and alpha mean nothing then."""
    weight_decay: float = 0.0
    grad_clip: float = 1.0

    kl: float = 0.001
    ema_decay: float = 0.99
    positive_weight: float = 1.2
    token_low: float = 0.5
    token_high: float = 2.0
    band_low: float = 0.994
    band_high: float = 1.002
    baseline: str = "mean"
    importance_cap: float = 2.0
    clip_low: float = 0.8
    clip_high: float = 1.28

    max_drift: float = 0.75
    """Stop when the answers' log-probs have moved this far from the base, in nats a token."""
    max_reward_drop: float = 1.5
    """Stop when the mean reward of fresh answers falls this far below its best, in standard deviations of the
    rewards of the base's own answers."""
    min_reward: float = -1e9
    """Stop when the mean reward of fresh answers falls under this, in the same unit; 0 is what the base's own answers get."""
    gradient_checkpointing: bool | None = None
    """None chooses from the memory there is."""
    micro_tokens: int = 0
    """Tokens through the model at once; 0 chooses."""

    credit: float = 0.0
    """What the samples are made with, before the engine sees them: this, ``min_turns``, ``raters`` and ``reward``, as in the settings
    (clawback.config). Kept here so that a run that goes on sees what it saw at first."""
    min_turns: int = 1
    raters: Literal["agreement", "equal"] = "agreement"
    reward: Mapping[str, Any] = field(default_factory=dict)
    """``weights``, ``verifiers`` and ``tokens`` of a reward that adds up; empty: it is the feedback."""
    learn_from: tuple[str, ...] = ()
    """Names of other models whose answers may be learned as they are (``sources/targets.py``)."""
    curriculum: Literal["off", "reward", "length", "both"] = "off"
    """Runs on the ratings themselves begin with the easy ones: clear ratings, short answers, or both."""

    size: float = 1.0
    """Of the full number of prompts, answers and rounds that ``auto`` draws: what fits the machine and the time (``learning/run_budget.py``)."""

    conditions: RunConditions = field(default_factory=RunConditions)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Settings of parts as they were once written: all by name alone."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of single algorithms and sources, by the part's name (``trainer/recipe.py``)."""

    def settings(self, algorithm: str = "") -> JsonObject:
        """Every value by name, with an algorithm's own on top (the recipe's, unless another is named): what it picks its fields from."""
        values = {
            f.name: getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name not in ("conditions", "extra", "options")
        }
        return {**values, **self.part(algorithm or self.algorithm)}

    def part(self, name: str) -> JsonObject:
        """What is set for one algorithm or source, by name."""
        return {**self.extra, **self.options.get(name, {})}

    def steps_for(self, samples: int) -> int:
        """Optimizer steps for this many ratings: the recipe's, or as many as it takes to use each of them once."""
        return max(self.steps, math.ceil(samples / (self.batch * self.accumulation)))


def recipe(
    info: ModelInfo,
    preset: str = "balanced",
    algorithm: str = "auto",
    overrides: Mapping[str, object] | None = None,
) -> Recipe:
    """The recipe for a model.

    Args:
        info: what the model is made of.
        preset: ``careful``, ``balanced`` or ``aggressive``.
        algorithm: a name, or ``auto``.
        overrides: single values set by hand. Unknown names and values of the wrong kind are refused.

    Raises:
        UsageError: an unknown preset or override, or a value out of range.
    """
    if preset not in get_args(Preset):
        raise UsageError(f"There is no preset {preset!r}. Choose one of: {', '.join(get_args(Preset))}.")
    if "conditions" in (overrides or {}):
        raise UsageError("`conditions` are what a run itself records, not a setting of a recipe.")
    row, moe = _PRESETS[preset], info.kind == "moe"
    batch, accumulation, rank = _BATCHES[info.bucket]
    own = _ALGORITHMS.get(algorithm, _Own())
    full = bool((overrides or {}).get("full"))
    chosen = Recipe(
        algorithm=algorithm,
        preset=preset,
        bucket=info.bucket,
        kind=info.kind,
        learning_rate=learning_rate(info) * row.rate * own.rate * (FULL_RATE if full else 1.0),
        steps=max(1, round(row.steps * own.steps)),
        batch=batch * own.batch,
        accumulation=accumulation,
        rank=rank + (8 if moe else 0),
        alpha=rank + (8 if moe else 0),
        kl=row.kl * (0.5 if moe else 1.0) * own.kl,
        positive_weight=row.positive_weight,
        band_low=row.band[0],
        band_high=row.band[1],
    )
    made = changed(chosen, overrides or {})
    check_options(made.options, made.extra)
    return made


def learning_rate(info: ModelInfo) -> float:
    """That of the balanced preset."""
    if info.bucket == "micro":
        return MICRO_RATE
    rate = _LARGE_RATE * _SIZE_RATE[info.bucket]
    if info.bucket == "tiny":
        # From MICRO_RATE at 50 million parameters to the table's value at 2 billion, on a straight line of logarithms.
        share = math.log(2e9 / max(50e6, min(2e9, info.active_parameters))) / math.log(2e9 / 50e6)
        rate *= (MICRO_RATE / rate) ** share
    rate *= next(cut for limit, cut in _TOTAL_CUT if info.total_parameters <= limit)
    if info.kind == "moe":
        rate *= next(cut for limit, cut in _MOE_CUT if info.sparsity <= limit)
    return rate


def changed(chosen: Recipe, overrides: Mapping[str, object]) -> Recipe:
    """A recipe with single values replaced, checked. Raises ``UsageError``."""
    import msgspec

    known = {f.name for f in dataclasses.fields(Recipe)}
    for name in overrides:
        if name not in known:
            raise UsageError(
                f"There is no setting {name!r} in a recipe. Choose from: {', '.join(sorted(known))}."
            )
    try:
        result = msgspec.convert({**_plain(chosen), **overrides}, Recipe)
    except msgspec.ValidationError as error:
        raise UsageError(f"That recipe cannot be used: {error}.") from error
    for name in (
        "learning_rate",
        "steps",
        "batch",
        "accumulation",
        "rank",
        "alpha",
        "grad_clip",
        "max_drift",
        "size",
    ):
        if not 0 < getattr(result, name) < math.inf:
            raise UsageError(f"That recipe cannot be used: {name} must be more than 0.")
    for low, high in (("token_low", "token_high"), ("band_low", "band_high"), ("clip_low", "clip_high")):
        if not 0 <= getattr(result, low) <= 1 <= getattr(result, high):
            raise UsageError(f"That recipe cannot be used: {low} ≤ 1 ≤ {high} must hold.")
    return result


def recipe_from(values: Mapping[str, object]) -> Recipe:
    """A recipe as it was recorded with a run (``dataclasses.asdict``, also after a way through JSON)."""
    return changed(Recipe(), with_conditions(values))


def _plain(chosen: Recipe) -> JsonObject:
    values = {f.name: getattr(chosen, f.name) for f in dataclasses.fields(chosen)}
    return {**values, "conditions": dataclasses.asdict(chosen.conditions)}
