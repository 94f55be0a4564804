"""A training run on a hosted trainer: our losses, its gradients.

A step works as in ``forward_backward_custom``: log-probs come from the trainer, the loss is computed here by
the same code as for a model on this machine, and its gradient with respect to each log-prob goes back as the
weights of a cross-entropy. So every algorithm that is a function of log-probs works, at the price of one more
forward pass; one that needs hidden states, entropies or the whole vocabulary does not, and is refused before
anything is paid.

A run that was killed resumes after its last finished step: requests carry numbers (``journal.py``), and the
trainer returns again the results that it already has. If it has forgotten the model, the run resumes from the
last state that was saved there (``save_every``).
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from clawback.errors import ClawbackError, TrainingError, UsageError
from clawback.extensions.hosted.journal import Journal
from clawback.extensions.hosted.loop import HostedLoop, Where
from clawback.extensions.hosted.remote_policy import RemotePolicy
from clawback.extensions.hosted.tinker import TinkerTrainer
from clawback.extensions.hosted.types import HostedError, Trainer, Unanswered
from clawback.extensions.hosted.wire import Wire
from clawback.files import replace, sync
from clawback.learning.loop.trainer import Fitted
from clawback.learning.recipe import Recipe
from clawback.learning.result import ADAPTER, RESULT, finished, result_of
from clawback.learning.run import OnProgress, TrainingRun, fingerprint, ignore
from clawback.learning.training import DRAWING
from clawback.models.adapter import read
from clawback.models.base import STAMP, stamp
from clawback.models.types import TrainResult
from clawback.records import Sample
from clawback.rl import algorithms

if TYPE_CHECKING:
    from clawback.policy.policy import Policy

ALPHA = 32
"""Of every LoRA that is trained by Tinker's API: its requests have no field for it."""
JOURNAL = "hosted.json"
NOT_HERE = frozenset({"entropy", "values", "natural"})
BEAT_SECONDS = 10.0


def recipe_for(recipe: Recipe) -> Recipe:
    """A recipe as a hosted trainer can keep it. ``auto`` reads hidden states of the base, so it becomes ``reinforce``.

    Raises ``UsageError`` for algorithms that cannot be hosted.
    """
    name = "reinforce" if recipe.algorithm == "auto" else recipe.algorithm
    if name in DRAWING or name in algorithms.ENVIRONMENT:
        raise UsageError(
            f"{recipe.algorithm} cannot be trained by a hosted trainer. Use auto, reinforce, grpo, mis-po, rloo, gspo, dpo or kto."
        )
    wants = algorithms.needs(algorithms.find(name)) & NOT_HERE
    if wants or (name in ("opd", "combined") and int(recipe.settings(name).get("top_k", 1)) > 0):
        raise UsageError(
            f"{name} needs more of the model than log-probs ({', '.join(sorted(wants)) or 'a teacher over the vocabulary'}), and a hosted "
            "trainer gives no more. Use auto, reinforce, grpo, mis-po, rloo, gspo, dpo or kto."
        )
    return dataclasses.replace(recipe, algorithm=name, alpha=ALPHA)


def train(
    policy: RemotePolicy,
    samples: Sequence[Sample],
    recipe: Recipe,
    *,
    where: Where,
    seed: int = 0,
    out: Path,
    baseline: float = 0.0,
    on_progress: OnProgress | None = None,
) -> TrainResult:
    """Train an adapter over there, and bring it here.

    Args:
        policy: tokenizer and shape of the base (``remote_policy.light``).
        samples: in the order in which they were rated.
        recipe: from ``recipe_for``.
        where: the trainer.
        out: a folder for this run alone; a run that was interrupted goes on from it, and nothing is paid twice that the trainer still knows.

    Raises:
        TrainingError: nothing to learn from, or the trainer fails (``HostedError``).
        CapReached: it would cost more than it may, before or during the run.
    """
    if not samples:
        raise TrainingError("There is nothing to learn from: no rated turns were given.")
    tell, started = on_progress or ignore, time.perf_counter()
    identity = _identity(policy, samples, recipe, where, seed, baseline)
    out.mkdir(parents=True, exist_ok=True)
    if (done := finished(out, identity)) is not None:
        return done
    journal = Journal(out / JOURNAL, identity, where.cap)
    wire = Wire(where.url, where.key, where.timeout, where.pause)
    trainer = connect(wire, journal, where, policy.info.base, recipe.rank, seed)
    # As the trainer has it, whatever was recorded: its log-probs are at temperature 1.
    run = TrainingRun(
        cast("Policy", policy),
        tuple(dataclasses.replace(one, response_logprobs=None) for one in samples),
        recipe,
        seed=seed,
        baseline=baseline,
        out=out,
        tell=tell,
    )
    loop = HostedLoop(run, policy, trainer, journal, where, identity)
    with _given_back(trainer, tell):
        with _kept_awake(trainer):
            loop.go()
        tell({"phase": "save"})
        _bring(trainer, policy, out, f"v{identity[:12]}", loop.export_key)
    result = _result(loop, wire, started)
    text = json.dumps({"fingerprint": identity, **dataclasses.asdict(result)}, indent=2)
    replace(out / RESULT, text.encode(), mode=0o600)
    _left(trainer.unload(), tell)
    return result


def _result(loop: HostedLoop, wire: Wire, started: float) -> TrainResult:
    plan, run, spent = loop.plan, loop.run, loop.journal.spent
    return result_of(
        loop.policy.info,
        Fitted(loop.kept, loop.stopped, loop.history, spent.tokens),
        loop.out,
        started,
        algorithm=plan.name,
        note=f"{plan.note + '; ' if plan.note else ''}trained by {loop.where.url}",
        seed=run.seed,
        turn_ids=tuple(sample.turn_id for sample in run.samples),
        baseline=plan.baseline,
        metrics={
            "hosted_requests": float(spent.requests),
            "hosted_repeated": float(wire.repeated),
            "hosted_money": spent.money(loop.where.prices),
            **({"gap": loop.gap} if loop.gap is not None else {}),
        },
    )


def connect(wire: Wire, journal: Journal, where: Where, base: str, rank: int, seed: int) -> TinkerTrainer:
    """The trainer that an address stands for."""
    model = where.model or base
    if not where.shape:
        return TinkerTrainer(wire, journal, model, rank=rank, seed=seed)
    from clawback.extensions.hosted.fireworks import FireworksTrainer

    return FireworksTrainer(wire, journal, model, rank=rank, seed=seed, shape=where.shape)


def _left(names: str, tell: OnProgress) -> None:
    if names:
        text = f"Not deleted over there, and it may cost: {names}. `clawback lab hosted jobs --delete` tries again."
        tell({"phase": "alert", "text": text})


@contextmanager
def _given_back(trainer: TinkerTrainer, tell: OnProgress) -> Iterator[None]:
    """However the run ends early, what costs while nobody uses it is deleted; where nothing answers any more, that is said."""
    try:
        yield
    except Unanswered:
        if trainer.COSTS_IDLE:
            text = (
                "What was made over there may go on costing until it ends by itself. `clawback lab hosted jobs --delete` ends it, "
                "once it answers again."
            )
            tell({"phase": "alert", "text": text})
        raise
    except (ClawbackError, KeyboardInterrupt):
        _left(trainer.pause(), tell)
        raise


@contextmanager
def _kept_awake(trainer: TinkerTrainer) -> Iterator[None]:
    """Sessions end where nobody says now and then that they are wanted."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            with suppress(HostedError):  # whoever trains meets it, too
                trainer.beat()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _bring(trainer: Trainer, policy: RemotePolicy, out: Path, name: str, key: str) -> None:
    """The adapter into ``out``, read with as much care as any that comes from elsewhere, then renamed."""
    beside, final = out / (ADAPTER + ".new"), out / ADAPTER
    for folder in (beside, final):
        if folder.exists():
            shutil.rmtree(folder)
    beside.mkdir(mode=0o700)
    trainer.export(key, name, beside)
    read(beside)
    (beside / STAMP).write_text(stamp(policy.info), "utf-8")
    for path in (*beside.iterdir(), beside):
        sync(path)
    beside.rename(final)


def _identity(
    policy: RemotePolicy,
    samples: Sequence[Sample],
    recipe: Recipe,
    where: Where,
    seed: int,
    baseline: float,
) -> str:
    inputs = {
        "hosted": where.url,
        "model": where.model,
        **({"shape": where.shape} if where.shape else {}),
        "base": policy.info.revision,
        "samples": [dataclasses.asdict(sample) for sample in samples],
        "recipe": dataclasses.asdict(recipe),
        "seed": seed,
        "baseline": baseline,
    }
    return fingerprint(inputs)


__all__ = ["ALPHA", "Where", "recipe_for", "train"]
