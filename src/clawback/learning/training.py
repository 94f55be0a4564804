"""A whole training run on feedback: samples in, a PEFT folder out."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from clawback.errors import TrainingError, UsageError
from clawback.models import TrainResult
from clawback.progress import OnProgress
from clawback.records import Sample
from clawback.trainer.recipe import Recipe
from clawback.trainer.run import (
    CHECKPOINT,
    RunInputs,
    TrainingRun,
    attach_weights,
    finished,
    ignore,
    result_of,
    write_adapter,
    write_result,
)

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.records import JsonObject
    from clawback.rewards.views import Judge
    from clawback.trainer.examples import Plan
    from clawback.trainer.training_loop import Fitted, GradientGroup, Learner, LoopSettings

UNSHARED = frozenset({"natural", "values"})
"""What an algorithm needs that cannot be shared out among processes."""
DRAWING = ("auto", "rollouts", "distil")
"""Algorithms that draw fresh answers and grade them (``sources/plan.py``)."""


def train(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    *,
    out: Path,
    on_progress: OnProgress | None = None,
    resume: bool = True,
    **inputs: Unpack[RunInputs],
) -> TrainResult:
    """Train an adapter on what was said about these samples, all of them.

    Args:
        policy: the base model, or a policy whose adapter is trained further. It holds the result afterwards.
        samples: in the order in which they were rated; the same order gives the same bits.
        recipe: from ``engine.recipe``.
        out: a folder for this run alone: its checkpoint, and in the end ``adapter/``.
        on_progress: told ``{"phase", "step", "steps", …}`` before and after each step. Whatever it raises ends the run.
        resume: go on from the checkpoint in ``out``; else begin again.
        inputs: what else decides the result: ``seed``, ``prompts`` and the other fields of ``TrainingRun``.

    Returns:
        The result; its ``path`` is a plain PEFT folder, written beside, fsynced and renamed.

    Raises:
        TrainingError: nothing to learn from, or it cannot be learned. ``NothingRead``: ``auto`` cannot tell the ratings from chance.
        UsageError: an algorithm that nobody provides.
    """
    if not samples:
        raise TrainingError("There is nothing to learn from: no rated turns were given.")
    run = TrainingRun(policy, tuple(samples), recipe, out=out, tell=on_progress or ignore, **inputs)
    identity = run.fingerprint()
    if not resume and out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    done = finished(out, identity)
    if done is not None:
        policy.put(Path(done.path))
        return done
    return _run(run, out, identity)


def _run(run: TrainingRun, out: Path, identity: str) -> TrainResult:
    """``identity``: the run's fingerprint, taken before it began."""
    from clawback.learning.run_budget import estimate, prepare
    from clawback.trainer.examples import Settling
    from clawback.trainer.torch_learner import TorchLearner
    from clawback.trainer.training_loop import fit

    started = time.perf_counter()
    policy, recipe, tell = run.policy, run.recipe, run.tell
    tell({"phase": "prepare", "samples": len(run.samples)})
    if not policy.has_adapter:
        attach_weights(policy, recipe, run.seed)
    prepare(policy, recipe)
    if (
        recipe.algorithm not in DRAWING
    ):  # of those that draw answers more is known before they begin: ``run_budget.fit``
        guess = estimate(policy.info, recipe, policy=policy, samples=run.samples)
        tell({"phase": "estimate", "text": str(guess), "bytes": guess.bytes, "seconds": guess.seconds})
    shard = recipe.conditions.shard
    with ExitStack() as stack:
        # A base in parts is so before anything is scored; else the one process has all threads until the steps begin.
        group = stack.enter_context(gradient_group(policy, recipe)) if shard else None
        plan = plan_for(run)
        tell({"phase": "plan", "algorithm": plan.name, "note": plan.note, "steps": plan.source.steps})
        _check_plan(plan, recipe)
        settings = settings_of(plan, recipe, run.seed, out, identity)
        if group is None:
            group = stack.enter_context(gradient_group(policy, recipe))
        learner = TorchLearner(policy, settings, plan.source.critic, group)
        fitted = fit(learner, plan.source, plan.algorithm, settings, [tell])
    settled = plan.source.settle() if isinstance(plan.source, Settling) else ""
    made = conclusion(run, plan, fitted, started, notes=(settled,))
    tell({"phase": "save"})
    write_adapter(policy.save, out)
    write_result(out, made, identity)
    return made


def conclusion(
    run: TrainingRun,
    plan: Plan,
    fitted: Fitted,
    started: float,
    *,
    notes: Sequence[str] = (),
    metrics: Mapping[str, float] | None = None,
) -> TrainResult:
    """The result of a run on feedback.

    Args:
        started: by ``time.perf_counter``.
        notes: beside the plan's.
        metrics: figures of whoever trained, beside those that each run has.
    """
    assert run.out is not None
    seconds = sum(row["seconds"] for row in fitted.history)
    tokens = sum(row["tokens"] for row in fitted.history)
    return result_of(
        run.policy.info,
        fitted,
        run.out,
        started,
        algorithm=plan.name,
        note="; ".join(filter(None, (plan.note, *notes))),
        seed=run.seed,
        turn_ids=tuple(sample.turn_id for sample in (*run.samples, *run.captured)),
        baseline=plan.baseline,
        instruction=plan.instruction,
        metrics={"tokens_per_second": tokens / max(1e-9, seconds), **(metrics or {})},
        rewards=tuple(_made_up(sample) for sample in run.samples if sample.terms),
    )


def fit_elsewhere(
    run: TrainingRun, identity: str, learner_of: Callable[[Plan, LoopSettings], Learner]
) -> tuple[Plan, Fitted]:
    """Plan a run on feedback and take its steps with weights that are elsewhere, with a checkpoint after each.

    Args:
        identity: the run's fingerprint.
        learner_of: makes the learner once the plan is known: what it scores for the plan, it has scored by then.
    """
    from clawback.trainer.training_loop import fit

    assert run.out is not None
    plan = plan_for(run)
    run.tell({"phase": "plan", "algorithm": plan.name, "note": plan.note, "steps": plan.source.steps})
    settings = settings_of(plan, run.recipe, run.seed, run.out, identity)
    settings = dataclasses.replace(settings, checkpoint_seconds=0.0)
    return plan, fit(learner_of(plan, settings), plan.source, plan.algorithm, settings, [run.tell])


def _check_plan(plan: Plan, recipe: Recipe) -> None:
    """Raises ``UsageError`` where the algorithm cannot do what the recipe says."""
    from clawback.rl import algorithms

    needs = algorithms.needs(plan.algorithm)
    if recipe.full and "natural" in needs:
        raise UsageError(
            f"{plan.name} takes steps that want a matrix of all weights it trains: leave [training] full out."
        )
    if world_size(recipe) > 1 and (alone := UNSHARED & needs):
        raise UsageError(
            f"{plan.name} cannot be shared out among processes ({', '.join(sorted(alone))}); "
            "leave --processes and NNODES out."
        )


def settings_of(plan: Plan, recipe: Recipe, seed: int, out: Path, identity: str) -> LoopSettings:
    """What the loop needs to know of a recipe and the plan made of it."""
    from clawback.trainer.training_loop import LoopSettings

    return LoopSettings(
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


def shardable(recipe: Recipe) -> Recipe:
    """A recipe as a run with the base in parts can keep it: nothing is drawn, so ``auto`` becomes ``reinforce``. Raises ``UsageError``."""
    if recipe.algorithm == "auto":
        return dataclasses.replace(recipe, algorithm="reinforce")
    if recipe.algorithm in DRAWING:
        raise UsageError(
            f"{recipe.algorithm} draws answers, which a base in parts cannot: leave --shard out, or take auto, reinforce, grpo, dpo, …"
        )
    return recipe


def world_size(recipe: Recipe) -> int:
    """Processes of the run, on all machines. Raises ``UsageError`` where the environment's machines cannot find each other."""
    from clawback.runs import run_options

    return recipe.conditions.processes * run_options.machine_count()


def gradient_group(policy: Policy, recipe: Recipe) -> AbstractContextManager[GradientGroup | None]:
    """The further processes of a run; None where one is enough. With ``shard`` they share the base out. Raises ``UsageError`` where that cannot be."""
    from clawback import plugins

    shard = recipe.conditions.shard
    if world_size(recipe) < 2:
        if shard:
            raise UsageError("--shard shares the base out among processes: name how many with --processes.")
        return nullcontext()
    if shard:
        shardable(recipe)
    group: AbstractContextManager[GradientGroup | None] = plugins.load(plugins.TRAINERS, "processes").group(
        policy, recipe
    )
    return group


def plan_for(run: TrainingRun) -> Plan:
    """Which algorithm on which examples. ``auto`` draws fresh answers where the reward head can be trusted."""
    from clawback.rl import algorithms
    from clawback.sources.ratings import from_ratings

    name = run.recipe.algorithm
    if name in DRAWING:
        from clawback.sources import plan

        return plan.plan(run)
    if name in algorithms.ENVIRONMENT:
        raise UsageError(
            f"{name} learns from the steps of an environment, not from feedback. Choose one of: auto, "
            f"{', '.join(algorithms.names())}."
        )
    return from_ratings(run, algorithms.make(name, run.recipe.settings(name)))


def check_readable(
    policy: Policy,
    samples: Sequence[Sample],
    recipe: Recipe,
    *,
    seed: int = 0,
    judge: Judge | None = None,
) -> None:
    """Raises ``NothingRead`` where ``train`` would, before anything is drawn or entered. The arguments are those of ``train``."""
    from clawback.sources import plan

    plan.check(TrainingRun(policy, tuple(samples), recipe, seed=seed, judge=judge))


def reads_words(algorithm: str) -> bool:
    """Whether an algorithm has a use for turns of which something was said in words alone. ``UsageError`` for one that nobody provides."""
    from clawback.rl import algorithms

    return algorithm in DRAWING or "teacher" in algorithms.needs(algorithms.find(algorithm))


def _made_up(sample: Sample) -> JsonObject:
    """What the reward of a sample added up from."""
    terms = {term.name: (term.value, term.share) for term in sample.terms}
    return {"turn": sample.turn_id, "reward": sample.reward, "terms": terms}
