"""Sampling of many answers by the lean decoder, with a batch that stays full: when rows end, the next prompts take their places."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clawback.engine.torch.sampling.choose import draw
from clawback.engine.torch.sampling.decoder import Cache, Decoder
from clawback.engine.torch.sampling.prefix_tree import by_family, common, read
from clawback.engine.types import Sampling

if TYPE_CHECKING:
    from clawback.engine.torch.models.speakers import NextSpeaker

READ_TOKENS = 4096
"""Tokens of prompts that are read at once."""
_MULTIPLE = 8
"""Rows of a step on a CPU come in multiples of this: oneDNN compiles code for each new shape of a product."""
_COLUMNS = 32
"""Columns of the cache that are looked at come in multiples of this, likewise."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Some answers to one prompt: ``[first, first + count)`` of all answers."""

    prompt: Sequence[int]
    first: int
    count: int


def closed_ranks(done: Sequence[bool]) -> list[int]:
    """Which old row each new row is: finished ones are replaced by live ones from the end, the others stay.

    >>> closed_ranks([False, True, False, False])
    [0, 3, 2]
    """
    left = len(done) - sum(done)
    movers = iter([i for i in range(left, len(done)) if not done[i]])
    return [next(movers) if done[i] else i for i in range(left)]


class Draw:
    """One call of ``sample``: all its answers, and the rows that are under way.

    A row is a slot of the cache. ``answer``, ``place``, ``position``, ``last`` [rows]: which answer it writes, how many tokens that has,
    where the last of them stands in the sequence, and which it is.
    """

    def __init__(
        self,
        decoder: Decoder,
        prompts: Sequence[Sequence[int]],
        chance: Tensor,
        again: Tensor | None,
        *,
        sampling: Sampling,
        stop: Sequence[int],
        rows: int,
        speaker: NextSpeaker | None = None,
    ) -> None:
        """``chance``, ``again``: [answers, max_tokens]; answers to a prompt follow each other."""
        total, self.max_tokens = chance.shape
        device, samples = decoder.device, total // len(prompts)
        self.decoder, self.sampling, self.most = decoder, sampling, min(rows, total)
        self.chance, self.again = chance.to(device), None if again is None else again.to(device)
        self.stop = torch.tensor(sorted(set(stop)), dtype=torch.long, device=device)
        self.speaker = speaker
        self.tokens = torch.zeros(total, self.max_tokens, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(total, self.max_tokens, device=device)
        self.lengths = [self.max_tokens] * total
        self.ended = [False] * total
        self.waiting = deque(
            _Unit(prompts[i], i * samples + start, min(self.most, samples - start))
            for i in by_family(prompts)
            for start in range(0, samples, self.most)
        )
        longest = max(map(len, prompts))
        self.cache = Cache(decoder, self.most, min(longest + self.max_tokens, longest + 128))
        self.answer = self.place = self.position = self.last = torch.zeros(0, dtype=torch.long, device=device)

    def run(self) -> None:
        while self.waiting or len(self.answer):
            self._admit()
            if len(self.answer):
                self._step()

    def _admit(self) -> None:
        """Read the next prompts, once there is room for a few together."""
        free = self.most - len(self.answer)
        if not self.waiting or (len(self.answer) and free < max(self.waiting[0].count, self.most // 8)):
            return
        units: list[_Unit] = []
        fresh = 0
        while self.waiting and self.waiting[0].count <= free:
            following = self.waiting[0].prompt
            fresh += len(following) - (common(units[-1].prompt, following) if units else 0)
            if units and fresh > READ_TOKENS:
                break
            units.append(self.waiting.popleft())
            free -= units[-1].count
        device, old = self.answer.device, len(self.answer)
        counts = torch.tensor([unit.count for unit in units], device=device)
        firsts = old + counts.cumsum(0) - counts  # the slot of each unit's first answer
        prompts = [unit.prompt for unit in units]
        logits = read(self.decoder, prompts, self.cache, firsts).repeat_interleave(counts, 0)
        sources = firsts.repeat_interleave(counts)
        targets = torch.arange(old, old + len(sources), device=device)
        copies = sources != targets
        if bool(copies.any()):
            self.cache.move(sources[copies], targets[copies], max(map(len, prompts)))
        answers = [unit.first + i for unit in units for i in range(unit.count)]
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device).repeat_interleave(counts)
        new = torch.tensor(answers, dtype=torch.long, device=device)
        self.answer = torch.cat([self.answer, new])
        self.place = torch.cat([self.place, torch.zeros_like(new)])
        self.position = torch.cat([self.position, lengths - 1])
        self.last = torch.cat([self.last, torch.zeros_like(new)])
        self._write(logits, old)

    def _step(self) -> None:
        rows = len(self.answer)
        tokens, position = self.last, self.position
        spare = min(-rows % _MULTIPLE, self.most - rows) if tokens.device.type == "cpu" else 0
        if spare:  # slots that nobody reads: what is written there is overwritten
            tokens, position = (torch.nn.functional.pad(x, (0, spare)) for x in (tokens, position))
        columns = int(position.max()) + 1
        logits = self.decoder.step(tokens, position, self.cache, columns + -columns % _COLUMNS)
        self._write(logits[:rows], 0)

    def _write(self, logits: Tensor, first: int) -> None:
        """Draw the next token of the rows from ``first`` on, and let rows go that have ended."""
        answer, place = self.answer[first:], self.place[first:]
        second = None if self.again is None else self.again[answer, place]
        token, logprobs = draw(logits, self.chance[answer, place], second, self.sampling)
        self.tokens[answer, place] = token
        self.logprobs[answer, place] = logprobs
        self.last[first:] = token
        self.place[first:] += 1
        self.position[first:] += 1
        stopped = torch.isin(token, self.stop)
        if self.speaker is not None:
            stopped |= self._spoken(answer, place, token)
        over = (stopped | (place >= self.max_tokens)).tolist()  # ``place`` is a view: it has moved on
        if not any(over):
            return
        for row, end, stop, length in zip(
            answer.tolist(), over, stopped.tolist(), place.tolist(), strict=True
        ):
            if end:
                self.lengths[row], self.ended[row] = length, stop
        keep = closed_ranks([False] * first + over)
        places = torch.tensor(keep, dtype=torch.long, device=answer.device)
        moved = places != torch.arange(len(keep), device=answer.device)
        if bool(moved.any()):
            used = int(self.position.max())
            self.cache.move(places[moved], moved.nonzero()[:, 0], used)
        self.answer, self.place, self.position, self.last = (
            x[places] for x in (self.answer, self.place, self.position, self.last)
        )

    def _spoken(self, answer: Tensor, place: Tensor, token: Tensor) -> Tensor:
        """[rows] bool: in which of them the last token ends the next speaker's label."""
        assert self.speaker is not None
        rows = zip(answer.tolist(), place.tolist(), token.tolist(), strict=True)
        spoken = [
            last in self.speaker.last_tokens and self.speaker.spoke(self.tokens[row, :length].tolist())
            for row, length, last in rows
        ]
        return torch.tensor(spoken, device=token.device)
