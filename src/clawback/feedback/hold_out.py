"""Which feedback trains and which is kept for the gate."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from clawback.feedback.aggregate import evidence
from clawback.records import Sample


def split(
    samples: Sequence[Sample], held_out: float, seed: int = 0, before: Mapping[int, str] | None = None
) -> tuple[list[Sample], list[Sample]]:
    """``(train, held)``: a share of ``held_out`` of the turns of each sign is held back.

    ``before`` says where turns were in earlier runs (``Store.splits()``): a turn that was held back once is never
    trained on later, nor the other way round. New turns fill each sign up to its share, in an order that is a hash of
    their id. Samples of one turn (an edit and what it replaced) stay together, the first one's sign being the turn's; and so do
    turns that a preference compares, for what it says of one it says of the other (unless they were apart already).
    Turns that judges alone have spoken about are never held back and make no share larger: they are no evidence.
    """
    sign: dict[int, bool] = {}
    for sample in evidence(samples):
        sign.setdefault(sample.turn_id, sample.reward > 0)
    together = _linked(samples)
    place = {turn: before[turn] for turn in sign if turn in before} if before else {}
    of_group = {together[turn]: where for turn, where in place.items()}
    for good in (True, False):
        turns = [t for t, is_good in sign.items() if is_good == good]
        missing = round(held_out * len(turns)) - sum(place.get(t) == "held_out" for t in turns)
        for turn in sorted((t for t in turns if t not in place), key=lambda t: _hash(t, seed)):
            new = "held_out" if missing > 0 else "train"
            place[turn] = of_group.setdefault(together[turn], new)
            missing -= place[turn] == "held_out"
    kept = {turn for turn, where in {**(before or {}), **place}.items() if where == "held_out"}
    return [s for s in samples if s.turn_id not in kept], [s for s in samples if s.turn_id in kept]


def _linked(samples: Sequence[Sample]) -> dict[int, int]:
    """Turn → the first turn of its group: turns that share a piece of feedback (a preference) are one group."""
    group = {sample.turn_id: sample.turn_id for sample in samples}

    def first(turn: int) -> int:
        while group[turn] != turn:
            turn = group[turn]
        return turn

    seen: dict[int, int] = {}
    for sample in samples:
        for part in sample.parts:
            one, other = first(sample.turn_id), first(seen.setdefault(part.feedback_id, sample.turn_id))
            group[max(one, other)] = min(one, other)
    return {turn: first(turn) for turn in group}


def _hash(turn_id: int, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{turn_id}".encode(), digest_size=8).digest()
