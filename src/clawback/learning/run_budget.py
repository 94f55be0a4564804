"""What a run needs, in memory and time, and the largest run that fits a time budget.

What a run will need: memory, counted from shapes, and time, from the arithmetic and a short measurement of the machine.

Both are meant to be right within a factor of about 1.5: enough to say "this will take ten minutes" or "this will not fit".

Predicts how long a run will take, phase by phase, and chooses the largest run that fits a time budget.

Everything that a run does is one of three things: drawing tokens, reading tokens, training on tokens. How
many of each a plan takes follows from its settings; the speed of each is that of this model on this machine
when it does nothing else (``throughput.py``). From that follows the largest of a few ``SIZES`` that fits the
budget. It is stored in the recipe (``Recipe.size``), so the same recipe gives the same version on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import devices
from clawback.errors import DoesNotFit
from clawback.models import ModelInfo
from clawback.policy import Speed, throughput
from clawback.policy.memory import (
    CPU_MICRO_TOKENS,
    Choice,
    DeviceMemory,
    decide,
    need,
    size_text,
    stored,
    weight_bytes,
)
from clawback.records import GATE_ANSWERS, GUARDED_ANSWERS, Sample

if TYPE_CHECKING:
    import torch

    from clawback.policy import MeasuredSampler, Policy
    from clawback.templates import Encoded
    from clawback.trainer.recipe import Recipe
    from clawback.trainer.run import TrainingRun


_EFFICIENCY = 0.6
"""Share of the speed of a bare matrix product that a training step reaches."""
_TOKENS_PER_SAMPLE = 256


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will need."""

    bytes: int
    seconds: float
    tokens: int
    steps: int
    free: int
    """Memory that is free now, in bytes."""

    def __str__(self) -> str:
        fits = "" if self.bytes <= self.free else ": more than there is"
        return (
            f"{self.steps} steps over {self.tokens:,} tokens: about {_span(self.seconds)}, "
            f"{size_text(self.bytes)} of memory ({size_text(self.free)} free{fits})"
        )


def prepare(policy: Policy, recipe: Recipe) -> Choice:
    """Set the policy up for training: how many tokens at once, and gradient checkpointing where it takes it.

    Raises ``TrainingError`` where it does not fit as it was loaded.
    """
    choice = choose(policy, recipe)
    if (
        recipe.gradient_checkpointing
        if recipe.gradient_checkpointing is not None
        else choice.gradient_checkpointing
    ):
        policy.checkpoint_layers()
    policy.scorer.micro_tokens = recipe.micro_tokens or choice.micro_tokens
    return choice


def choose(policy: Policy, recipe: Recipe) -> Choice:
    """How a loaded model can be trained in the memory there is. Raises ``TrainingError`` where it cannot."""
    device = policy.device
    held = stored(policy)
    memory = DeviceMemory(
        devices.free_bytes(device) + weight_bytes(policy.info, held),
        device.type,
        devices.total_bytes(device) if device.type == "cpu" else 0,
    )
    longest = min(policy.max_prompt + policy.max_response, max(policy.max_prompt, 4096))
    return decide(policy.info, memory, (held,), rank=_rank(recipe), longest=longest)


def _rank(recipe: Recipe) -> int | None:
    return None if recipe.full else recipe.rank


def estimate(
    info: ModelInfo,
    recipe: Recipe,
    *,
    policy: Policy | None = None,
    samples: Sequence[Sample] = (),
    count: int = 0,
) -> Estimate:
    """What a run of this recipe will need.

    Args:
        policy: where it is loaded: lengths are then counted with its tokenizer, and its device is measured.
        samples: the ratings; or
        count: how many there will be, of an ordinary length.
    """
    import torch

    lengths = [(len(e.prompt), len(e.response)) for e in map(policy.encode, samples)] if policy else []
    number = len(lengths) or len(samples) or count or 32
    tokens = sum(p + r for p, r in lengths) or number * _TOKENS_PER_SAMPLE
    responses = sum(r for _, r in lengths) or tokens // 2
    device = policy.device if policy else devices.choose()
    dtype = _dtype(policy, device)
    steps = recipe.steps_for(number)
    rounds = steps * min(recipe.batch * recipe.accumulation, number) / number
    head = info.hidden * info.vocabulary
    body = max(0, info.active_parameters - head)
    # Forward is 2 operations a weight and token, backward to the inputs 2 more; the reference is one forward.
    # With all weights trained, 2 more to the weights.
    work = (2 + (6 if recipe.full else 4) * rounds) * (body * tokens + head * responses)
    micro = policy.scorer.micro_tokens if policy else CPU_MICRO_TOKENS
    size = need(
        info,
        bits=32 if dtype == torch.float32 else 16,
        rank=_rank(recipe),
        micro_tokens=micro,
        checkpointing=bool(recipe.gradient_checkpointing),
        on_cpu=device.type == "cpu",
    )
    return Estimate(
        bytes=size,
        seconds=work / (speed(device, dtype) * _EFFICIENCY) + 0.01 * steps,
        tokens=int(tokens * rounds),
        steps=steps,
        free=devices.free_bytes(device),
    )


def speed(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second of a matrix product here and now, from about 50 ms of them."""
    import time

    import torch

    left = torch.ones(512, 1024, device=device, dtype=dtype)
    right = torch.ones(1024, 1024, device=device, dtype=dtype)
    best = 0.0
    for _ in range(6):
        started = time.perf_counter()
        (left @ right).sum().item()
        best = max(best, 2 * 512 * 1024 * 1024 / (time.perf_counter() - started))
    return best


def _dtype(policy: Policy | None, device: torch.device) -> torch.dtype:
    import torch

    if policy is not None:
        return next(policy.model.parameters()).dtype
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


SIZES = (1.0, 0.7, 0.5, 0.35, 0.25)
"""Of the full number of prompts, answers and rounds. A few, so that a machine that is a little slower today makes the same version."""
LEAST_GATE_ANSWERS = 48
_PROMPTS = 32
"""Prompts of which the speed is measured."""
_BUSY = 1.5
"""Times longer by the clock than the work takes: from there on both are told."""
_LONGER = 1.5
"""Times the length of its own answers now that those may have which the model learns."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a run, in tokens."""

    name: str
    drawn_tokens: int = 0
    read_tokens: int = 0
    trained_tokens: int = 0

    def seconds(self, speed: Speed) -> float:
        return (
            self.drawn_tokens / speed.draw + self.read_tokens / speed.read + self.trained_tokens / speed.train
        )


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will take: seconds by phase."""

    phases: tuple[tuple[str, float], ...]
    size: float = 1.0
    bytes: int = 0
    """Memory at its peak."""
    free: int = 0
    """Memory that is free now."""
    device: str = "cpu"
    load: float = 1.0
    """How many times longer it takes as long as other programs are as busy as now."""

    @property
    def seconds(self) -> float:
        """On a machine that does nothing else."""
        return sum(seconds for _, seconds in self.phases)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {span(seconds)}" for name, seconds in self.phases)
        reduced = "" if self.size == 1 else f", at {self.size:.0%} of its full size to fit the budget"
        short = "" if self.bytes <= self.free else ": more than there is"
        busy = f"; {slower(self.seconds, self.load)}" if self.load >= _BUSY else ""
        return (
            f"About {span(self.seconds)} on {self.device} ({parts}){reduced}{busy}; "
            f"{gb(self.bytes)} of memory ({gb(self.free)} free{short})"
        )


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of an ordinary prompt, of an ordinary answer of the model itself and of one that it learns, and how many of them there are."""

    prompt: float
    answer: float
    liked: float
    rated: int
    prompts: int
    versions: int = 2
    """That the gate draws from: the candidate and the base, and the live version where it is another."""
    targets: int = 0
    """Edits and comparisons, which are learned as they are."""
    others: int = 0
    """Answers of other models that will probably be learned."""


def phases(recipe: Recipe, lengths: Lengths, *, follows: bool) -> tuple[Phase, ...]:
    """What ``auto`` does, in tokens. ``guided_rounds`` take less: fewer answers are drawn.

    Args:
        follows: the base follows instructions, so that a sentence is distilled; else rollouts.
    """
    from clawback.sources.distilled import BASE, DistilSettings
    from clawback.sources.fresh_answers import RolloutSettings
    from clawback.sources.graded import GradingSettings

    each, answer = lengths.prompt + lengths.answer, lengths.answer
    ground = GradingSettings.of(recipe).grounding
    look = Phase("read", int(ground * answer), int((ground + lengths.rated) * each))
    gate = gate_phase(lengths, recipe)
    if not follows:
        ours = RolloutSettings.of(recipe)
        drawn = ours.rounds * ours.prompts * ours.samples
        made = drawn * (1 + ours.replay)
        return (look, Phase("rounds", int(drawn * answer), int(made * each), int(made * each)), gate)
    ours_ = DistilSettings.of(recipe)
    # A prompt is read once for all answers to it; an answer only where it may be learned, after its own prompt and after another.
    tried, prompts = ours_.trials, min(ours_.distil_prompts, lengths.prompts)
    others = min(ours_.other_answers, lengths.others)
    by_others = 2 * others >= ours_.other_answers
    if by_others:  # as `sources/plan.py` decides: no sentence, and fewer rounds
        rounds = min(ours_.refine_rounds, ours_.other_rounds)
        ours_, tried, prompts = replace(ours_, refine_rounds=rounds, answers=0), 0, others
    asked = ours_.rounds(lengths.prompts) * min(ours_.refine_prompts, lengths.prompts)
    # A learned answer goes through the loss with how a worse one begins in most cases, which the base has to give first in half; in a round in one of three.
    held, worse = 1 + ours_.hold_share, min(answer, ours_.worse_tokens)
    # Before each round, and in the end, some of the base's answers show how far the policy has moved.
    watched = BASE * each
    # By then the policy's own answers are nearly as long as those that it learns from.
    liked = lengths.prompt + lengths.liked
    learned = lengths.targets * ours_.repeats(lengths.targets)
    shown = learned * (each + worse)
    return (
        look,
        Phase("choose", int(tried * answer), int(tried * lengths.prompt)),
        Phase(
            "draw", int(prompts * (ours_.answers + 0.5) * answer), int(prompts * (lengths.prompt + 2 * each))
        ),
        Phase("train", 0, int(watched), int(prompts * (held * each + 0.8 * worse) * ours_.passes + shown)),
        Phase(
            "refine",
            int(asked * ours_.refine_samples * lengths.liked),
            int(asked * 2 * (lengths.prompt + liked) + ours_.rounds(lengths.prompts) * watched),
            int(asked * (held + 0.3) * liked * ours_.passes),
        ),
        gate,
    )


def gate_phase(lengths: Lengths, recipe: Recipe) -> Phase:
    """Answers of each version. The base reads all after their own prompt, and as many as the guards look at after another; the candidate reads the base's of those."""
    answers = gate_answers(recipe)
    read = lengths.versions * (answers + min(answers, GUARDED_ANSWERS))
    return Phase(
        "gate",
        int(lengths.versions * answers * lengths.answer),
        int(read * (lengths.prompt + lengths.answer)),
    )


def gate_answers(recipe: Recipe) -> int:
    """Fresh answers from each version that the gate compares: six to each of 16 prompts, for that is what its questions are chosen from."""
    return max(LEAST_GATE_ANSWERS, round(GATE_ANSWERS * recipe.size))


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a run may take."""

    seconds: float
    live: bool = False
    """A version is live, beside the base: the gate draws from it, too."""
    speeds: Path | None = None
    """The file in which speeds are kept (``throughput.speed_of``)."""


def fit(
    run: TrainingRun, allowed: Allowed, sampler: MeasuredSampler | None = None
) -> tuple[Recipe, Forecast]:
    """The recipe at the largest size that fits the time allowed, and what it will take. ``sampler``: what draws fresh answers in place of this process,
    which the gate's are drawn by all the same.

    Raises:
        TrainingError: it does not fit even at its smallest. Says what would.
    """
    from clawback.sources.first_reading import Inputs
    from clawback.sources.targets import room_for

    policy, recipe, samples = run.policy, run.recipe, run.samples
    rated = [one for one in samples if one.rated] or samples
    encoded = [policy.encode(one) for one in rated]
    room, _ = room_for(policy, rated, encoded)
    feedback = Inputs.of(policy, samples, recipe)
    asked = [one.prompt for one in encoded[:_PROMPTS]]
    speed = throughput.speed_of(policy, asked, room, allowed.speeds, run.tell)
    drawing = throughput.sampler_speed(sampler, policy, asked, allowed.speeds) if sampler else speed.draw
    lengths = lengths_of(rated, encoded, room, speed.answer)
    liked = sum(one.reward > 0 for one in rated) / len(rated)
    lengths = replace(
        lengths,
        prompts=lengths.prompts + len(run.prompts),
        versions=3 if allowed.live else 2,
        targets=len(feedback.shown.targets),
        others=len(feedback.shown.answers) + int(liked * len(run.captured)),
    )
    # As ``sources/plan.py`` decides.
    follows = recipe.algorithm == "distil" or (recipe.algorithm == "auto" and policy.info.bucket != "micro")
    guess = estimate(policy.info, recipe, policy=policy, samples=samples)
    device = f"{policy.device.type} ({policy.placement})" if policy.placement else policy.device.type
    forecast = Forecast((), 1.0, guess.bytes, guess.free, device, throughput.load(policy.device))
    for size in SIZES:
        sized = replace(recipe, size=size)
        parts = tuple(
            (one.name, one.seconds(speed if one.name == "gate" else replace(speed, draw=drawing)))
            for one in phases(sized, lengths, follows=follows)
        )
        forecast = replace(forecast, phases=parts, size=size)
        if forecast.seconds <= allowed.seconds:
            return sized, forecast
    raise DoesNotFit(
        f"A run of {policy.info.base} takes about {span(forecast.seconds)} here even at its smallest, and the budget is {span(allowed.seconds)} "
        f"([training] budget). Choose a smaller model (`clawback model list`), allow more time (`budget = \"8h\"`), or train where there is a GPU."
    )  # fmt: skip


def lengths_of(
    rated: Sequence[Sample], encoded: Sequence[Encoded], room: int, drawn_length: float
) -> Lengths:
    """Of the rated answers, and of the model's ``drawn_length``, which are what a run draws: another model wrote many that are rated. 0: not known."""
    mean = sum(min(len(one.response), room) for one in encoded) / len(encoded)
    answer = min(drawn_length or mean, room)
    liked = [seen for one, seen in zip(rated, encoded, strict=True) if one.reward > 0] or encoded
    learned = sum(min(len(one.response), room) for one in liked) / len(liked)
    return Lengths(
        sum(len(one.prompt) for one in encoded) / len(encoded),
        answer,
        min(learned, _LONGER * answer),
        len(encoded),
        len({one.prompt for one in encoded}),
    )


def slower(seconds: float, load: float) -> str:
    """What the clock will show for work of so many seconds, where other programs are busy."""
    return (
        f"other programs keep this machine busy: about {span(seconds * load)} by the clock as long as they do"
    )


def gb(count: float) -> str:
    """Bytes as a person says them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def span(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def parse(text: str) -> float:
    """``90s``, ``20m``, ``8h`` or plain seconds. Raises ``ValueError``."""
    text = text.strip().lower()
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    number, unit = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1.0)
    value = float(number) * unit
    if not 0 < value < float("inf"):
        raise ValueError(f"{text!r} is no time")
    return value
