"""Episodes on a worker machine: its own environments, and the policy with the adapter that a unit names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawback.environments.core import EnvironmentSet
from clawback.environments.registry import find
from clawback.extensions.scale.model_worker import ModelWorker, Weights
from clawback.models import Sampling
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.templates import Chat


@dataclass(frozen=True, slots=True)
class Scene:
    """What all episodes of a run have in common."""

    task: str
    agent: str | None
    shots: str
    seed: int
    play: Play
    sampling: Sampling
    template_args: Mapping[str, Any]
    system: str
    """The learned prompt of the policy."""
    max_prompt: int
    folder: str
    """The learner's current folder. Where there is one of that name here, it is the current one, so that files and modules are found by the same names."""

    def worlds(self) -> EnvironmentSet:
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        return find(self.task, self.agent, seed=self.seed, shots=self.shots)


class PlayingWorker(ModelWorker):
    """Plays orders to their ends. What an order draws follows from the order alone, so one that is played twice is the same episode."""

    def __init__(self, about: dict[str, Any], scene: Scene, threads: int) -> None:
        super().__init__(about, threads)
        policy = self.policy
        policy.chat = Chat(policy.tokenizer, scene.template_args, scene.system, policy.chat.eyes)
        policy.max_prompt = scene.max_prompt
        self.rollouts = _Uncounted(policy, scene.worlds(), scene.play, sampling=scene.sampling)
        self.read: tuple[str, int] | None = None
        """Adapter and update that the sampler's cache is of."""

    def work(self, work: Mapping[str, Any], weights: Weights | None) -> dict[str, Any]:
        """The episodes, how many worlds broke on the way, and the adapter that the replies were drawn with."""
        with self.under(work["adapter"], weights) as adapter:
            if self.read != (adapter, work["update"]):
                self.rollouts.refreshed(work["update"])
                self.read = adapter, work["update"]
            before = self.rollouts.broken
            episodes = self.rollouts.play(work["orders"])
        broken = self.rollouts.broken - before
        return {"by": self.ready(), "adapter": adapter, "episodes": episodes, "broken": broken}


class _Uncounted(Rollouts):
    def _check(self) -> None:
        """The learner counts the worlds that break on all machines."""
