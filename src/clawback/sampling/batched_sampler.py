"""A batched sampler over any Hugging Face causal LM: token ids in, token ids and their log-probs out.

What it does that a general ``generate`` does not, and where the speed comes from:

1. **A cache with room.** Keys and values are written into buffers that grow, instead of being copied whole for each new token.
2. **Nothing is computed for finished rows.** A row that ends is overwritten by the last live one, and the next prompts join.
3. **One prompt, K answers.** A prompt is read once, and so is what several prompts begin with.
4. **One random number a token**, drawn beforehand for each row: inverse-transform sampling. So what a row says depends on
   the seed and its place alone, not on when its neighbours end or how rows are batched (up to rounding in the model).

Log-probs are those of the tempered policy over the whole vocabulary (``Sampling``), as a trainer will recompute them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clawback.devices import total_bytes
from clawback.models import Completion, Sampling
from clawback.models.traits import takes
from clawback.sampling.choose import PLAIN, SamplingRequest
from clawback.sampling.decoder_choice import drawing_dtype, fits
from clawback.sampling.prefix_tree import by_family
from clawback.sampling.scheduler import MOST_ROWS, Lean, Rows, Scheduler

if TYPE_CHECKING:
    from clawback.templates import Chat, NextSpeaker, Pixels


@dataclass(frozen=True, slots=True)
class Sampled:
    """One answer: its token ids (the end token among them, if it came), and the log-prob of each."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


def completion(chat: Chat, prompt: Sequence[int], sampled: Sampled) -> Completion:
    """An answer as text and token by token."""
    thinking, text = chat.text(prompt, sampled.ids)
    thought = chat.thought(prompt, sampled.ids) if thinking else 0
    special = {chat.end_id, *chat.tokenizer.all_special_ids} if chat.speaker else set()
    stopped = bool(chat.speaker and sampled.finished and not special & set(sampled.ids[-1:]))
    return Completion(text, sampled.ids, sampled.logprobs, sampled.finished, thinking, thought, stopped)


def answer(request: SamplingRequest) -> Sampled:
    """What was drawn, up to where the next speaker begins: the rest belongs to no answer, and nothing is learned from it."""
    sampled = Sampled(tuple(request.ids), tuple(request.logprobs), request.end == "stop")
    return until_speaker(request.speaker, [sampled])[0]


def until_speaker(speaker: NextSpeaker | None, answers: Sequence[Sampled]) -> list[Sampled]:
    """Answers up to where the next speaker begins."""
    cuts = [None if speaker is None else speaker.cut(sampled.ids) for sampled in answers]
    return [
        sampled if count is None else Sampled(sampled.ids[:count], sampled.logprobs[:count], True)
        for sampled, count in zip(answers, cuts, strict=True)
    ]


def stop_ids(model: Any, end_id: int) -> tuple[int, ...]:
    """Every token that ends an answer: that of the chat template, and those that the model's own settings name."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    named = named if isinstance(named, (list, tuple)) else [named]
    return tuple(sorted({end_id, *(int(token) for token in named if token is not None)}))


@dataclass(frozen=True)
class Chance:
    """The random numbers that decide every token of some answers: with them a draw gives the same answers wherever it is made, up to rounding."""

    first: Tensor
    """[prompts, samples, max_tokens]"""
    again: Tensor | None = None
    """The same for a second try, where the distribution is truncated."""

    @classmethod
    def of_seed(
        cls, prompts: int, samples: int, max_tokens: int, truncates: bool, seed: int | torch.Generator
    ) -> Chance:
        """From a seed, or a CPU generator, whose state then moves on."""
        generator = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        first = torch.rand(prompts, samples, max_tokens, generator=generator)
        return cls(first, torch.rand(first.shape, generator=generator) if truncates else None)

    def of(self, begin: int, end: int) -> Chance:
        """Those of some of the prompts."""
        return self.at(range(begin, end))

    def at(self, places: Sequence[int]) -> Chance:
        """Those of the prompts in some places."""
        some = torch.as_tensor(places, dtype=torch.long)
        return Chance(self.first[some], None if self.again is None else self.again[some])

    def numbers(self, prompt: int, sample: int) -> Iterator[tuple[float, float]]:
        """Two for each token of an answer."""
        first = self.first[prompt, sample].tolist()
        again = first if self.again is None else self.again[prompt, sample].tolist()
        return iter(zip(first, again, strict=True))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model is left in the mode (train or eval) that it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How answers are drawn. None: as the policy itself says."""

    samples: int = 1
    """Answers to each prompt."""
    max_tokens: int | None = None
    """Tokens of an answer, at most."""
    sampling: Sampling | None = None
    seed: int | torch.Generator | Chance = 0
    """A CPU generator's state moves on; a ``Chance`` is the random numbers themselves."""
    rows: int | None = None
    """Answers that are computed at once. None: as many as the memory holds."""
    stop: Sequence[int] | None = None
    """Token ids that end an answer; empty: nothing does."""

    def chance(self, prompts: Sequence[Sequence[int]]) -> Chance:
        """The random numbers of answers to these prompts. Raises ``ValueError`` for an empty prompt, and where ``max_tokens`` is not set."""
        if not all(prompts):
            raise ValueError("a prompt needs at least one token")
        if isinstance(self.seed, Chance):
            return self.seed
        if self.max_tokens is None:
            raise ValueError("max_tokens is not set")
        truncates = (self.sampling or PLAIN).truncates
        return Chance.of_seed(len(prompts), self.samples, self.max_tokens, truncates, self.seed)


@torch.no_grad()
def sample(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    settings: DrawSettings,
    *,
    speaker: NextSpeaker | None = None,
    pixels: Sequence[Pixels | None] | None = None,
) -> list[list[Sampled]]:
    """Answers to each of ``prompts`` (lists of token ids, none empty), in order.

    Args:
        settings: with ``max_tokens``.
        speaker: whose label ends an answer as well, and is left out.
        pixels: what is seen beside each prompt.

    Raises:
        ValueError: an empty prompt, or no ``max_tokens``.
    """
    chance = settings.chance(prompts)
    if not prompts:
        return []
    sampling, rows = settings.sampling or PLAIN, settings.rows
    longest = max(map(len, prompts)) + (settings.max_tokens or 0)
    with evaluating(model):
        lean = fits(model, longest)
        rows = rows or most_rows(model, longest, lean)
        some = rows_of(lambda: model, lean, expected=rows, eyes=bool(pixels and any(pixels)))
        requests = requests_for(prompts, chance, sampling=sampling, speaker=speaker, pixels=pixels)
        return draw_answers(some, requests, settings.stop or (), rows)


def requests_for(
    prompts: Sequence[Sequence[int]],
    chance: Chance,
    *,
    sampling: Sampling,
    speaker: NextSpeaker | None = None,
    pixels: Sequence[Pixels | None] | None = None,
) -> list[list[SamplingRequest]]:
    """A request for each of the random numbers ``[prompts, samples, max_tokens]``."""
    _, samples, max_tokens = chance.first.shape
    return [
        [
            SamplingRequest(
                prompt,
                max_tokens,
                sampling=sampling,
                chance=chance.numbers(i, k),
                speaker=speaker,
                pixels=pixels[i] if pixels else None,
            )
            for k in range(samples)
        ]
        for i, prompt in enumerate(prompts)
    ]


def draw_answers(
    rows: Rows, requests: Sequence[Sequence[SamplingRequest]], stop: Sequence[int], most: int | None = None
) -> list[list[Sampled]]:
    """The answers by ``rows`` to the requests of each prompt, at most ``most`` at once."""
    most = most or MOST_ROWS
    order = by_family([list(group[0].prompt) for group in requests])
    groups = [requests[i][k : k + most] for i in order for k in range(0, len(requests[i]), most)]
    Scheduler(rows, stop, most).run(groups)
    return [[answer(request) for request in group] for group in requests]


CACHE_SHARE = 1 / 8
"""Of the memory, for the cache of all rows."""
MOST_TOKENS = 4096
"""Tokens of a batch whose logits are computed at every position."""


def rows_of(
    model: Callable[[], Any],
    lean: bool,
    *,
    expected: int,
    memory: bool = False,
    context: int = 0,
    eyes: bool = False,
) -> Rows:
    """For the version that the model speaks for now. ``lean``: by the lean decoder (``Lean``); ``eyes``: some may have pictures."""
    rows: Rows
    if lean:
        rows = Lean(model(), expected, memory, context)
    else:
        from clawback.sampling.padded import Padded
        from clawback.sampling.ways import Apart, way_of

        way = way_of(model())
        rows = Padded(model) if way.padded else Apart(model, way)
    return _with_eyes(model, rows) if eyes else rows


def _with_eyes(model: Callable[[], Any], rows: Rows) -> Rows:
    from clawback.sampling.ways import Apart, Way

    return rows if isinstance(rows, Apart) else Apart(model, Way(), rows)


def most_rows(model: Any, tokens: int, lean: bool) -> int:
    """As many rows as may hold this many tokens in the cache, by the lean decoder or by the model's own forward.

    By the memory that the machine has in all and not by what is free at the moment: how rows are batched must follow from the
    machine alone, or the same seed would not give the same bits.
    """
    room = int(total_bytes(next(model.parameters()).device) * CACHE_SHARE)
    if lean:
        return max(1, min(MOST_ROWS, room // max(1, _decoder_bytes(model) * tokens)))
    from clawback.sampling.ways import way_of

    way = way_of(model)
    rows = room // max(1, way.row_bytes + way.token_bytes * tokens)
    if not (way.padded or way.cached) or not takes(model, "logits_to_keep"):
        rows = min(rows, MOST_TOKENS // tokens)
    return max(1, min(MOST_ROWS, rows))


def _decoder_bytes(model: Any) -> int:
    """Of a token in the lean decoder's cache."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * drawing_dtype(model).itemsize)
