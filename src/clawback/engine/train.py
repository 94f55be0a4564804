"""A whole run: samples in, a PEFT folder out."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.engine.recipe import Recipe
from clawback.engine.types import Grader, TrainResult
from clawback.errors import TrainingError, UsageError
from clawback.files import replace, sync
from clawback.records import Message, Sample

if TYPE_CHECKING:
    from clawback.engine.torch.examples import Plan
    from clawback.engine.torch.policy import Policy
    from clawback.rewards.terms import Terms

Progress = Mapping[str, Any]
OnProgress = Callable[[Progress], None]

ADAPTER = "adapter"
CHECKPOINT = "checkpoint.pt"
RESULT = "result.json"


def train(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    *,
    seed: int = 0,
    out: Path,
    prompts: Sequence[Sequence[Message]] = (),
    on_progress: OnProgress | None = None,
    resume: bool = True,
    baseline: float = 0.0,
    grader: Grader | None = None,
    terms: Terms | None = None,
) -> TrainResult:
    """Train an adapter on what was said about these samples, all of them.

    Args:
        policy: the base model, or a policy whose adapter is gone on with. It holds the result afterwards.
        samples: in the order in which they were rated; the same order gives the same bits.
        recipe: from ``engine.recipe``.
        seed: everything that is drawn at random follows from it.
        out: a folder for this run alone: its checkpoint, and in the end ``adapter/``.
        prompts: the person's own conversations up to their question, for algorithms that imagine answers.
        on_progress: told ``{"phase", "step", "steps", …}`` before and after each step. Whatever it raises ends the run.
        resume: go on from the checkpoint in ``out``; else begin again.
        baseline: the moving average of ratings that the run before this one ended with.
        grader: grades imagined answers in place of the head, for algorithms that imagine.
        terms: what counts beside head or grader there; the samples' rewards have been made up with them (``Terms.of``).

    Returns:
        The result; its ``path`` is a plain PEFT folder, written beside, fsynced and renamed.

    Raises:
        TrainingError: nothing to learn from, or it cannot be learned.
        UsageError: an algorithm that nobody provides.
    """
    tell = on_progress or (lambda _: None)
    if not samples:
        raise TrainingError("There is nothing to learn from: no rated turns were given.")
    identity = fingerprint(policy, samples, recipe, seed, prompts, baseline, grader, terms)
    if not resume and out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    done = _finished(out, identity)
    if done is not None:
        policy.put(Path(done.path))
        return done
    started = time.perf_counter()
    tell({"phase": "prepare", "samples": len(samples)})
    return _run(
        policy, list(samples), recipe, seed, out, prompts, tell, baseline, identity, started, grader, terms
    )


def _run(
    policy: Policy,
    samples: list[Sample],
    recipe: Recipe,
    seed: int,
    out: Path,
    prompts: Sequence[Sequence[Message]],
    tell: OnProgress,
    baseline: float,
    identity: str,
    started: float,
    grader: Grader | None,
    terms: Terms | None,
) -> TrainResult:
    from clawback.engine.memory import estimate, prepare
    from clawback.engine.torch.trainer import Settings, fit

    if not policy.has_adapter:
        policy.attach(rank=recipe.rank, alpha=recipe.alpha, seed=seed)
    prepare(policy, recipe)
    guess = estimate(policy.info, recipe, policy=policy, samples=samples)
    tell({"phase": "estimate", "text": str(guess), "bytes": guess.bytes, "seconds": guess.seconds})
    plan = plan_for(
        policy,
        samples,
        recipe,
        seed=seed,
        prompts=prompts,
        baseline=baseline,
        tell=tell,
        grader=grader,
        terms=terms,
    )
    tell({"phase": "plan", "algorithm": plan.name, "note": plan.note, "steps": plan.source.steps})
    settings = Settings(
        learning_rate=plan.rate or recipe.learning_rate,
        cover=plan.cover,
        decay=plan.decay,
        grad_clip=recipe.grad_clip,
        weight_decay=recipe.weight_decay,
        max_drift=recipe.max_drift,
        max_reward_drop=recipe.max_reward_drop,
        min_reward=recipe.min_reward,
        seed=seed,
        checkpoint=out / CHECKPOINT,
        fingerprint=identity,
    )
    fitted = fit(policy, plan.source, plan.algorithm, settings, [tell])
    if fitted.stopped:
        tell({"phase": "alert", "text": fitted.stopped, "step": fitted.steps})
    seconds = time.perf_counter() - started
    trained = sum(row["seconds"] for row in fitted.history)
    result = TrainResult(
        path=str(out / ADAPTER),
        algorithm=plan.name,
        note=plan.note,
        base=policy.info.base,
        base_revision=policy.info.revision,
        seed=seed,
        steps=fitted.steps,
        stopped=fitted.stopped,
        turn_ids=tuple(sample.turn_id for sample in samples),
        baseline=plan.baseline,
        metrics={
            **_last(fitted.history),
            "seconds": seconds,
            "tokens": float(fitted.tokens),
            "tokens_per_second": fitted.tokens / max(1e-9, trained),
        },
        history=tuple(fitted.history),
        rewards=tuple(_made_up(sample) for sample in samples if sample.terms),
    )
    tell({"phase": "save"})
    _write(policy, out, result, identity)
    return result


def plan_for(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    *,
    seed: int,
    prompts: Sequence[Sequence[Message]] = (),
    baseline: float = 0.0,
    tell: OnProgress = lambda _: None,
    grader: Grader | None = None,
    terms: Terms | None = None,
) -> Plan:
    """Which algorithm on which examples. ``auto`` imagines fresh answers where the reward head can be trusted."""
    from clawback.engine.torch.examples import from_ratings
    from clawback.rl import algorithms

    if recipe.algorithm in ("auto", "imagine"):
        from clawback.engine.torch import imagine

        return imagine.plan(
            policy,
            samples,
            recipe,
            prompts,
            seed=seed,
            baseline=baseline,
            tell=tell,
            grader=grader,
            terms=terms,
        )
    if recipe.algorithm in algorithms.ENVIRONMENT:
        raise UsageError(
            f"{recipe.algorithm} learns from the steps of an environment, not from feedback. Choose one of: auto, "
            f"{', '.join(algorithms.names())}."
        )
    algorithm = algorithms.make(recipe.algorithm, recipe.settings())
    return from_ratings(policy, samples, recipe, algorithm, seed=seed, baseline=baseline)


def reads_words(algorithm: str) -> bool:
    """Whether an algorithm has a use for turns of which something was said in words alone. ``UsageError`` for one that nobody provides."""
    from clawback.rl import algorithms

    return algorithm in ("auto", "imagine") or "teacher" in algorithms.needs(algorithms.find(algorithm))


def fingerprint(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    seed: int,
    prompts: Sequence[Sequence[Message]],
    baseline: float,
    grader: Grader | None = None,
    terms: Terms | None = None,
) -> str:
    """A hash of everything that decides the bits of a run, so that no checkpoint of another run is gone on with."""
    import torch

    inputs = {
        "base": policy.info.revision,
        "dtype": str(next(policy.model.parameters()).dtype),
        "device": policy.device.type,
        "adapter": _adapter_hash(policy),
        "threads": torch.get_num_threads(),
        "samples": [dataclasses.asdict(sample) for sample in samples],
        "recipe": dataclasses.asdict(recipe),
        "seed": seed,
        "prompts": [list(map(dict, prompt)) for prompt in prompts],
        "baseline": baseline,
    } | {kind: one.name for kind, one in (("grader", grader), ("terms", terms)) if one}
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def _adapter_hash(policy: Policy) -> str:
    """What the policy starts from; empty for the base model."""
    digest = hashlib.sha256()
    for name, parameter in sorted(policy.model.named_parameters()):
        if "lora_" in name:
            digest.update(name.encode() + parameter.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest() if policy.has_adapter else ""


def _write(policy: Policy, out: Path, result: TrainResult, identity: str) -> None:
    """The adapter, then the result that says it is whole, then no more need of the checkpoint."""
    beside, final = out / (ADAPTER + ".new"), out / ADAPTER
    for folder in (beside, final):
        if folder.exists():
            shutil.rmtree(folder)
    beside.mkdir()
    policy.save(beside)
    beside.rename(final)
    text = json.dumps({"fingerprint": identity, **dataclasses.asdict(result)}, indent=2)
    replace(out / RESULT, text.encode(), mode=0o600)
    sync(out)
    (out / CHECKPOINT).unlink(missing_ok=True)


def _finished(out: Path, identity: str) -> TrainResult | None:
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


def _made_up(sample: Sample) -> dict[str, Any]:
    """What the reward of a sample added up from."""
    terms = {term.name: (term.value, term.share) for term in sample.terms}
    return {"turn": sample.turn_id, "reward": sample.reward, "terms": terms}


def _last(history: Sequence[dict[str, float]], count: int = 4) -> dict[str, float]:
    """Means over the last steps."""
    rows = history[-count:]
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[-1]} if rows else {}
