"""A ``Sampler`` whose answers are drawn by Ray workers and checked against the learner.

The learner draws the random numbers, so the answers are those that it would have drawn itself, up to
rounding, however many machines there are and whichever of them die. Every answer of a round is drawn with the
round's own weights: nothing is stale. The learner scores one answer of each worker in each round, and a
difference in the log-probs ends the run.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from clawback.errors import TrainingError
from clawback.extensions.scale.adapters import lost, published
from clawback.extensions.scale.dispatch import Unit, dispatch
from clawback.extensions.scale.process_group import description_of
from clawback.policy import gap
from clawback.sampling import Chance, DrawSettings, Sampled, stop_ids

if TYPE_CHECKING:
    from clawback.extensions.scale.ray_crew import RayCrew
    from clawback.policy import Policy
    from clawback.trainer import Recipe

UNITS = 3
"""For each worker, so that a slow one does not hold up the round for long."""


class RaySampler:
    """Draws on a Ray cluster. Actors are started at the first draw and ended with ``close``."""

    def __init__(
        self,
        address: str,
        recipe: Recipe,
        count: int = 0,
        tell: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Raises ``UsageError`` where no cluster answers."""
        from clawback.extensions.scale.ray_crew import connect

        self.ray, self.recipe, self.count = connect(address), recipe, count
        self.tell = tell or (lambda _: None)
        self.crew: RayCrew | None = None
        self.gap = 0.0
        self.drawn = self.here = 0
        """Units, and those of them that nobody else was there for."""

    def __call__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], chance: Chance, merge: bool
    ) -> list[list[Sampled]]:
        from clawback.extensions.scale.model_worker import DrawingWorker
        from clawback.extensions.scale.ray_crew import RayCrew

        if self.crew is None:
            self.crew = RayCrew(self.ray, DrawingWorker, [description_of(policy, self.recipe)], self.count)
        before = self.crew.lost
        name = published(policy, self.crew)
        units, places = cut(policy, prompts, chance, merge, name, max(1, UNITS * self.crew.count))

        def here(unit: Unit) -> dict[str, Any]:
            self.here += 1
            begin, end = places[unit.id]
            part = chance.of(begin, end)
            _, samples, tokens = part.first.shape
            groups = policy.sample(
                prompts[begin:end], DrawSettings(samples=samples, max_tokens=tokens, seed=part), merge=merge
            )
            answers = [[(one.ids, one.logprobs, one.finished) for one in group] for group in groups]
            return {"by": "", "adapter": name, "answers": answers}

        done = dispatch(self.crew, units, here)
        self.drawn += len(units)
        if (news := lost(self.crew, before)) is not None:
            self.tell(news)
        found = [done[unit.id] for unit in units]
        if any(one["adapter"] != name for one in found):
            raise TrainingError(
                "A worker drew with other weights than it was told to. Nothing was learned from it."
            )
        self._hold(policy, prompts, [(done[unit.id], places[unit.id][0]) for unit in units])
        return [[Sampled(*one) for one in group] for part in found for group in part["answers"]]

    def close(self) -> None:
        if self.crew is not None:
            self.crew.close()
        self.ray.shutdown()

    def __enter__(self) -> RaySampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hold(
        self, policy: Policy, prompts: Sequence[Sequence[int]], parts: Sequence[tuple[Mapping[str, Any], int]]
    ) -> None:
        """One answer of each worker against the learner's own log-probs. Raises ``TrainingError`` where they are apart."""
        of = {part["by"]: (begin, part) for part, begin in parts if part["by"]}
        for begin, part in of.values():
            ids, logprobs, _ = part["answers"][0][0]
            self.gap = max(self.gap, gap(policy, prompts[begin], ids, logprobs, part["by"]))


def cut(
    policy: Policy, prompts: Sequence[Sequence[int]], chance: Chance, merge: bool, name: str, count: int
) -> tuple[list[Unit], dict[str, tuple[int, int]]]:
    """About ``count`` units, named by all that decides their answers, and the prompts [begin, end) that each is of."""
    size = max(1, -(-len(prompts) // count))
    sampling = dataclasses.asdict(policy.sampling)
    stop = list(stop_ids(policy.model, policy.chat.end_id))
    units: list[Unit] = []
    places: dict[str, tuple[int, int]] = {}
    for begin in range(0, len(prompts), size):
        end = min(begin + size, len(prompts))
        part = chance.of(begin, end)
        some = [list(prompt) for prompt in prompts[begin:end]]
        digest = hashlib.sha256(repr((name, some, sampling, stop)).encode())
        digest.update(part.first.numpy().tobytes())
        work = {
            "adapter": name,
            "prompts": some,
            "chance": (part.first.clone(), None if part.again is None else part.again.clone()),
            "sampling": sampling,
            "stop": stop,
            "merge": merge,
        }
        unit = Unit(digest.hexdigest()[:24], work)
        units.append(unit)
        places[unit.id] = (begin, end)
    return units, places
