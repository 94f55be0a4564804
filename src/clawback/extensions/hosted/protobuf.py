"""Encoding and decoding, with NumPy alone, of the three messages that Tinker's API sends as Protocol Buffers (since its SDK 0.25).

Field numbers are those of its public ``tinker_public.proto``. Only what we send and read is here; unknown
fields are skipped, as the format requires. Input comes from the network: lengths are checked, and anything
malformed is a ``ValueError``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from clawback.extensions.hosted.trainer_records import Datum, ForwardScores, SampledSequence
from clawback.records import JsonObject

CONTENT_TYPE = "application/x-protobuf"
FLOAT32, INT64, INT32, BFLOAT16 = 1, 2, 3, 4
_DTYPES: dict[int, np.dtype[Any]] = {FLOAT32: np.dtype("<f4"), INT64: np.dtype("<i8"), INT32: np.dtype("<i4")}
_WHOLE = {"target_tokens"}
"""Inputs of a loss that are whole numbers."""
_STOP = ("stop", "length")

# ------------------------------------------------------------------------------------------------- the format


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def text(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def entry(field: int, key: str, value: bytes) -> bytes:
    """An entry of a map; ``value`` is its field 2, written."""
    return text(field, text(1, key) + value)


def fields(raw: bytes) -> dict[int, list[Any]]:
    """Field number → its values in order: int, float (8 bytes), or bytes. Raises ``ValueError``."""
    found: dict[int, list[Any]] = {}
    place = 0
    while place < len(raw):
        tag, place = _read_varint(raw, place)
        field, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, place = _read_varint(raw, place)
        elif wire == 1:
            value, place = struct.unpack("<d", _take(raw, place, 8))[0], place + 8
        elif wire == 2:
            size, place = _read_varint(raw, place)
            value, place = _take(raw, place, size), place + size
        elif wire == 5:
            value, place = struct.unpack("<f", _take(raw, place, 4))[0], place + 4
        else:
            raise ValueError(f"a field of an unknown wire type {wire}")
        found.setdefault(field, []).append(value)
    return found


def _read_varint(raw: bytes, index: int) -> tuple[int, int]:
    value = shift = 0
    while index < len(raw) and shift < 64:
        byte = raw[index]
        value |= (byte & 0x7F) << shift
        index, shift = index + 1, shift + 7
        if byte < 0x80:
            return value, index
    raise ValueError("a number that does not end")


def _take(raw: bytes, index: int, size: int) -> bytes:
    if index + size > len(raw):
        raise ValueError("a field that is longer than its message")
    return raw[index : index + size]


def _field(message: dict[int, list[Any]], field: int, otherwise: object) -> Any:
    """The last value of a field, which has to be of the kind of ``otherwise``."""
    value = message.get(field, [otherwise])[-1]
    if type(value) is not type(otherwise):
        raise ValueError(f"field {field} is of another kind")
    return value


def _parts(message: dict[int, list[Any]], field: int) -> Iterable[bytes]:
    for value in message.get(field, ()):
        if not isinstance(value, bytes):
            raise ValueError(f"field {field} is no message")
        yield value


def _text(raw: bytes) -> str:
    return raw.decode("utf-8")


def _array(raw: bytes, dtype: np.dtype[Any]) -> Any:
    if len(raw) % dtype.itemsize:
        raise ValueError("an array that ends within a number")
    return np.frombuffer(raw, dtype)


# ------------------------------------------------------------------------------------------------- requests


def request(
    model: str,
    seq: int,
    data: Sequence[Datum],
    loss: str,
    config: Mapping[str, float] | None = None,
    forward_only: bool = False,
) -> bytes:
    """``ForwardBackwardRequest``."""
    out = [text(1, model), number(2, seq)]
    for datum in data:
        chunk = text(1, text(1, np.asarray(datum.tokens, "<i4").tobytes()))
        inputs = [entry(2, name, text(2, _tensor(name, values))) for name, values in datum.inputs.items()]
        out.append(text(3, text(1, chunk) + b"".join(inputs)))
    out.append(text(4, loss))
    for name, value in (config or {}).items():
        out.append(entry(5, name, double(2, value)))
        out.append(entry(7, name, text(2, double(1, value))))
    if forward_only:
        out.append(number(6, 1))
    return b"".join(out)


def _tensor(name: str, values: Sequence[float]) -> bytes:
    whole = name in _WHOLE
    raw = np.asarray(values, "<i8" if whole else "<f4").tobytes()
    return text(1, raw) + number(3, INT64 if whole else FLOAT32) + text(4, _varint(len(values)))


def read_request(raw: bytes) -> JsonObject:
    """``ForwardBackwardRequest`` as its JSON has it, with ``forward_only``. Raises ``ValueError``."""
    message = fields(raw)
    config = {
        _text(_field(e, 1, b"")): _field(e, 2, 0.0) for e in map(fields, _parts(message, 5))
    }  # the older of two maps that hold the same numbers
    return {
        "model_id": _text(_field(message, 1, b"")),
        "seq_id": _field(message, 2, 0),
        "forward_only": bool(_field(message, 6, 0)),
        "forward_backward_input": {
            "data": [_read_datum(part) for part in _parts(message, 3)],
            "loss_fn": _text(_field(message, 4, b"")),
            "loss_fn_config": config or None,
        },
    }


def _read_datum(raw: bytes) -> JsonObject:
    message = fields(raw)
    tokens: list[int] = []
    for part in _parts(message, 1):
        chunk = fields(part)
        if 1 not in chunk:
            raise ValueError("only text is read here, no images or sound")
        tokens += _array(_field(fields(_field(chunk, 1, b"")), 1, b""), _DTYPES[INT32]).tolist()
    inputs = {}
    for part in _parts(message, 2):
        both = fields(part)
        inputs[_text(_field(both, 1, b""))] = {"data": _read_tensor(_field(both, 2, b""))}
    return {
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens}]},
        "loss_fn_inputs": inputs,
    }


def _read_tensor(raw: bytes) -> list[float]:
    message = fields(raw)
    if 2 in message:
        raise ValueError("sparse tensors are not read here")
    kind = _field(message, 3, 0)
    if kind not in _DTYPES:
        raise ValueError(f"a tensor of an unknown kind {kind}")
    values: list[float] = _array(_field(message, 1, b""), _DTYPES[kind]).tolist()
    return values


# ------------------------------------------------------------------------------------------------- answers


def output(scores: ForwardScores) -> bytes:
    """``ForwardBackwardOutput``."""
    ends = np.cumsum([0, *(4 * len(values) for values in scores.logprobs)]).astype("<i8")
    flat = np.asarray([value for values in scores.logprobs for value in values], "<f4")
    batched = text(1, flat.tobytes()) + text(2, ends.tobytes()) + number(3, FLOAT32)
    record = (
        text(1, "TorchLossReturn") + entry(2, "logprobs", text(2, batched)) + number(3, len(scores.logprobs))
    )
    metrics = [entry(3, name, double(2, value)) for name, value in scores.metrics.items()]
    return text(1, "TorchLossReturn") + text(2, record) + b"".join(metrics)


def read_output(raw: bytes) -> ForwardScores:
    """Raises ``ValueError``."""
    message = fields(raw)
    logprobs: list[tuple[float, ...]] = []
    for part in _parts(message, 2):
        record = fields(part)
        for both in map(fields, _parts(record, 2)):
            if _text(_field(both, 1, b"")) == "logprobs":
                logprobs += _read_batched(_field(both, 2, b""))
    metrics = {_text(_field(e, 1, b"")): float(_field(e, 2, 0.0)) for e in map(fields, _parts(message, 3))}
    return ForwardScores(tuple(logprobs), metrics)


def _read_batched(raw: bytes) -> list[tuple[float, ...]]:
    message = fields(raw)
    kind, data = _field(message, 3, 0), _field(message, 1, b"")
    ends = _array(_field(message, 2, b""), _DTYPES[INT64])
    if kind == BFLOAT16:
        values = (_array(data, np.dtype("<u2")).astype("<u4") << 16).view("<f4")
        ends = ends // 2
    elif kind in _DTYPES:
        values, ends = _array(data, _DTYPES[kind]), ends // _DTYPES[kind].itemsize
    else:
        raise ValueError(f"a tensor of an unknown kind {kind}")
    if len(ends) and (ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > len(values)):
        raise ValueError("offsets that lie outside of their tensor")
    return [tuple(values[a:b].tolist()) for a, b in pairwise(ends.tolist())]


def sampled(sequences: Sequence[SampledSequence], prompt: Sequence[float | None] | None = None) -> bytes:
    """``SampleResponse``."""
    out = []
    for one in sequences:
        out.append(
            text(
                1,
                number(1, _STOP.index(one.stop_reason))
                + text(2, np.asarray(one.tokens, "<i4").tobytes())
                + text(3, np.asarray(one.logprobs, "<f4").tobytes()),
            )
        )
    if prompt is not None:
        # NaN says that a position has no log-prob.
        given = [float("nan") if value is None else value for value in prompt]
        out.append(text(2, np.asarray(given, "<f4").tobytes()))
    return b"".join(out)


def read_sampled(raw: bytes) -> tuple[SampledSequence, ...]:
    """Raises ``ValueError``."""
    found = []
    for part in _parts(fields(raw), 1):
        message = fields(part)
        reason = _field(message, 1, 0)
        tokens = _array(_field(message, 2, b""), _DTYPES[INT32]).tolist()
        logprobs = _array(_field(message, 3, b""), _DTYPES[FLOAT32]).tolist()
        if not 0 <= reason < len(_STOP) or len(tokens) != len(logprobs):
            raise ValueError("a sampled sequence without a log-prob for each token")
        found.append(SampledSequence(tuple(tokens), tuple(logprobs), _STOP[reason]))
    return tuple(found)
