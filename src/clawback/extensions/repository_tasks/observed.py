"""Values that a box reported, read back: plain data only, as ``runner.plain`` writes it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

LONGEST = 300
"""Characters of a decimal number or a fraction."""


class Other:
    """A value that is no plain data: it equals nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


@dataclass(frozen=True)
class Raised:
    """An error in place of a value: the names of its class and of those above it."""

    names: frozenset[str]


def value(written: Any) -> Any:
    """The value that was written. Raises ``ValueError`` or ``TypeError`` for what is none."""
    kind = written[0]
    if kind == "?":
        return Other()
    body = written[1]
    match kind:
        case "c" if body is None or isinstance(body, bool):
            return body
        case "s" if isinstance(body, str):
            return body
        case "y":
            return bytes.fromhex(body)
        case "i":
            return int(body, 16)
        case "f":
            return float.fromhex(body)
        case "z":
            return complex(float.fromhex(body[0]), float.fromhex(body[1]))
        case "n" if len(body) <= LONGEST:
            return Fraction(body) if "/" in body else Decimal(body)
        case "l":
            return [value(part) for part in body]
        case "t":
            return tuple(value(part) for part in body)
        case "e":
            return {value(part) for part in body}
        case "x":
            return Raised(frozenset(map(str, body)))
        case "d":
            return {value(key): value(part) for key, part in body}
    raise ValueError(f"{kind!r} is no kind of value")
