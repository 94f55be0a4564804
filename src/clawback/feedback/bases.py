"""Which base model answered when: a home whose person moves to another model keeps the turns of the old one.

Their ratings say what the person likes, as ever. Their tokens are of another vocabulary, and their text is another model's: a
run reads them as it reads the answers of any other model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from clawback.records import OWN_MODELS

if TYPE_CHECKING:
    from clawback.records import Turn
    from clawback.store import Store

KEY = "bases"
"""In the store: ``[[moment, base], …]``, oldest first. Empty where there was only one."""


def timeline(store: Store) -> list[tuple[float, str]]:
    """When which base began to answer, oldest first."""
    return [(float(at), str(base)) for at, base in store.get(KEY) or ()]


def known(store: Store) -> set[str]:
    """The bases that this home has had; empty where there was only one."""
    return {base for _, base in timeline(store)}


def switch(store: Store, previous: str, base: str, at: float) -> None:
    """Another base answers from now on."""
    changes = timeline(store) or [(0.0, previous)]
    if changes[-1][1] != base:
        store.set(KEY, [*changes, (at, base)])


def as_seen_now(store: Store) -> Callable[[Turn], Turn]:
    """A function that gives a turn as a run on the present base sees it: an answer of an earlier base is that of another model."""
    changes = timeline(store)

    def as_of_base(turn: Turn) -> Turn:
        if not changes or not (turn.version is not None or _is_own(turn.model)):
            return turn
        base = next((base for at, base in reversed(changes) if at <= turn.created_at), changes[0][1])
        if base == changes[-1][1]:
            return turn
        return replace(turn, model=base, version=None, response_ids=None, response_logprobs=None)

    return as_of_base


def _is_own(model: str) -> bool:
    name = model.lower()
    return name in OWN_MODELS or name.startswith("clawback/")
