"""A group of Ray actors: started, given work, and replaced when they die.

Ray's own messages are pickled and use no password: run a cluster on a private network, because whoever can
reach it can run code on it. Actors belong to the training process and end with it. Ray does not restart them:
they only hold copies of what the learner has, so a new one is as good.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from clawback import installed
from clawback.errors import MissingExtra, TrainingError, UsageError
from clawback.extensions.scale.dispatch import Unit, WorkerReport

START_SECONDS = 300.0
MOST_STARTS = 4
"""For each worker that was asked for."""
REACH_SECONDS = 5.0
"""For a connection to the cluster's address."""


def connect(address: str) -> Any:
    """Ray, connected. Raises ``UsageError`` where there is no cluster, ``MissingExtra`` without Ray."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise MissingExtra(f"Ray is not installed. Run: {installed.add('ray')}") from None
    try:
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UsageError(
            f"No Ray cluster answers at {address} ({' '.join(str(error).split())[:160]}). Start one: "
            "`RAY_USAGE_STATS_ENABLED=0 ray start --head` on this machine, and `ray start --address=…` on the others."
        ) from error
    return ray


def _reach(address: str) -> None:
    """Raises ``OSError`` where nothing listens at a HOST:PORT: Ray itself tries that for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()


class RayCrew:
    """A ``Crew``."""

    def __init__(self, ray: Any, kind: type, about: Sequence[Any], count: int = 0) -> None:
        """``kind``: of ``Worker``, made with ``about`` and its number of threads. ``count``: workers; 0: one a machine. Raises ``TrainingError`` where
        none comes up."""
        self.ray, self.about = ray, about
        nodes = [n for n in ray.nodes() if n["Alive"] and n["Resources"].get("CPU", 0) >= 1]
        if not nodes:
            raise UsageError("The Ray cluster has no machine with a free CPU.")
        self.count = count or len(nodes)
        smallest = min(int(n["Resources"]["CPU"]) for n in nodes)
        total = sum(int(n["Resources"]["CPU"]) for n in nodes)
        self.cpus = max(1, min(smallest, total // self.count))
        self.kind = ray.remote(kind).options(
            num_cpus=self.cpus, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self.objects: dict[str, Any] = {}
        self.starting: dict[Any, Any] = {}
        """What says that an actor is ready → the actor."""
        self.alive: list[Any] = []
        self.asked: dict[Any, tuple[Any, str]] = {}
        """What will be an answer → actor and unit."""
        self.started = self.lost = 0
        self.why = ""
        for _ in range(self.count):
            self._start()
        self._first()

    def publish(self, name: str, weights: Any, keep: Collection[str] = ()) -> None:
        """Where workers find an adapter. Older ones are let go, but for ``keep``."""
        if name not in self.objects:
            kept = {n: found for n, found in self.objects.items() if n in keep}
            self.objects = kept | {name: self.ray.put(weights)}

    # ------------------------------------------------------------------------------------------------- a Crew

    def workers(self) -> Sequence[Hashable]:
        return list(self.alive)

    def give(self, worker: Hashable, unit: Unit) -> None:
        actor: Any = worker
        found = self.objects.get(unit.work["adapter"])
        self.asked[actor.work.remote(unit.work, found)] = (actor, unit.id)

    def wait(self, seconds: float) -> Sequence[WorkerReport]:
        refs = [*self.asked, *self.starting]
        done, _ = self.ray.wait(refs, num_returns=1, timeout=seconds) if refs else ([], [])
        return [news for ref in done if (news := self._news(ref)) is not None]

    def drop(self, worker: Hashable) -> None:
        self._gone(worker, "it gave no answer")

    def close(self) -> None:
        for actor in [*self.alive, *self.starting.values()]:
            self.ray.kill(actor)

    # ------------------------------------------------------------------------------------------------- actors

    def _news(self, ref: Any) -> WorkerReport | None:
        starting = self.starting.pop(ref, None)
        actor, unit = (starting, "") if starting is not None else self.asked.pop(ref)
        try:
            result = self.ray.get(ref)
        except Exception as error:  # whatever it was, this worker gives no more answers
            self._gone(actor, str(error).strip().splitlines()[-1][:200])
            return None if starting is not None else WorkerReport(actor, lost=True)
        if starting is not None:
            self.alive.append(actor)
            return None
        return WorkerReport(actor, unit, result)

    def _gone(self, actor: Any, why: str) -> None:
        if actor in self.alive:
            self.alive.remove(actor)
        self.asked = {ref: held for ref, held in self.asked.items() if held[0] is not actor}
        self.lost, self.why = self.lost + 1, why
        self.ray.kill(actor)
        if self.started < MOST_STARTS * self.count:
            self._start()

    def _start(self) -> None:
        actor = self.kind.remote(*self.about, self.cpus)
        self.starting[actor.ready.remote()] = actor
        self.started += 1

    def _first(self) -> None:
        """Wait for one: what comes later is given work when it comes."""
        import time

        until = time.monotonic() + START_SECONDS
        while not self.alive and self.starting and time.monotonic() < until:
            self.wait(5.0)
        if not self.alive:
            self.close()
            raise TrainingError(
                f"No worker came up on the Ray cluster ({self.why or 'no machine had room for one'}). The base and Clawback have to be on each machine."
            )
