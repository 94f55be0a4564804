"""Splits feedback, and prompts that nobody has rated, into a part for training and a part held out for the gate.

A hash of the prompt's text decides, so it is settled before anybody rates an answer, and the same question asked again is on the same
side. Nothing that learns (a run of any algorithm, a reward model, a search for a prompt) draws on a kept prompt, so what the gate asks on
those is new to every version.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from clawback.feedback.turn_reward import evidence
from clawback.records import Message, Sample, Turn

if TYPE_CHECKING:
    from clawback.store import Store

GOLDEN = (5**0.5 - 1) / 2
SALT = b"kept prompts"
"""Of the hash. Never to be changed: prompts would change sides."""
SMALLEST = "smallest_held_out"
"""Where the store keeps the smallest share that a run has used: what was outside of it may have been learned from."""


def prompt_key(messages: Sequence[Message]) -> str:
    """What a conversation asks, as the hash reads it: case, spaces and ways to write the same character do not count. "" where nothing is asked in words."""
    return text_key(Turn("", tuple(messages), "").prompt)


def text_key(prompt: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", prompt).casefold().split())


def keeps(key: str, share: float) -> bool:
    """Whether the hash keeps this prompt (``prompt_key``) for the gate, if it keeps ``share`` of all."""
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, person=SALT).digest()
    return bool(key) and int.from_bytes(digest) < share * 2.0**64


def split(
    samples: Sequence[Sample], held_out: float, splits: Mapping[int, str] | None = None
) -> tuple[list[Sample], list[Sample]]:
    """``(train, held)``: those of about a share ``held_out`` of the prompts are held back; see ``kept_out``."""
    kept = kept_out(samples, held_out, splits)
    return [s for s in samples if s.turn_id not in kept], [s for s in samples if s.turn_id in kept]


def kept_out(samples: Sequence[Sample], held_out: float, splits: Mapping[int, str] | None = None) -> set[int]:
    """The turns that are kept for the gate.

    A turn's prompt alone decides (``keeps``); where it asks nothing in words, its number does (``chosen``). So all that learns leaves out
    the same turns, whenever it asks and whatever else is rated by then. ``splits`` says where turns were in earlier runs
    (``Store.splits()``) and outweighs that: a turn that was held back once is never trained on later, nor the other way round.

    Turns that ask the same stay together, and so do turns that a preference compares, for what it says of one it says of the other. Such
    a group is kept if any of its prompts is; where one of its turns was trained on before, the others are not kept any more.
    Turns that judges alone have spoken about are no evidence: they are kept back only if their prompt is.
    """
    splits = splits or {}
    rated = {sample.turn_id for sample in evidence(samples)}
    groups: dict[int, list[int]] = {}
    for turn, first in _linked(samples).items():
        groups.setdefault(first, []).append(turn)
    keys = {sample.turn_id: prompt_key(sample.messages) for sample in samples}
    kept = {turn for turn, where in splits.items() if where == "held_out"}
    for turns in groups.values():
        known = {splits[turn] for turn in turns if turn in splits}
        asked = [keys[turn] for turn in turns if keys[turn]]
        if known:
            held = "train" not in known
        elif asked:
            held = any(keeps(key, held_out) for key in asked)
        else:
            held = chosen(min(turns), held_out)
        if held:
            kept.update(turn for turn in turns if turn not in splits and (turn in rated or keys[turn]))
    return kept


def chosen(turn_id: int, share: float) -> bool:
    """Whether a turn without a prompt is among the ``share`` of all that is held back.

    A Weyl sequence: the multiples of the golden ratio, modulo 1, fill [0, 1) more evenly than random numbers do (Kuipers &
    Niederreiter 1974, Uniform distribution of sequences, ch. 2), so any 32 turns in a row hold back three to five where an eighth is asked for.
    """
    return turn_id * GOLDEN % 1.0 < share


def learned_prompts(store: Store) -> set[str]:
    """Keys of the prompts that some run has learned from, whatever became of the run."""
    return {prompt_key(turn.messages) for turn in store.turns_by_id(store.learned_turns()).values()} - {""}


def note_share(store: Store, share: float) -> None:
    """Enter that a run has left out this share of the prompts."""
    if share < store.get(SMALLEST, 1.0):
        store.set(SMALLEST, share)


def kept_turns(store: Store, turns: Iterable[Turn], share: float) -> list[Turn]:
    """Of these turns, those whose prompts no run has drawn on or learned from."""
    learned, least = learned_prompts(store), min(share, store.get(SMALLEST, 1.0))
    keyed = ((turn, prompt_key(turn.messages)) for turn in turns)
    return [turn for turn, key in keyed if keeps(key, least) and key not in learned]


def _linked(samples: Sequence[Sample]) -> dict[int, int]:
    """Turn → the first turn of its group: turns that share a prompt or a piece of feedback (a preference) are one group."""
    group = {sample.turn_id: sample.turn_id for sample in samples}

    def first(turn: int) -> int:
        while group[turn] != turn:
            group[turn] = group[group[turn]]
            turn = group[turn]
        return turn

    seen: dict[int | str, int] = {}
    for sample in samples:
        key = prompt_key(sample.messages)
        for mark in ([key] if key else []) + [part.feedback_id for part in sample.parts]:
            one, other = first(sample.turn_id), first(seen.setdefault(mark, sample.turn_id))
            group[max(one, other)] = min(one, other)
    return {turn: first(turn) for turn in group}
