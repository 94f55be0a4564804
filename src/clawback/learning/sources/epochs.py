"""Several passes over the same ratings, each with the current policy as the old policy.

A clip around the policy that wrote an answer lets each token move by a quarter, once. To go over the same
answers again, each round takes the policy at its beginning as the old one (the proximal policy of Hilton et
al. 2021, arXiv:2110.00641), so that the clip is a trust region for a round and not for the run. Teacher
log-probs and values are recomputed with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from clawback.learning.examples import RatingSource, TrainingExample
from clawback.learning.value_head import ValueHead
from clawback.models import Encoded
from clawback.policy import Policy
from clawback.scoring import Scored

_MADE = ("old", "token_advantages", "returns", "old_values")
"""What a round makes of its examples: its state."""


class Crediting(Protocol):
    """What an algorithm that needs values has beside ``advantages`` and ``loss``; see ``rl/algorithms/ppo.py``."""

    def credit(self, rewards: Tensor, values: Tensor, segment: Tensor) -> tuple[Tensor, Tensor]:
        """[S] rewards, [N] values, [N] segments → [N] advantages and [N] returns."""
        ...

    def paid(self, rewards: Tensor, segment: Tensor) -> Tensor:
        """[S], [N] → [N]: when each reward is given."""
        ...


class Rounds(RatingSource):
    """Each round: π_old is the policy of the moment, and the advantage that a teacher gives a token is log π_teacher − log π_old."""

    def __init__(self, policy: Policy, examples: Sequence[TrainingExample], **dealing: Any) -> None:
        super().__init__([[example] for example in examples], **dealing)
        self._policy = policy
        self._all = list(examples)
        self._round = -1

    def examples(self, step: int) -> list[TrainingExample]:
        number = step * self._per_step // len(self._all)
        if number != self._round:
            # The first round keeps what was recorded when the answers were sampled.
            self._set(self._begun(self._all, keep_old=number == 0))
            self._round = number
        return super().examples(step)

    @torch.no_grad()
    def _begun(self, examples: Sequence[TrainingExample], keep_old: bool) -> list[TrainingExample]:
        """The examples as a round begins."""
        if keep_old and all(one.teacher is None for one in examples):
            return list(examples)  # nothing would come of another pass
        scored = self._scored([example.encoded for example in examples])
        now = scored.logprobs.cpu().split(list(scored.lengths))
        return [
            dataclasses.replace(
                one,
                old=one.old if keep_old else values,
                token_advantages=None if one.teacher is None else one.teacher - values,
            )
            for one, values in zip(examples, now, strict=True)
        ]

    def _scored(self, encoded: Sequence[Encoded]) -> Scored:
        return self._policy.scorer(encoded)

    def _set(self, examples: Sequence[TrainingExample]) -> None:
        self._all = list(examples)
        self._units = [[example] for example in self._all]

    def state(self) -> dict[str, Any]:
        return {"round": self._round, "made": [[getattr(e, name) for name in _MADE] for e in self._all]}

    def restore(self, state: dict[str, Any]) -> None:
        self._round = int(state["round"])
        made = [dict(zip(_MADE, row, strict=True)) for row in state["made"]]
        self._set([dataclasses.replace(e, **row) for e, row in zip(self._all, made, strict=True)])


class Valued(Rounds):
    """Each round besides: token advantages and returns by the value head of the moment."""

    critic: ValueHead

    def __init__(
        self, policy: Policy, algorithm: object, examples: Sequence[TrainingExample], **dealing: Any
    ) -> None:
        super().__init__(policy, examples, **dealing)
        self._algorithm = cast(Crediting, algorithm)
        self._kept = [_written(example) for example in examples]
        self._lengths = [len(places) for places in self._kept]
        self._segment = torch.repeat_interleave(torch.arange(len(examples)), torch.tensor(self._lengths))
        self._rewards = torch.tensor([example.advantage for example in examples])
        self._hidden = self._read()
        states = self._written_states()
        self.critic = ValueHead(states.shape[1]).to(states.device)
        nothing = torch.zeros(len(self._segment))
        _, hoped = self._algorithm.credit(self._rewards, nothing, self._segment)
        self.critic.fit(states, hoped.to(states.device))

    @torch.no_grad()
    def _begun(self, examples: Sequence[TrainingExample], keep_old: bool) -> list[TrainingExample]:
        if self._round >= 0:  # else nothing has been learned since they were read
            self._hidden = self._read()
        begun = super()._begun(examples, keep_old)
        values = self.critic(self._written_states()).cpu()
        advantages, returns = self._algorithm.credit(self._rewards, values, self._segment)
        columns = [self._scattered(begun, column) for column in (advantages, returns, values)]
        return [
            dataclasses.replace(one, token_advantages=a, returns=r, old_values=v)
            for one, a, r, v in zip(begun, *columns, strict=True)
        ]

    @torch.no_grad()
    def _read(self) -> Tensor:
        """[N, H] of all tokens of all answers, as the policy is now."""
        return self._policy.scorer.hidden([example.encoded for example in self._all])

    def _scored(self, encoded: Sequence[Encoded]) -> Scored:
        scorer = self._policy.scorer
        return scorer.of_hidden(encoded, self._hidden) if scorer.fused_head else scorer(encoded)

    def _written_states(self) -> Tensor:
        """[N, H] of the tokens that the policy wrote."""
        lengths = [len(example.encoded.response) for example in self._all]
        parts = self._hidden.split(lengths)
        chosen = [part[places.to(part.device)] for part, places in zip(parts, self._kept, strict=True)]
        return torch.cat(chosen).float()

    def _scattered(self, examples: Sequence[TrainingExample], values: Tensor) -> list[Tensor]:
        """[written tokens of all] → [tokens] of each, 0 for those that the policy did not write."""
        blank = [torch.zeros(len(example.encoded.response)) for example in examples]
        parts = zip(blank, self._kept, values.split(self._lengths), strict=True)
        return [zeros.index_put((places,), part) for zeros, places, part in parts]


def _written(example: TrainingExample) -> Tensor:
    """Places of the tokens that the policy wrote."""
    count = len(example.encoded.response)
    return torch.arange(count) if example.mask is None else example.mask.nonzero()[:, 0].cpu()
