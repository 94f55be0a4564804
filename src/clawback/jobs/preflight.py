"""Checks of settings and ratings before anything is written or started, for problems that only the code using them can detect."""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING, Any

from clawback.errors import ConfigError, TrainingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clawback.config import Config
    from clawback.paths import Home
    from clawback.records import Sample
    from clawback.store import Store


def setting(key: str, value: Any) -> None:
    """Raises ``UsageError`` for a value of the right type that no run and no server could use."""
    if key == "training.algorithm":
        algorithm(value)
    elif key == "training.budget":
        _budget(value)
    elif key == "schedule.quiet_hours" and value:
        from clawback.feedback.due import within

        try:
            within(value, time())
        except ConfigError:
            raise UsageError(f'`{key}` takes hours, such as "22:00-07:00", not `{value}`.') from None
    elif key in ("serve.upstream", "judge.url") and value and not value.startswith(("http://", "https://")):
        raise UsageError(f"`{key}` takes an address that begins with http:// or https://, not `{value}`.")
    elif key.startswith("training.overrides"):
        from clawback.engine import recipe_from
        from clawback.learning import options

        values = _nested(key.removeprefix("training.overrides").lstrip("."), value)
        recipe_from(values)
        options.check({}, values.get("extra") or {})
    elif key.startswith("training.options"):
        from clawback.learning import options

        options.check(_nested(key.removeprefix("training.options").lstrip("."), value), {})


def _nested(inner: str, value: Any) -> Any:
    """``extra.lam`` and 0.9 → ``{"extra": {"lam": 0.9}}``."""
    for name in reversed(inner.split(".") if inner else []):
        value = {name: value}
    return value


def check_full_training(home: Home, *, elsewhere: bool) -> None:
    """Whether all weights can be trained in this home. Raises ``UsageError``. ``elsewhere``: other processes or machines take part."""
    if elsewhere:
        raise UsageError(
            "All weights are trained by one process on this machine: leave out --processes, --shard, --ray and [hosted] url, or "
            "`clawback config set training.full false`."
        )
    if home.root.parent.name == "people":
        raise UsageError(
            "On a server of many people everybody's answers are drawn in one batch, which only adapters can share: "
            "`clawback config set training.full false`."
        )


def enough(samples: Sequence[Sample]) -> None:
    """Whether the gate could let through what a run makes of these at all. Raises ``TrainingError`` that says what is missing.

    A run that is bound to be rejected is not worth its minutes: the gate wants ``LEAST_OF_EACH_SIGN`` good and as many bad ones.
    """
    from clawback import feedback

    if not samples:
        raise TrainingError(
            "There is nothing to learn from yet: rate some answers first (`clawback good`, `bad`)."
        )
    said = feedback.evidence(samples)
    if not said:
        raise TrainingError(
            "Only a judge has said anything yet, and no version goes live on a judge's word: rate some answers yourself "
            "(`clawback good`, `bad`)."
        )
    from clawback.gate.rule import LEAST_OF_EACH_SIGN

    least = LEAST_OF_EACH_SIGN
    counts = {"good": sum(s.reward > 0 for s in said), "bad": sum(s.reward < 0 for s in said)}
    wanted = [f"{least - count} more {kind}" for kind, count in counts.items() if count < least]
    if wanted:
        edits = len(said) - len(
            {one.turn_id for one in said}
        )  # an edited answer stands beside the one that was given
        of = f" ({edits} of them {'an edit' if edits == 1 else 'edits'})" if edits else ""
        raise TrainingError(
            f"There are {counts['good']} good{of} and {counts['bad']} bad ratings, and the gate needs at least {least} of each: "
            f"give {' and '.join(wanted)} first (`clawback good`, `bad`)."
        )


def enough_in(db: Store, settings: Config) -> None:
    """The same of all that was rated. Raises ``TrainingError``."""
    from clawback import feedback

    enough(feedback.samples(db, raters=settings.training.raters))


def startable(home: Home, name: str | None) -> None:
    """Say now what a run in the background would fail at a moment later. Raises ``UsageError``, ``TrainingError``."""
    from clawback import config, store

    if name is not None:
        algorithm(name)
    with store.connect(home.database) as db:
        if db.active_run() is None:
            enough_in(db, config.load(home.config))


def algorithm(name: str) -> None:
    """Raises ``UsageError`` for an algorithm that nobody provides."""
    from difflib import get_close_matches

    from clawback.engine import DRAWING

    try:
        from clawback.rl import algorithms
    except ImportError:  # said where it is trained: the base install knows none of them
        return
    known = [*DRAWING, *algorithms.names()]
    if name not in (*known, *algorithms.ENVIRONMENT):
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean `{near[0]}`?" if near else "."
        raise UsageError(f"There is no algorithm `{name}`{hint} Choose one of: {', '.join(known)}.")


def _budget(text: str) -> None:
    from clawback.learning.run_budget import parse

    try:
        parse(text)
    except ValueError:
        raise UsageError(f'`training.budget` takes a time, such as "20m" or "8h", not `{text}`.') from None
