"""A training run on a hosted trainer: our losses, its gradients.

A step, as ``forward_backward_custom`` has it: log-probs come from the trainer, the loss is computed here by the same code as for a model on this
machine, and its gradient towards each log-prob goes back as the weights of a cross-entropy. So every algorithm that is a function of log-probs
works, at the price of one more forward pass; what wants hidden states, entropies or the whole vocabulary does not, and is refused before anything is
paid.

Who goes on after a kill does so from the last step that was done: requests carry numbers (``journal.py``), and what the trainer did already it gives out
again. Where it has forgotten the model, the run goes on from the last state that was saved there (``save_every``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from clawback.engine.recipe import Recipe
from clawback.engine.run import OnProgress, TrainingRun, ignore
from clawback.engine.torch.loop import checkpoint
from clawback.engine.torch.scoring.logprobs import Scored
from clawback.engine.torch.scoring.packing import Shared, drift, pack
from clawback.engine.training import ADAPTER, CHECKPOINT, DRAWING, RESULT, finished, last
from clawback.engine.types import TrainResult
from clawback.errors import ModelError, Stopped, TrainingError, UsageError
from clawback.files import replace, sync
from clawback.hosted.journal import Cap, Journal
from clawback.hosted.remote_policy import RemotePolicy, datum, forward
from clawback.hosted.tinker import TinkerTrainer
from clawback.hosted.types import AdamParams, Forgotten, HostedError, Prices, SamplingParams, Spent, Trainer
from clawback.hosted.wire import Wire
from clawback.records import Sample
from clawback.rl import algorithms

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy
    from clawback.engine.torch.sources.examples import Example, Plan
    from clawback.rl.algorithms import Algorithm

ALPHA = 32
"""Of every LoRA that is trained by Tinker's API: its requests have no field for it."""
JOURNAL = "hosted.json"
KNOWN = "scored.pt"
SAVED = "saved.pt"
NOT_HERE = frozenset({"entropy", "values", "natural"})
MOST_GAP = 0.1
"""Nats a token between a sampler's log-probs and its trainer's, on average, above which no run begins."""
PROBE_TOKENS = 24
BEAT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Where:
    """The trainer, and what it may cost."""

    url: str
    key: str = ""
    model: str = ""
    """The base model's name over there; not set: its name here."""
    save_every: int = 8
    """Steps between states that are kept over there."""
    timeout: float = 600.0
    pause: float = 1.0
    cap: Cap = field(default_factory=Cap)

    @property
    def prices(self) -> Prices:
        return self.cap.prices


def recipe_for(made: Recipe) -> Recipe:
    """A recipe as a hosted trainer can keep it. ``auto`` reads hidden states of the base, so it becomes ``reinforce``.

    Raises ``UsageError`` for algorithms that cannot be hosted.
    """
    name = "reinforce" if made.algorithm == "auto" else made.algorithm
    if name in DRAWING or name in algorithms.ENVIRONMENT:
        raise UsageError(
            f"{made.algorithm} cannot be trained by a hosted trainer. Use auto, reinforce, grpo, mis-po, rloo, gspo, dpo or kto."
        )
    wants = algorithms.needs(algorithms.find(name)) & NOT_HERE
    if wants or (name in ("opd", "combined") and int(made.settings().get("top_k", 1)) > 0):
        raise UsageError(
            f"{name} needs more of the model than log-probs ({', '.join(sorted(wants)) or 'a teacher over the vocabulary'}), and a hosted "
            "trainer gives no more. Use auto, reinforce, grpo, mis-po, rloo, gspo, dpo or kto."
        )
    return dataclasses.replace(made, algorithm=name, alpha=ALPHA)


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
    trainer = TinkerTrainer(wire, journal, where.model or policy.info.base, rank=recipe.rank, seed=seed)
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
    loop = _Loop(run, policy, trainer, journal, where, identity)
    with _kept_awake(trainer):
        loop.go()
    seconds = time.perf_counter() - started
    plan = loop.plan
    result = TrainResult(
        path=str(out / ADAPTER),
        algorithm=plan.name,
        note=f"{plan.note + '; ' if plan.note else ''}trained by {where.url}",
        base=policy.info.base,
        base_revision=policy.info.revision,
        seed=seed,
        steps=loop.kept,
        stopped=loop.stopped,
        turn_ids=tuple(sample.turn_id for sample in samples),
        baseline=plan.baseline,
        metrics={
            **last(loop.history),
            "seconds": seconds,
            "tokens": float(journal.spent.tokens),
            "hosted_requests": float(journal.spent.requests),
            "hosted_repeated": float(wire.repeated),
            "hosted_money": journal.spent.money(where.prices),
            **({"gap": loop.gap} if loop.gap is not None else {}),
        },
        history=tuple(loop.history),
    )
    tell({"phase": "save"})
    _bring(trainer, policy, out, f"v{identity[:12]}", loop.export_key)
    text = json.dumps({"fingerprint": identity, **dataclasses.asdict(result)}, indent=2)
    replace(out / RESULT, text.encode(), mode=0o600)
    trainer.unload()
    return result


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


class _Loop:
    """The steps of one run."""

    def __init__(
        self,
        run: TrainingRun,
        policy: RemotePolicy,
        trainer: TinkerTrainer,
        journal: Journal,
        where: Where,
        identity: str,
    ) -> None:
        self.run, self.policy, self.trainer, self.journal = run, policy, trainer, journal
        self.where, self.identity = where, identity
        assert run.out is not None
        self.out = run.out
        self.algorithm: Algorithm
        self.plan: Plan
        self.step = self.kept = 0
        self.stopped = ""
        self.history: list[dict[str, float]] = []
        self.last: Sequence[Example] = ()
        self.figures: dict[str, float] = {}
        self.kl_scale = 1.0
        self.gap: float | None = None
        self.generation = 0
        """Goes up with each state that is loaded, so that what is asked for again has another name."""

    # ------------------------------------------------------------------------------------------------- begin

    def go(self) -> None:
        """Raises ``HostedError``, ``CapReached``, ``Stopped``."""
        for _ in range(4):
            try:
                self._begin()
                self._steps()
                return
            except Forgotten as error:
                self.run.tell(
                    {"phase": "alert", "text": f"The trainer has forgotten this run ({error}); going on."}
                )
                self.journal.forget()
        raise HostedError(f"{self.where.url} forgets its models again and again; it cannot be trained there.")

    def _begin(self) -> None:
        from clawback.engine.training import plan_for

        known = self._known()
        self.trainer.beat()
        fresh = self.trainer.journal.facts.get("model") is None
        self.trainer.model()
        self.policy.moved, self.generation = False, self.journal.models
        self.policy.connect(self.trainer, known)
        self.gap = self._probe()
        self.plan = plan_for(self.run)
        self.algorithm = self.plan.algorithm
        self._keep_known(known)
        if fresh:
            self.run.tell(
                {
                    "phase": "plan",
                    "algorithm": self.plan.name,
                    "note": self.plan.note,
                    "steps": self.plan.source.steps,
                }
            )
            self._afford()
        self._take(fresh)
        self.policy.moved = self.step > 0

    def _take(self, fresh: bool) -> None:
        """Go on from where this run was; from the last saved state where the trainer's model is a new one."""
        state = checkpoint.read(self.out / (SAVED if fresh else CHECKPOINT), self.identity)
        self.step, self.kept, self.history, self.kl_scale = 0, 0, [], 1.0
        if state is None:
            return
        if fresh:
            self.trainer.load_state(f"load:{self.generation}", str(state["path"]))
        self.step = self.kept = int(state["step"])
        self.history = list(state["history"])
        self.kl_scale = float(state["kl_scale"])
        self.plan.source.restore(state["source"])

    def _known(self) -> dict[str, list[torch.Tensor]]:
        """What was scored before the first step, kept here: it is paid for once, whatever happens over there."""
        state = checkpoint.read(self.out / KNOWN, self.identity)
        return {} if state is None else dict(state["known"])

    def _keep_known(self, known: dict[str, list[torch.Tensor]]) -> None:
        checkpoint.write(self.out / KNOWN, {"fingerprint": self.identity, "known": known})

    def _probe(self) -> float | None:
        """Draw a few tokens and have the trainer score them: the sampler has to say what the trainer says. Raises ``HostedError``."""
        if (known := self.journal.facts.get("gap")) is not None:
            return float(known)
        prompt = self.policy.encode(self.run.samples[0]).prompt
        params = SamplingParams(PROBE_TOKENS, seed=self.run.seed)
        [drawn] = self.trainer.sample("probe", prompt, 1, params)
        if not drawn.tokens:
            raise HostedError(f"{self.where.url} draws empty answers: its sampler does not work.")
        from clawback.engine.torch.models.chat import Encoded

        [values] = forward(self.trainer, "probe", [Encoded(tuple(prompt), drawn.tokens)])
        gap = float((values - torch.tensor(drawn.logprobs)).abs().mean())
        if not gap <= MOST_GAP:
            raise HostedError(
                f"What answers over there is not what learns: log-probs of its sampler and its trainer differ by {gap:.2f} nats a token "
                f"(limit {MOST_GAP}). Another model, template or precision is at work; nothing was learned."
            )
        self.journal.fact("gap", gap)
        return gap

    def _afford(self) -> None:
        """Say what the run will cost, and refuse before it begins what cannot be paid."""
        from clawback.hosted.types import CapReached

        if self.journal.models:
            return  # its estimate was said
        source = self.plan.source
        self.policy.scorer.at(self._key("source"))
        each = [len(e.encoded.prompt) + len(e.encoded.response) - 1 for e in source.examples(0)]
        tokens, requests = sum(each) * source.steps, 3 * source.steps
        would = self.journal.spent + Spent(requests, train=tokens, prefill=tokens)
        cap = self.where.cap
        money = would.money(cap.prices)
        cost = f", about {money:.4f}" if money else ""
        text = f"about {would.tokens:,} tokens at {self.where.url}{cost}"
        self.run.tell({"phase": "estimate", "text": text, "seconds": 0.0, "bytes": 0})
        if why := cap.refuses(would):
            raise CapReached(
                f"This run would come to {why}. Nothing was trained; raise the limit, or take fewer steps."
            )

    # ------------------------------------------------------------------------------------------------- steps

    def _steps(self) -> None:
        source = self.plan.source
        while self.step < source.steps and not self.stopped:
            row = self._advance()
            if not row:
                break
            try:
                self.run.tell({"phase": "train", "step": self.step, "steps": source.steps, **row})
            except Stopped:
                self._keep()
                raise
            if not self.stopped:
                self._keep()
                if self.step % self.where.save_every == 0 and self.step < source.steps:
                    self._save()
        self._finish()

    def _advance(self) -> dict[str, float]:
        started = time.perf_counter()
        self.policy.scorer.at(self._key("source"))
        examples = self.plan.source.examples(self.step)
        if not examples:
            return {}
        figures, weights = self._loss(examples)
        self.stopped = self._verdict(figures)
        if not self.stopped:
            self.kept = self.step
            self._adapt()
            data = [datum(e.encoded, w) for e, w in zip(examples, weights, strict=True)]
            self.trainer.forward_backward(self._key("learn"), data, "cross_entropy")
            recipe = self.run.recipe
            rate = self.plan.rate or recipe.learning_rate
            if self.plan.decay:
                rate *= 1 - self.step / self.plan.source.steps
            answer = self.trainer.optim_step(
                self._key("step"),
                AdamParams(rate, 0.9, 0.999, 1e-8, recipe.weight_decay, recipe.grad_clip),
            )
            for name, value in answer.items():
                if name.split(":")[0] in ("grad_norm", "unclipped_grad_l2_norm"):
                    figures["grad_norm"] = value
            self.step += 1
            self.policy.moved = True
        self.last = examples
        tokens = sum(len(e.encoded.prompt) + len(e.encoded.response) for e in examples)
        figures["reward"] = sum(e.reward for e in examples) / len(examples)
        figures["seconds"] = time.perf_counter() - started
        figures["tokens"] = float(tokens)
        figures["tokens_per_second"] = tokens / max(1e-9, figures["seconds"])
        self.history.append(figures)
        return figures

    def _loss(self, examples: Sequence[Example]) -> tuple[dict[str, float], list[torch.Tensor]]:
        """Figures of a step, and −∂loss/∂log-prob of each response token: the weights of a cross-entropy with the same gradient."""
        odd = [e.mismatched for e in examples if e.mismatched is not None]
        values = forward(self.trainer, self._key("score"), [*(e.encoded for e in examples), *odd])
        lengths = tuple(len(e.encoded.response) for e in examples)
        flat = torch.cat(values[: len(examples)]).requires_grad_()
        apart = [
            float(v.sum()) - e.mismatched_ref
            for v, e in zip(
                values[len(examples) :], (e for e in examples if e.mismatched is not None), strict=True
            )
        ]
        shared = Shared.of(
            examples,
            mismatch_kl=max(0.0, sum(apart) / len(apart)) if apart else 0.0,
            kl_scale=self.kl_scale,
        )
        batch = pack(examples, Scored(flat, lengths), shared)
        loss, figures = self.algorithm.loss(batch)
        if loss.requires_grad:
            loss.backward()
        gradient = torch.zeros_like(flat) if flat.grad is None else flat.grad
        figures["drift"] = float(batch.token_mean(drift(batch)))
        self.figures = dict(figures)
        return dict(figures), [-part for part in gradient.split(list(lengths))]

    def _adapt(self) -> None:
        adapt = getattr(self.algorithm, "adapt", None)
        if adapt is not None:
            self.kl_scale = float(adapt(self.kl_scale, self.figures))

    def _verdict(self, figures: Mapping[str, float]) -> str:
        """Why the run must stop here, or ""."""
        if not all(math.isfinite(figures.get(name, 0.0)) for name in ("loss", "drift")):
            if self.step == 0:
                raise TrainingError("The first step is not finite: this cannot be trained over there.")
            return f"the loss is no longer a finite number at step {self.step}"
        if figures["drift"] > self.run.recipe.max_drift:
            return (
                f"at step {self.step} the answers had drifted {figures['drift']:.2f} nats a token from the base (limit "
                f"{self.run.recipe.max_drift:.2f})"
            )
        return ""

    def _finish(self) -> None:
        """Measure what the last step did; go back to the last saved state where a guard says so."""
        if not self.stopped and self.last:
            values = forward(self.trainer, self._key("final"), [e.encoded for e in self.last])
            scored = Scored(torch.cat(values), tuple(map(len, values)))
            batch = pack(self.last, scored, Shared.of(self.last))
            moved = float(batch.token_mean(drift(batch)))
            self.kept = self.step
            if moved > self.run.recipe.max_drift or not math.isfinite(moved):
                self.stopped = (
                    f"after the last step the answers had drifted {moved:.2f} nats a token from the base (limit "
                    f"{self.run.recipe.max_drift:.2f})"
                )
        if not self.stopped:
            return
        state = checkpoint.read(self.out / SAVED, self.identity)
        if state is None:
            raise TrainingError(
                f"The run ended: {self.stopped}. No state was saved before that ([hosted] save_every), so there is nothing to keep."
            )
        self.kept = int(state["step"])
        self.trainer.load_state(f"back:{self.kept}:{self.generation}", str(state["path"]))
        self.stopped += f"; the state saved at step {self.kept} was kept"
        self.run.tell({"phase": "alert", "text": self.stopped, "step": self.kept})

    # ------------------------------------------------------------------------------------------------- state

    def _key(self, what: str) -> str:
        return f"{what}:{self.step}:{self.generation}"

    @property
    def export_key(self) -> str:
        return f"export:{self.kept}:{self.generation}"

    def _state(self) -> dict[str, Any]:
        return {
            "fingerprint": self.identity,
            "step": self.step,
            "history": self.history,
            "kl_scale": self.kl_scale,
            "source": self.plan.source.state(),
        }

    def _keep(self) -> None:
        checkpoint.write(self.out / CHECKPOINT, self._state())

    def _save(self) -> None:
        path = self.trainer.save_state(self._key("save"), f"step-{self.step:05d}-{self.generation}")
        checkpoint.write(self.out / SAVED, {**self._state(), "path": path})


def _bring(trainer: Trainer, policy: RemotePolicy, out: Path, name: str, key: str) -> None:
    """The adapter into ``out``, read with as much care as any that comes from elsewhere, then renamed."""
    from clawback.engine.torch.models.adapter import STAMP, read

    beside, final = out / (ADAPTER + ".new"), out / ADAPTER
    for folder in (beside, final):
        if folder.exists():
            shutil.rmtree(folder)
    beside.mkdir(mode=0o700)
    trainer.export(key, name, beside)
    read(beside)
    info = policy.info
    stamp = {
        "base": info.base,
        "base_revision": info.revision,
        "architecture": info.architecture,
        "format": 1,
    }
    (beside / STAMP).write_text(json.dumps(stamp, indent=2, sort_keys=True) + "\n", "utf-8")
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
        "base": policy.info.revision,
        "samples": [dataclasses.asdict(sample) for sample in samples],
        "recipe": dataclasses.asdict(recipe),
        "seed": seed,
        "baseline": baseline,
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


__all__ = ["ALPHA", "ModelError", "Where", "recipe_for", "train"]
