"""Updates of a policy from whole episodes, at the pace of a program that plays them itself (``clawback.Agent``)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.learning.episode_examples import Episodes, EpisodeSettings
from clawback.learning.episode_run import HELD_KL_START, REFINED, WARM_UP
from clawback.learning.warm_starts import imitate, improve
from clawback.records import Episode
from clawback.rl import algorithms
from clawback.trainer import training_loop
from clawback.trainer.best_weights import BestWeights
from clawback.trainer.torch_learner import TorchLearner
from clawback.trainer.training_loop import Loop, LoopSettings, State

if TYPE_CHECKING:
    from clawback.policy import Policy
    from clawback.trainer.recipe import Recipe

_ENDLESS = 10**9


class EpisodeTrainer:
    """The training loop over episodes without an end: each ``learn`` is one round."""

    def __init__(self, policy: Policy, recipe: Recipe, settings: EpisodeSettings, seed: int) -> None:
        """``settings``: all but ``rounds`` and ``kl_start`` count."""
        self.policy, self.recipe, self.seed = policy, recipe, seed
        self.batch: Sequence[Episode] = ()
        self.improved = False
        """Whether it began with what random episodes say: the pull towards no preference would undo that."""
        # A loop of one's own has no end that the weight of the KL could fall towards.
        endless = dataclasses.replace(settings, rounds=_ENDLESS, kl_start=1.0)
        self.source = Episodes(policy, lambda _: self.batch, endless, seed)
        loop_settings = LoopSettings(
            learning_rate=recipe.learning_rate,
            grad_clip=recipe.grad_clip,
            max_drift=recipe.max_drift,
            warm_up=WARM_UP,
            seed=seed,
        )
        self.learner = TorchLearner(policy, loop_settings)
        algorithm = algorithms.make("grpo", recipe.settings("grpo"))
        self.loop = Loop(self.learner, self.source, algorithm, loop_settings)

    @property
    def update(self) -> int:
        """Batches that were learned from."""
        return int(self.loop.step // self.source.settings.steps_a_round)

    def pace(self, left: float | None) -> None:
        """Set the weight of the KL to the base for the next update. ``left``: the share of a planned run that is to come, with which the
        weight falls; None: the end is not known, and it has its own."""
        weight = 1.0 if left is None or self.improved else 1.0 + (HELD_KL_START - 1.0) * left
        self.source.settings = dataclasses.replace(self.source.settings, kl_start=weight)

    def watch_best(self) -> None:
        """Keep the weights that play best from now on."""
        self.source.best = BestWeights(self.policy)

    def restore_best(self) -> str:
        """The weights that played best since ``watch_best``, where the newest are worse: a sentence about it; "" where they are not."""
        best, self.source.best = self.source.best, None
        assert best is not None
        if notice := best.restore_best():
            self.learner.remember(self.loop.step)
        return notice

    def learn(self, episodes: Sequence[Episode], round_steps: int | None = None) -> dict[str, Any]:
        """One update; the means of its steps' figures. Where the policy drifted too far its last good weights are taken (``stopped`` says so),
        and it goes on. ``round_steps``: optimizer steps of this update in place of the settings'."""
        usual = self.source.settings.round_steps
        self._count_steps(round_steps or usual)
        self.batch = episodes
        loop, steps = self.loop, self.source.settings.steps_a_round
        rows, began = [], loop.step
        while loop.step < began + steps and not loop.fitted.stopped:
            rows.append(loop.advance())
        figures: dict[str, Any] = {name: sum(row[name] for row in rows) / len(rows) for name in rows[-1]}
        if loop.fitted.stopped:
            figures["stopped"] = loop.fitted.stopped
            loop.fitted.stopped = ""
            loop.step = began + steps
        self.source.round, self.batch = [], ()
        loop.fitted.history.clear()
        self._count_steps(
            usual
        )  # between updates, and in what is saved, steps are counted in the settings' own
        return figures

    def _count_steps(self, round_steps: int) -> None:
        """Make an update of so many steps, and count the updates so far as if they had been."""
        updates = self.update
        self.source.settings = dataclasses.replace(self.source.settings, round_steps=round_steps)
        self.loop.step = updates * self.source.settings.steps_a_round

    def imitate(self, episodes: Sequence[Episode], replies: int) -> dict[str, float]:
        """Learn the form of the replies of these episodes, one of ``replies`` each (``sources/warm_starts.py``)."""
        figures = imitate(
            self.policy, episodes, replies, learning_rate=self.recipe.learning_rate, seed=self.seed
        )
        self.learner.remember(self.loop.step)  # the weights that a guard goes back to
        # The form alone may be far from the base.
        self.loop.settings = dataclasses.replace(self.loop.settings, max_drift=math.inf)
        return figures

    def improve(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """A first policy from episodes whose replies were drawn at random (``sources/warm_starts.py``)."""
        gamma, rate = self.source.settings.gamma, self.recipe.learning_rate
        figures = improve(self.policy, episodes, gamma=gamma, learning_rate=rate, seed=self.seed)
        if figures["steps"]:
            self._refine()
        self.learner.remember(self.loop.step)
        return figures

    def _refine(self) -> None:
        """What is learned from now on is learned on top of a first policy."""
        if not self.improved:
            self.learner.rates = [rate * REFINED for rate in self.learner.rates]
        self.improved = True

    def save(self, path: Path, whose: str, state: State) -> None:
        """Everything that ``load`` needs to go on, and a ``state`` of the caller's. ``whose``: a checkpoint of another is not loaded."""
        own = {"agent": state, "fingerprint": whose, "improved": self.improved}
        training_loop.write_checkpoint(path, self.loop.state() | own)

    def load(self, path: Path, whose: str) -> State | None:
        """The caller's state; None where there is no checkpoint of that owner."""
        state = training_loop.read_checkpoint(path, whose)
        if state is None:
            return None
        self.loop.take(state)
        if state.get("improved"):
            self._refine()
        found: State = state["agent"]
        return found
