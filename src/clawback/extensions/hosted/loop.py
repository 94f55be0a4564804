"""The training steps of a run on a hosted trainer, its guards, and how it is resumed. ``training.py`` has the whole run."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from clawback.errors import Stopped, TrainingError
from clawback.extensions.hosted.journal import Cap, Journal
from clawback.extensions.hosted.remote_policy import MOST_GAP, RemotePolicy, datum, forward, gap
from clawback.extensions.hosted.tinker import TinkerTrainer
from clawback.extensions.hosted.types import (
    AdamParams,
    CapReached,
    Forgotten,
    HostedError,
    Prices,
    SamplingParams,
    Spent,
)
from clawback.learning.loop import checkpoint
from clawback.learning.loop.packing import Shared, drift, pack
from clawback.learning.result import CHECKPOINT
from clawback.learning.run import TrainingRun
from clawback.learning.training import plan_for
from clawback.scoring.logprobs import Scored

if TYPE_CHECKING:
    from clawback.learning.examples import Example, Plan
    from clawback.rl.algorithms import Algorithm

KNOWN = "scored.pt"
SAVED = "saved.pt"
PROBE_TOKENS = 24


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


class HostedLoop:
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
        raise HostedError(f"{self.where.url} keeps losing its models, so nothing can be trained there.")

    def _begin(self) -> None:
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
        apart = gap(self.trainer, "probe", prompt, drawn)
        if not apart <= MOST_GAP:
            raise HostedError(
                f"The remote sampler and trainer do not hold the same model: log-probs of its sampler and its trainer differ by {apart:.2f} nats a token "
                f"(limit {MOST_GAP}). Another model, template or precision is at work; nothing was learned."
            )
        self.journal.fact("gap", apart)
        return apart

    def _afford(self) -> None:
        """Say what the run will cost, and refuse before it begins what cannot be paid."""
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
                if self.trainer.COSTS_IDLE:  # it is given back, and goes on from here as another
                    self._save()
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
        rewards = [example.reward for example in examples]
        figures["reward"], figures["reward_std"] = statistics.fmean(rewards), statistics.pstdev(rewards)
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
