"""``TrainingRun``: everything that decides the result of a training run, in one record."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from clawback.learning.recipe import Recipe
    from clawback.policy import Policy, Sampler
    from clawback.records import Message, Sample
    from clawback.rewards.reward_model import Grader
    from clawback.rewards.terms import RewardTerms
    from clawback.rewards.views import Judge

Progress = Mapping[str, Any]
OnProgress = Callable[[Progress], None]


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


def fingerprint(inputs: Mapping[str, Any]) -> str:
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
