"""The inputs of a run: its settings, the feedback that can be learned from now, the prompts, the model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from clawback.config import Config
from clawback.errors import ConfigError
from clawback.feedback import hold_out
from clawback.records import GATE, Feedback, Message, Run, Sample

if TYPE_CHECKING:
    from clawback.policy import Policy
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


def making(settings: Config) -> dict[str, Any]:
    """The settings of how a run is made, checked: recipe values by name. Values set by hand take precedence."""
    training, reward = settings.training, settings.reward
    adds_up: dict[str, Any] = {}
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
    said, training = newest(db, settings), settings.training
    going = db.going_on(time.time() - training.session_timeout) if training.credit > 0 else set()
    turns = {t for f in said for t in (f.turn_id, f.other_turn_id) if t is not None} if going else set()
    waiting = {t for t in turns if db.turn(t).session in going}
    return [f for f in said if f.turn_id not in waiting and f.other_turn_id not in waiting]


def kept_out(db: Store, run: Run) -> set[int]:
    """Turns that were kept for the gate."""
    return {f.turn_id for f in db.feedback(ids=run.held_out_ids)}


def prompts(db: Store, kept_out: set[int], until: float, share: float) -> list[tuple[Message, ...]]:
    """The person's own newest conversations up to their question, those kept for the gate left out: ``kept_out`` and what asks the same, and the
    ``share`` that the hash keeps, rated or not. That share is entered in the store, for the gate."""
    hold_out.note_share(db, share)
    asked = {hold_out.prompt_key(turn.messages) for turn in db.turns_by_id(kept_out).values()} - {""}
    # Turns that came after the run began are left out: a run that goes on must see what it saw at first.
    turns = [t for t in db.turns(limit=2 * MOST_PROMPTS) if t.created_at <= until]
    usable = [t for t in turns if t.trainable and t.messages and t.agent != GATE and t.id not in kept_out]
    keyed = ((turn, hold_out.prompt_key(turn.messages)) for turn in usable)
    drawn = [turn.messages for turn, key in keyed if key not in asked and not hold_out.keeps(key, share)]
    return list(reversed(drawn[:MOST_PROMPTS]))


def without_kept(db: Store, run: Run, samples: Sequence[Sample], share: float) -> list[Sample]:
    """What a run learns from, without what is kept for the gate: a rating later in the session, a comparison or words alone may speak of it, too."""
    trained, held = {f.turn_id for f in db.feedback(ids=run.train_ids)}, kept_out(db, run)
    return [
        s
        for s in samples
        if s.turn_id in trained
        or not (s.turn_id in held or hold_out.keeps(hold_out.prompt_key(s.messages), share))
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
