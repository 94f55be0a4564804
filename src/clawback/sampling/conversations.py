"""Sampling in many conversations at once: their next turns are drawn together, and each reads only what is new since the last one.

A caller of the scheduler. What was read for a conversation is kept when its turn ends (``prefix_tree.py``): the next one reads the
observation and not the history, and conversations that begin alike (a system message, the rules of a game, a task that several
try) read the beginning once. What a conversation says follows from its own seed (up to rounding in the model), not from its
neighbours. Models that the lean decoder does not know read everything anew each turn.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from clawback.models import Sampling
from clawback.sampling.batched_sampler import (
    Chance,
    Sampled,
    answer,
    evaluating,
    most_rows,
    rows_of,
    stop_ids,
)
from clawback.sampling.choose import SamplingRequest
from clawback.sampling.decoder_choice import fits
from clawback.sampling.scheduler import Lean, Scheduler

if TYPE_CHECKING:
    from clawback.sampling.choose import ChatModel
    from clawback.templates import Pixels


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What is to follow ``ids`` in the conversation ``key``."""

    key: Hashable
    ids: Sequence[int]
    seed: int
    max_tokens: int
    pixels: Pixels | None = None
    """What is seen beside them."""


class Conversations:
    """``draw`` turns, ``forget`` a conversation that is over, ``refresh`` when the weights have changed."""

    def __init__(self, policy: ChatModel, *, sampling: Sampling, keep: bool = True) -> None:
        """``keep``: False reads everything anew each turn, to measure what keeping is worth."""
        self.policy, self.sampling, self.keep = policy, sampling, keep
        self.stop = stop_ids(policy.model, policy.chat.end_id)
        self.read, self.reused = 0, 0
        """Tokens that were read, and those that did not have to be."""
        self._scheduler: Scheduler | None = None
        self._lean = False

    def refresh(self) -> None:
        """The weights have changed: what was read under the old ones is read again."""
        self._scheduler = None

    def forget(self, key: Hashable) -> None:
        """Nothing follows in this conversation."""
        rows = self._scheduler.rows if self._scheduler else None
        if isinstance(rows, Lean) and rows.memory is not None:
            rows.memory.forget(key)

    @torch.no_grad()
    def draw(self, turns: Sequence[TurnRequest]) -> list[Sampled]:
        """One reply each, in order. The model is left in the mode (train or eval) that it was in."""
        if not turns:
            return []
        sampling = self.sampling
        if (
            self.policy.choices is not None
        ):  # no reply is cut, and none is left out: what is never drawn is never learned
            turns = [replace(turn, max_tokens=self.policy.choices.longest) for turn in turns]
            sampling = replace(sampling, top_p=1.0, top_k=0)
        requests = [
            SamplingRequest(
                turn.ids,
                turn.max_tokens,
                sampling=sampling,
                chance=Chance.of_seed(1, 1, turn.max_tokens, sampling.truncates, turn.seed).numbers(0, 0),
                speaker=self.policy.chat.speaker,
                choices=self.policy.choices,
                pixels=turn.pixels,
                conversation=turn.key,
            )
            for turn in turns
        ]
        with evaluating(self.policy.model):
            scheduler = self._ready(max(len(turn.ids) + turn.max_tokens for turn in turns), len(turns))
            scheduler.run([[request] for request in sorted(requests, key=lambda one: list(one.prompt))])
        reused = sum(request.cached for request in requests)
        self.reused += reused
        self.read += sum(len(turn.ids) for turn in turns) - reused
        return [answer(request) for request in requests]

    def _ready(self, longest: int, count: int) -> Scheduler:
        """For turns of up to so many tokens, answers included."""
        model: Any = self.policy.model
        lean = fits(model, longest)
        if self._scheduler is None or lean != self._lean:
            self._lean = lean
            rows = rows_of(
                lambda: self.policy.model,
                lean,
                expected=count,
                memory=self.keep,
                eyes=bool(self.policy.chat.eyes),
            )
            self._scheduler = Scheduler(rows, self.stop)
        self._scheduler.most = most_rows(model, longest, lean)
        return self._scheduler
