"""The registry of algorithms: the entry points ``clawback.algorithms`` of Clawback and of other packages.

An algorithm is a frozen dataclass whose fields are its settings, with two pure methods: rewards to advantages, and
a batch to a loss. It knows no model and keeps no state; a persistent baseline is passed in and returned.

Nothing else is required. A field ``extra`` (a mapping) takes every setting that the others do not. An algorithm that needs more than ratings and log-probs says so in a class variable ``needs``, a set of:

    entropy     ``Batch.entropy`` with its gradient
    proximal    each time all answers have been gone through, ``Batch.old_logprobs`` is made anew from the policy as it is
    pairs       ``Batch.pairs``: answers come as pairs, of which one was better; others are left out
    mismatched  ``Batch.mismatch_kl``
    teacher     ``Batch.token_advantages`` is log π_teacher − log π_old (needs proximal, too); turns without a number but with a hint come along, and with
                a setting ``top_k`` above 0 there is ``Batch.teacher_kl``
    hints       turns without a hint are left out
    values      ``Batch.values`` of a value head that is trained beside the adapter, and ``Batch.token_advantages`` by the algorithm's
                own ``credit`` and ``paid`` (``ppo.py``); old ones are made anew as for proximal
    natural     the step is a natural gradient, by the algorithm's own ``direction`` and ``search`` (``trpo.py``)

An algorithm whose KL weight adapts during the run has a method ``adapt`` (``ppo.py``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

from torch import Tensor

from clawback import plugins
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


ENVIRONMENT = ("sac",)
"""Those that learn from the steps of an environment: found by name as well, but of no use on ratings."""


def names() -> list[str]:
    """Every algorithm that learns from feedback."""
    return [name for name in plugins.names(plugins.ALGORITHMS) if name not in ENVIRONMENT]


def find(name: str) -> type[Algorithm]:
    """The class behind a name. Raises ``UsageError`` for one that nobody provides."""
    if value := plugins.where(plugins.ALGORITHMS, name):
        return cast("type[Algorithm]", plugins.load_value(value))
    raise UsageError(f"There is no algorithm {name!r}. Choose one of: {', '.join(names())}.")


def make(name: str, settings: Mapping[str, Any] | None = None) -> Algorithm:
    """The named algorithm with those of ``settings`` that it has a field for; the others are not its business."""
    kind = find(name)
    fields = {field.name for field in dataclasses.fields(cast(Any, kind))}
    given = {key: value for key, value in (settings or {}).items() if key in fields}
    if "extra" in fields:  # it takes what nobody else knows
        given["extra"] = {key: value for key, value in (settings or {}).items() if key not in fields}
    return kind(**given)


def needs(algorithm: object) -> frozenset[str]:
    """What an algorithm (its class will do) wants beyond ratings and log-probs."""
    return frozenset(getattr(algorithm, "needs", ()))
