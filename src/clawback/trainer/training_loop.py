"""The training loop, its checkpoints, and the seam to the learner that holds the weights.

Checkpoints, each in one file: written to a temporary file, fsynced and renamed, so a crash leaves the new one or the one before.

The seam of the training loop: what is done with the weights of a run, wherever they are.

``torch_learner.TorchLearner`` has them in this process. ``extensions/hosted/remote_learner.py`` has them at a trainer elsewhere. Schedule, guards,
checkpoints and events are the loop's (``trainer.py``), the same for both.

The training loop, the only one. It takes a learner, a source of examples, an algorithm and callbacks, and knows nothing else.

A step: examples from the source → log-probs, loss and gradient by the learner → verdict → the learner's step. Three guards end a run and
restore weights that were in bounds: a loss or gradient that is not finite, answers that have drifted too far from
the base, and falling rewards of fresh answers. An interrupted run resumes from its checkpoint with
bit-identical results: a step depends only on the checkpoint, the seed and the number of the step.

Where the weights are is the learner's concern (``Learner``): in this process, or at a trainer elsewhere.
"""

from __future__ import annotations

import math
import os
import pickle
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from clawback.errors import Stopped, TrainingError
from clawback.files import sync
from clawback.rl.algorithms import Algorithm
from clawback.scoring import Scored
from clawback.trainer.examples import Shared, Source, TrainingExample, drift, pack

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.progress import OnProgress


State = dict[str, Any]
"""What a checkpoint holds, by name."""


def write_checkpoint(path: Path, state: State) -> None:
    """``state`` holds tensors, numbers, strings, lists and dicts only, so that it can be read without running code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync(path.parent)


def read_checkpoint(path: Path | None, fingerprint: str) -> State | None:
    """The state of a run of this fingerprint, or None: no file, another run's, or one that cannot be read.

    Raises nothing: a run that starts again from its beginning ends in the same bits.
    """
    if path is None or not path.is_file():
        return None
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError):
        return None
    return state if isinstance(state, dict) and state.get("fingerprint") == fingerprint else None


class Learner(Protocol):
    """The weights that one run trains."""

    @property
    def rates(self) -> Sequence[float]:
        """The full learning rate of each group of weights: first the adapter's."""
        ...

    def score(self, examples: Sequence[TrainingExample]) -> Scored:
        """Log-probs of the responses under the weights as they are, without gradients."""
        ...

    def backward(
        self, examples: Sequence[TrainingExample], algorithm: Algorithm, kl_scale: float
    ) -> dict[str, float]:
        """The loss of a step and its gradient, which ``step`` takes or ``restore`` drops.

        Returns the loss's figures, ``loss`` and ``drift`` among them, and ``grad_norm`` where it is known before the step.
        """
        ...

    def step(self, rates: Sequence[float]) -> dict[str, float]:
        """Change the weights by the last gradient, each group at its rate; returns figures of the change."""
        ...

    def remember(self, steps: int) -> None:
        """The weights are in bounds after so many steps: ``restore`` may come back to them."""
        ...

    def restore(self) -> int:
        """Put back weights that were in bounds; returns after how many steps. Raises ``TrainingError`` where there are none."""
        ...

    def save(self, state: State, *, pause: bool = False) -> State:
        """The loop's state with what ``load`` needs to put the weights back. ``pause``: the run ends here for now."""
        ...

    def load(self, state: State) -> State | None:
        """Put back the weights of a saved state.

        Returns the loop's state that belongs to them: an earlier one where the newest weights are lost, None where all are.
        """
        ...


class GradientGroup(Protocol):
    """Further processes that a step's gradient is shared out among (``extensions/scale/process_group.py``)."""

    def gradient(
        self,
        policy: Policy,
        algorithm: Algorithm,
        adapter: Sequence[Tensor],
        examples: Sequence[TrainingExample],
        shared: Shared,
    ) -> dict[str, float]:
        """Gradients of the whole step in ``adapter``'s ``grad``, and the step's figures. Raises ``Interrupted`` where a process has died."""
        ...


CHECKPOINT_SECONDS = 20.0
_SMOOTH = 4
"""Steps over which rewards of fresh answers are averaged before they are compared."""


@dataclass(frozen=True)
class LoopSettings:
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
    """Least time between checkpoints."""


@dataclass
class Fitted:
    """The result of the loop. The learner holds the weights that were kept."""

    steps: int = 0
    """Steps whose weights were kept."""
    stopped: str = ""
    history: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0
    """Tokens that went through the policy, prompts included."""


def fit(
    learner: Learner,
    source: Source,
    algorithm: Algorithm,
    settings: LoopSettings,
    callbacks: Sequence[OnProgress] = (),
) -> Fitted:
    """Train the learner's weights.

    Args:
        callbacks: called after each step with ``{"phase": "train", "step", "steps", …figures}``, and with ``{"phase": "alert", "text", "step"}``
            where a guard ended the run. An exception in one ends the run.

    Raises:
        TrainingError: the very first step is not finite, so that there is nothing to keep.
    """
    loop = Loop(learner, source, algorithm, settings)
    loop.resume()
    while loop.step < source.steps and not loop.fitted.stopped:
        figures = loop.advance()
        if not figures:
            break  # the source has no more to teach
        try:
            for callback in callbacks:
                callback({"phase": "train", "step": loop.step, "steps": source.steps, **figures})
        except Stopped:
            loop.keep(pause=True)  # the run resumes from here
            raise
        loop.keep()
    loop.finish()
    if loop.fitted.stopped:
        for callback in callbacks:
            callback({"phase": "alert", "text": loop.fitted.stopped, "step": loop.fitted.steps})
    return loop.fitted


class Loop:
    """The state that the steps of one run share."""

    def __init__(
        self, learner: Learner, source: Source, algorithm: Algorithm, settings: LoopSettings
    ) -> None:
        self.learner, self.source, self.algorithm, self.settings = learner, source, algorithm, settings
        self.kl_scale = 1.0
        """Factor on the weight of the KL, for algorithms that adapt it."""
        self.step = 0
        self.fitted = Fitted()
        self.last: Sequence[TrainingExample] = ()
        self.written = time.monotonic()

    def advance(self) -> dict[str, float]:
        """One optimizer step, or none where a guard stops the run. No figures where the source gives no examples."""
        started, seed = time.perf_counter(), self.settings.seed * 1_000_003 + self.step
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            examples = self.source.examples(self.step)
            if not examples:
                return {}
            measured = self.learner.backward(examples, self.algorithm, self.kl_scale)
        figures = {**getattr(self.source, "figures", {}), **measured}
        rewards = [example.reward for example in examples]
        figures["reward"], figures["reward_std"] = statistics.fmean(rewards), statistics.pstdev(rewards)
        rates = [self.rate(full) for full in self.learner.rates]
        figures["learning_rate"] = rates[0]
        tokens = sum(len(e.encoded.prompt) + len(e.encoded.response) for e in examples)
        figures["tokens"] = float(tokens)
        if reason := self.verdict(figures):
            self.stop(reason)
        else:
            self.fitted.steps = self.step
            self.learner.remember(self.step)
            figures |= self.adapt(measured) | self.learner.step(rates)
            self.step += 1
        self.last = examples
        self.fitted.tokens += tokens
        figures["seconds"] = time.perf_counter() - started
        figures["tokens_per_second"] = tokens / max(1e-9, figures["seconds"])
        self.fitted.history.append(figures)
        return figures

    def rate(self, full: float) -> float:
        """The learning rate of this step."""
        settings = self.settings
        if self.step >= settings.warm_up and settings.decay:
            return full * (1 - self.step / self.source.steps)
        if settings.warm_up:
            return full * min(self.step + 1, settings.warm_up) / settings.warm_up
        return full

    def adapt(self, figures: dict[str, float]) -> dict[str, float]:
        """Let the algorithm set the weight of the KL, where it does; returns a figure of it."""
        adapt = getattr(self.algorithm, "adapt", None)
        if adapt is None:
            return {}
        self.kl_scale = float(adapt(self.kl_scale, figures))
        return {"kl_scale": self.kl_scale}

    def verdict(self, figures: dict[str, float]) -> str:
        """Why the run must stop here, or "" where it need not."""
        if not all(math.isfinite(figures.get(name, 0.0)) for name in ("loss", "grad_norm", "drift")):
            if self.step == 0:
                raise TrainingError(
                    "The first step is not finite: the model or its data cannot be trained in this dtype. "
                    'Try dtype = "float32".'
                )
            return f"the loss is no longer a finite number at step {self.step}"
        if figures["drift"] > self.settings.max_drift:
            return f"at step {self.step} {self.too_far(figures['drift'])}"
        if self.source.fresh:
            rewards = [row["reward"] for row in self.fitted.history] + [figures["reward"]]
            means = [sum(rewards[i : i + _SMOOTH]) / _SMOOTH for i in range(len(rewards) - _SMOOTH + 1)]
            if means and means[-1] < max(means) - self.settings.max_reward_drop:
                return f"at step {self.step} the reward of fresh answers had fallen to {means[-1]:.2f} from {max(means):.2f}"
            if means and means[-1] < self.settings.min_reward:
                return (
                    f"at step {self.step} the reward of fresh answers was {means[-1]:.2f}, under the limit of "
                    f"{self.settings.min_reward:.2f}"
                )
        return ""

    def too_far(self, moved: float) -> str:
        return (
            f"the answers had drifted {moved:.2f} nats a token from the base (limit "
            f"{self.settings.max_drift:.2f})"
        )

    def stop(self, reason: str) -> None:
        """End the run with weights that were in bounds. Raises ``TrainingError`` where the learner has none."""
        try:
            self.fitted.steps = self.learner.restore()
        except TrainingError as error:
            raise TrainingError(f"The run ended because {reason}. {error}") from error
        self.fitted.stopped = f"{reason}; the weights after step {self.fitted.steps} were kept"

    def finish(self) -> None:
        """Measure what the last step did, as every other step was measured by the one after it."""
        if self.fitted.stopped or not self.last:
            return
        batch = pack(self.last, self.learner.score(self.last), Shared.of(self.last))
        moved = float(batch.token_mean(drift(batch)))
        if moved > self.settings.max_drift or not math.isfinite(moved):
            self.stop(f"after the last step {self.too_far(moved)}")
        else:
            self.fitted.steps = self.step

    # ------------------------------------------------------------------------------------------- checkpoints

    def keep(self, *, pause: bool = False) -> None:
        """Write a checkpoint, now and then or for a ``pause``."""
        path = self.settings.checkpoint
        if path is None or self.fitted.stopped or self.step >= self.source.steps:
            return  # the end is near, and is judged by examples that a checkpoint does not hold
        if not pause and time.monotonic() - self.written < self.settings.checkpoint_seconds:
            return
        write_checkpoint(path, self.state(pause=pause))
        self.written = time.monotonic()

    def state(self, *, pause: bool = False) -> State:
        """Everything that ``take`` needs to continue with the next step."""
        return self.learner.save(
            {
                "fingerprint": self.settings.fingerprint,
                "step": self.step,
                "tokens": self.fitted.tokens,
                "history": self.fitted.history,
                "source": self.source.state(),
                "kl_scale": self.kl_scale,
            },
            pause=pause,
        )

    def resume(self) -> None:
        """Go on from a checkpoint of the same run, where there is one that can be read."""
        saved = read_checkpoint(self.settings.checkpoint, self.settings.fingerprint)
        if saved is not None:
            self.take(saved)

    def take(self, saved: State) -> None:
        """Continue from a ``state``."""
        state = self.learner.load(saved)
        if state is None:
            return
        self.source.restore(state["source"])
        self.kl_scale = float(state["kl_scale"])
        self.step = self.fitted.steps = int(state["step"])
        self.fitted.tokens = int(state["tokens"])
        self.fitted.history = list(state["history"])
