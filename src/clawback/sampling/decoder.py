"""The lean decoder: a forward pass for sampling from Llama-like models, as plain functions over the module's weights.

When a row is one token, a module's own forward spends more time around its matrix products than in them: a
dozen Python calls per layer, masks made anew, the cache copied, keys repeated for grouped heads. Here a step
is its products, one attention call per layer and one mask for all layers. On a processor with bfloat16
products a float32 model's weights are cast once, which makes a step about five times as fast; the residual
stream stays float32.

A ``Decoder`` is a snapshot: it holds the weights that the module has when it is made, with the active adapter
merged in. ``decoder_choice.fits`` says whether a module is supported, and verifies it: a short sequence goes
through both. Others are sampled by their own forward (``ways.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from clawback.models import delta, onednn, product
from clawback.sampling.choose import alone


@dataclass(frozen=True, slots=True)
class Linear:
    weight: Tensor
    bias: Tensor | None
    ordered: PackedWeight | None = None
    """The same once more, for several rows."""

    def __call__(self, x: Tensor) -> Tensor:
        # oneDNN's way in costs 8 µs, more than it saves a single row.
        if self.ordered is not None and x.numel() > x.shape[-1]:
            return self.ordered(x)
        if self.bias is None and self.weight.dtype == torch.float32 and x.numel() > x.shape[-1]:
            return product(x, self.weight)
        return functional.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight in the order in which oneDNN's products want it: without that it is put in order for every product anew."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(flat, self.weight, self.bias, "none", [], "")
        return out.view(*x.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class Several:
    """Layers of the same input, whose outputs stand side by side."""

    parts: tuple[Linear, ...]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.cat([part(x) for part in self.parts], -1)


@dataclass(frozen=True, slots=True)
class Norm:
    weight: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        """In float32 whatever comes in."""
        x = x.float()
        scale = x.square().mean(-1, keepdim=True).add_(self.epsilon).rsqrt_()
        return (x * scale).mul_(self.weight)


Product = Linear | PackedWeight | Several


@dataclass(frozen=True, slots=True)
class DecoderBlock:
    input_norm: Norm
    qkv: Product
    q_norm: Norm | None
    k_norm: Norm | None
    out: Product
    after: Norm
    gate_up: Product
    act: Any
    down: Product
    scaling: float


def adapted(causal: Any) -> bool:
    """Whether an adapter or a delta is active, so that the weights of the layers are not the module's own."""
    return delta.active(causal) is not None or any(
        not layer.disable_adapters and not layer.merged
        for layer in causal.modules()
        if hasattr(layer, "disable_adapters") and hasattr(layer, "merged")
    )


def can_pack() -> bool:
    """Whether oneDNN has products of bfloat16 on this processor."""
    ops = torch.ops.mkldnn
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(ops, "_reorder_linear_weight")
        and hasattr(ops, "_is_mkldnn_bf16_supported")
        and bool(ops._is_mkldnn_bf16_supported())
    )


def norm(module: Any) -> Norm:
    return Norm(module.weight.detach().float(), float(module.variance_epsilon))


def cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if tensor is None else tensor.to(dtype)


def effective(module: Any) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear layer with its active adapters added in."""
    base = getattr(module, "base_layer", module)
    weight: Tensor = base.weight
    if base is not module and not module.disable_adapters and not module.merged:
        for name in module.active_adapters:
            if name in module.lora_A:
                weight = weight + module.get_delta_weight(name)
    return weight, base.bias


SMALL = 20_000_000
"""Parameters under which a cast to 16 bits gains nothing: such a model is overhead, and fits into the cache."""
_BRIEF_BYTES, _BRIEF_FLOPS = 8e6, 6e7
"""What one thread reads and multiplies in some 150 µs."""
_SHARE = 64
"""A copy of the base's weights may take the machine's memory divided by this."""
_ROOM = 64
"""Columns that a cache grows by at least."""


class Cache:
    """Keys and values, a slot for each answer under way. What a slot holds begins in column 0 and is as long as its row's position.

    ``layers``: of each ``[2, slots, heads, columns, size]``, keys and values.
    """

    def __init__(self, decoder: Decoder, slots: int, columns: int) -> None:
        shape = (2, slots, decoder.kv_heads, columns, decoder.size)
        options: Any = {"dtype": decoder.dtype, "device": decoder.device}
        self.layers = [torch.zeros(shape, **options) for _ in decoder.blocks]

    @property
    def columns(self) -> int:
        return self.layers[0].shape[3]

    @property
    def token_bytes(self) -> int:
        """Of a token of one slot."""
        return sum(layer[:, 0, :, 0].numel() * layer.element_size() for layer in self.layers)

    def grow(self, columns: int) -> None:
        """Have at least so many columns."""
        if columns > self.columns:
            self._resize(
                self.layers[0].shape[1], max(columns, self.columns + self.columns // 2, self.columns + _ROOM)
            )

    def widen(self, slots: int) -> None:
        """Have at least so many slots."""
        if slots > self.layers[0].shape[1]:
            self._resize(slots, self.columns)

    def _resize(self, slots: int, columns: int) -> None:
        for i, old in enumerate(self.layers):
            new = old.new_zeros(2, slots, old.shape[2], columns, old.shape[4])
            new[:, : old.shape[1], :, : old.shape[3]] = old
            self.layers[i] = new

    def move(self, sources: Tensor, targets: Tensor, columns: int) -> None:
        """Copy slots onto others."""
        for layer in self.layers:
            layer[:, targets, :, :columns] = layer[:, sources, :, :columns]


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
        self.cos, self.sin = self._rope(256)

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    def _packed(self, weight: Tensor, bias: Tensor | None) -> Linear | PackedWeight:
        if self.ordered_for:
            weight = weight.contiguous()
            ordered = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), self.ordered_for)
            return Linear(weight, bias, PackedWeight(ordered, bias))
        if not self.packed_for:
            return Linear(weight, bias)
        return PackedWeight(torch.ops.mkldnn._reorder_linear_weight(weight, self.packed_for), bias)

    def _block(self, layer: Any, joined: bool) -> DecoderBlock:
        a, m = layer.self_attn, layer.mlp

        def plain(module: object) -> Linear:
            weight, bias = effective(module)
            return Linear(weight.to(self.dtype), cast(bias, self.dtype))

        def single(module: object) -> Product:
            one = plain(module)
            return self._packed(one.weight, one.bias)

        def joint(*modules: object) -> Product:
            parts = tuple(map(plain, modules))
            biases = [part.bias for part in parts if part.bias is not None]
            if not joined or len(biases) not in (0, len(parts)):
                return Several(parts)
            return self._packed(torch.cat([p.weight for p in parts]), torch.cat(biases) if biases else None)

        return DecoderBlock(
            input_norm=norm(layer.input_layernorm),
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

    def normed(self, block: DecoderBlock, qkv: Tensor) -> Tensor:
        """Queries, keys and values […, (heads + 2 · kv heads) · size], the first two with their norms, where a model has them."""
        if block.q_norm is None or block.k_norm is None:
            return qkv
        heads = qkv.unflatten(-1, (-1, self.size))
        q, k, v = heads.split([self.heads, self.kv_heads, self.kv_heads], -2)
        return torch.cat([block.q_norm(q).to(v.dtype), block.k_norm(k).to(v.dtype), v], -2).flatten(-2)

    def attend(self, block: DecoderBlock, h: Tensor, turns: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """[…, H] → queries […, heads, size], and keys and values […, 2, kv heads, size], turned to their positions."""
        qkv = self.normed(block, block.qkv(block.input_norm(h).to(self.dtype)))
        qkv = qkv.unflatten(-1, (-1, self.size))
        turned = qkv[..., : self.heads + self.kv_heads, :]
        half = self.size // 2
        cos, sin = turns
        straight = turned.float()
        across = straight * cos
        across[..., :half] -= straight[..., half:] * sin[..., :half]
        across[..., half:] += straight[..., :half] * sin[..., half:]
        turned.copy_(across)
        return qkv[..., : self.heads, :], qkv[..., self.heads :, :].unflatten(-2, (2, self.kv_heads))

    def rest(self, block: DecoderBlock, h: Tensor, mixed: Tensor) -> Tensor:
        """What comes after attention, ``mixed`` […, heads · size]; the residual stream, changed in place."""
        h += block.out(mixed)
        gate, up = block.gate_up(block.after(h).to(self.dtype)).chunk(2, -1)
        h += block.down(block.act(gate).mul_(up))
        return h

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
        for block, held in zip(self.blocks, cache.layers, strict=True):
            q, kv = self.attend(block, h, turns)
            keys, values = kv.permute(2, 0, 3, 1, 4)  # [prompts, kv heads, T, size] each
            held[0, slots, :, :longest] = keys
            held[1, slots, :, :longest] = values
            # Padding is on the right, so that causal attention never sees it.
            mixed = functional.scaled_dot_product_attention(
                q.transpose(1, 2), keys, values, is_causal=True, scale=block.scaling, enable_gqa=group > 1
            )
            h = self.rest(block, h, mixed.transpose(1, 2).flatten(2))
        ends = torch.tensor([len(p) - 1 for p in prompts], device=self.device)
        return self.logits(h[torch.arange(len(prompts), device=self.device), ends])

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
            return self._step(tokens, position, cache, columns)

    def _step(self, tokens: Tensor, position: Tensor, cache: Cache, columns: int) -> Tensor:
        rows = torch.arange(len(tokens), device=self.device)
        beyond = torch.arange(columns, device=self.device) > position[:, None]
        mask = torch.zeros(beyond.shape, dtype=self.dtype, device=self.device).masked_fill_(
            beyond, -torch.inf
        )
        mask = mask[:, None, None]  # [rows, 1, 1, columns]
        attend = by_products if self.quick else fused
        turns = self.turns(position)
        h = functional.embedding(tokens, self.embedding).float()
        for block, held in zip(self.blocks, cache.layers, strict=True):
            q, kv = self.attend(block, h, turns)
            held[:, rows, :, position] = kv
            keys, values = held[:, : len(tokens), :, :columns]
            h = self.rest(block, h, attend(q, keys, values, mask, block.scaling))
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


def fused(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attention of one query a row: ``q [rows, heads, size]``, ``keys`` and ``values [rows, kv heads, columns, size]`` → ``[rows, heads · size]``.

    The heads that share keys stand as queries of one head: told of them by ``enable_gqa``, PyTorch's kernel on a CPU converts bfloat16 keys for each.
    """
    together = q.unflatten(1, (keys.shape[1], -1))
    return functional.scaled_dot_product_attention(
        together, keys, values, attn_mask=mask, scale=scale
    ).flatten(1)


def by_products(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """``fused`` as two batched products, two thirds of its time in bfloat16.

    Keys times queries and not the other way round: with the few queries on the left, oneDNN first turns all keys.
    """
    rows, heads, size = q.shape
    shared, columns = keys.shape[1:3]
    together = q.reshape(rows * shared, heads // shared, size)
    logits = torch.bmm(keys.flatten(0, 1), together.transpose(1, 2)).transpose(1, 2)
    logits = logits.to(torch.float32, memory_format=torch.contiguous_format)
    logits = logits.view(rows, shared, -1, columns).mul_(scale).add_(mask)
    weights = logits.softmax(-1).to(q.dtype).flatten(0, 1)  # [rows · kv heads, repeats, columns]
    return torch.bmm(weights, values.flatten(0, 1)).view(rows, -1)
