"""The one training loop. It takes a source of examples, an algorithm and callbacks, and knows nothing else.

A step: examples from the source → log-probs → loss → gradient → clip → AdamW. Around it stand three guards that end
a run and put the last good weights back: a loss or gradient that is not finite, answers that have drifted too far
from the base, and rewards of fresh answers that fall. And a checkpoint, from which a killed run goes on to the same bits: nothing in
a step depends on anything but the checkpoint, the seed and the number of the step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from clawback.engine.torch import checkpoint
from clawback.engine.torch.examples import Example, Source
from clawback.engine.torch.policy import Policy
from clawback.errors import TrainingError
from clawback.rl import Batch
from clawback.rl.algorithms import Algorithm

Progress = Mapping[str, Any]
Callback = Callable[[Progress], None]
"""Called after each step with ``{"phase": "train", "step", "steps", …figures}``; an exception in it ends the run."""

CHECKPOINT_SECONDS = 20.0
_SMOOTH = 4
"""Steps over which rewards of fresh answers are averaged before they are compared."""


@dataclass(frozen=True)
class Settings:
    """What the loop needs of a recipe."""

    learning_rate: float
    grad_clip: float = 1.0
    weight_decay: float = 0.0
    cover: float = 0.0
    """Weight of KL(base ‖ policy) beside KL(policy ‖ base), where examples want the exact divergence."""
    decay: bool = False
    """The learning rate falls to zero over the run, on a straight line."""
    max_drift: float = math.inf
    """Nats a token."""
    max_reward_drop: float = math.inf
    seed: int = 0
    checkpoint: Path | None = None
    """The file to keep checkpoints in, and to go on from where it exists."""
    fingerprint: str = ""
    """What the run is made of. A checkpoint of another run is not gone on with."""
    checkpoint_seconds: float = CHECKPOINT_SECONDS


@dataclass
class Fitted:
    """How the loop ended. The policy holds the weights that were kept."""

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
) -> Fitted:
    """Train the policy's adapter.

    Raises:
        TrainingError: there is no adapter, or the very first step is not finite, so that there is nothing to keep.
    """
    loop = _Loop(policy, source, algorithm, settings)
    loop.resume()
    while loop.step < source.steps and not loop.fitted.stopped:
        figures = loop.advance()
        for callback in callbacks:
            callback({"phase": "train", "step": loop.step, "steps": source.steps, **figures})
        loop.keep()
    loop.finish()
    return loop.fitted


class _Loop:
    """What the steps of one run share."""

    def __init__(self, policy: Policy, source: Source, algorithm: Algorithm, settings: Settings) -> None:
        self.policy, self.source, self.algorithm, self.settings = policy, source, algorithm, settings
        named = sorted((name, p) for name, p in policy.model.named_parameters() if p.requires_grad)
        if not named:
            raise TrainingError("There is nothing to train: the policy has no adapter.")
        self.names = [name for name, _ in named]
        self.weights: list[nn.Parameter] = [parameter for _, parameter in named]
        self.optimizer = torch.optim.AdamW(
            self.weights, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        self.step = 0
        self.fitted = Fitted()
        self.good = [weight.detach().clone() for weight in self.weights]
        """The weights before the last step whose answers were measured to be in bounds."""
        self.last: Sequence[Example] = ()
        self.written = time.monotonic()

    def advance(self) -> dict[str, float]:
        """One optimizer step, or none where a guard says stop."""
        started, seed = time.perf_counter(), self.settings.seed * 1_000_003 + self.step
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            examples = self.source.examples(self.step)
            figures = self.gradient(examples)
        figures["reward"] = sum(example.reward for example in examples) / max(1, len(examples))
        norm = nn.utils.clip_grad_norm_(self.weights, self.settings.grad_clip)
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
                for group in self.optimizer.param_groups:
                    group["lr"] = self.settings.learning_rate * (1 - self.step / self.source.steps)
            self.optimizer.step()
            self.step += 1
        self.optimizer.zero_grad(set_to_none=True)
        self.last = examples
        self.fitted.tokens += tokens
        figures["seconds"] = time.perf_counter() - started
        figures["tokens_per_second"] = tokens / max(1e-9, figures["seconds"])
        self.fitted.history.append(figures)
        return figures

    def gradient(self, examples: Sequence[Example]) -> dict[str, float]:
        """Loss and gradient of a step, piece by piece; the figures of the pieces add up."""
        figures: dict[str, float] = {}
        scorer = self.policy.scorer
        responses = sum(len(example.encoded.response) for example in examples)
        with scorer.engaged():
            for piece in scorer.pieces([example.encoded for example in examples]):
                chosen = [examples[index] for index in piece]
                reference = _joined([example.base for example in chosen])
                encoded = [example.encoded for example in chosen]
                scored = (
                    scorer(encoded)
                    if reference is None
                    else scorer.against(encoded, reference, self.settings.cover)
                )
                batch = _pack(chosen, scored.logprobs, len(examples), responses, scored.kl)
                loss, metrics = self.algorithm.loss(batch)
                if loss.requires_grad:
                    loss.backward()
                metrics["drift"] = float(batch.token_mean(_drift(batch)))
                for name, value in metrics.items():
                    figures[name] = figures.get(name, 0.0) + value
        return figures

    def verdict(self, figures: dict[str, float]) -> str:
        """Why the run must stop here, or ""."""
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
        scorer = self.policy.scorer
        with torch.no_grad():
            values = scorer([example.encoded for example in self.last]).logprobs
            batch = _pack(self.last, values, len(self.last), values.numel())
            drift = float(batch.token_mean(_drift(batch)))
        if drift > self.settings.max_drift or not math.isfinite(drift):
            self.fitted.stopped = (
                f"after the last step the answers had drifted {drift:.2f} nats a token from the base (limit "
                f"{self.settings.max_drift:.2f}); the weights before it were kept"
            )
            self.put_back()
        else:
            self.fitted.steps = self.step

    # ------------------------------------------------------------------------------------------- checkpoints

    def keep(self) -> None:
        """Write a checkpoint, now and then."""
        path = self.settings.checkpoint
        if path is None or self.fitted.stopped or self.step >= self.source.steps:
            return  # the end is near, and is judged by examples that a checkpoint does not hold
        if time.monotonic() - self.written < self.settings.checkpoint_seconds:
            return
        state = {
            "fingerprint": self.settings.fingerprint,
            "step": self.step,
            "tokens": self.fitted.tokens,
            "history": self.fitted.history,
            "weights": dict(zip(self.names, (w.detach() for w in self.weights), strict=True)),
            "good": dict(zip(self.names, self.good, strict=True)),
            "optimizer": self.optimizer.state_dict(),
            "source": self.source.state(),
        }
        checkpoint.write(path, state)
        self.written = time.monotonic()

    def resume(self) -> None:
        """Go on from a checkpoint of the same run, where there is one that can be read."""
        state = checkpoint.read(self.settings.checkpoint, self.settings.fingerprint)
        if state is None:
            return
        with torch.no_grad():
            for name, kept, weight in zip(self.names, self.good, self.weights, strict=True):
                weight.copy_(state["weights"][name])
                kept.copy_(state["good"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.source.restore(state["source"])
        self.step = self.fitted.steps = int(state["step"])
        self.fitted.tokens = int(state["tokens"])
        self.fitted.history = list(state["history"])


def _joined(parts: Sequence[Tensor | None]) -> Tensor | None:
    """End to end, where all are there."""
    whole = [part for part in parts if part is not None]
    return torch.cat(whole) if whole and len(whole) == len(parts) else None


def _pack(
    examples: Sequence[Example], values: Tensor, samples: int, tokens: int, kl: Tensor | None = None
) -> Batch:
    """Examples and the log-probs that the policy gives them now, as the losses want them."""
    device = values.device
    lengths = torch.tensor([len(example.encoded.response) for example in examples], device=device)

    def joined(parts: list[Tensor | None]) -> Tensor | None:
        if all(part is None for part in parts):
            return None
        whole = [p if p is not None else torch.ones(int(n)) for p, n in zip(parts, lengths, strict=True)]
        return torch.cat([part.to(device, torch.float32) for part in whole])

    return Batch(
        logprobs=values,
        old_logprobs=torch.cat([example.old for example in examples]).to(device),
        ref_logprobs=torch.cat([example.ref for example in examples]).to(device),
        segment=torch.repeat_interleave(torch.arange(len(examples), device=device), lengths),
        advantages=torch.tensor([example.advantage for example in examples], device=device),
        pg_weight=joined([example.pg_weight for example in examples]),
        kl_weight=joined([example.kl_weight for example in examples]),
        exact_kl=kl,
        samples_in_step=float(samples),
        tokens_in_step=float(tokens),
    )


@torch.no_grad()
def _drift(batch: Batch) -> Tensor:
    """[N] how far each token has moved from the base: |d| + exp(−|d|) − 1 with d = log π − log π_ref.

    The smaller of the two k3 estimates of KL. The other one grows exponentially: a single token that a bad answer
    rightly lost would look like a runaway.
    """
    distance = (batch.logprobs - batch.ref_logprobs).abs()
    return distance + (-distance).expm1()
