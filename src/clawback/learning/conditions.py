"""Under which conditions a run began. A run that is taken up again has the same, whatever the settings and the rules are by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRules:
    """The person's rules, as they were when the run began."""

    sentences: tuple[str, ...] = ()
    """Of rules that a model may be told of."""
    features: tuple[tuple[str, str], ...] = ()
    """A rule's text and its check, of each that the reader looks at."""
    judge: str = ""
    """What judges the rules that code cannot check; "" where nothing does."""

    def __bool__(self) -> bool:
        return bool(self.sentences or self.features)


@dataclass(frozen=True, slots=True)
class RunConditions:
    """How and where a run works, beside its settings."""

    processes: int = 1
    """By how many processes a step's gradient is made."""
    shard: bool = False
    """Whether they share the base out, too."""
    draw: str = ""
    """What draws its fresh answers, where it is not the run itself: ``vllm``, or an address."""
    hosted: str = ""
    """Address of the trainer that it is trained at."""
    system: str = ""
    """A learned prompt that it folds into the adapter."""
    anyway: bool = False
    """Whether somebody wants it also where nothing can be read from the ratings."""
    rules: RunRules = RunRules()
    gym: Mapping[str, Any] | None = None
    """What a run on episodes plays, as ``jobs.play_options.Wish`` has it."""


NAMES = frozenset(field.name for field in fields(RunConditions))
"""Until 0.2 these stood in a recipe's ``extra``, among the settings of its parts."""


def conditions_of(recipe: Mapping[str, object]) -> RunConditions:
    """The conditions in a recipe as it was recorded with a run, of this version or an earlier one."""
    import msgspec

    return msgspec.convert(with_conditions(recipe).get("conditions") or {}, RunConditions)


def with_conditions(values: Mapping[str, Any]) -> dict[str, object]:
    """The values of a recorded recipe, with what an earlier version wrote among its further settings where it belongs."""
    extra = values.get("extra") or {}
    earlier = {name: extra[name] for name in extra if name in NAMES}
    if not earlier:
        return dict(values)
    rest = {name: value for name, value in extra.items() if name not in NAMES}
    return {**values, "extra": rest, "conditions": {**(values.get("conditions") or {}), **earlier}}
