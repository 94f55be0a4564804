"""Splits feedback into a part for training and a part held out for the gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clawback.feedback.aggregate import evidence
from clawback.records import Sample

GOLDEN = (5**0.5 - 1) / 2


def split(
    samples: Sequence[Sample], held_out: float, before: Mapping[int, str] | None = None
) -> tuple[list[Sample], list[Sample]]:
    """``(train, held)``: a share of about ``held_out`` of the turns is held back; see ``kept_out``."""
    kept = kept_out(samples, held_out, before)
    return [s for s in samples if s.turn_id not in kept], [s for s in samples if s.turn_id in kept]


def kept_out(samples: Sequence[Sample], held_out: float, before: Mapping[int, str] | None = None) -> set[int]:
    """The turns that are kept for the gate.

    A turn's number alone decides, before anybody rates it: so all that learns from ratings (a run, a reward model, the inbox) leaves out the
    same turns, whenever it asks and whatever else is rated by then. ``before`` says where turns were in earlier runs (``Store.splits()``) and
    outweighs that: a turn that was held back once is never trained on later, nor the other way round.
    Samples of one turn (an edit and what it replaced) stay together; and so do turns that a preference compares, for what it
    says of one it says of the other: the first one's number counts for all (unless they were apart already).
    Turns that judges alone have spoken about are never held back: they are no evidence.
    """
    before = before or {}
    rated = {sample.turn_id for sample in evidence(samples)}
    together = _linked(samples)
    of_group = {together[turn]: before[turn] for turn in sorted(rated & before.keys(), reverse=True)}
    kept = {turn for turn, where in before.items() if where == "held_out"}
    for turn in rated - before.keys():
        first = together[turn]
        where = of_group.get(first) or ("held_out" if chosen(first, held_out) else "train")
        if where == "held_out":
            kept.add(turn)
    return kept


def chosen(turn_id: int, share: float) -> bool:
    """Whether the turn is among the ``share`` of all that is held back.

    A Weyl sequence: the multiples of the golden ratio, modulo 1, fill [0, 1) more evenly than random numbers do (Kuipers &
    Niederreiter 1974, Uniform distribution of sequences, ch. 2), so any 32 turns in a row hold back three to five where an eighth is asked for.
    """
    return turn_id * GOLDEN % 1.0 < share


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
