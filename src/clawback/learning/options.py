"""Settings of single algorithms and of single sources of examples: which there are, and a check of those that are set.

``[training.options.grpo]`` holds what ``grpo`` has a field for, ``[training.options.rollouts]`` what fresh answers are drawn by,
and so on. ``training.overrides.extra``, where all of them once stood together, is still read.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from clawback.errors import UsageError

SOURCES = {
    "distilled": ("distilled", "DistilSettings"),
    "rollouts": ("fresh_answers", "RolloutSettings"),
    "graded": ("graded", "GradingSettings"),
    "episodes": ("episode_examples", "EpisodeSettings"),
}
"""Name → module of ``learning/sources``, and the class of its settings."""
FREE = "extra"
"""A field of this name in an algorithm takes all settings that it has no field for."""


def parts() -> dict[str, type]:
    """Every part that has settings, by name: the class whose fields they are. Raises ``ImportError`` where training is not installed."""
    import importlib

    from clawback.rl import algorithms

    found: dict[str, type] = {
        name: algorithms.find(name) for name in (*algorithms.names(), *algorithms.ENVIRONMENT)
    }
    for name, (module, kind) in SOURCES.items():
        found[name] = getattr(importlib.import_module(f"clawback.learning.sources.{module}"), kind)
    return found


def check(options: Mapping[str, Mapping[str, Any]], extra: Mapping[str, Any]) -> None:
    """Raises ``UsageError`` for a part, a name or a value that nobody takes, with the nearest that somebody does."""
    if not options and not extra:
        return
    try:
        known = parts()
    except ImportError:  # said where it is trained
        return
    for part, values in options.items():
        if part not in known:
            raise UsageError(
                f"There is no algorithm and no source `{part}` in training.options{_near(part, known)} "
                f"Choose one of: {', '.join(sorted(known))}."
            )
        if not isinstance(values, Mapping):
            raise UsageError(f"`training.options.{part}` takes values by name, not `{values}`.")
        for name, value in values.items():
            _check_one({part: known[part]}, f"training.options.{part}", name, value)
    for name, value in extra.items():
        _check_one(known, "training.overrides.extra", name, value)


def _check_one(known: Mapping[str, type], where: str, name: str, value: Any) -> None:
    fields = {part: _fields(kind) for part, kind in known.items()}
    if any(FREE in of_part for of_part in fields.values()):
        return
    holders = {part: of_part[name] for part, of_part in fields.items() if name in of_part}
    if not holders:
        names = sorted({field for of_part in fields.values() for field in of_part})
        has = (
            f"It has: {', '.join(names)}."
            if len(known) == 1
            else "Each algorithm has its own in training.options."
        )
        raise UsageError(f"There is no setting `{name}` in {where}{_near(name, names)} {has}")
    import msgspec

    failures = []
    for kind in holders.values():
        try:
            msgspec.convert(value, kind)
            return
        except msgspec.ValidationError as error:
            failures.append(str(error))
    raise UsageError(f"`{where}.{name}` cannot be `{value}`: {failures[0]}.")


def _fields(kind: type) -> dict[str, Any]:
    """Field → type."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _near(name: str, known: typing.Iterable[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean `{near[0]}`?" if near else "."
