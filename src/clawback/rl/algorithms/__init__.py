"""Algorithms, found by name: built in, or installed by others under the entry point ``clawback.algorithms``.

An algorithm is a frozen dataclass whose fields are its settings, with two pure methods: rewards to advantages, and
a batch to a loss. It knows no model and keeps no state; a baseline that lives on is passed in and handed back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from torch import Tensor

from clawback.errors import UsageError
from clawback.rl.batch import Batch


@runtime_checkable
class Algorithm(Protocol):
    """What the training loop needs of an algorithm."""

    name: ClassVar[str]

    def advantages(self, rewards: Tensor, groups: Tensor, baseline: float) -> tuple[Tensor, float]:
        """Rewards [S] in the order they were given, groups [S] (int64, answers to the same prompt share one) and the
        baseline so far → advantages [S] float32, and the new baseline (the same where none is kept)."""
        ...

    def loss(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """A scalar to minimise, and figures to look at. The losses and figures of the pieces of one step add up
        to those of the step (``Batch.samples_in_step``)."""
        ...


BUILT_IN = ("grpo", "mis-po", "reinforce")


def names() -> list[str]:
    """Every algorithm that can be asked for."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group="clawback.algorithms"))})


def find(name: str) -> type[Algorithm]:
    """The class behind a name. Raises ``UsageError`` for one that nobody provides."""
    if name in BUILT_IN:
        from clawback.rl.algorithms import grpo, mis_po, reinforce

        return {"grpo": grpo.Grpo, "mis-po": mis_po.MisPo, "reinforce": reinforce.Reinforce}[name]
    for point in entry_points(group="clawback.algorithms"):
        if point.name == name:
            return cast("type[Algorithm]", point.load())
    raise UsageError(f"There is no algorithm {name!r}. Choose one of: {', '.join(names())}.")


def make(name: str, settings: Mapping[str, Any] | None = None) -> Algorithm:
    """The named algorithm with those of ``settings`` that it has a field for; the others are not its business."""
    kind = find(name)
    fields = {field.name for field in dataclasses.fields(cast(Any, kind))}
    return kind(**{key: value for key, value in (settings or {}).items() if key in fields})
