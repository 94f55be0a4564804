"""Captured answers of other models that a run may learn from: those of the models that the person named, to prompts that the run may ask."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clawback.feedback import bases
from clawback.learning import is_named
from clawback.records import GATE, Message, Sample, Turn

if TYPE_CHECKING:
    from clawback.store import Store

MOST_TURNS = 1024
"""Newest turns that are looked through."""


def answers(
    db: Store, prompts: Iterable[Sequence[Message]], learn_from: Sequence[str], until: float
) -> list[Sample]:
    """One sample for each such answer, oldest first. A prompt that the gate keeps for itself is not among ``prompts``, and so neither are its answers.

    Args:
        prompts: conversations that the run may ask (``inputs.prompts``).
        learn_from: patterns of models' names; empty: no answers.
        until: what was captured later is left out, so that a resumed run sees the same.
    """
    if not learn_from:
        return []
    known = {_key(messages) for messages in prompts}
    seen = bases.as_seen_now(db)
    turns = [seen(one) for one in db.turns(limit=MOST_TURNS) if one.created_at <= until]
    usable = [one for one in turns if _is_usable(one, learn_from) and _key(one.messages) in known]
    return [
        Sample(one.id, one.messages, one.response, 0.0, ending=one.ending, model=one.model)
        for one in reversed(usable)
    ]


def _is_usable(turn: Turn, learn_from: Sequence[str]) -> bool:
    """Whether the turn is a complete answer in words of a named model, and nobody has refused that it is learned from."""
    complete = turn.trainable and bool(turn.response.strip()) and not (turn.cut or turn.calls)
    return complete and turn.version is None and turn.agent != GATE and is_named(turn.model, learn_from)


def _key(messages: Sequence[Message]) -> str:
    return json.dumps([dict(one) for one in messages], sort_keys=True, default=str)
