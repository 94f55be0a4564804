"""Sampling after pictures, by the model's own forward with its own cache.

Turns with as many tokens and pictures of the same size go through together, so that nothing is padded: what a model
makes of pictures and positions is its own business, and nothing of it is known here. Everything is read anew in each
turn. The random numbers and the distribution are those of all other sampling.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clawback.engine.torch.models.vision import Pixels
from clawback.engine.torch.sampling.choose import draw
from clawback.engine.torch.sampling.generate import Chance, Sampled, stop_ids, until_speaker
from clawback.engine.torch.sampling.reading import Reading
from clawback.engine.types import Sampling

if TYPE_CHECKING:
    from clawback.engine.torch.models.policy import Policy
    from clawback.engine.torch.sampling.lanes import Rows

MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reply is to follow: tokens with what is seen beside them."""

    ids: Sequence[int]
    pixels: Pixels
    chance: Tensor
    """[2, max_tokens] what decides each token, as ``Conversations`` draws it."""


def answers_to(
    policy: Policy,
    looked: Sequence[tuple[Sequence[int], Pixels | None]],
    samples: int,
    max_tokens: int,
    sampling: Sampling,
    seed: int,
) -> list[list[Sampled]]:
    """``samples`` answers to each prompt, as ``Policy.sample`` gives them: to those without pictures by its own engine, and each prompt with the
    random numbers that are its by its place."""
    chance = Chance.drawn(len(looked), samples, max_tokens, sampling.truncates, seed)
    again = chance.first.new_zeros(chance.first.shape) if chance.again is None else chance.again
    numbers = torch.stack([chance.first, again], 2)  # [prompts, samples, 2, max_tokens]
    sights = [
        Sight(ids, pixels, numbers[i, k])
        for i, (ids, pixels) in enumerate(looked)
        if pixels
        for k in range(samples)
    ]
    blind = [i for i, (_, pixels) in enumerate(looked) if not pixels]
    stop = frozenset(stop_ids(policy.model, policy.chat.end_id))
    saw = iter(until_speaker(policy.chat.speaker, see(policy.model, sights, sampling=sampling, stop=stop)))
    read = iter(
        policy.sample(
            [looked[i][0] for i in blind],
            samples=samples,
            max_tokens=max_tokens,
            sampling=sampling,
            seed=chance.at(blind),
        )
    )
    return [[next(saw) for _ in range(samples)] if pixels else next(read) for _, pixels in looked]


@torch.no_grad()
def see(
    model: Any,
    turns: Sequence[Sight],
    *,
    sampling: Sampling,
    stop: frozenset[int],
) -> list[Sampled]:
    """One reply to each turn, in order. The model is left in the mode that it was in."""
    alike: dict[Any, list[int]] = {}
    for i, turn in enumerate(turns):
        alike.setdefault(_shape(turn), []).append(i)
    answers: dict[int, Sampled] = {}
    training = model.training
    model.eval()
    try:
        for places in alike.values():
            for start in range(0, len(places), MOST_ROWS):
                some = places[start : start + MOST_ROWS]
                got = _drawn(model, [turns[i] for i in some], sampling, stop)
                answers |= zip(some, got, strict=True)
    finally:
        model.train(training)
    return [answers[i] for i in range(len(turns))]


def _shape(turn: Sight) -> tuple[Any, ...]:
    """What turns must have in common to be rows of one batch."""
    inputs = sorted((name, tuple(value.shape)) for name, value in turn.pixels.inputs.items())
    return (len(turn.ids), turn.chance.shape[1], *inputs)


def _look(model: Callable[[], Any], ids: Sequence[Sequence[int]], pixels: Sequence[Pixels]) -> Reading:
    """Rows of as many tokens, and pictures of the same size."""
    weight = next(model().parameters())
    each = [one.beside(len(ids[0]), weight.device, weight.dtype) for one in pixels]
    # Rows come one after the other in what processors make of several conversations.
    inputs = {name: torch.cat([one[name] for one in each]) for name in each[0]}
    # Without a mask, as nothing is padded: Qwen-VL takes its length for that of what is new.
    return Reading(model, ids, inputs=inputs)


def _drawn(
    model: Any,
    turns: Sequence[Sight],
    sampling: Sampling,
    stop: frozenset[int],
) -> list[Sampled]:
    reading = _look(lambda: model, [turn.ids for turn in turns], [turn.pixels for turn in turns])
    numbers = torch.stack([turn.chance for turn in turns]).to(reading.device)  # [rows, 2, max_tokens]
    tokens: list[Tensor] = []
    logprobs: list[Tensor] = []
    over = [False] * len(turns)
    most = numbers.shape[2]
    for step in range(most):
        again = numbers[:, 1, step] if sampling.truncates else None
        token, logprob = draw(reading.logits, numbers[:, 0, step], again, sampling)
        tokens.append(token)
        logprobs.append(logprob)
        over = [before or t in stop for before, t in zip(over, token.tolist(), strict=True)]
        if all(over) or step + 1 == most:
            break
        reading.step(token.tolist())
    rows = zip(torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist(), strict=True)
    return [_ended(said, values, stop) for said, values in rows]


def _ended(ids: Sequence[int], logprobs: Sequence[float], stop: frozenset[int]) -> Sampled:
    """A row up to its own end."""
    end = next((i for i, token in enumerate(ids) if token in stop), None)
    count = len(ids) if end is None else end + 1
    return Sampled(tuple(ids[:count]), tuple(logprobs[:count]), end is not None)


class Seeing:
    """The rows of a lane (``lanes.Rows``) of which some look at pictures. Each of those is read and goes on by itself."""

    def __init__(self, policy: Policy, blind: Rows) -> None:
        self.policy, self.blind = policy, blind
        self.coming: Sequence[Pixels | None] = ()
        """What is seen beside the prompts that are read next."""
        self.rows: list[Reading | None] = []
        """None: one of ``blind``, in its order."""
        self.known: list[int] = []

    @property
    def open(self) -> bool:
        return self.blind.open or all(self.rows)

    def read(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        coming, self.coming = self.coming, ()
        looked = [
            _look(lambda: self.policy.model, [prompt], [pixels]) if pixels else None
            for prompt, pixels in zip(prompts, coming, strict=True)
        ]
        unseen = [prompt for prompt, row in zip(prompts, looked, strict=True) if row is None]
        logits = self._together(looked, self.blind.read(unseen) if unseen else None)
        known = iter(self.blind.known if unseen else ())
        self.known = [next(known) if row is None else 0 for row in looked]
        self.rows += looked
        return logits

    def step(self, last: Sequence[int]) -> Tensor:
        unseen = []
        for token, row in zip(last, self.rows, strict=True):
            if row is None:
                unseen.append(token)
            else:
                row.step([token])
        return self._together(self.rows, self.blind.step(unseen) if unseen else None)

    def keep(self, places: Sequence[int]) -> None:
        rank = list(itertools.accumulate((row is None for row in self.rows), initial=0))
        self.blind.keep([rank[old] for old in places if self.rows[old] is None])
        self.rows = [self.rows[old] for old in places]

    def drop(self) -> None:
        self.blind.drop()
        self.rows = []

    @staticmethod
    def _together(rows: Sequence[Reading | None], blind: Tensor | None) -> Tensor:
        unseen = iter(() if blind is None else blind)
        return torch.stack([next(unseen) if row is None else row.logits[0] for row in rows])
