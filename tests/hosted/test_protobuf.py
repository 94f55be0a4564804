"""The format on the wire: what is written is read, also by Google's own library with the public definition; and nothing that comes in does harm."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.extensions.hosted import protobuf
from clawback.extensions.hosted.trainer_records import Datum, ForwardScores, SampledSequence

tokens = st.integers(0, 2**31 - 1)
floats = st.floats(width=32, allow_nan=False)


@st.composite
def data(draw: st.DrawFn) -> Datum:
    ids = draw(st.lists(tokens, min_size=2, max_size=9))
    weights = draw(st.lists(floats, min_size=len(ids) - 1, max_size=len(ids) - 1))
    return Datum.of(ids, weights=tuple(weights))


@given(st.lists(data(), min_size=1, max_size=4), st.integers(1, 2**31 - 1), st.booleans())
def test_a_request_is_read_as_it_was_written(sent: list[Datum], number: int, only: bool) -> None:
    raw = protobuf.request("m-1", number, sent, "ppo", {"clip_low_threshold": 0.8}, only)
    found = protobuf.read_request(raw)
    assert (found["model_id"], found["seq_id"], found["forward_only"]) == ("m-1", number, only)
    inside = found["forward_backward_input"]
    assert inside["loss_fn"] == "ppo"
    assert inside["loss_fn_config"] == {"clip_low_threshold": 0.8}
    for one, read in zip(sent, inside["data"], strict=True):
        assert tuple(read["model_input"]["chunks"][0]["tokens"]) == one.tokens
        assert {k: tuple(v["data"]) for k, v in read["loss_fn_inputs"].items()} == dict(one.inputs)


@given(st.lists(st.lists(floats, max_size=6).map(tuple), max_size=5), st.floats(allow_nan=False))
def test_scores_are_read_as_they_were_written(values: list[tuple[float, ...]], loss: float) -> None:
    sent = ForwardScores(tuple(values), {"loss:sum": loss})
    assert protobuf.read_output(protobuf.output(sent)) == sent


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(tokens, floats), max_size=6), st.sampled_from(["stop", "length"])),
        max_size=4,
    )
)
def test_samples_are_read_as_they_were_written(drawn: list[tuple[list[tuple[int, float]], str]]) -> None:
    sent = tuple(SampledSequence(tuple(t for t, _ in s), tuple(v for _, v in s), why) for s, why in drawn)
    assert protobuf.read_sampled(protobuf.sampled(sent, [None, -1.0])) == sent


@given(st.binary(max_size=200))
def test_what_is_no_message_is_a_value_error_and_nothing_worse(raw: bytes) -> None:
    for read in (protobuf.read_request, protobuf.read_output, protobuf.read_sampled):
        with suppress(ValueError):
            read(raw)


def test_a_broken_message_is_refused() -> None:
    whole = protobuf.request("m", 1, [Datum.of((1, 2, 3), weights=(0.0, 1.0))], "cross_entropy")
    with pytest.raises(ValueError):
        protobuf.read_request(whole[:-1])
    outside = protobuf.text(2, protobuf.entry(2, "logprobs", protobuf.text(2, _batched(ends=(0, 400)))))
    with pytest.raises(ValueError, match="outside"):
        protobuf.read_output(outside)


def test_half_precision_is_widened() -> None:
    """bfloat16 is the upper half of a float32: 0x3FC0 is 1.5, 0xBF80 is -1."""
    batched = (
        protobuf.text(1, bytes.fromhex("c03f80bf"))
        + protobuf.text(2, b"".join(i.to_bytes(8, "little") for i in (0, 4)))
        + protobuf.number(3, protobuf.BFLOAT16)
    )
    raw = protobuf.text(2, protobuf.entry(2, "logprobs", protobuf.text(2, batched)))
    assert protobuf.read_output(raw).logprobs == ((1.5, -1.0),)


def test_the_known_bytes_of_a_small_message() -> None:
    """By hand from the format's definition: field 1 text, field 2 varint 300, field 6 double."""
    assert protobuf.text(1, "hi") == bytes.fromhex("0a026869")
    assert protobuf.number(2, 300) == bytes.fromhex("10ac02")
    assert protobuf.double(6, 1.0) == bytes.fromhex("31000000000000f03f")
    assert protobuf.fields(bytes.fromhex("10ac02")) == {2: [300]}
    assert math.isclose(protobuf.fields(protobuf.double(6, math.pi))[6][0], math.pi)


def _batched(ends: tuple[int, ...]) -> bytes:
    return (
        protobuf.text(1, b"\0" * 4)
        + protobuf.text(2, b"".join(e.to_bytes(8, "little") for e in ends))
        + protobuf.number(3, protobuf.FLOAT32)
    )
