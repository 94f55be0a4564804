"""Log-probabilities of responses: the hot path of training.

A ``Scorer`` uses the fastest way that the model provably supports:

* **packed**: all sequences end to end in one row, attention within each (``attention.py``). No padding anywhere, and a beginning
  that several have in common goes through the model once.
* **padded**: sequences of similar length together, padded on the right, through the model's own attention. Works
  with any causal LM; also used for sequences longer than a sliding window.
* **alone**: one sequence after the other, where a batch is not the same.
* Either way the decoder's body runs first and the LM head sees response positions only, in tiles (``lm_head.py``). A head
  that is more than the product, scale and cap that ``Head`` knows goes through the model's whole forward instead.

"Provably": when a scorer is made, three short sequences go through the model's own forward and through the fast ways, and
a way whose results differ is not used. So a new model family is at worst slow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clawback.errors import ModelError
from clawback.models import marks, read_as
from clawback.models.traits import attends_only, check_causal, forward, takes_padding, window
from clawback.scoring.attention import Layout, Unsupported, common, configs_of, engaged, grain_of
from clawback.scoring.lm_head import Head, divergence, token_logprobs
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.scoring.choices import Choices

MICRO_TOKENS = 2048
"""Tokens that go through the model at once. Matrix products gain nothing from more, and activations grow with it."""

_ROWS = 64
"""Rows of a packed batch on a CPU come in multiples of this. oneDNN compiles code for each new shape of a product and keeps it:
half a millisecond and half a megabyte each, twenty shapes a layer, and no two batches would have the same."""
_CANNOT = (Unsupported, TypeError, ValueError, AttributeError, RuntimeError, IndexError, KeyError)
"""What a model raises that does not know a way."""
_WORTH = 0.1
"""Share of the tokens that has to be saved for sequences to be ordered by their beginnings and not by length."""


@dataclass(frozen=True)
class Scored:
    """Response tokens of S sequences laid end to end, in the order in which they were given."""

    logprobs: Tensor
    """[N] float32"""
    lengths: tuple[int, ...]
    """[S] response tokens of each."""
    entropy: Tensor | None = None
    """[N] float32"""
    kl: Tensor | None = None
    """[N] float32, exact divergence from a reference at each position."""

    def split(self) -> list[Tensor]:
        """One tensor [tokens] a sequence."""
        return list(self.logprobs.split(list(self.lengths)))


class Scorer:
    """Scores responses under a model as it is at the moment of the call (adapter on or off, whatever is active)."""

    def __init__(
        self, model: nn.Module, *, temperature: float = 1.0, micro_tokens: int = MICRO_TOKENS
    ) -> None:
        """``temperature``: log-probs, entropies and divergences are those of softmax(logits / temperature)."""
        self.model = model
        self.temperature = 1.0
        self.micro_tokens = micro_tokens
        inner: Any = model
        self._causal: Any = inner.get_base_model() if hasattr(inner, "get_base_model") else inner
        self._body: Any = getattr(self._causal, self._causal.base_model_prefix, None)
        self._configs = configs_of(model)
        head = self._causal.get_output_embeddings()
        weight = next(model.parameters()) if head is None else head.weight
        self._dtype, self._grain = weight.dtype, grain_of(weight)
        self._window = window(self._causal.config)
        self.packed = False
        self.alone = False
        """Each sequence goes through the model by itself."""
        self.shares = False
        """Common beginnings go through the model once, where it is packed."""
        self.fused_head = True
        self.choices: Choices | None = None
        """What replies are held to."""
        self._probe()
        self.temperature = temperature

    def __call__(self, encoded: Sequence[Encoded], *, entropy: bool = False) -> Scored:
        """Score any number of sequences, ``micro_tokens`` at a time.

        Gradients flow where they are enabled; for training, call it on one piece of ``pieces`` at a time
        and go backward in between, or the activations of all are kept.
        """
        parts: dict[str, dict[int, Tensor]] = {"logprobs": {}, "entropy": {}, "kl": {}}
        for piece in self.pieces(encoded):
            scored = self._score([encoded[i] for i in piece], entropy)
            for name, by_place in parts.items():
                values = getattr(scored, name)
                if values is not None:
                    by_place |= zip(piece, values.split(list(scored.lengths)), strict=True)
        lengths = tuple(len(one.response) for one in encoded)

        def joined(name: str) -> Tensor:
            some = parts[name]
            return torch.cat([some[i] for i in sorted(some)] or [torch.zeros(0, device=self.device)])

        return Scored(
            joined("logprobs"),
            lengths,
            joined("entropy") if entropy else None,
            joined("kl") if parts["kl"] else None,
        )

    def against(
        self, encoded: Sequence[Encoded], reference: Tensor, cover: float = 0.0, at: Tensor | None = None
    ) -> Scored:
        """Log-probs with the exact divergence (``lm_head.py``) from the model whose states are ``reference`` [M, H].

        For one of ``pieces``, as a step of training takes them. Needs ``fused_head``.

        Args:
            at: [M] places of those tokens among the N of all; None for all. Elsewhere the divergence, which costs most of what the vocabulary
                costs, is not asked for and is 0.
        """
        lengths = tuple(len(one.response) for one in encoded)
        targets = torch.tensor([t for one in encoded for t in one.response], device=self.device)
        states = self.states(encoded)
        values, _ = token_logprobs(self.head, states, targets)
        if at is None:
            return Scored(values, lengths, kl=divergence(self.head, states, reference, cover))
        there = divergence(self.head, states[at], reference, cover)
        return Scored(values, lengths, kl=torch.zeros_like(values).index_copy(0, at, there))

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @contextmanager
    def engaged(self, encoded: Sequence[Encoded] = ()) -> Iterator[None]:
        """Keep packed attention on over a backward pass that computes layers again (gradient checkpointing), for one of ``pieces``. One with pictures is
        not packed, and what looks at them has attention of another kind."""
        with engaged(self._configs) if self.packed and not _sees(encoded) else nullcontext():
            yield

    def pieces(self, encoded: Sequence[Encoded], together: int = 1, *, share: bool = True) -> list[list[int]]:
        """Indices of sequences that fit into one pass each. Sequences of like length go together, so that
        padding, where it is needed, is short; those with much of a beginning in common follow each other. A sequence is never cut,
        and with ``together`` each two (three, …) that follow each other stay in one pass.

        Args:
            share: what is common to several counts once, as in ``states``.
        """
        rows = [_row(one) for one in encoded]
        longest = max(map(len, rows), default=0)
        share = share and self.packed and self.shares and longest <= self._window and not _sees(encoded)
        units = [list(range(i, min(i + together, len(rows)))) for i in range(0, len(rows), together)]
        units.sort(key=lambda unit: (max(len(rows[i]) for i in unit), unit))
        if share:
            alike = sorted(units, key=lambda unit: ([rows[i] for i in unit], unit))
            by_length, by_beginning = (
                self._new([rows[i] for u in some for i in u]) for some in (units, alike)
            )
            if by_length - by_beginning > _WORTH * by_length:
                units = alike
        result: list[list[int]] = []
        used = 0
        for unit in units:
            own = [rows[i] for i in unit]
            last = rows[result[-1][-1]] if result else ()
            whole = sum(map(len, own))
            new = self._new(own, last) if share else whole
            used += new
            piece = [*(result[-1] if result else []), *unit]
            cost = used if self.packed else max(len(rows[i]) for i in piece) * len(piece)
            # What shares most of itself goes along beyond the limit: apart, a long beginning would be computed again for it.
            most = self.micro_tokens + (longest if 2 * new <= whole else 0)
            if result and cost <= most:
                result[-1] += unit
            else:
                result.append(unit)
                used = self._new(own) if share else sum(map(len, own))
        return result

    def _new(self, rows: Sequence[tuple[int, ...]], last: tuple[int, ...] = ()) -> int:
        """Tokens of a pass over these that no sequence before has, which the one after ``last`` is the first of."""
        pairs = zip((last, *rows), rows, strict=False)
        return sum(len(row) - common(before, row, self._grain) for before, row in pairs)

    def hidden(self, encoded: Sequence[Encoded], *, of_response: bool = False) -> Tensor:
        """Last hidden states [N, H] of all sequences, in order, at the positions that *predict* the response tokens.

        With ``of_response`` at the response tokens themselves: what the model makes of them once read.
        """
        if of_response:
            # One more token at the end moves the window by one; what it is does not matter to those before it.
            encoded = [
                dataclasses.replace(
                    one, prompt=(*one.prompt, one.response[0]), response=(*one.response[1:], 0)
                )
                for one in encoded
                if one.response
            ]
        states: list[Tensor | None] = [None] * len(encoded)
        for piece in self.pieces(encoded):
            chosen = [encoded[i] for i in piece]
            lengths = [len(one.response) for one in chosen]
            for index, part in zip(piece, self.states(chosen).split(lengths), strict=True):
                states[index] = part
        return torch.cat([state for state in states if state is not None])

    def of_hidden(self, encoded: Sequence[Encoded], states: Tensor) -> Scored:
        """Log-probs from the states [N, H] that ``hidden`` gave, without another pass. Needs ``fused_head``."""
        lengths = tuple(len(one.response) for one in encoded)
        targets = torch.tensor([t for one in encoded for t in one.response], device=self.device)
        return Scored(token_logprobs(self.head, states, targets)[0], lengths)

    @property
    def head(self) -> Head:
        """The LM head as it stands, at the scorer's temperature. Only valid where ``fused_head`` is true."""
        layer, config = self._causal.get_output_embeddings(), self._causal.config
        scale = float(getattr(config, "logit_scale", None) or 1.0)
        scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        cap = float(getattr(config, "final_logit_softcapping", None) or 0.0)
        return Head(layer.weight, getattr(layer, "bias", None), scale, cap).at(self.temperature)

    def _score(self, encoded: Sequence[Encoded], entropy: bool) -> Scored:
        lengths = tuple(len(one.response) for one in encoded)
        targets = torch.tensor([t for one in encoded for t in one.response], device=self.device)
        if self.choices is not None:
            from clawback.scoring.choices import choice_logprobs

            table, uniform = (part.to(self.device) for part in self.choices.table(encoded))
            values, free, kl = choice_logprobs(self.head, self.states(encoded), targets, table, uniform)
            return Scored(values, lengths, free if entropy else None, kl)
        if self.fused_head:
            values, entropies = token_logprobs(self.head, self.states(encoded), targets, entropy=entropy)
            return Scored(values, lengths, entropies)
        logits = self._rows(encoded, self.model).float()
        logits = (logits / self.temperature).log_softmax(-1)  # [N, V]
        chosen = logits.gather(1, targets[:, None])[:, 0]
        spread = -(logits.detach().exp() * logits.detach()).sum(-1) if entropy else None
        return Scored(chosen, lengths, spread)

    def states(self, encoded: Sequence[Encoded], *, share: bool = True) -> Tensor:
        """[N, H] hidden states from which the response tokens are predicted, of one of ``pieces``.

        Without ``share`` each token of each sequence goes through the layers, in order: for those who look at them there.
        """
        if self.packed and max(map(_tokens, encoded)) <= self._window and not _sees(encoded):
            return self._packed(encoded, share and self.shares)
        return self._rows(encoded, self._body)

    def _rows(self, encoded: Sequence[Encoded], through: object) -> Tensor:
        """[N, H] through the body, or [N, V] logits through the whole model. Each sequence with pictures goes by itself."""
        if not _sees(encoded) and not self.alone:
            return self._padded(encoded, through)
        return torch.cat(
            [self._seeing(one, through) if one.pixels else self._padded([one], through) for one in encoded]
        )

    def _seeing(self, encoded: Encoded, through: Any) -> Tensor:
        assert encoded.pixels is not None
        known = marks(self._causal.config)
        said = (read_as(token, known) for token in encoded.response[:-1])
        ids = torch.tensor([[*encoded.prompt, *said]], device=self.device)
        beside = encoded.pixels.model_inputs(ids.shape[1], self.device, self._dtype)
        out: Tensor = through(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **beside)[
            0
        ]
        return out[0, len(encoded.prompt) - 1 :]

    def _packed(self, encoded: Sequence[Encoded], share: bool) -> Tensor:
        rows = [_row(one) for one in encoded]
        layout = Layout.of(rows, self._grain if share else 0)
        ids = [token for row, shared in zip(rows, layout.shared, strict=True) for token in row[shared:]]
        positions = [
            i for n, shared in zip(layout.lengths, layout.shared, strict=True) for i in range(shared, n)
        ]
        wanted = [
            place
            for one, places in zip(encoded, layout.places(), strict=True)
            for place in places[len(one.prompt) - 1 :][: len(one.response)]
        ]
        if spare := self._spare(len(ids)):
            ids += [0] * spare
            positions += range(spare)
            layout = Layout((*layout.lengths, spare), (*layout.shared, 0))
        device = self.device
        with engaged(self._configs):
            states: Tensor = self._body(
                input_ids=torch.tensor([ids], device=device),
                position_ids=torch.tensor([positions], device=device),
                # Four dimensions: transformers takes such a mask as ready-made and builds none of [T, T].
                attention_mask=torch.zeros(1, 1, 1, 1, device=device),
                packed_layout=layout,
                use_cache=False,
            )[0]
        return states[0, torch.tensor(wanted, device=device)]

    def _spare(self, tokens: int) -> int:
        """Tokens to add at the end so that products on a CPU see few shapes."""
        return -tokens % _ROWS if self.device.type == "cpu" else 0

    def _padded(self, encoded: Sequence[Encoded], through: object) -> Tensor:
        """``_rows`` of text: in one batch, padded on the right."""
        lengths = list(map(_tokens, encoded))
        ids = torch.zeros(len(encoded), max(lengths), dtype=torch.int64)
        mask = torch.zeros_like(ids)
        wanted = torch.zeros_like(ids, dtype=torch.bool)
        for row, (one, length) in enumerate(zip(encoded, lengths, strict=True)):
            ids[row, :length] = torch.tensor([*one.prompt, *one.response[:-1]])
            mask[row, :length] = 1
            wanted[row, len(one.prompt) - 1 : length] = True
        device = self.device
        inputs = {"input_ids": ids.to(device), "use_cache": False}
        if not self.alone:
            inputs["attention_mask"] = mask.to(device)
        out: Tensor = forward(through, **inputs)[0]
        return out[wanted.to(device)]

    @torch.no_grad()
    def _probe(self) -> None:
        """Find out which fast ways agree with the model's own forward, one sequence at a time. Raises ``ModelError`` where none does."""
        check_causal(self._causal)
        count = self._causal.config.get_text_config().vocab_size
        generator = torch.Generator().manual_seed(0)
        encoded = []
        for prompt, response in ((4, 5), (1, 8), (7, 3)):
            ids = torch.randint(0, count, (prompt + response,), generator=generator).tolist()
            encoded.append(Encoded(tuple(ids[:prompt]), tuple(ids[prompt:])))
        expected = torch.cat([self._stock(one) for one in encoded])
        ways = ((True, True, False), (False, True, False), (False, False, False), (False, True, True))
        for packed, fused, alone in (*ways, (False, False, True)):
            if packed and not attends_only(self._causal.config):
                continue  # what else it passes on would flow from one sequence into the next
            if not alone and not takes_padding(self._causal.config):
                continue
            self.packed, self.fused_head, self.alone = packed, fused, alone
            try:
                if _agree(self._score(encoded, False).logprobs, expected, self._dtype):
                    if packed and self._leaks(encoded):
                        continue
                    self.shares = packed and self._sharing_agrees()
                    return
            except _CANNOT:
                continue
        raise ModelError(
            f"{type(self._causal).__name__} does not give the same log-probs twice, so nothing can be learned with it. "
            "Choose another model: `clawback model list`."
        )

    def _leaks(self, encoded: Sequence[Encoded]) -> bool:
        """Whether the states of a packed sequence depend on the tokens of the one before it, by more than rounding."""
        first, second = encoded[:2]
        changed = Encoded(tuple(reversed(first.prompt)), tuple(reversed(first.response)))
        states, others = (
            self._packed([previous, second], False)[len(first.response) :].float()
            for previous in (first, changed)
        )
        apart = float((states - others).abs().mean() / states.abs().mean())
        return not apart < max(4e-6, 8 * torch.finfo(self._dtype).eps)

    def _sharing_agrees(self) -> bool:
        """Whether two answers to one prompt are scored alike with the prompt read once and twice."""
        count = self._causal.config.get_text_config().vocab_size
        ids = torch.randint(0, count, (48,), generator=torch.Generator().manual_seed(1)).tolist()
        both = [Encoded(tuple(ids[:36]), tuple(response)) for response in (ids[36:42], ids[42:])]
        if max(map(_tokens, both)) > self._window:
            return False
        try:
            once, twice = (self.states(both, share=share) for share in (True, False))
        except _CANNOT:
            return False
        targets = torch.tensor(ids[36:], device=self.device)
        if not self.fused_head:
            return torch.allclose(once.float(), twice.float(), rtol=0.05, atol=1e-3)
        values = [token_logprobs(self.head, states, targets)[0] for states in (once, twice)]
        return _agree(values[0], values[1], self._dtype)

    def _stock(self, encoded: Encoded) -> Tensor:
        ids = torch.tensor([[*encoded.prompt, *encoded.response]], device=self.device)
        out = forward(self.model, input_ids=ids, use_cache=False)
        logits: Tensor = out.logits[0].float().log_softmax(-1)  # [T, V]
        start = len(encoded.prompt)
        return logits[start - 1 : -1].gather(1, ids[0, start:, None])[:, 0]


def _row(encoded: Encoded) -> tuple[int, ...]:
    """The tokens that have to go in: the last response token predicts nothing."""
    return (*encoded.prompt, *encoded.response[:-1])


def _tokens(encoded: Encoded) -> int:
    """How many those are."""
    return len(encoded.prompt) + len(encoded.response) - 1


def _sees(encoded: Sequence[Encoded]) -> bool:
    return any(one.pixels for one in encoded)


def _agree(values: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    """Within rounding: 16-bit kernels round differently with every shape, by a share of the logits; a missing cap or scale is far outside.

    A 135 M model in bfloat16 is 0.06 nats of 14 away from itself in float32, by its own forward as by the packed one.
    """
    difference = (values - expected).abs()
    if not difference.isfinite().all():
        return False
    if dtype == torch.float32:
        return float(difference.max()) < 1e-3
    usual = float(expected.abs().mean())
    return float(difference.max()) < max(0.5, 0.05 * usual) and float(difference.mean()) < max(
        0.05, 0.01 * usual
    )
