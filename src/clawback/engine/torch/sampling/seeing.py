"""Sampling after pictures, by the model's own forward with its own cache.

Turns with as many tokens and pictures of the same size go through together, so that nothing is padded: what a model
makes of pictures and positions is its own business, and nothing of it is known here. Everything is read anew in each
turn. The random numbers and the distribution are those of all other sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clawback.engine.torch.models.vision import Pixels, marks, read_as
from clawback.engine.torch.sampling.choose import draw
from clawback.engine.torch.sampling.generate import Sampled
from clawback.engine.types import Sampling

MOST_ROWS = 16


@dataclass(frozen=True, slots=True)
class Sight:
    """What a reply is to follow: tokens with what is seen beside them."""

    ids: Sequence[int]
    pixels: Pixels
    chance: Tensor
    """[2, max_tokens] what decides each token, as ``Conversations`` draws it."""


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


def _drawn(
    model: Any,
    turns: Sequence[Sight],
    sampling: Sampling,
    stop: frozenset[int],
) -> list[Sampled]:
    weight = next(model.parameters())
    ids = torch.tensor([list(turn.ids) for turn in turns], device=weight.device)  # [rows, tokens]
    each = [turn.pixels.beside(ids.shape[1], weight.device, weight.dtype) for turn in turns]
    # Rows come one after the other in what processors make of several conversations.
    beside = {name: torch.cat([one[name] for one in each]) for name in each[0]}
    numbers = torch.stack([turn.chance for turn in turns]).to(weight.device)  # [rows, 2, max_tokens]
    out = model(
        input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True, logits_to_keep=1, **beside
    )
    tokens: list[Tensor] = []
    logprobs: list[Tensor] = []
    over = [False] * len(turns)
    most = numbers.shape[2]
    known = marks(model.config)
    for step in range(most):
        again = numbers[:, 1, step] if sampling.truncates else None
        token, logprob = draw(out.logits[:, -1], numbers[:, 0, step], again, sampling)
        tokens.append(token)
        logprobs.append(logprob)
        over = [before or t in stop for before, t in zip(over, token.tolist(), strict=True)]
        if all(over) or step + 1 == most:
            break
        read = ids.new_ones(len(turns), ids.shape[1] + step + 1)
        out = model(
            input_ids=torch.tensor([[read_as(t, known)] for t in token.tolist()], device=weight.device),
            attention_mask=read,
            past_key_values=out.past_key_values,
            use_cache=True,
            logits_to_keep=1,
        )
    rows = zip(torch.stack(tokens, 1).tolist(), torch.stack(logprobs, 1).tolist(), strict=True)
    return [_ended(said, values, stop) for said, values in rows]


def _ended(ids: Sequence[int], logprobs: Sequence[float], stop: frozenset[int]) -> Sampled:
    """A row up to its own end."""
    end = next((i for i, token in enumerate(ids) if token in stop), None)
    count = len(ids) if end is None else end + 1
    return Sampled(tuple(ids[:count]), tuple(logprobs[:count]), end is not None)
