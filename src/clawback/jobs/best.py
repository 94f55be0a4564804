"""Best-of-N sampling: draw more answers than are wanted and keep those that the reward model scores highest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from clawback import config
from clawback.jobs import rewarding
from clawback.paths import Home
from clawback.release import best_of

if TYPE_CHECKING:
    from clawback.models import Completion

Pick = Callable[[str, "Sequence[Completion]"], "list[Completion]"]


def picker(home: Home, settings: config.Config, count: int) -> Pick:
    """(prompt, answers) → of every ``count`` in a row the best one, by the members' mean less their doubt.

    An answer that was cut off is taken only where all were. Raises ``UsageError`` where the best of so many moves further from the
    version than the gate allows a version to move from the base; ``NotFound``, ``ModelError`` without a usable reward model.
    """
    best_of.check_distance(settings, count)
    model, _ = rewarding.load(home)

    def pick(prompt: str, completions: Sequence[Completion]) -> list[Completion]:
        scores = model.score([(prompt, c.text) for c in completions], settings.reward.pessimism)
        order = [(c.finished, float(s)) for c, s in zip(completions, scores, strict=True)]
        return [
            completions[max(range(start, start + count), key=lambda i: order[i])]
            for start in range(0, len(completions), count)
        ]

    return pick
