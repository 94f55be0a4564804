"""The learner at a hosted trainer: the seam of the training loop (``trainer/training_loop.py``), each call a numbered request.

The weights cannot be copied back and forth as in this process. ``restore`` and a lost model go back to the last state
that was saved over there, every ``save_every`` steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from clawback.errors import TrainingError
from clawback.extensions.hosted.remote_policy import RemotePolicy, datum, forward
from clawback.extensions.hosted.tinker import TinkerTrainer
from clawback.extensions.hosted.trainer_records import AdamParams, Datum
from clawback.rl.algorithms import Algorithm
from clawback.scoring import Scored
from clawback.trainer import LoopSettings, State, TrainingExample, logprob_gradients

NORMS = ("grad_norm", "unclipped_grad_l2_norm")
"""Names that trainers give the norm of a gradient before it was clipped."""


class HostedLearner:
    """One LoRA at a trainer."""

    def __init__(
        self,
        policy: RemotePolicy,
        trainer: TinkerTrainer,
        settings: LoopSettings,
        *,
        save_every: int,
        fresh: bool,
    ) -> None:
        """``fresh``: the trainer's model is a new one, and knows nothing of earlier steps of this run."""
        self.policy, self.trainer, self.settings = policy, trainer, settings
        self.save_every, self.fresh = save_every, fresh
        self.rates = [settings.learning_rate]
        self.generation = trainer.journal.models
        """Goes up with each model that is begun, so that what is asked for again has another name."""
        self.data: list[Datum] = []
        """What the next step learns."""
        self.saved: State | None = None
        """The loop's state at the last save, and the ``path`` of the weights."""
        self.good: State | None = None
        """``step`` and ``path`` of the last save that was measured to be in bounds: a step is measured by the one after it."""
        self._at(0)

    def _at(self, step: int) -> None:
        self.steps = step
        self.policy.moved = step > 0
        self.policy.scorer.at(self.key("source"))

    def key(self, request: str) -> str:
        return f"{request}:{self.steps}:{self.generation}"

    def score(self, examples: Sequence[TrainingExample]) -> Scored:
        values = forward(self.trainer, self.key("final"), [e.encoded for e in examples])
        return Scored(torch.cat(values), tuple(map(len, values)))

    def backward(
        self, examples: Sequence[TrainingExample], algorithm: Algorithm, kl_scale: float
    ) -> dict[str, float]:
        """−∂loss/∂log-prob of each response token becomes the weights of a cross-entropy with the same gradient. Its pass is asked for by
        ``step``: a step that a guard forbids is not paid for, and leaves no gradient over there."""
        others = [e.mismatched for e in examples if e.mismatched is not None]
        values = forward(self.trainer, self.key("score"), [*(e.encoded for e in examples), *others])
        count = len(examples)
        gradients, figures = logprob_gradients(algorithm, examples, values[:count], values[count:], kl_scale)
        self.data = [datum(e.encoded, -part) for e, part in zip(examples, gradients, strict=True)]
        return figures

    def step(self, rates: Sequence[float]) -> dict[str, float]:
        self.trainer.forward_backward(self.key("learn"), self.data, "cross_entropy")
        settings = self.settings
        adam = AdamParams(rates[0], 0.9, 0.999, 1e-8, settings.weight_decay, settings.grad_clip)
        answer = self.trainer.optim_step(self.key("step"), adam)
        self._at(self.steps + 1)
        norms = [value for name, value in answer.items() if name.split(":")[0] in NORMS]
        return {"grad_norm": norms[-1]} if norms else {}

    def remember(self, steps: int) -> None:
        if self.saved is not None and self.saved["step"] <= steps:
            self.good = {"step": self.saved["step"], "path": self.saved["path"]}

    def restore(self) -> int:
        if self.good is None:
            raise TrainingError(
                "No state within the limits was saved before that, so there is nothing to keep: save more often (`clawback config set hosted.save_every 2`), "
                "or learn more slowly (`clawback config set training.overrides.learning_rate NUMBER`)."
            )
        steps = int(self.good["step"])
        self.trainer.load_state(f"back:{steps}:{self.generation}", str(self.good["path"]))
        self._at(steps)
        return steps

    def save(self, state: State, *, pause: bool = False) -> State:
        """Weights are saved over there at every ``save_every``-th step, and before a pause in which the model would cost and is given back."""
        if self.steps % self.save_every == 0 or (pause and self.trainer.COSTS_IDLE):
            path = self.trainer.save_state(self.key("save"), f"step-{self.steps:05d}-{self.generation}")
            self.saved = {**state, "path": path}
        return {**state, "saved": self.saved, "good": self.good}

    def load(self, state: State) -> State | None:
        self.saved, self.good = state["saved"], state["good"]
        if self.fresh:
            if self.saved is None:
                return None
            state = self.saved
            self.trainer.load_state(f"load:{self.generation}", str(state["path"]))
        self._at(int(state["step"]))
        return state
