"""An ``EpisodeSource`` whose episodes are played by Ray workers, environments and sampling both.

An episode keeps the weights that it began with: its replies carry that update's number, and the collector leaves
out what is too old. The learner compares the log-probs of what it learns from with its own in each round
(``sources/episode_examples.py``), so a worker with another model, template or adapter ends the run.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from clawback.environments.episode_loop import Order
from clawback.errors import TrainingError
from clawback.extensions.scale.adapters import AdapterCrew, lost, published
from clawback.extensions.scale.dispatch import AHEAD, Dispatcher, Unit
from clawback.records import Episode
from clawback.rollouts.concurrent import Rollouts, check_broken

if TYPE_CHECKING:
    from clawback.environments.core import EnvironmentSet
    from clawback.extensions.scale.player import Scene
    from clawback.policy import Policy


class ClusterRollouts:
    """``start`` orders, ``wave`` until enough of them are over, ``close``."""

    def __init__(
        self,
        crew: Callable[[], AdapterCrew],
        policy: Policy,
        worlds: EnvironmentSet,
        scene: Scene,
        *,
        on_episodes: Callable[[Sequence[Episode]], None] = lambda _: None,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> None:
        """``crew``: of ``Player``; called when there is something to play. ``worlds``: for what nobody else is there to play."""
        self._make, self.crew = crew, None
        self.policy, self.worlds, self.scene = policy, worlds, scene
        self.on_episodes, self.tell = on_episodes, tell
        self.update = self.broken = self.over = self.here = 0
        self._waiting: deque[Order] = deque()
        self._units: dict[str, Unit] = {}
        """Those that are open, by name."""
        self._local: Rollouts | None = None

    crew: AdapterCrew | None
    _dispatcher: Dispatcher

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._units

    def start(self, orders: Iterable[Order]) -> None:
        self._waiting += orders

    def refreshed(self, update: int) -> None:
        self.update = update
        if self._local is not None:
            self._local.refreshed(update)

    def rest(self) -> None:
        """Workers draw on machines of their own."""

    def wave(self) -> list[Episode]:
        """Wait a moment for units that are over; what waits is handed out as workers have room.

        Raises ``EnvironmentFailure`` where most worlds break, ``TrainingError`` where a worker did not do as it was told.
        """
        if self.idle:
            return []
        if self.crew is None:
            self.crew = self._make()
            self._dispatcher = Dispatcher(self.crew, self._play_here)
        self._hand_out(self.crew)
        before = self.crew.lost
        episodes: list[Episode] = []
        for name, result in self._dispatcher.step().items():
            unit = self._units.pop(name)
            if result["by"] and result["adapter"] != unit.work["adapter"]:
                raise TrainingError(
                    "A worker played with other weights than it was told to. Nothing was learned from it."
                )
            self.broken += result["broken"]
            episodes += result["episodes"]
        if (news := lost(self.crew, before)) is not None:
            self.tell(news)
        if episodes:
            self.over += len(episodes)
            self.on_episodes(episodes)
            check_broken(self.over, self.broken, self.worlds.name)
        return episodes

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
        if self.crew is not None:
            self.crew.close()

    def __enter__(self) -> ClusterRollouts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hand_out(self, crew: AdapterCrew) -> None:
        """Units of the present weights, no more than workers can hold: what waits longer should have newer ones."""
        room = AHEAD * crew.count - len(self._units)
        if room <= 0 or not self._waiting:
            return
        name = published(self.policy, crew, {unit.work["adapter"] for unit in self._units.values()})
        size = min(self.scene.play.together, max(1, -(-len(self._waiting) // room)))
        made: list[Unit] = []
        while self._waiting and len(made) < room:
            some = [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]
            work = {"adapter": name, "update": self.update, "orders": some}
            made.append(Unit(hashlib.sha256(repr((self.scene, work)).encode()).hexdigest()[:24], work))
        self._units |= {unit.id: unit for unit in made}
        self._dispatcher.add(made)

    def _play_here(self, unit: Unit) -> dict[str, Any]:
        """By the weights of now, which the replies say."""
        if self._local is None:
            self._local = Rollouts(self.policy, self.worlds, self.scene.play, sampling=self.scene.sampling)
        self.here += 1
        self._local.refreshed(self.update)
        before = self._local.broken
        episodes = self._local.play(unit.work["orders"])
        return {"by": "", "adapter": "", "episodes": episodes, "broken": self._local.broken - before}
