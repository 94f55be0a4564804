"""Changes of quantised weights on their own grid: the gguf package is the reference for what a block means."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

from clawback.extensions.publishers import gguf_codes

SCALES = {
    Kind.Q4_0: (0,), Kind.Q4_1: (0, 2), Kind.Q5_0: (0,), Kind.Q5_1: (0, 2), Kind.Q8_0: (0,),
    Kind.Q2_K: (80, 82), Kind.Q3_K: (108,), Kind.Q4_K: (0, 2), Kind.Q5_K: (0, 2), Kind.Q6_K: (208,),
}  # fmt: skip
"""Where the 16-bit scales of a block are."""


def blocks(kind: Kind, rows: int = 8, width: int = 512, seed: int = 0) -> np.ndarray:
    """uint8 [rows, bytes]: random blocks with scales that are numbers."""
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(seed)
    data = generator.integers(0, 256, (rows * width // weights, size), dtype=np.uint8)
    for place in SCALES[kind]:
        scale = generator.uniform(0.01, 0.02, len(data)).astype(np.float16)
        data[:, place : place + 2] = scale.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows, -1)


@pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)
def test_codes_are_read_and_stored_where_the_package_has_them(kind: Kind) -> None:
    layout, size = gguf_codes.layouts()[kind], gguf.GGML_QUANT_SIZES[kind][1]
    data = blocks(kind).reshape(-1, size)
    codes = layout.codes(data)
    assert (layout.store(data, codes) == data).all()
    other = np.random.default_rng(1).integers(0, layout.largest + 1, codes.shape).astype(np.uint8)
    assert (layout.codes(layout.store(data, other)) == other).all()
    zero, one = (
        gguf.dequantize(layout.store(data, np.full_like(codes, value)), kind).astype(np.float64)
        for value in (0, 1)
    )
    wanted = gguf.dequantize(data, kind)
    np.testing.assert_allclose(zero + (one - zero) * codes, wanted, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)
def test_a_change_that_is_much_smaller_than_a_step_is_there_in_the_mean(kind: Kind) -> None:
    """Rounding to the nearest code would lose it as a whole."""
    data = blocks(kind, rows=64)
    before = gguf.dequantize(data, kind)
    generator = np.random.default_rng(2)
    direction = generator.choice([-1.0, 1.0], before.shape[1])
    change = np.outer(generator.choice([-1.0, 1.0], len(before)), direction).astype(np.float32)
    size = gguf.GGML_QUANT_SIZES[kind][1]
    layout = gguf_codes.layouts()[kind]
    flat = data.reshape(-1, size)
    codes = layout.codes(flat)
    step = np.abs(
        gguf.dequantize(layout.store(flat, np.ones_like(codes)), kind)
        - gguf.dequantize(layout.store(flat, np.zeros_like(codes)), kind)
    )
    change *= 0.1 * np.median(step)
    changed, now = gguf_codes.added(data, kind, change, seed=3)
    got = gguf.dequantize(changed, now) - before
    share = float((got * change).sum() / np.square(change).sum())
    inside = (codes > 0) & (codes < layout.largest)
    assert now == kind or kind in (Kind.Q2_K, Kind.Q3_K), (
        "random codes of two bits are at an end half of the time"
    )
    assert share == pytest.approx(1 if now != kind else inside.mean(), abs=0.12)


def test_what_is_not_changed_keeps_its_code() -> None:
    data = blocks(Kind.Q4_K)
    change = np.zeros((8, 512), np.float32)
    assert (gguf_codes.added(data, Kind.Q4_K, change, seed=0)[0] == data).all()
    change[3, 100:140] = 0.05
    changed, _ = gguf_codes.added(data, Kind.Q4_K, change, seed=0)
    moved = gguf.dequantize(changed, Kind.Q4_K) != gguf.dequantize(data, Kind.Q4_K)
    assert moved[3, 100:140].any()
    moved[3, 100:140] = False
    assert not moved.any()


def test_a_change_that_the_grid_does_not_reach_gets_a_wider_type() -> None:
    data = blocks(Kind.Q4_0)
    before = gguf.dequantize(data, Kind.Q4_0)
    change = np.full(before.shape, 3.0, np.float32)
    changed, kind = gguf_codes.added(data, Kind.Q4_0, change, seed=0)
    assert kind == Kind.Q8_0
    np.testing.assert_allclose(gguf.dequantize(changed, kind), before + change, atol=0.02)


@pytest.mark.parametrize(
    ("kind", "now", "within"),
    [(Kind.F32, Kind.F32, 0), (Kind.F16, Kind.F16, 1e-3), (Kind.BF16, Kind.BF16, 8e-3)],
)
def test_floats_stay_floats(kind: Kind, now: Kind, within: float) -> None:
    values = np.random.default_rng(0).normal(size=(4, 48)).astype(np.float32)
    data = gguf.quants.quantize(values, kind).view(np.uint8)
    change = np.full_like(values, 0.25)
    changed, got = gguf_codes.added(data, kind, change, seed=0)
    assert got == now
    np.testing.assert_allclose(
        gguf.dequantize(changed, got),
        gguf.dequantize(data, kind) + change,
        rtol=within + 1e-7,
        atol=1e-3 * bool(within),
    )
