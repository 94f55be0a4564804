"""A lean forward pass for sampling: Llama-like models as plain functions over the module's weights.

When a row is one token, a module's own forward spends more time around its matrix products than in them: a
dozen Python calls per layer, masks made anew, the cache copied, keys repeated for grouped heads. Here a step
is its products, one attention call per layer and one mask for all layers. On a processor with bfloat16
products a float32 model's weights are cast once, which makes a step about five times as fast; the residual
stream stays float32.

A ``Decoder`` is a snapshot: it holds the weights that the module has when it is made, with the active adapter
merged in. ``decoder_choice.fits`` says whether a module is supported, and verifies it: a short sequence goes
through both. Others are sampled by their own forward (``generate.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from clawback.engine.torch.sampling import step_attention, step_kernels
from clawback.engine.torch.sampling.products import (
    Block,
    Linear,
    Packed,
    Product,
    Several,
    adapted,
    can_pack,
    cast,
    effective,
    norm,
)
from clawback.engine.torch.sampling.step_kernels import Kernels
from clawback.engine.torch.scoring.linear import onednn
from clawback.engine.torch.threads import alone

SMALL = 20_000_000
"""Parameters under which a cast to 16 bits gains nothing: such a model is overhead, and fits into the cache."""
_BRIEF_BYTES, _BRIEF_FLOPS = 8e6, 6e7
"""What one thread reads and multiplies in some 150 µs."""
_SHARE = 64
"""A copy of the base's weights may take the machine's memory divided by this."""
_BRIEF_PIECE = 64
"""Tokens up to which a piece is read token by token: attention of one token over what is in the processor's cache costs no more than padding, masks and copies do."""
_FEW_SHAPES = 32
"""Rows of products that are read come in multiples of this: oneDNN compiles code for each new shape."""
_ROOM = 64
"""Columns that a cache grows by at least."""


class Cache:
    """Keys and values, a slot for each answer under way. What a slot holds begins in column 0 and is as long as its row's position.

    ``keys``, ``values``: for each layer ``[slots, heads, columns, size]``.
    """

    def __init__(self, decoder: Decoder, slots: int, columns: int) -> None:
        shape = (slots, decoder.kv_heads, columns, decoder.size)
        options: Any = {"dtype": decoder.dtype, "device": decoder.device}
        self.keys = [torch.zeros(shape, **options) for _ in decoder.blocks]
        self.values = [torch.zeros(shape, **options) for _ in decoder.blocks]

    @property
    def columns(self) -> int:
        return self.keys[0].shape[2]

    def grow(self, columns: int) -> None:
        """Have at least so many columns."""
        if columns <= self.columns:
            return
        more = max(columns, self.columns + self.columns // 2, self.columns + _ROOM)
        for both in (self.keys, self.values):
            for i, old in enumerate(both):
                new = old.new_zeros(*old.shape[:2], more, old.shape[3])
                new[:, :, : old.shape[2]] = old
                both[i] = new

    def widen(self, slots: int) -> None:
        """Have at least so many slots."""
        for both in (self.keys, self.values):
            for i, old in enumerate(both):
                if slots > len(old):
                    new = old.new_zeros(slots, *old.shape[1:])
                    new[: len(old)] = old
                    both[i] = new

    def move(self, sources: Tensor, targets: Tensor, columns: int) -> None:
        """Copy slots onto others."""
        for both in (self.keys, self.values):
            for one in both:
                one[targets, :, :columns] = one[sources, :, :columns]


class Decoder:
    """The model at this moment. All methods under ``torch.no_grad``."""

    def __init__(self, model: Any, dtype: torch.dtype | None = None, rows: int = 64) -> None:
        """``dtype``: what products are computed in; None is the module's own. ``rows``: how many are expected in a step."""
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model
        body, config = causal.model, causal.config
        head = causal.get_output_embeddings()
        own = head.weight.dtype
        self.dtype = dtype or own
        count = sum(p.numel() for p in causal.parameters())
        # Joining weights and putting them in order copies them: free where they are cast or an adapter is added in, which copies them anyway.
        copied = self.dtype != own or adapted(causal)
        on_cpu = head.weight.device.type == "cpu"
        joined = copied or count < SMALL or (on_cpu and _spared(count * own.itemsize))
        self.heads = int(config.num_attention_heads)
        self.kv_heads = int(config.num_key_value_heads)
        first = body.layers[0].self_attn
        self.size = int(first.head_dim)
        self.silu = getattr(config, "hidden_act", "") in ("silu", "swish")
        self.largest = 2 * int(config.hidden_size) * int(config.intermediate_size)
        self.embedding: Tensor = body.embed_tokens.weight
        self.rotary = body.rotary_emb
        self.norm = norm(body.norm)
        self.quick = on_cpu and self.dtype == torch.bfloat16 and can_pack()
        """Products of bfloat16 are the processor's own."""
        self.packed_for = rows if joined and self.quick else 0
        self.ordered_for = (
            rows if on_cpu and self.dtype == torch.float32 and count < SMALL and onednn() else 0
        )
        self.head = self._packed(head.weight.to(self.dtype), cast(getattr(head, "bias", None), self.dtype))
        self.blocks = [self._block(layer, joined) for layer in body.layers]
        self.kernels = (
            step_kernels.kernels_for(self.dtype, self.heads, self.kv_heads, self.size) if on_cpu else None
        )
        self.cos, self.sin = self._rope(256)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    def _packed(self, weight: Tensor, bias: Tensor | None) -> Linear | Packed:
        if self.ordered_for:
            weight = weight.contiguous()
            ordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), self.ordered_for)
            return Linear(weight, bias, Packed(ordered, bias))
        if not self.packed_for:
            return Linear(weight, bias)
        return Packed(torch.ops.mkldnn._reorder_linear_weight(weight, self.packed_for), bias)

    def _block(self, layer: Any, joined: bool) -> Block:
        a, m = layer.self_attn, layer.mlp

        def plain(module: Any) -> Linear:
            weight, bias = effective(module)
            return Linear(weight.to(self.dtype), cast(bias, self.dtype))

        def single(module: Any) -> Product:
            one = plain(module)
            return self._packed(one.weight, one.bias)

        def joint(*modules: Any) -> Product:
            parts = tuple(map(plain, modules))
            biases = [part.bias for part in parts if part.bias is not None]
            if not joined or len(biases) not in (0, len(parts)):
                return Several(parts)
            return self._packed(torch.cat([p.weight for p in parts]), torch.cat(biases) if biases else None)

        return Block(
            before=norm(layer.input_layernorm),
            qkv=joint(a.q_proj, a.k_proj, a.v_proj),
            q_norm=norm(a.q_norm) if hasattr(a, "q_norm") else None,
            k_norm=norm(a.k_norm) if hasattr(a, "k_norm") else None,
            out=single(a.o_proj),
            after=norm(layer.post_attention_layernorm),
            gate_up=joint(m.gate_proj, m.up_proj),
            act=m.act_fn,
            down=single(m.down_proj),
            scaling=float(a.scaling),
        )

    def _rope(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin [positions, size] in float32."""
        probe = torch.zeros(1, dtype=torch.float32, device=self.device)
        cos, sin = self.rotary(probe, torch.arange(positions, device=self.device)[None])
        return cos[0], sin[0]

    def turns(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [… or broadcast, 1, size] of positions, for all layers."""
        return self.cos[position][..., None, :], self.sin[position][..., None, :]

    def normed(self, block: Block, qkv: Tensor) -> Tensor:
        """Queries, keys and values […, (heads + 2 · kv heads) · size], the first two with their norms, where a model has them."""
        if block.q_norm is None or block.k_norm is None:
            return qkv
        heads = qkv.unflatten(-1, (-1, self.size))
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], -2)
        return torch.cat([block.q_norm(q).to(v.dtype), block.k_norm(k).to(v.dtype), v], -2).flatten(-2)

    def attend(self, block: Block, h: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """[…, H] → queries […, heads, size], keys and values […, kv heads, size], turned to their positions."""
        qkv = self.normed(block, block.qkv(block.before(h).to(self.dtype)))
        qkv = qkv.unflatten(-1, (self.heads + 2 * self.kv_heads, self.size))
        turned, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], -2)
        turned = turned.float()
        one, other = turned.chunk(2, -1)
        cos, sin = turns
        turned = turned * cos + torch.cat([-other, one], -1) * sin
        q, k = turned.to(self.dtype).split([self.heads, self.kv_heads], -2)
        return q, k, v

    def rest(self, block: Block, h: Tensor, mixed: Tensor) -> Tensor:
        """What comes after attention, ``mixed`` […, heads · size]; the new residual stream."""
        h = h + block.out(mixed).float()
        return h + block.down(self.gated(block, block.gate_up(block.after(h).to(self.dtype)))).float()

    def gated(self, block: Block, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, -1)
        return block.act(gate) * up  # type: ignore[no-any-return]

    def logits(self, h: Tensor) -> Tensor:
        return self.head(self.norm(h).to(self.dtype))

    def ready(self, positions: int) -> None:
        if positions > len(self.cos):
            self.cos, self.sin = self._rope(max(positions, 2 * len(self.cos)))

    def read(self, prompts: Sequence[Sequence[int]], cache: Cache, slots: Tensor, width: int = 0) -> Tensor:
        """Read prompts together, into ``slots`` [prompts]: the logits [prompts, vocabulary] of what follows each. ``width``: at least so many columns."""
        longest = max(width, *map(len, prompts))
        self.ready(longest)
        cache.grow(longest)
        ids = torch.tensor([[*p, *[0] * (longest - len(p))] for p in prompts], device=self.device)
        turns = self.turns(torch.arange(longest, device=self.device))
        h = functional.embedding(ids, self.embedding).float()
        group = self.heads // self.kv_heads
        for number, block in enumerate(self.blocks):
            q, k, v = (x.transpose(1, 2) for x in self.attend(block, h, turns))  # [prompts, heads, T, size]
            cache.keys[number][slots, :, :longest] = k
            cache.values[number][slots, :, :longest] = v
            # Padding is on the right, so that causal attention never sees it.
            mixed = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=block.scaling, enable_gqa=group > 1
            )
            h = self.rest(block, h, mixed.transpose(1, 2).flatten(2))
        ends = torch.tensor([len(p) - 1 for p in prompts], device=self.device)
        return self.logits(h[torch.arange(len(prompts), device=self.device), ends])

    def read_on(
        self,
        pieces: Sequence[Sequence[int]],
        starts: Sequence[int],
        cache: Cache,
        slots: Tensor,
        width: int = 0,
    ) -> Tensor:
        """Read more of what ``slots`` [rows] hold already, each from its own column: the logits [rows, vocabulary] of what follows. ``width``: at least so many columns."""
        longest = max(width, *map(len, pieces))
        columns = max(start + longest for start in starts)
        self.ready(columns)
        cache.grow(columns)
        device = self.device
        if self.kernels is not None and longest <= _BRIEF_PIECE:
            return self._read_brief(self.kernels, pieces, starts, cache, slots)
        ids = torch.tensor([[*p, *[0] * (longest - len(p))] for p in pieces], device=device)
        begun = torch.tensor(starts, device=device)
        position = begun[:, None] + torch.arange(longest, device=device)  # [rows, T]
        turns = self.turns(position)
        unseen = torch.arange(columns, device=device) > position[..., None]  # [rows, T, columns]
        mask = torch.zeros(unseen.shape, dtype=self.dtype, device=device).masked_fill_(unseen, -torch.inf)
        h = functional.embedding(ids, self.embedding).float()
        group = self.heads // self.kv_heads
        row = slots[:, None]
        for number, block in enumerate(self.blocks):
            q, k, v = self.attend(block, h, turns)  # [rows, T, heads, size]
            keys, values = cache.keys[number], cache.values[number]
            # Padding on the right is written beyond a row's end, where what comes next overwrites it before it is seen.
            keys[row, :, position] = k
            values[row, :, position] = v
            mixed = functional.scaled_dot_product_attention(
                q.transpose(1, 2),
                keys[slots, :, :columns],
                values[slots, :, :columns],
                attn_mask=mask[:, None],
                scale=block.scaling,
                enable_gqa=group > 1,
            )
            h = self.rest(block, h, mixed.transpose(1, 2).flatten(2))
        ends = torch.tensor([len(p) - 1 for p in pieces], device=device)
        return self.logits(h[torch.arange(len(pieces), device=device), ends])

    def _read_brief(
        self,
        kernels: Kernels,
        pieces: Sequence[Sequence[int]],
        starts: Sequence[int],
        cache: Cache,
        slots: Tensor,
    ) -> Tensor:
        """``read_on`` of short pieces: each token by itself over what its slot holds by then, without padding. (Products that ask which row is whose,
        ``grouped.py``, are not met here: such rows keep nothing to read on from.)"""
        parts = [0, *itertools.accumulate(map(len, pieces))]
        lengths, spare = torch.tensor([len(p) for p in pieces]), -parts[-1] % _FEW_SHAPES
        ids = torch.tensor([token for piece in pieces for token in piece] + [0] * spare)
        position = torch.tensor(
            [start + i for piece, start in zip(pieces, starts, strict=True) for i in range(len(piece))]
            + [0] * spare
        )
        return self._compiled(kernels, ids, slots.repeat_interleave(lengths), position, parts, cache)

    def step(self, tokens: Tensor, position: Tensor, cache: Cache, columns: int) -> Tensor:
        """One more token in each of the first slots.

        Args:
            tokens: [rows] what was drawn last.
            position: [rows] where it stands.
            columns: more than any position.

        Returns:
            [rows, vocabulary] logits of what follows.
        """
        self.ready(columns)
        cache.grow(columns)
        with alone(self._brief(len(tokens))):
            if self.kernels is not None:
                rows = len(tokens)
                every = torch.arange(rows), position, range(rows + 1)
                return self._compiled(self.kernels, tokens, *every, cache)
            return self._step(tokens, position, cache, columns)

    def _compiled(
        self,
        kernels: Kernels,
        tokens: Tensor,
        slots: Tensor,
        position: Tensor,
        parts: Sequence[int],
        cache: Cache,
    ) -> Tensor:
        """Tokens [rows] at their places in the cache (``Kernels.attend``): [parts, vocabulary] logits of what follows the last of each part."""
        ends = torch.tensor(parts[1:]) - 1
        turns = self.cos[position], self.sin[position]
        h = functional.embedding(tokens, self.embedding).float()
        x = self.blocks[0].before(h).to(self.dtype)
        norms = [*(block.before for block in self.blocks[1:]), self.norm]
        for number, (block, following) in enumerate(zip(self.blocks, norms, strict=True)):
            qkv = self.normed(block, block.qkv(x))
            held = cache.keys[number], cache.values[number]
            mixed = kernels.attend(qkv, turns, slots, position, parts, *held, block.scaling)
            if following is self.norm and len(ends) < len(h):  # nothing after this looks at the others
                mixed, h = mixed[ends], h[ends]
            x = kernels.add_norm(h, block.out(mixed), block.after)
            both = block.gate_up(x)
            x = kernels.gated(both) if self.silu else self.gated(block, both)
            x = kernels.add_norm(h, block.down(x), following)
        return self.head(x)

    def _step(self, tokens: Tensor, position: Tensor, cache: Cache, columns: int) -> Tensor:
        rows = torch.arange(len(tokens), device=self.device)
        beyond = torch.arange(columns, device=self.device) > position[:, None]
        mask = torch.zeros(beyond.shape, dtype=self.dtype, device=self.device).masked_fill_(
            beyond, -torch.inf
        )
        mask = mask[:, None, None]  # [rows, 1, 1, columns]
        attend = step_attention.by_products if self.quick else step_attention.fused
        turns = self.turns(position)
        h = functional.embedding(tokens, self.embedding).float()
        for number, block in enumerate(self.blocks):
            q, k, v = self.attend(block, h, turns)
            keys, values = cache.keys[number], cache.values[number]
            keys[rows, :, position] = k
            values[rows, :, position] = v
            seen = keys[: len(tokens), :, :columns], values[: len(tokens), :, :columns]
            h = self.rest(block, h, attend(q, *seen, mask, block.scaling))
        return self.logits(h)

    def _brief(self, rows: int) -> bool:
        """Whether the largest product of a layer is over in the time that waking other threads and waiting for them takes."""
        return (
            self.device.type == "cpu"
            and self.largest * self.dtype.itemsize < _BRIEF_BYTES
            and 2 * rows * self.largest < _BRIEF_FLOPS
        )


def _spared(size: int) -> bool:
    """Whether the machine has bytes to spare for a copy. By what it has in all, so that the same seed gives the same bits."""
    import psutil

    return bool(size * _SHARE <= psutil.virtual_memory().total)
