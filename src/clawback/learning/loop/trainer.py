"""The training loop, the only one. It takes a source of examples, an algorithm and callbacks, and knows nothing else.

A step: examples from the source → log-probs → loss → gradient → clip → AdamW. Three guards end a run and
restore the last good weights: a loss or gradient that is not finite, answers that have drifted too far from
the base, and falling rewards of fresh answers. An interrupted run resumes from its checkpoint with
bit-identical results: a step depends only on the checkpoint, the seed and the number of the step.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clawback.errors import Stopped, TrainingError
from clawback.learning import value_head
from clawback.learning.examples import Example, Source
from clawback.learning.loop import checkpoint, natural_gradient
from clawback.learning.loop.packing import Shared, drift, measure, pack
from clawback.policy.policy import Policy
from clawback.rl import algorithms
from clawback.rl.algorithms import Algorithm

if TYPE_CHECKING:
    from clawback.learning.loop.parallel import Group

Progress = Mapping[str, Any]
Callback = Callable[[Progress], None]
"""Called after each step with ``{"phase": "train", "step", "steps", …figures}``; an exception in it ends the run."""

CHECKPOINT_SECONDS = 20.0
_SMOOTH = 4
"""Steps over which rewards of fresh answers are averaged before they are compared."""


@dataclass(frozen=True)
class Settings:
    """The part of a recipe that the loop needs."""

    learning_rate: float
    grad_clip: float = 1.0
    weight_decay: float = 0.0
    cover: float = 0.0
    """Weight of KL(base ‖ policy) beside KL(policy ‖ base), where examples want the exact divergence."""
    decay: bool = False
    """The learning rate falls to zero over the run, on a straight line."""
    warm_up: int = 0
    """Steps over which the learning rate rises to its full height: the first steps of Adam are as large as any, and know the least."""
    max_drift: float = math.inf
    """Nats a token."""
    max_reward_drop: float = math.inf
    min_reward: float = -math.inf
    seed: int = 0
    checkpoint: Path | None = None
    """The file to keep checkpoints in, and to go on from where it exists."""
    fingerprint: str = ""
    """What the run is made of. A checkpoint of another run is not resumed."""
    checkpoint_seconds: float = field(default_factory=lambda: CHECKPOINT_SECONDS)


@dataclass
class Fitted:
    """The result of the loop. The policy holds the weights that were kept."""

    steps: int = 0
    """Steps whose weights were kept."""
    stopped: str = ""
    history: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0
    """Tokens that went through the policy, prompts included."""


def fit(
    policy: Policy,
    source: Source,
    algorithm: Algorithm,
    settings: Settings,
    callbacks: Sequence[Callback] = (),
    group: Group | None = None,
) -> Fitted:
    """Train the policy's adapter. ``group``: further processes that a step's gradient is shared out among.

    Raises:
        TrainingError: there is no adapter, or the very first step is not finite, so that there is nothing to keep.
    """
    loop = Loop(policy, source, algorithm, settings, group)
    loop.resume()
    while loop.step < source.steps and not loop.fitted.stopped:
        figures = loop.advance()
        if not figures:
            break  # the source has no more to teach
        try:
            for callback in callbacks:
                callback({"phase": "train", "step": loop.step, "steps": source.steps, **figures})
        except Stopped:
            loop.keep(now=True)  # the run resumes from here
            raise
        loop.keep()
    loop.finish()
    return loop.fitted


class Loop:
    """The state that the steps of one run share."""

    def __init__(
        self,
        policy: Policy,
        source: Source,
        algorithm: Algorithm,
        settings: Settings,
        group: Group | None = None,
    ) -> None:
        self.group = group
        self.policy, self.source, self.algorithm, self.settings = policy, source, algorithm, settings
        named = sorted((name, p) for name, p in policy.model.named_parameters() if p.requires_grad)
        if not named:
            raise TrainingError("There is nothing to train: the policy has no adapter.")
        self.names = [name for name, _ in named]
        self.weights: list[nn.Parameter] = [parameter for _, parameter in named]
        self.adapter = list(self.weights)
        groups: list[dict[str, Any]] = [{"params": self.adapter, "lr": settings.learning_rate}]
        if source.critic is not None:
            valued = sorted(source.critic.named_parameters())
            self.names += [f"critic.{name}" for name, _ in valued]
            self.weights += [parameter for _, parameter in valued]
            groups.append({"params": [parameter for _, parameter in valued], "lr": value_head.RATE})
        self.rates = [group["lr"] for group in groups]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=settings.weight_decay, fused=True)
        self.wants = algorithms.needs(algorithm)
        self.kl_scale = 1.0
        """Factor on the weight of the KL, for algorithms that adapt it."""
        self.step = 0
        self.fitted = Fitted()
        self.good = [weight.detach().clone() for weight in self.weights]
        """The weights before the last step whose answers were measured to be in bounds."""
        self.last: Sequence[Example] = ()
        self.figures: dict[str, float] = {}
        self.written = time.monotonic()

    def advance(self) -> dict[str, float]:
        """One optimizer step, or none where a guard stops the run. No figures where the source gives no examples."""
        started, seed = time.perf_counter(), self.settings.seed * 1_000_003 + self.step
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            examples = self.source.examples(self.step)
            if not examples:
                return {}
            figures = {**getattr(self.source, "figures", {}), **self.gradient(examples)}
        rewards = [example.reward for example in examples]
        figures["reward"], figures["reward_std"] = statistics.fmean(rewards), statistics.pstdev(rewards)
        figures["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        norm, *_ = [
            nn.utils.clip_grad_norm_(group["params"], self.settings.grad_clip)
            for group in self.optimizer.param_groups
        ]
        figures["grad_norm"] = float(norm)
        tokens = sum(len(e.encoded.prompt) + len(e.encoded.response) for e in examples)
        figures["tokens"] = float(tokens)
        self.fitted.stopped = self.verdict(figures)
        if self.fitted.stopped:
            self.put_back()
        else:
            self.fitted.steps = self.step
            self.remember()
            if self.settings.decay:
                for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                    group["lr"] = rate * (1 - self.step / self.source.steps)
            if self.step < self.settings.warm_up:
                for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                    group["lr"] = rate * (self.step + 1) / self.settings.warm_up
            figures["learning_rate"] = self.optimizer.param_groups[0]["lr"]
            figures |= self.move(examples, figures["loss"])
            self.step += 1
        self.optimizer.zero_grad(set_to_none=True)
        self.last = examples
        self.fitted.tokens += tokens
        figures["seconds"] = time.perf_counter() - started
        figures["tokens_per_second"] = tokens / max(1e-9, figures["seconds"])
        self.fitted.history.append(figures)
        return figures

    def move(self, examples: Sequence[Example], loss: float) -> dict[str, float]:
        """Change the weights by their gradients; returns figures about it."""
        adapt = getattr(self.algorithm, "adapt", None)
        if adapt is not None:
            self.kl_scale = float(adapt(self.kl_scale, self.figures))
        if "natural" not in self.wants:
            self.optimizer.step()
            return {} if adapt is None else {"kl_scale": self.kl_scale}
        step = natural_gradient.Step(self.policy.scorer, self.adapter, examples)
        algorithm: Any = self.algorithm
        return step.take(algorithm, loss, lambda: self.evaluate(examples)["loss"])

    def gradient(self, examples: Sequence[Example]) -> dict[str, float]:
        """Loss and gradient of a step, piece by piece; the figures of the pieces add up."""
        figures: dict[str, float] = {}
        scorer = self.policy.scorer
        shared = Shared.of(
            examples,
            cover=self.settings.cover,
            entropy="entropy" in self.wants,
            critic=self.source.critic,
            mismatch_kl=self.mismatch(examples),
            kl_scale=self.kl_scale,
        )
        if self.group is not None and torch.is_grad_enabled():
            self.figures = self.group.gradient(self.policy, self.algorithm, self.adapter, examples, shared)
            return dict(self.figures)
        together = 2 if "pairs" in self.wants else 1
        for piece in scorer.pieces([example.encoded for example in examples], together):
            some = [examples[index] for index in piece]
            with scorer.engaged([example.encoded for example in some]):
                batch = measure(scorer, some, shared)
                loss, metrics = self.algorithm.loss(batch)
                if loss.requires_grad:
                    loss.backward()
            metrics["drift"] = float(batch.token_mean(drift(batch)))
            for name, value in metrics.items():
                figures[name] = figures.get(name, 0.0) + value
        self.figures = figures
        return dict(figures)

    @torch.no_grad()
    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        """The figures of a step at the weights as they stand; gradients are left alone."""
        return self.gradient(examples)

    @torch.no_grad()
    def mismatch(self, examples: Sequence[Example]) -> float:
        """Nats between policy and base on an answer to another prompt, mean of the step, not below 0."""
        odd = [(e.mismatched, e.mismatched_ref) for e in examples if e.mismatched is not None]
        if not odd:
            return 0.0
        values = self.policy.scorer([one for one, _ in odd]).split()
        return max(0.0, sum(float(v.sum()) - ref for v, (_, ref) in zip(values, odd, strict=True)) / len(odd))

    def verdict(self, figures: dict[str, float]) -> str:
        """Why the run must stop here, or "" where it need not."""
        if not all(math.isfinite(figures.get(name, 0.0)) for name in ("loss", "grad_norm", "drift")):
            if self.step == 0:
                raise TrainingError(
                    "The first step is not finite: the model or its data cannot be trained in this dtype. "
                    'Try dtype = "float32".'
                )
            return (
                f"the loss is no longer a finite number at step {self.step}; the weights before it were kept"
            )
        if figures["drift"] > self.settings.max_drift:
            return (
                f"at step {self.step} the answers had drifted {figures['drift']:.2f} nats a token from the base (limit "
                f"{self.settings.max_drift:.2f}); the last weights within it were kept"
            )
        if self.source.fresh:
            rewards = [row["reward"] for row in self.fitted.history] + [figures["reward"]]
            means = [sum(rewards[i : i + _SMOOTH]) / _SMOOTH for i in range(len(rewards) - _SMOOTH + 1)]
            if means and means[-1] < max(means) - self.settings.max_reward_drop:
                return (
                    f"at step {self.step} the reward of fresh answers had fallen to {means[-1]:.2f} from "
                    f"{max(means):.2f}; the weights before it were kept"
                )
            if means and means[-1] < self.settings.min_reward:
                return (
                    f"at step {self.step} the reward of fresh answers was {means[-1]:.2f}, under the limit of "
                    f"{self.settings.min_reward:.2f}; the weights before it were kept"
                )
        return ""

    def remember(self) -> None:
        with torch.no_grad():
            for kept, weight in zip(self.good, self.weights, strict=True):
                kept.copy_(weight)

    def put_back(self) -> None:
        with torch.no_grad():
            for kept, weight in zip(self.good, self.weights, strict=True):
                weight.copy_(kept)

    def finish(self) -> None:
        """Measure what the last step did, as every other step was measured by the one after it."""
        if self.fitted.stopped or not self.last:
            return
        with torch.no_grad():
            scored = self.policy.scorer([example.encoded for example in self.last])
            batch = pack(self.last, scored, Shared.of(self.last))
            moved = float(batch.token_mean(drift(batch)))
        if moved > self.settings.max_drift or not math.isfinite(moved):
            self.fitted.stopped = (
                f"after the last step the answers had drifted {moved:.2f} nats a token from the base (limit "
                f"{self.settings.max_drift:.2f}); the weights before it were kept"
            )
            self.put_back()
        else:
            self.fitted.steps = self.step

    # ------------------------------------------------------------------------------------------- checkpoints

    def keep(self, now: bool = False) -> None:
        """Write a checkpoint, now and then or ``now``."""
        path = self.settings.checkpoint
        if path is None or self.fitted.stopped or self.step >= self.source.steps:
            return  # the end is near, and is judged by examples that a checkpoint does not hold
        if not now and time.monotonic() - self.written < self.settings.checkpoint_seconds:
            return
        checkpoint.write(path, self.state())
        self.written = time.monotonic()

    def state(self) -> dict[str, Any]:
        """Everything that ``take`` needs to continue with the next step."""
        return {
            "fingerprint": self.settings.fingerprint,
            "step": self.step,
            "tokens": self.fitted.tokens,
            "history": self.fitted.history,
            "weights": dict(zip(self.names, (w.detach() for w in self.weights), strict=True)),
            "good": dict(zip(self.names, self.good, strict=True)),
            "optimizer": self.optimizer.state_dict(),
            "source": self.source.state(),
            "kl_scale": self.kl_scale,
        }

    def resume(self) -> None:
        """Go on from a checkpoint of the same run, where there is one that can be read."""
        state = checkpoint.read(self.settings.checkpoint, self.settings.fingerprint)
        if state is not None:
            self.take(state)

    def take(self, state: dict[str, Any]) -> None:
        """Continue from a ``state``."""
        with torch.no_grad():
            for name, kept, weight in zip(self.names, self.good, self.weights, strict=True):
                weight.copy_(state["weights"][name])
                kept.copy_(state["good"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.source.restore(state["source"])
        self.kl_scale = float(state["kl_scale"])
        self.step = self.fitted.steps = int(state["step"])
        self.fitted.tokens = int(state["tokens"])
        self.fitted.history = list(state["history"])
