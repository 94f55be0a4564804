"""The inputs of a run (its settings, feedback, prompts and model), and the checks of settings and ratings before anything is written."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from clawback.config import Config
from clawback.errors import ConfigError, TrainingError, UsageError
from clawback.feedback import turn_reward
from clawback.records import GATE, Feedback, Message, Run, Sample

if TYPE_CHECKING:
    from clawback.paths import Home
    from clawback.policy import Policy
    from clawback.records import JsonObject
    from clawback.store import Store


MOST_PROMPTS = 256
"""Newest conversations that rollouts answer."""


def policy(settings: Config, base: str, system: str = "") -> Policy:
    """The base model as the settings hold it and have it answer, under a learned prompt where there is one."""
    from clawback import engine

    model = settings.model
    loaded = engine.load(
        base,
        revision=model.revision if base == model.base else None,
        dtype=model.dtype,
        load_in_4bit=model.load_in_4bit,
        device=model.load_device,
    )
    loaded.configure(settings.generation, model.chat_template_args, settings.training.thinking, system)
    return loaded


def making(settings: Config) -> JsonObject:
    """The settings of how a run is made, checked: recipe values by name. Values set by hand take precedence."""
    training, reward = settings.training, settings.reward
    adds_up: JsonObject = {}
    if reward.weights or reward.verifiers:
        adds_up = {"weights": reward.weights, "verifiers": reward.verifiers, "tokens": reward.tokens}
        with suppress(ImportError):  # what is not installed is said when the model is loaded
            from clawback.rewards.terms import read

            read(adds_up)
    return {
        "credit": training.credit,
        "min_turns": training.min_turns,
        "raters": training.raters,
        "learn_from": training.learn_from,
        "curriculum": training.curriculum,
        "full": training.full,
        "reward": adds_up,
        "options": training.options,
        **training.overrides,
    }


def newest(db: Store, settings: Config) -> list[Feedback]:
    """The newest active feedback, up to the limit of the settings, oldest first."""
    # Votes apart: however many there are, they do not take the place of what was said outright.
    both = [db.feedback(newest=settings.training.newest, outright=outright) for outright in (True, False)]
    return sorted((f for part in both for f in part), key=lambda f: f.id)


def settled(db: Store, settings: Config) -> list[Feedback]:
    """The newest feedback that can be learned from now. With credit, feedback on open conversations waits for
    the next run, because a rating at the end also credits the turns before it.
    """
    opinions, training = newest(db, settings), settings.training
    going = db.going_on(time.time() - training.session_timeout) if training.credit > 0 else set()
    turns = {t for f in opinions for t in (f.turn_id, f.other_turn_id) if t is not None} if going else set()
    waiting = {t for t in turns if db.turn(t).session in going}
    return [f for f in opinions if f.turn_id not in waiting and f.other_turn_id not in waiting]


def kept_out(db: Store, run: Run) -> set[int]:
    """Turns that were kept for the gate."""
    return {f.turn_id for f in db.feedback(ids=run.held_out_ids)}


def prompts(db: Store, kept_out: set[int], until: float, share: float) -> list[tuple[Message, ...]]:
    """The person's own newest conversations up to their question, those kept for the gate left out: ``kept_out`` and what asks the same, and the
    ``share`` that the hash keeps, rated or not. That share is entered in the store, for the gate."""
    turn_reward.note_share(db, share)
    asked = {turn_reward.prompt_key(turn.messages) for turn in db.turns_by_id(kept_out).values()} - {""}
    # Turns that came after the run began are left out: a run that goes on must see what it saw at first.
    turns = [t for t in db.turns(limit=2 * MOST_PROMPTS) if t.created_at <= until]
    usable = [t for t in turns if t.trainable and t.messages and t.agent != GATE and t.id not in kept_out]
    keyed = ((turn, turn_reward.prompt_key(turn.messages)) for turn in usable)
    drawn = [turn.messages for turn, key in keyed if key not in asked and not turn_reward.keeps(key, share)]
    return list(reversed(drawn[:MOST_PROMPTS]))


def without_kept(db: Store, run: Run, samples: Sequence[Sample], share: float) -> list[Sample]:
    """What a run learns from, without what is kept for the gate: a rating later in the session, a comparison or words alone may speak of it, too."""
    trained, held = {f.turn_id for f in db.feedback(ids=run.train_ids)}, kept_out(db, run)
    return [
        s
        for s in samples
        if s.turn_id in trained
        or not (s.turn_id in held or turn_reward.keeps(turn_reward.prompt_key(s.messages), share))
    ]


def budget(settings: Config) -> float:
    """Seconds that a run may take. Raises ``ConfigError``."""
    from clawback.learning.run_budget import parse

    text = settings.training.budget
    try:
        return parse(text)
    except ValueError:
        raise ConfigError(f'[training] budget is {text!r}. Write a time, such as "20m" or "8h".') from None


def feedback_of(samples: Sequence[Sample], opinions: Sequence[Feedback]) -> tuple[int, ...]:
    """All feedback on these turns, including what a newer opinion has replaced, because that has been processed too."""
    turns = {s.turn_id for s in samples}
    return tuple(f.id for f in opinions if f.turn_id in turns)


def setting(key: str, value: Any) -> None:
    """Raises ``UsageError`` for a value of the right type that no run and no server could use."""
    if key == "training.algorithm":
        algorithm(value)
    elif key == "training.budget":
        _budget(value)
    elif key == "schedule.quiet_hours" and value:
        from clawback.feedback.due import within

        try:
            within(value, datetime.time())
        except ConfigError:
            raise UsageError(f'`{key}` takes hours, such as "22:00-07:00", not `{value}`.') from None
    elif key in ("serve.upstream", "judge.url") and value and not value.startswith(("http://", "https://")):
        raise UsageError(f"`{key}` takes an address that begins with http:// or https://, not `{value}`.")
    elif key.startswith("training.overrides"):
        from clawback.engine import recipe_from
        from clawback.trainer import check_options

        values = _nested(key.removeprefix("training.overrides").lstrip("."), value)
        recipe_from(values)
        check_options({}, values.get("extra") or {})
    elif key.startswith("training.options"):
        from clawback.trainer import check_options

        check_options(_nested(key.removeprefix("training.options").lstrip("."), value), {})


def _nested(inner: str, value: object) -> Any:
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
    if not (rated := feedback.evidence(samples)):
        raise TrainingError(
            "Only a judge has said anything yet, and no version goes live on a judge's word: rate some answers yourself "
            "(`clawback good`, `bad`)."
        )
    from clawback.feedback.due import LEAST_OF_EACH_SIGN

    least = LEAST_OF_EACH_SIGN
    counts = {"good": sum(s.reward > 0 for s in rated), "bad": sum(s.reward < 0 for s in rated)}
    wanted = [f"{least - count} more {kind}" for kind, count in counts.items() if count < least]
    if wanted:
        # An edited answer stands beside the one that was given.
        edits = len(rated) - len({one.turn_id for one in rated})
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
