"""Sampling in many conversations at once, each of which keeps its key-value cache between its turns.

A conversation has a slot. Its next turn reads only what is new since the last one: the observation, not the
history. While turns are drawn, their conversations occupy the first slots, so that a step is one pass over
adjacent rows; a row that ends changes places with the last active one. Prefixes that new conversations share
(a system message, the rules of a game, a task that several try) are read once and copied. What a conversation says follows from its own
seed (up to rounding in the model), not from its neighbours.

Models that the lean decoder does not support (``decoder_choice.fits``) use their own forward pass, and read
everything anew each turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from clawback.engine.torch.models.policy import Policy
from clawback.engine.torch.models.vision import Pixels
from clawback.engine.torch.sampling.choose import draw
from clawback.engine.torch.sampling.continuous import READ_TOKENS
from clawback.engine.torch.sampling.decoder import Cache, Decoder
from clawback.engine.torch.sampling.decoder_choice import drawing_dtype, fits
from clawback.engine.torch.sampling.generate import Sampled, draw_batch, stop_ids, until_speaker
from clawback.engine.torch.sampling.prefix_tree import common
from clawback.engine.torch.sampling.ways import batches
from clawback.engine.types import Sampling

_WORTH_SHARING = 8
"""Tokens that conversations must begin with alike for one to take them over from another."""
_COLUMNS = 32
"""Columns of the cache that are looked at come in multiples of this where products are oneDNN's, which compiles code for each new shape."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to follow ``ids`` in the conversation ``key``."""

    key: Hashable
    ids: Sequence[int]
    seed: int
    max_tokens: int
    pixels: Pixels | None = None
    """What is seen beside them (``seeing.py``)."""


@dataclass(slots=True)
class _Row:
    """A turn that is being drawn."""

    turn: Turn
    place: int
    """Among those that were asked for."""
    ids: list[int]
    logprobs: list[float]


class Conversations:
    """``draw`` turns, ``forget`` a conversation that is over, ``refresh`` when the weights have changed."""

    def __init__(self, policy: Policy, *, sampling: Sampling, keep: bool = True) -> None:
        """``keep``: False reads everything anew each turn, to measure what keeping is worth."""
        self.policy, self.sampling, self.keep = policy, sampling, keep
        self.stop = frozenset(stop_ids(policy.model, policy.chat.end_id))
        self.speaker = policy.chat.speaker
        self.read, self.reused = 0, 0
        """Tokens that were read, and those that did not have to be."""
        self._decoder: Decoder | None = None
        self._cache: Cache | None = None
        self._slots: dict[Hashable, int] = {}
        self._held: dict[Hashable, list[int]] = {}
        """The tokens whose keys and values a slot holds."""

    def refresh(self) -> None:
        """The weights have changed: what was read under the old ones is read again."""
        self._decoder = self._cache = None
        self._slots, self._held = {}, {}

    def forget(self, key: Hashable) -> None:
        self._held.pop(key, None)  # its slot is given to another when one is needed

    @torch.no_grad()
    def draw(self, turns: Sequence[Turn]) -> list[Sampled]:
        """One reply each, in order. The model is left in the mode (train or eval) that it was in."""
        if not turns:
            return []
        if any(turn.pixels for turn in turns):
            return self._seen(turns)
        model: Any = self.policy.model
        longest = max(len(turn.ids) + turn.max_tokens for turn in turns)
        if fits(model, longest):
            return self._drawn(turns)
        self.read += sum(len(turn.ids) for turn in turns)
        training = model.training
        model.eval()
        try:
            return self._by_the_model(turns)
        finally:
            model.train(training)

    def _seen(self, turns: Sequence[Turn]) -> list[Sampled]:
        """Those with pictures by the model itself, and the others as ever."""
        from clawback.engine.torch.sampling.seeing import Sight, see

        shown = [Sight(t.ids, t.pixels, _chance(t, self.sampling)) for t in turns if t.pixels]
        self.read += sum(len(one.ids) for one in shown)
        drawn = see(self.policy.model, shown, sampling=self.sampling, stop=self.stop)
        saw = iter(until_speaker(self.speaker, drawn))
        read = iter(self.draw([turn for turn in turns if not turn.pixels]))
        return [next(saw if turn.pixels else read) for turn in turns]

    # ------------------------------------------------------------------------------------------ with a cache

    def _drawn(self, turns: Sequence[Turn]) -> list[Sampled]:
        if self._decoder is None:
            dtype = drawing_dtype(self.policy.model)
            self._decoder = Decoder(self.policy.model, dtype, len(turns))
        self._place(turns)
        rows = [_Row(turn, i, [], []) for i, turn in enumerate(turns)]
        chance = [_chance(turn, self.sampling) for turn in turns]
        answers: list[Sampled | None] = [None] * len(turns)
        logits = self._read(turns)
        while rows:
            logits, rows = self._write(logits, rows, chance, answers)
        return until_speaker(self.speaker, [answer for answer in answers if answer is not None])

    def _place(self, turns: Sequence[Turn]) -> None:
        """Give the i-th of ``turns`` the i-th slot, moving what is held along."""
        assert self._decoder is not None
        most = max(len(turn.ids) + turn.max_tokens for turn in turns)
        wanted = [turn.key for turn in turns]
        known = [key for key in self._slots if key in self._held]
        others = [key for key in known if key not in set(wanted)]
        count = len(wanted) + len(others)
        if self._cache is None:
            self._cache = Cache(self._decoder, count, most)
        if count > self._cache.keys[0].shape[0]:
            self._cache.widen(count)
        self._cache.grow(most)
        order = [*wanted, *others]
        new = {key: place for place, key in enumerate(order)}
        moved = [
            (self._slots[key], place)
            for key, place in new.items()
            if key in self._held and self._slots[key] != place
        ]
        if moved:
            self._move(moved, max(len(self._held[key]) for key in order if key in self._held))
        self._slots = new

    def _move(self, pairs: Sequence[tuple[int, int]], columns: int) -> None:
        assert self._cache is not None
        device = self.policy.device
        sources, targets = (torch.tensor(side, device=device) for side in zip(*pairs, strict=True))
        self._cache.move(sources, targets, columns)

    def _read(self, turns: Sequence[Turn]) -> Tensor:
        """[turns, vocabulary] logits of the first token of each reply."""
        assert self._decoder is not None
        assert self._cache is not None
        fresh = [i for i, turn in enumerate(turns) if not self.keep or not self._held.get(turn.key)]
        shared = self._share(turns, fresh) if self.keep and fresh else dict.fromkeys(fresh, 0)
        starts = []
        for i, turn in enumerate(turns):
            known = shared[i] if i in shared else common(self._held[turn.key], turn.ids)
            starts.append(min(known, len(turn.ids) - 1))
        for turn in turns:
            self._held[turn.key] = list(turn.ids)
        self.reused += sum(starts)
        return torch.stack(
            self._read_on(
                [
                    (i, start, turn.ids[start:])
                    for i, (turn, start) in enumerate(zip(turns, starts, strict=True))
                ]
            )
        )

    def _read_on(self, pieces: Sequence[tuple[int, int, Sequence[int]]]) -> list[Tensor]:
        """Read (slot, start, ids) each, into the cache: [vocabulary] logits after each."""
        assert self._decoder is not None
        assert self._cache is not None
        self.read += sum(len(ids) for _, _, ids in pieces)
        # Pieces of like length go together, as padding is computed too.
        order = sorted(range(len(pieces)), key=lambda i: (len(pieces[i][2]), i))
        logits: list[Tensor] = [torch.empty(0)] * len(pieces)
        while order:
            take = max(1, min(len(order), READ_TOKENS // len(pieces[order[-1]][2])))
            some, order = order[-take:], order[:-take]
            slots, starts, ids = zip(*(pieces[i] for i in some), strict=True)
            got = self._decoder.read_on(
                list(ids), list(starts), self._cache, torch.tensor(slots, device=self.policy.device)
            )
            for i, row in zip(some, got, strict=True):
                logits[i] = row
        return logits

    def _share(self, turns: Sequence[Turn], fresh: Sequence[int]) -> dict[int, int]:
        """Put what new conversations begin with alike into their slots, and say of each how many tokens it has got: what all of them share from
        one that has read it already, the rest read in the first of those that share it (tries at one task share the task)."""
        ids = {i: list(turns[i].ids) for i in fresh}
        order = sorted(fresh, key=ids.__getitem__)
        known = self._donated(order, ids[order[0]][: _alike([ids[i] for i in order])])
        begun = dict.fromkeys(fresh, known)
        groups = [order] if len(order) > 1 else []
        while groups:
            readings: list[tuple[int, int, list[int]]] = []
            copies: list[tuple[int, int]] = []
            smaller: list[list[int]] = []
            for some in groups:
                start, end = begun[some[0]], _alike([ids[i] for i in some])
                if end - start >= _WORTH_SHARING:
                    readings.append((some[0], start, ids[some[0]][start:end]))
                    copies += [(some[0], i) for i in some[1:]]
                    begun |= dict.fromkeys(some, end)
                    self.reused -= end - start
                smaller += _parted(some, ids, end)
            if readings:
                self._read_on(readings)
                self._move(copies, max(begun.values()))
            groups = smaller
        return begun

    def _donated(self, slots: Sequence[int], alike: Sequence[int]) -> int:
        """Copy the longest beginning of ``alike`` that a conversation holds into the slots: its tokens, 0 for none worth it."""
        donors = [(common(held, alike), key) for key, held in self._held.items() if key in self._slots]
        known, donor = max(donors, key=lambda one: one[0], default=(0, None))
        if known < _WORTH_SHARING:
            return 0
        self._move([(self._slots[donor], i) for i in slots], known)
        return known

    def _write(
        self,
        logits: Tensor,
        rows: list[_Row],
        chance: Sequence[Tensor],
        answers: list[Sampled | None],
    ) -> tuple[Tensor, list[_Row]]:
        """Draw a token for each row, let go of those that have ended, and take the others one step on."""
        assert self._decoder is not None
        assert self._cache is not None
        device = self.policy.device
        numbers = torch.stack([chance[row.place][:, len(row.ids)] for row in rows]).to(device)  # [rows, 2]
        again = numbers[:, 1] if self.sampling.truncates else None
        if self.policy.choices is not None:
            logits = self.policy.choices.masked(logits, [row.ids for row in rows])
        token, logprob = draw(logits, numbers[:, 0], again, self.sampling)
        going: list[int] = []
        for i, (row, t, p) in enumerate(zip(rows, token.tolist(), logprob.tolist(), strict=True)):
            row.ids.append(t)
            row.logprobs.append(p)
            over = t in self.stop or (self.speaker is not None and self.speaker.spoke(row.ids))
            if over or len(row.ids) >= row.turn.max_tokens:
                answers[row.place] = Sampled(tuple(row.ids), tuple(row.logprobs), over)
                # The last token was drawn and not read.
                self._held[row.turn.key] = [*row.turn.ids, *row.ids[:-1]]
            else:
                going.append(i)
        if not going:
            return logits, []
        rows = self._close_ranks(rows, going)
        last = torch.tensor([row.ids[-1] for row in rows], device=device)
        position = torch.tensor([len(row.turn.ids) + len(row.ids) - 1 for row in rows], device=device)
        columns = int(position.max()) + 1
        if self._decoder.quick:
            columns += -columns % _COLUMNS
        return self._decoder.step(last, position, self._cache, columns), rows

    def _close_ranks(self, rows: list[_Row], going: Sequence[int]) -> list[_Row]:
        """Rows that go on change places with those that have ended before them."""
        if len(going) == len(rows):
            return rows
        left = len(going)
        free = [i for i in range(left) if i not in set(going)]
        movers = [i for i in going if i >= left]
        if free:
            columns = max(len(row.turn.ids) + len(row.ids) for row in rows)
            swaps = [*zip(movers, free, strict=True), *zip(free, movers, strict=True)]
            self._move(swaps, columns)
            rows = list(rows)
            for a, b in zip(movers, free, strict=True):
                rows[a], rows[b] = rows[b], rows[a]
                self._slots[rows[a].turn.key], self._slots[rows[b].turn.key] = a, b
        return rows[:left]

    # --------------------------------------------------------------------------------------- without a cache

    def _by_the_model(self, turns: Sequence[Turn]) -> list[Sampled]:
        """Turns that fit together, as many as the memory holds."""
        answers: list[Sampled | None] = [None] * len(turns)
        model, longest = self.policy.model, max(turn.max_tokens for turn in turns)
        for some in batches(model, [turn.ids for turn in turns], 1, longest):
            most = max(turns[i].max_tokens for i in some)
            chance = torch.stack([_chance(turns[i], self.sampling, most) for i in some])  # [rows, 2, most]
            batch = draw_batch(
                model,
                [list(turns[i].ids) for i in some],
                chance[:, 0],
                chance[:, 1] if self.sampling.truncates else None,
                sampling=self.sampling,
                stop=self.stop,
                speaker=self.speaker,
            )
            for i, answer in zip(some, batch, strict=True):
                answers[i] = _at_most(answer, turns[i].max_tokens)
        return [answer for answer in answers if answer is not None]


def _at_most(answer: Sampled, count: int) -> Sampled:
    """An answer as it would have been with no more than so many tokens: its neighbours may have had room for more."""
    if len(answer.ids) <= count:
        return answer
    return Sampled(answer.ids[:count], answer.logprobs[:count], False)


def _chance(turn: Turn, sampling: Sampling, most: int = 0) -> Tensor:
    """[2, max_tokens] what decides each token; the second row is for first ones that are cut off, and 0 where none is.
    ``most``: filled up to so many, for tokens that are not asked for."""
    generator = torch.Generator().manual_seed(turn.seed)
    first = torch.rand(turn.max_tokens, generator=generator)
    again = (
        torch.rand(turn.max_tokens, generator=generator) if sampling.truncates else torch.zeros_like(first)
    )
    return torch.nn.functional.pad(torch.stack([first, again]), (0, max(0, most - turn.max_tokens)))


def _alike(ordered: Sequence[Sequence[int]]) -> int:
    """How many tokens all of these sequences, in order, begin with alike, one of each left to be read. The first and the last differ no later than any two others."""
    return min(common(ordered[0], ordered[-1]), min(map(len, ordered)) - 1)


def _parted(some: Sequence[int], ids: Mapping[int, Sequence[int]], end: int) -> list[list[int]]:
    """Those of ``some`` that go on alike behind ``end``, where they are not all of it; one that ends there goes on with nobody."""

    def next_of(i: int) -> tuple[int, bool]:
        return ids[i][end], len(ids[i]) == end + 1

    parts = [list(part) for _, part in groupby(some, key=next_of)]
    return [part for part in parts if 1 < len(part) < len(some)]
