"""The compiled parts of a step against slow loops in float64 and PyTorch's own operations."""

from __future__ import annotations

import math
from itertools import accumulate, chain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from clawback import engine
from clawback.engine.torch.sampling import choose, step_kernels
from clawback.engine.torch.sampling.decoder import Decoder
from clawback.engine.torch.sampling.generate import sample
from clawback.engine.torch.sampling.products import Norm
from clawback.engine.types import Sampling

pytest.importorskip("numba")
DTYPES = [torch.float32, torch.bfloat16]
SIZES = [(1, 1, 2), (2, 3, 64), (3, 2, 20), (1, 5, 34)]
"""Heads of keys, queries to each, and numbers in one: each is compiled once."""


def within(dtype):
    return {"atol": 2e-2, "rtol": 1e-2} if dtype == torch.bfloat16 else {"atol": 2e-6, "rtol": 1e-5}


def turned(x, angle):
    """x [size] in float64, each half's numbers as the plane's two axes."""
    one, other = x.double().chunk(2)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat([one * cos - other * sin, other * cos + one * sin])


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.data())
@settings(max_examples=16, deadline=None)
def test_tokens_attend_to_what_their_slots_hold_as_by_a_slow_loop(dtype, data):
    kv_heads, group, size = data.draw(st.sampled_from(SIZES))
    columns = data.draw(st.integers(1, 14))
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    pieces = []  # (slot, first column, tokens)
    for slot in torch.randperm(5, generator=draw).tolist()[: data.draw(st.integers(1, 4))]:
        start = data.draw(st.integers(0, columns - 1))
        pieces.append((slot, start, data.draw(st.integers(1, columns - start))))
    slots = torch.tensor([slot for slot, _, count in pieces for _ in range(count)])
    position = torch.tensor([start + i for _, start, count in pieces for i in range(count)])
    parts = [0, *accumulate(count for *_, count in pieces)]
    spare = data.draw(st.integers(0, 3))
    qkv = torch.randn(len(slots) + spare, (group + 2) * kv_heads * size, generator=draw).to(dtype)
    keys, values = (torch.randn(5, kv_heads, columns, size, generator=draw).to(dtype) for _ in range(2))
    angles = torch.rand(len(qkv), size // 2, generator=draw).double()
    turns = tuple(torch.cat([f(angles)] * 2, 1).float() for f in (torch.cos, torch.sin))
    known, held = keys.clone(), values.clone()

    kernels = step_kernels.kernels_for(dtype, kv_heads * group, kv_heads, size)
    out = kernels.attend(qkv, turns, slots, position, parts, keys, values, 0.3).unflatten(1, (-1, size))
    assert not out[len(slots) :].any()
    heads = qkv.unflatten(1, (-1, size))
    for row, (slot, place) in enumerate(zip(slots.tolist(), position.tolist(), strict=True)):
        for head in range(kv_heads):
            new = turned(heads[row, kv_heads * group + head], angles[row])
            torch.testing.assert_close(keys[slot, head, place].double(), new, **within(dtype))
            known[slot, head, place] = keys[slot, head, place]
            held[slot, head, place] = heads[row, kv_heads * (group + 1) + head]
            k, v = (x[slot, head, : place + 1].double() for x in (known, held))
            for g in range(group):
                query = turned(heads[row, head * group + g], angles[row]).to(dtype).double()
                expected = (0.3 * (k @ query)).softmax(0) @ v
                torch.testing.assert_close(out[row, head * group + g].double(), expected, **within(dtype))
    assert torch.equal(keys, known)
    assert torch.equal(values, held)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_nothing(dtype, monkeypatch):
    draw = torch.Generator().manual_seed(3)
    qkv = torch.randn(11, 5 * 16, generator=draw).to(dtype)
    cache = torch.randn(2, 8, 1, 40, 16, generator=draw).to(dtype)
    parts = [0, 3, 4, 9, 11]
    slots = torch.tensor([0, 0, 0, 3, 2, 2, 2, 2, 2, 7, 7])
    position = torch.tensor([4, 5, 6, 39, 0, 1, 2, 3, 4, 20, 21])
    turns = torch.ones(11, 16), torch.zeros(11, 16)
    kernels = step_kernels.kernels_for(dtype, 3, 1, 16)

    def attend():
        return kernels.attend(qkv, turns, slots, position, parts, *cache.clone(), 0.25)

    alone = attend()
    monkeypatch.setattr(step_kernels, "_WORTH_SHARING_OUT", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(attend(), alone)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_and_gates_are_pytorchs(dtype):
    draw = torch.Generator().manual_seed(1)
    h, more = torch.randn(5, 48, generator=draw), torch.randn(5, 48, generator=draw).to(dtype)
    norm = Norm(torch.rand(48, generator=draw), 1e-5)
    kernels = step_kernels.kernels_for(dtype, 2, 1, 16)
    total = h + more.float()
    normed = kernels.add_norm(h, more, norm)
    torch.testing.assert_close(h, total)
    torch.testing.assert_close(normed, norm(total).to(dtype), **within(dtype))
    both = torch.cat([4 * torch.randn(5, 60, generator=draw), torch.tensor([[-1e4, 1e4, -90.0, 0.0]] * 5)], 1)
    both = both[:, torch.randperm(64, generator=draw)].to(dtype)
    gate, up = both.chunk(2, -1)
    torch.testing.assert_close(kernels.gated(both), functional.silu(gate) * up, **within(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 0.6, 3.0])
def test_exponentials_are_those_of_the_library(dtype, scale):
    logits = (9 * torch.randn(3, 96, generator=torch.Generator().manual_seed(2))).to(dtype)
    logits[1, 5], logits[2, 7] = -torch.inf, -1e30
    p, sums = step_kernels.exponentials(logits, scale, 32)
    z = logits.double()
    torch.testing.assert_close(
        p.double(), ((z - z.amax(1, keepdim=True)) / scale).exp(), atol=1e-30, rtol=3e-5
    )
    torch.testing.assert_close(sums, p.unflatten(1, (-1, 32)).sum(-1))


def test_without_numba_the_same_is_drawn(folders, monkeypatch):
    model = engine.load(str(folders("llama"))).model
    asked = [[5, 6, 7], [8, 9], [10, 11, 12, 13, 14]]
    options = {"samples": 3, "max_tokens": 9, "sampling": Sampling(0.8, 0.9), "stop": (3, 40), "seed": 2}
    assert Decoder(model).kernels is not None
    compiled = sample(model, asked, **options)
    monkeypatch.setattr(step_kernels, "_compiled", lambda: None)
    step_kernels.kernels_for.cache_clear()
    try:
        assert Decoder(model).kernels is None
        assert step_kernels.exponentials(torch.zeros(1, 32), 1.0, 32) is None
        plain = sample(model, asked, **options)
    finally:
        step_kernels.kernels_for.cache_clear()
    for one, other in zip(*map(chain.from_iterable, (compiled, plain)), strict=True):
        assert one.ids == other.ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_where_numba_cannot_compile_pytorch_draws_and_it_is_said_once(monkeypatch, caplog):
    from numba.core.errors import TypingError

    def broken(*_):
        def refuse(*_):
            raise TypingError("no such instruction")

        return refuse

    monkeypatch.setattr(step_kernels._compiled(), "attention", broken)
    monkeypatch.setattr(step_kernels._compiled(), "exponentials", broken)
    for cached in (step_kernels.kernels_for, step_kernels._exponentials):
        cached.cache_clear()
    try:
        assert step_kernels.kernels_for(torch.float32, 3, 1, 16) is None
        assert step_kernels.exponentials(torch.zeros(2, 256), 1.0, 128) is None
        assert step_kernels.kernels_for(torch.float32, 3, 1, 16) is None
        assert sum("numba cannot compile" in one for one in caplog.messages) == 2
    finally:
        for cached in (step_kernels.kernels_for, step_kernels._exponentials):
            cached.cache_clear()


def test_a_token_of_no_probability_has_none():
    logits = torch.full((1, 512), -torch.inf)
    logits[0, 300] = 1.0
    token, logprob = choose.draw(logits, torch.tensor([0.999]), None, Sampling(1.0))
    assert (token.item(), math.exp(logprob.item())) == (300, 1.0)
