"""A training run as records: everything that decides it, and its result.

``TrainingRun``: everything that decides the result of a training run, in one record.

The result of a run: made of what the loop did, written last, and found again by the same run after it was killed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from clawback.errors import UsageError
from clawback.files import replace, sync
from clawback.models import ModelInfo, TrainResult
from clawback.progress import OnProgress, Progress

if TYPE_CHECKING:
    from clawback.policy import Policy, Sampler
    from clawback.records import Message, Sample
    from clawback.rewards.reward_model import Grader
    from clawback.rewards.terms import RewardTerms
    from clawback.rewards.views import Judge
    from clawback.trainer.recipe import Recipe
    from clawback.trainer.training_loop import Fitted


def ignore(_: Progress) -> None:
    """Progress that nobody wants to see."""


@dataclass(frozen=True)
class TrainingRun:
    """The inputs of a run. ``engine.train`` makes it; plans and sources of examples read it."""

    policy: Policy
    """The base model, or a policy whose adapter is trained further. The one field whose content changes during the run."""
    samples: Sequence[Sample]
    """In the order in which they were rated."""
    recipe: Recipe
    seed: int = 0
    """Everything that is drawn at random follows from it."""
    prompts: Sequence[Sequence[Message]] = ()
    """The person's own conversations up to their question, to draw fresh answers to."""
    captured: Sequence[Sample] = ()
    """Answers of other models that may be learned and that nobody rated: a trusted reader chooses among them."""
    baseline: float = 0.0
    """The moving average of ratings that the run before this one ended with."""
    grader: Grader | None = None
    """Grades fresh answers in place of the reward head."""
    terms: RewardTerms | None = None
    """What counts beside head or grader."""
    judge: Judge | None = None
    """Says how surely an answer keeps each rule of the recipe: features that the reader weighs by the ratings."""
    sampler: Sampler | None = None
    """Draws fresh answers in place of the policy's own engine. It decides nothing about the result but its rounding."""
    out: Path | None = None
    """A folder for this run alone: its checkpoint, and in the end ``adapter/``. It decides nothing about the result."""
    tell: OnProgress = ignore
    """Told ``{"phase", …}`` as the run goes on. Whatever it raises ends the run."""

    def fingerprint(self) -> str:
        """A hash of everything that decides the bits of the result, so that no checkpoint of another run is resumed.

        Ask for it before the policy gets its adapter: that the adapter is fresh is part of it.
        """
        inputs = policy_state(self.policy) | {
            "samples": [dataclasses.asdict(sample) for sample in self.samples],
            "recipe": dataclasses.asdict(self.recipe),
            "seed": self.seed,
            "prompts": [list(map(dict, prompt)) for prompt in self.prompts],
            "baseline": self.baseline,
            **({"captured": [dataclasses.asdict(one) for one in self.captured]} if self.captured else {}),
        }
        return fingerprint(
            inputs | {kind: one.name for kind, one in (("grader", self.grader), ("terms", self.terms)) if one}
        )


class RunInputs(TypedDict, total=False):
    """The fields of ``TrainingRun`` that ``engine.train`` takes by name."""

    seed: int
    prompts: Sequence[Sequence[Message]]
    captured: Sequence[Sample]
    baseline: float
    grader: Grader | None
    terms: RewardTerms | None
    judge: Judge | None
    sampler: Sampler | None


def fingerprint(inputs: Mapping[str, object]) -> str:
    """A hash of everything that decides the bits of a result."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def policy_state(policy: Policy) -> dict[str, Any]:
    """What a policy contributes to a fingerprint: weights, adapter, precision, device, threads."""
    import torch

    return {
        "base": policy.info.revision,
        "dtype": str(next(policy.model.parameters()).dtype),
        "device": policy.engine if policy.engine != "torch" else policy.device.type,
        "adapter": adapter_hash(policy),
        "threads": torch.get_num_threads(),
    }


def adapter_hash(policy: Policy) -> str:
    """What the policy starts from; empty for the base model."""
    digest = hashlib.sha256()
    for name, parameter in sorted(policy.model.named_parameters()):
        if "lora_" in name or ".delta_" in name:
            digest.update(name.encode() + parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest() if policy.has_adapter else ""


ADAPTER = "adapter"
CHECKPOINT = "checkpoint.pt"
RESULT = "result.json"


def result_of(
    info: ModelInfo, fitted: Fitted, out: Path, started: float, *, metrics: Mapping[str, float], **fields: Any
) -> TrainResult:
    """The result of a run of a base.

    Args:
        started: by ``time.perf_counter``.
        metrics: figures of this kind of run, beside those that each has.
        fields: the other fields of ``TrainResult``.
    """
    every = {"seconds": time.perf_counter() - started, "tokens": float(fitted.tokens)}
    return TrainResult(
        path=str(out / ADAPTER),
        base=info.base,
        base_revision=info.revision,
        steps=fitted.steps,
        stopped=fitted.stopped,
        metrics={**last(fitted.history), **every, **metrics},
        history=tuple(fitted.history),
        **fields,
    )


def attach_weights(policy: Policy, recipe: Recipe, seed: int) -> None:
    """Put what the recipe trains on a base model: an adapter, or a delta of all weights. It changes nothing yet. Raises ``UsageError``."""
    if not recipe.full:
        policy.attach(rank=recipe.rank, alpha=recipe.alpha, seed=seed)
        return
    if recipe.conditions.processes > 1 or recipe.conditions.shard:
        raise UsageError(
            "Processes share an adapter's gradient, not that of all weights: leave --processes or [training] full out."
        )
    if policy.engine != "torch":
        raise UsageError(
            f"All weights can be trained by the torch engine alone, not by {policy.engine}: leave [training] full out."
        )
    policy.attach_full()


def write_adapter(save: Callable[[Path], None], out: Path) -> None:
    """The adapter, which ``save`` puts into an empty folder, under its name once it is whole."""
    beside, final = out / (ADAPTER + ".new"), out / ADAPTER
    for folder in (beside, final):
        if folder.exists():
            shutil.rmtree(folder)
    beside.mkdir(mode=0o700)
    save(beside)
    beside.rename(final)


def write_result(out: Path, result: TrainResult, identity: str) -> None:
    """The result, which says that the adapter is there, then no more need of the checkpoint."""
    text = json.dumps({"fingerprint": identity, **dataclasses.asdict(result)}, indent=2)
    replace(out / RESULT, text.encode(), mode=0o600)
    sync(out)
    (out / CHECKPOINT).unlink(missing_ok=True)


def finished(out: Path, identity: str) -> TrainResult | None:
    """The result of this very run, where it was finished before its process died."""
    try:
        values = json.loads((out / RESULT).read_text("utf-8"))
        if values.pop("fingerprint") != identity or not (out / ADAPTER).is_dir():
            return None
        values["turn_ids"] = tuple(values["turn_ids"])
        values["history"] = tuple(values["history"])
        values["rewards"] = tuple(values.get("rewards", ()))
        return TrainResult(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def last(history: Sequence[dict[str, float]], count: int = 4) -> dict[str, float]:
    """Means over the last steps, of those that have a figure: a run that was begun by another version may lack one in its first steps."""
    rows = history[-count:]
    return {
        name: statistics.fmean(row[name] for row in rows if name in row)
        for name in (rows[-1] if rows else ())
    }
