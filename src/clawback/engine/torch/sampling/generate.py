"""A batched sampler over any Hugging Face causal LM: token ids in, token ids and their log-probs out.

What it does that a general ``generate`` does not, and where the speed comes from:

1. **A cache with room.** Keys and values are written into buffers that grow by doubling, instead of being copied whole for
   each new token.
2. **Nothing is computed for finished rows.** A row that ends is overwritten by the last live one and the batch shrinks.
3. **One prompt, K answers.** A prompt is read once and its cache repeated.
4. **One random number a token**, drawn beforehand for each row: inverse-transform sampling. So what a row says depends on
   the seed and its place alone, not on when its neighbours end or how rows are batched (up to rounding in the model).

Log-probs are those of the tempered policy over the whole vocabulary (``Sampling``), as a trainer will recompute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from clawback.engine.devices import total_bytes
from clawback.engine.torch.sampling.choose import draw
from clawback.engine.torch.sampling.continuous import Draw, closed_ranks
from clawback.engine.torch.sampling.decoder import Decoder
from clawback.engine.torch.sampling.decoder_choice import drawing_dtype, fits
from clawback.engine.torch.sampling.ways import CACHE_SHARE, MOST_ROWS, RowBatch, batches
from clawback.engine.types import Completion, Sampling

if TYPE_CHECKING:
    from clawback.engine.torch.models.chat import Chat
    from clawback.engine.torch.models.policy import Policy
    from clawback.engine.torch.models.speakers import NextSpeaker

PLAIN = Sampling()


@dataclass(frozen=True, slots=True)
class Sampled:
    """One answer: its token ids (the end token among them, if it came), and the log-prob of each."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool


def completion(chat: Chat, prompt: Sequence[int], one: Sampled) -> Completion:
    """An answer as text and token by token."""
    thinking, text = chat.text(prompt, one.ids)
    thought = chat.thought(prompt, one.ids) if thinking else 0
    special = {chat.end_id, *chat.tokenizer.all_special_ids} if chat.speaker else set()
    stopped = bool(chat.speaker and one.finished and not special & set(one.ids[-1:]))
    return Completion(text, one.ids, one.logprobs, one.finished, thinking, thought, stopped)


def until_speaker(speaker: NextSpeaker | None, answers: Sequence[Sampled]) -> list[Sampled]:
    """The answers up to where the next speaker begins. What is left out was drawn, and belongs to no answer: nothing is learned from it."""
    return [one if speaker is None else _until(speaker, one) for one in answers]


def _until(speaker: NextSpeaker, one: Sampled) -> Sampled:
    count = speaker.cut(one.ids)
    return one if count is None else Sampled(one.ids[:count], one.logprobs[:count], True)


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
    def drawn(
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


class Sampler(Protocol):
    """Draws answers in place of the policy's own engine. The adapter is on or off as it is at the call."""

    def __call__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], chance: Chance, merge: bool
    ) -> list[list[Sampled]]: ...


@torch.no_grad()
def sample(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    samples: int = 1,
    sampling: Sampling = PLAIN,
    stop: Sequence[int] = (),
    seed: int | torch.Generator | Chance = 0,
    rows: int | None = None,
    speaker: NextSpeaker | None = None,
) -> list[list[Sampled]]:
    """``samples`` answers to each of ``prompts`` (lists of token ids, none empty), in order.

    ``stop``: token ids that end an answer; ``speaker``: whose label ends it as well, and is left out. ``seed`` may be a CPU generator, whose state then moves on, or the random numbers themselves. ``rows``: how many answers are computed at once; None chooses. The model is left in the mode (train or eval) that it was in.
    """
    if not all(prompts):
        raise ValueError("a prompt needs at least one token")
    if not isinstance(seed, Chance):
        seed = Chance.drawn(len(prompts), samples, max_tokens, sampling.truncates, seed)
    chance, again = seed.first, seed.again
    training = model.training
    model.eval()
    try:
        answers: list[list[Sampled]] = [[] for _ in prompts]
        if not prompts:
            return answers
        longest = max(map(len, prompts)) + max_tokens
        if fits(model, longest):
            dtype = drawing_dtype(model)
            rows = rows or _decoder_rows(model, longest, dtype)
            job = Draw(
                Decoder(model, dtype, rows),
                prompts,
                chance.flatten(0, 1),
                None if again is None else again.flatten(0, 1),
                sampling=sampling,
                stop=stop,
                rows=rows,
                speaker=speaker,
            )
            job.run()
            flat = until_speaker(speaker, _finished(job.tokens, job.logprobs, job.lengths, job.ended))
            return [flat[i * samples : (i + 1) * samples] for i in range(len(prompts))]
        for batch in batches(model, prompts, samples, max_tokens, rows):
            flat = draw_batch(
                model,
                [prompts[i] for i in batch],
                chance[batch].flatten(0, 1),
                None if again is None else again[batch].flatten(0, 1),
                sampling=sampling,
                stop=frozenset(stop),
                speaker=speaker,
            )
            for place, i in enumerate(batch):
                answers[i] = flat[place * samples : (place + 1) * samples]
        return answers
    finally:
        model.train(training)


def _decoder_rows(model: Any, tokens: int, dtype: torch.dtype) -> int:
    """As many rows of the lean decoder as may hold this many tokens, by the memory that the machine has in all (``most_rows``)."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    bytes_a_token = int(2 * config.num_hidden_layers * heads * size * dtype.itemsize)
    room = int(total_bytes(next(model.parameters()).device) * CACHE_SHARE)
    return max(1, min(MOST_ROWS, room // max(1, bytes_a_token * tokens)))


def draw_batch(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    chance: Tensor,
    again: Tensor | None,
    *,
    sampling: Sampling,
    stop: frozenset[int],
    speaker: NextSpeaker | None = None,
) -> list[Sampled]:
    """Answers by the model's own forward, to prompts that go together (``ways.batches``).

    ``chance [prompts × samples, max_tokens]``: the random number that decides each token; ``again`` the one for a second try.
    """
    device = next(model.parameters()).device
    total, max_tokens = chance.shape
    chance = chance.to(device)
    again = None if again is None else again.to(device)
    rows = RowBatch(model, prompts, total // len(prompts))

    tokens = torch.zeros(total, max_tokens, dtype=torch.long, device=device)
    logprobs = torch.zeros(total, max_tokens, device=device)
    lengths = [max_tokens] * total
    ended = [False] * total
    alive = torch.arange(total, device=device)  # [rows] whose answer each row of the batch writes
    for step in range(max_tokens):
        second = None if again is None else again[alive, step]
        token, log_p = draw(rows.logits, chance[alive, step], second, sampling)  # [rows] both
        tokens[alive, step] = token
        logprobs[alive, step] = log_p
        done = [t in stop for t in token.tolist()]
        if speaker is not None:
            latest = zip(alive.tolist(), token.tolist(), done, strict=True)
            done = [
                over or (t in speaker.last_tokens and speaker.spoke(tokens[row, : step + 1].tolist()))
                for row, t, over in latest
            ]
        keep: list[int] | None = None
        if any(done):
            for row, over in zip(alive.tolist(), done, strict=True):
                if over:
                    lengths[row], ended[row] = step + 1, True
            keep = closed_ranks(done)
            places = torch.tensor(keep, dtype=torch.long, device=device)
            alive, token = alive[places], token[places]
        if not len(alive) or step + 1 == max_tokens:
            break
        rows.go_on(keep, token.tolist())

    return until_speaker(speaker, _finished(tokens, logprobs, lengths, ended))


def _finished(
    tokens: Tensor, logprobs: Tensor, lengths: Sequence[int], ended: Sequence[bool]
) -> list[Sampled]:
    rows = zip(tokens.cpu(), logprobs.cpu(), lengths, ended, strict=True)
    return [Sampled(tuple(t[:n].tolist()), tuple(p[:n].tolist()), over) for t, p, n, over in rows]
