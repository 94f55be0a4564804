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
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from clawback.errors import ClawbackError, TrainingError, UsageError
from clawback.extensions.hosted.remote_learner import HostedLearner
from clawback.extensions.hosted.remote_policy import MOST_GAP, RemotePolicy, gap
from clawback.extensions.hosted.request_journal import Cap, RequestJournal
from clawback.extensions.hosted.tinker import TinkerTrainer
from clawback.extensions.hosted.trainer_http import Wire
from clawback.extensions.hosted.trainer_records import (
    CapReached,
    Forgotten,
    HostedCost,
    HostedError,
    HostedTrainer,
    Prices,
    SamplingParams,
    ServiceUnanswered,
)
from clawback.learning import DRAWING, conclusion, fit_elsewhere
from clawback.models import TrainResult
from clawback.models.adapter import receive
from clawback.progress import OnProgress
from clawback.rl import algorithms
from clawback.trainer import (
    Fitted,
    LoopSettings,
    Recipe,
    TrainingRun,
    fingerprint,
    finished,
    read_checkpoint,
    write_adapter,
    write_checkpoint,
    write_result,
)

if TYPE_CHECKING:
    from clawback.trainer import Plan

ALPHA = 32
"""Of every LoRA that is trained by Tinker's API: its requests have no field for it."""
JOURNAL = "hosted.json"
KNOWN = "scored.pt"
PROBE_TOKENS = 24
CHECKPOINT_FORM = 2
"""Of what a checkpoint holds: one of another form is not read, and its run begins anew."""
MOST_MODELS = 4
"""That a run begins over there, one after the other, before it is given up."""
NOT_HERE = frozenset({"entropy", "values", "natural"})
BEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Where:
    """The trainer, and its cost limits."""

    url: str
    key: str = ""
    model: str = ""
    """The base model's name over there; not set: its name here."""
    save_every: int = 8
    """Steps between states that are kept over there."""
    timeout: float = 600.0
    pause: float = 1.0
    shape: str = ""
    """Fireworks' training shape; empty: the server speaks Tinker's API."""
    cap: Cap = field(default_factory=Cap)

    @property
    def prices(self) -> Prices:
        return self.cap.prices


def recipe_for(recipe: Recipe) -> Recipe:
    """A recipe as a hosted trainer can keep it. ``auto`` reads hidden states of the base, so it becomes ``reinforce``.

    Raises ``UsageError`` for algorithms that cannot be hosted.
    """
    name = hosted_name(recipe.algorithm)
    if name in ("opd", "combined") and int(recipe.settings(name).get("top_k", 1)) > 0:
        raise UsageError(_needs_more(name, "a teacher over the vocabulary"))
    return dataclasses.replace(recipe, algorithm=name, alpha=ALPHA)


def hosted_name(algorithm: str) -> str:
    """The algorithm that a hosted trainer runs for this one. Raises ``UsageError`` where there is none."""
    name = "reinforce" if algorithm == "auto" else algorithm
    if name in DRAWING or name in algorithms.ENVIRONMENT:
        raise UsageError(
            f"{algorithm} cannot be trained by a hosted trainer. Use auto, reinforce, grpo, mis-po, rloo, gspo, dpo or kto."
        )
    if wants := algorithms.needs(algorithms.find(name)) & NOT_HERE:
        raise UsageError(_needs_more(name, ", ".join(sorted(wants))))
    return name


def _needs_more(name: str, wants: str) -> str:
    return (
        f"{name} needs more of the model than log-probs ({wants}), and a hosted trainer gives no more. "
        "Use auto, reinforce, grpo, mis-po, rloo, gspo, dpo or kto."
    )


def train(run: TrainingRun, where: Where) -> TrainResult:
    """Train an adapter over there, and bring it here.

    Args:
        run: its ``policy`` is a ``RemotePolicy``, tokenizer and shape of the base (``models.load_tokenizer``); its ``recipe`` is from
            ``recipe_for``. It needs ``out``: a run that was interrupted goes on from it, and nothing is paid twice that the trainer still knows.
        where: the trainer.

    Raises:
        TrainingError: nothing to learn from, or the trainer fails (``HostedError``).
        CapReached: it would cost more than it may, before or during the run.
    """
    if not run.samples:
        raise TrainingError("There is nothing to learn from: no rated turns were given.")
    policy, out, tell, started = cast("RemotePolicy", run.policy), run.out, run.tell, time.perf_counter()
    assert out is not None
    identity = _identity(run, where)
    out.mkdir(parents=True, exist_ok=True)
    if (done := finished(out, identity)) is not None:
        return done
    journal = RequestJournal(out / JOURNAL, identity, where.cap)
    wire = Wire(where.url, where.key, where.timeout, where.pause)
    trainer = connect(wire, journal, where, policy.info.base, run.recipe.rank, run.seed)
    # As the trainer has it, whatever was recorded: its log-probs are at temperature 1.
    run = dataclasses.replace(
        run, samples=tuple(dataclasses.replace(sample, response_logprobs=None) for sample in run.samples)
    )
    tell({"phase": "prepare", "samples": len(run.samples)})
    with _given_back(trainer, tell):
        with _kept_awake(trainer):
            plan, fitted = _fit(run, policy, trainer, where, identity)
        tell({"phase": "save"})
        key = f"export:{fitted.steps}:{journal.models}"
        write_adapter(lambda folder: _bring(trainer, policy, folder, f"v{identity[:12]}", key), out)
    notes, metrics = (f"trained by {where.url}",), _metrics(trainer, where.prices)
    result = conclusion(run, plan, fitted, started, notes=notes, metrics=metrics)
    write_result(out, result, identity)
    _left(trainer.unload(), tell)
    return result


def _metrics(trainer: TinkerTrainer, prices: Prices) -> dict[str, float]:
    spent = trainer.journal.spent
    return {
        "tokens": float(spent.tokens),
        "hosted_requests": float(spent.requests),
        "hosted_repeated": float(trainer.wire.repeated),
        "hosted_money": spent.money(prices),
        "gap": float(trainer.journal.facts["gap"]),
    }


def _fit(
    run: TrainingRun, policy: RemotePolicy, trainer: TinkerTrainer, where: Where, identity: str
) -> tuple[Plan, Fitted]:
    """The loop's steps over there; on a new model, from the last saved state, where the trainer has forgotten the one it had.

    Raises ``HostedError``, ``CapReached``, ``Stopped``.
    """
    for _ in range(MOST_MODELS):
        try:
            return _fit_model(run, policy, trainer, where, identity)
        except Forgotten as error:
            text = f"The trainer has forgotten this run ({error}); going on."
            run.tell({"phase": "alert", "text": text})
            trainer.journal.forget()
    raise HostedError(f"{where.url} keeps losing its models, so nothing can be trained there.")


def _fit_model(
    run: TrainingRun, policy: RemotePolicy, trainer: TinkerTrainer, where: Where, identity: str
) -> tuple[Plan, Fitted]:
    assert run.out is not None
    known_file = run.out / KNOWN
    state = read_checkpoint(known_file, identity)
    known = {} if state is None else dict(state["known"])
    trainer.beat()
    fresh = trainer.journal.facts.get("model") is None
    trainer.model()
    policy.connect(trainer, known)
    _probe(run, policy, trainer)

    def learner_of(plan: Plan, settings: LoopSettings) -> HostedLearner:
        # What was scored for the plan is paid for once, whatever happens over there.
        write_checkpoint(known_file, {"fingerprint": identity, "known": known})
        if fresh and not trainer.journal.models:
            _afford(run, policy, plan, trainer.journal, where)
        return HostedLearner(policy, trainer, settings, save_every=where.save_every, fresh=fresh)

    return fit_elsewhere(run, identity, learner_of)


def _probe(run: TrainingRun, policy: RemotePolicy, trainer: TinkerTrainer) -> None:
    """Draw a few tokens and have the trainer score them: the sampler has to say what the trainer says. Raises ``HostedError``."""
    journal, url = trainer.journal, trainer.wire.url
    if journal.facts.get("gap") is not None:
        return
    prompt = policy.encode(run.samples[0]).prompt
    [drawn] = trainer.sample("probe", prompt, 1, SamplingParams(PROBE_TOKENS, seed=run.seed))
    if not drawn.tokens:
        raise HostedError(f"{url} draws empty answers: its sampler does not work.")
    apart = gap(trainer, "probe", prompt, drawn)
    if not apart <= MOST_GAP:
        raise HostedError(
            f"The remote sampler and trainer do not hold the same model: log-probs of its sampler and its trainer differ by {apart:.2f} nats a token "
            f"(limit {MOST_GAP}). Another model, template or precision is at work; nothing was learned."
        )
    journal.fact("gap", apart)


def _afford(
    run: TrainingRun, policy: RemotePolicy, plan: Plan, journal: RequestJournal, where: Where
) -> None:
    """Say what the run will cost. Raises ``CapReached`` before it begins where that is more than it may."""
    policy.scorer.at("estimate")
    each = [len(e.encoded.prompt) + len(e.encoded.response) - 1 for e in plan.source.examples(0)]
    tokens, requests = sum(each) * plan.source.steps, 3 * plan.source.steps
    total = journal.spent + HostedCost(requests, train=tokens, prefill=tokens)
    money = total.money(where.prices)
    cost = f", about {money:.4f}" if money else ""
    text = f"about {total.tokens:,} tokens at {where.url}{cost}"
    run.tell({"phase": "estimate", "text": text, "seconds": 0.0, "bytes": 0})
    if why := where.cap.refuses(total):
        raise CapReached(
            f"This run would come to {why}. Nothing was trained; raise the limit, or take fewer steps."
        )


def connect(
    wire: Wire, journal: RequestJournal, where: Where, base: str, rank: int, seed: int
) -> TinkerTrainer:
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
    except ServiceUnanswered:
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


def _bring(trainer: HostedTrainer, policy: RemotePolicy, folder: Path, name: str, key: str) -> None:
    """The adapter into an empty folder, read with as much care as any that comes from elsewhere."""
    trainer.export(key, name, folder)
    receive(folder, policy.info)


def _identity(run: TrainingRun, where: Where) -> str:
    inputs = {
        "hosted": where.url,
        "checkpoint": CHECKPOINT_FORM,
        "model": where.model,
        **({"shape": where.shape} if where.shape else {}),
        "base": run.policy.info.revision,
        "samples": [dataclasses.asdict(sample) for sample in run.samples],
        "recipe": dataclasses.asdict(run.recipe),
        "seed": run.seed,
        "baseline": run.baseline,
    }
    return fingerprint(inputs)


__all__ = ["ALPHA", "Where", "recipe_for", "train"]
