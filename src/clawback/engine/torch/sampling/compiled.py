"""The loops of ``step_kernels.py``, as numba compiles them. Imports numba: import this only where it is needed.

Arrays of uint16 hold the bits of bfloat16, others float32; all sums are in float32. What a kernel is made for are numbers alone: numba finds
those that it has kept on disk by them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

F = np.float32
Loop = TypeVar("Loop", bound=Callable[..., Any])
_FAST = {"reassoc", "nnan", "nsz", "arcp", "contract", "afn"}  # −∞ is met: a token that may not be said


def _compiled(loop: Loop) -> Loop:
    return cast("Loop", numba.njit(fastmath=_FAST, nogil=True, cache=True, error_model="numpy")(loop))


def _inline(loop: Loop) -> Loop:
    return cast("Loop", numba.njit(inline="always")(loop))


def wide(number: Any) -> Any:
    """As float32."""


@overload(wide)
def _wide(number: Any) -> Any:
    def same(number: Any) -> Any:
        return number

    def widened(number: Any) -> Any:
        return np.uint32(np.uint32(number) << np.uint32(16)).view(np.float32)

    return widened if number == types.uint16 else same


def put(some: Any, place: Any, number: Any) -> None:
    """Into ``some`` [n] as it holds its numbers: to the nearest, ties to even."""


@overload(put)
def _put(some: Any, place: Any, number: Any) -> Any:  # noqa: ARG001 (numba wants the names)
    def plain(some: Any, place: Any, number: Any) -> None:
        some[place] = number

    def rounded(some: Any, place: Any, number: Any) -> None:
        bits = np.float32(number).view(np.uint32)
        bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        some[place] = np.uint16(bits >> np.uint32(16))

    return rounded if some.dtype == types.uint16 else plain


def _fetch(_context: Any, some: Any, place: Any) -> Any:
    """Begin to load what is ``place`` numbers after the beginning of an array into the processor's cache."""

    def generated(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
        load = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        builder.call(load, [address, word(0), word(2), word(1)])  # to read, into the second cache, data
        return context.get_dummy_value()

    return types.void(some, place), generated


fetch: Any = intrinsic(_fetch)


@_inline
def exp(x: Any) -> Any:
    """Of numbers that are not above 80, within 3e-7 of it: a power of two times a polynomial, which compiles to vectors where libm's does not."""
    x = max(x * F(1.4426950408889634), F(-126.0))
    whole = np.floor(x + F(0.5))
    f = x - whole
    y = F(1.5403530e-4)
    y = y * f + F(1.33335581e-3)
    y = y * f + F(9.61812911e-3)
    y = y * f + F(5.55041087e-2)
    y = y * f + F(2.40226507e-1)
    y = y * f + F(6.93147181e-1)
    y = y * f + F(1.0)
    return y * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@_inline
def turn(head: Any, cos: Any, sin: Any, half: Any, out: Any) -> None:
    """``head`` [2 · half] turned to its position, rounded as ``out`` keeps it."""
    for d in range(half):
        one, other = wide(head[d]), wide(head[half + d])
        put(out, d, one * cos[d] - other * sin[d])
        put(out, half + d, other * cos[half + d] + one * sin[half + d])


@_inline
def four_dots(query: Any, some: Any, at: Any, size: Any) -> Any:
    """Products of ``query`` [size] with four rows of ``some`` [rows, size] from ``at`` on: what is loaded of it is used four times."""
    a = b = c = e = F(0.0)
    for d in range(size):
        asked = query[d]
        a += asked * wide(some[at, d])
        b += asked * wide(some[at + 1, d])
        c += asked * wide(some[at + 2, d])
        e += asked * wide(some[at + 3, d])
    return a, b, c, e


@_inline
def softmax(weights: Any) -> None:
    most = weights[0]
    for column in range(len(weights)):
        most = max(most, weights[column])
    total = F(0.0)
    for column in range(len(weights)):
        weight = exp(weights[column] - most)
        weights[column] = weight
        total += weight
    share = F(1.0) / total
    for column in range(len(weights)):
        weights[column] *= share


@_inline
def mix(weights: Any, values: Any, columns: Any, size: Any, out: Any) -> None:
    """``out`` [size]: ``values`` [columns, size] by their weights."""
    for d in range(size):
        out[d] = F(0.0)
    whole = columns - columns % 4
    for column in range(0, whole, 4):
        a, b, c, e = weights[column], weights[column + 1], weights[column + 2], weights[column + 3]
        for d in range(size):
            out[d] += (
                a * wide(values[column, d])
                + b * wide(values[column + 1, d])
                + c * wide(values[column + 2, d])
                + e * wide(values[column + 3, d])
            )
    for column in range(whole, columns):
        for d in range(size):
            out[d] += weights[column] * wide(values[column, d])


@lru_cache
def attention(heads: int, kv_heads: int, size: int) -> Callable[..., None]:
    group = heads // kv_heads

    @_compiled
    def attend(
        qkv: Any,
        cos: Any,
        sin: Any,
        slots: Any,
        position: Any,
        keys: Any,
        values: Any,
        scale: Any,
        out: Any,
        first: Any,
        last: Any,
    ) -> None:
        query = np.empty((group, size), F)
        weights = np.empty((group, keys.shape[2]), F)
        turned = np.empty(size, keys.dtype)
        four, mixed = np.empty((4, size), F), np.empty(size, F)
        line = 64 // keys.itemsize
        for row in range(first, last):
            here = position[row]
            whole = here + 1 - (here + 1) % 4
            for head in range(kv_heads):
                of, own = keys[slots[row], head], values[slots[row], head]
                start = (heads + head) * size
                turn(qkv[row, start : start + size], cos[row], sin[row], size // 2, of[here])
                start += kv_heads * size
                for d in range(size):
                    own[here, d] = qkv[row, start + d]
                for g in range(group):
                    start = (head * group + g) * size
                    turn(qkv[row, start : start + size], cos[row], sin[row], size // 2, turned)
                    for d in range(size):
                        query[g, d] = wide(turned[d]) * F(scale)
                # Meanwhile the values are fetched, and the keys that are next.
                later = min(row + (head + 1) // kv_heads, last - 1)
                following = keys[slots[later], (head + 1) % kv_heads]
                for column in range(0, whole, 4):
                    for place in range(column * size, (column + 4) * size, line):
                        fetch(own, place)
                        fetch(following, place)
                    if group > 2:  # what so many use is widened once
                        for i in range(4):
                            for d in range(size):
                                four[i, d] = wide(of[column + i, d])
                    for g in range(group):
                        if group > 2:
                            a, b, c, e = four_dots(query[g], four, 0, size)
                        else:
                            a, b, c, e = four_dots(query[g], of, column, size)
                        weights[g, column], weights[g, column + 1] = a, b
                        weights[g, column + 2], weights[g, column + 3] = c, e
                for column in range(whole, here + 1):
                    for g in range(group):
                        total = F(0.0)
                        for d in range(size):
                            total += query[g, d] * wide(of[column, d])
                        weights[g, column] = total
                for g in range(group):
                    softmax(weights[g, : here + 1])
                    mix(weights[g], own, here + 1, size, mixed)
                    start = (head * group + g) * size
                    for d in range(size):
                        put(out[row], start + d, mixed[d])

    return attend


@_compiled
def add_norm(h: Any, more: Any, weight: Any, epsilon: Any, out: Any, first: Any, last: Any) -> None:
    width = h.shape[1]
    for row in range(first, last):
        total = F(0.0)
        for i in range(width):
            x = h[row, i] + wide(more[row, i])
            h[row, i] = x
            total += x * x
        scale = F(1.0) / np.sqrt(total / F(width) + F(epsilon))
        normed = out[row]
        for i in range(width):
            put(normed, i, h[row, i] * scale * weight[i])


@_compiled
def gate(both: Any, out: Any, first: Any, last: Any) -> None:
    width = out.shape[1]
    for row in range(first, last):
        gated, up, under = both[row, :width], both[row, width:], out[row]
        for i in range(width):
            x = wide(gated[i])
            put(under, i, x / (F(1.0) + exp(min(-x, F(80.0)))) * wide(up[i]))


@lru_cache
def exponentials(block: int) -> Callable[..., None]:
    @_compiled
    def tempered(logits: Any, scale: Any, p: Any, sums: Any, first: Any, last: Any) -> None:
        cooled = F(1.0) / F(scale)
        for row in range(first, last):
            most = wide(logits[row, 0])
            for i in range(logits.shape[1]):
                most = max(most, wide(logits[row, i]))
            for number in range(sums.shape[1]):
                total = F(0.0)
                for i in range(number * block, (number + 1) * block):
                    x = exp((wide(logits[row, i]) - most) * cooled)
                    p[row, i] = x
                    total += x
                sums[row, number] = total

    return tempered
