"""A policy whose weights are elsewhere: tokenizer and chat template are local, log-probs come from the trainer.

It has the part of the engine's ``Policy`` that runs on ratings need, under the same names, so that samples,
advantages, teachers and references are made by the same code (``sources/ratings.py``). The reference is the
model before its first step: a fresh adapter changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from clawback.errors import TrainingError
from clawback.extensions.hosted.trainer_records import Datum, HostedTrainer, SampledSequence
from clawback.models import ModelInfo
from clawback.scoring import Scored
from clawback.templates import PROMPT_TOKENS, RESPONSE_TOKENS, Chat, Encoded

if TYPE_CHECKING:
    from clawback.records import Sample

MOST_GAP = 0.1
"""Nats a token between a sampler's log-probs and its trainer's, on average, above which no run begins."""


class RemotePolicy:
    """Tokenizer, template and shape of a base model, without its weights. ``connect`` gives it a trainer to ask."""

    def __init__(
        self,
        tokenizer: object,
        info: ModelInfo,
        chat_template_args: Mapping[str, object] | None = None,
        thinking: bool = False,
        system: str = "",
    ) -> None:
        self.info, self.tokenizer = info, tokenizer
        self.chat = Chat(tokenizer, chat_template_args, system)
        self.trains_thinking = thinking
        self.max_prompt = min(PROMPT_TOKENS, max(32, info.context * 3 // 4))
        self.max_response = min(RESPONSE_TOKENS, max(16, info.context - self.max_prompt))
        self.device = torch.device("cpu")
        self.moved = False
        """Whether a step was taken: from then on the base is not to be had any more."""
        self._scorer: RemoteScorer | None = None

    def connect(self, trainer: HostedTrainer, known: dict[str, list[torch.Tensor]]) -> None:
        """``known``: what was scored before, by name; it is added to, and asked for no second time."""
        self._scorer, self.moved = RemoteScorer(trainer, known), False

    @property
    def scorer(self) -> RemoteScorer:
        if self._scorer is None:
            raise TrainingError("This policy has no trainer to ask yet.")
        return self._scorer

    @contextmanager
    def base(self) -> Iterator[None]:
        if self.moved:
            raise TrainingError(
                "A hosted trainer has the base model's log-probs before the first step alone. Use reinforce, grpo, mis-po, rloo or dpo."
            )
        yield

    def encode(self, sample: Sample) -> Encoded:
        """A sample as token ids, within this model's context."""
        return self.chat.encode(
            sample.messages,
            sample.response,
            sample.response_ids,
            limits=(self.max_prompt, self.max_response),
            thinking=self.trains_thinking,
            ends=sample.ends,
        )


@dataclass
class RemoteScorer:
    """Log-probs by the trainer's forward pass. Each call has a name that is the same in a resumed run: its place in the run, and a counter there."""

    trainer: HostedTrainer
    known: dict[str, list[torch.Tensor]]
    stage: str = field(default="start", init=False)
    calls: int = field(default=0, init=False)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"), init=False)

    def at(self, stage: str) -> None:
        """Calls from now on belong to this place of the run."""
        self.stage, self.calls = stage, 0

    def __call__(self, encoded: Sequence[Encoded]) -> Scored:
        key, self.calls = f"{self.stage}/{self.calls}", self.calls + 1
        if key not in self.known:
            self.known[key] = forward(self.trainer, key, encoded)
        values = self.known[key]
        return Scored(torch.cat(values or [torch.zeros(0)]), tuple(map(len, values)))


def datum(encoded: Encoded, weights: torch.Tensor | None = None) -> Datum:
    """A prompt and its response as one sequence. ``weights`` [response tokens]; the prompt's are 0."""
    ids = (*encoded.prompt, *encoded.response)
    given = [1.0] * len(encoded.response) if weights is None else weights.tolist()
    return Datum.of(ids, weights=(*([0.0] * (len(encoded.prompt) - 1)), *given))


def forward(trainer: HostedTrainer, key: str, encoded: Sequence[Encoded]) -> list[torch.Tensor]:
    """[response tokens] float32 of each."""
    scores = trainer.forward(key, [datum(one) for one in encoded])
    return [
        torch.tensor(values[len(one.prompt) - 1 :], dtype=torch.float32)
        for one, values in zip(encoded, scores.logprobs, strict=True)
    ]


def gap(trainer: HostedTrainer, key: str, prompt: Sequence[int], sequence: SampledSequence) -> float:
    """Nats a token, on average, between the log-probs that a sampler gave with its answer and its trainer's."""
    [values] = forward(trainer, key, [Encoded(tuple(prompt), sequence.tokens)])
    return float((values - torch.tensor(sequence.logprobs)).abs().mean())
