"""The compiled parts of a step against slow loops in float64 and PyTorch's own operations."""

from __future__ import annotations

import math
from itertools import chain

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


def within(dtype):
    return {"atol": 2e-2, "rtol": 1e-2} if dtype == torch.bfloat16 else {"atol": 2e-6, "rtol": 1e-5}


def turned(x, angle):
    """x [size] in float64, each half's numbers as the plane's two axes."""
    one, other = x.double().chunk(2)
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat([one * cos - other * sin, other * cos + one * sin])


def asked(data, dtype):
    """Shapes, and what ``attend`` is handed."""
    kv_heads, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    size, columns = 2 * data.draw(st.integers(1, 20)), data.draw(st.integers(1, 14))
    rows, more = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2))
    draw = torch.Generator().manual_seed(data.draw(st.integers(0, 2**31)))
    qkv = torch.randn(rows, (group + 2) * kv_heads * size, generator=draw).to(dtype)
    keys, values = (
        torch.randn(rows + more, kv_heads, columns, size, generator=draw).to(dtype) for _ in range(2)
    )
    position = torch.randint(0, columns, (rows,), generator=draw)
    angles = torch.rand(rows, size // 2, generator=draw).double()
    return kv_heads, group, size, qkv, keys, values, position, angles


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_a_step_is_attended_to_as_by_a_slow_loop(dtype, data):
    kv_heads, group, size, qkv, keys, values, position, angles = asked(data, dtype)
    kernels = step_kernels.kernels_for(dtype, kv_heads * group, kv_heads, size)
    turns = tuple(torch.cat([f(angles)] * 2, 1).float() for f in (torch.cos, torch.sin))
    before = keys.clone(), values.clone()
    out = kernels.attend(
        qkv,
        turns,
        position,
        keys,
        values,
        0.3,
    ).view(len(qkv), -1, size)
    heads = qkv.unflatten(1, (-1, size))
    for row, place in enumerate(position.tolist()):
        for head in range(kv_heads):
            new = heads[row, kv_heads * group + head], heads[row, kv_heads * (group + 1) + head]
            torch.testing.assert_close(
                keys[row, head, place].double(), turned(new[0], angles[row]), **within(dtype)
            )
            assert torch.equal(values[row, head, place], new[1])
            for g in range(group):
                query = turned(heads[row, head * group + g], angles[row]).to(dtype).double()
                k, v = (x[row, head, : place + 1].double() for x in (keys, values))
                expected = (0.3 * (k @ query)).softmax(0) @ v
                torch.testing.assert_close(out[row, head * group + g].double(), expected, **within(dtype))
            for now, old, at in ((keys, before[0], place), (values, before[1], place)):
                others = torch.arange(now.shape[2]) != at
                assert torch.equal(now[row, head, others], old[row, head, others])
    assert torch.equal(keys[len(qkv) :], before[0][len(qkv) :])


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_nothing(dtype, monkeypatch):
    draw = torch.Generator().manual_seed(3)
    qkv = torch.randn(7, 5 * 16, generator=draw).to(dtype)
    cache = torch.randn(2, 8, 1, 40, 16, generator=draw).to(dtype)
    position = torch.randint(0, 40, (7,), generator=draw)
    turns = torch.ones(7, 16), torch.zeros(7, 16)
    kernels = step_kernels.kernels_for(dtype, 3, 1, 16)

    def attend():
        return kernels.attend(qkv, turns, position, *cache.clone(), 0.25)

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


def test_a_token_of_no_probability_has_none():
    logits = torch.full((1, 512), -torch.inf)
    logits[0, 300] = 1.0
    token, logprob = choose.draw(logits, torch.tensor([0.999]), None, Sampling(1.0))
    assert (token.item(), math.exp(logprob.item())) == (300, 1.0)
