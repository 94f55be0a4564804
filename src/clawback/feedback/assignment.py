"""Assigns turns to raters, several raters to the same turn, so that their agreement can be measured.

Each turn goes to the raters who have the least to do, and among these to those who share the fewest turns
with the raters whom it already has: so all pairs of raters come to have about the same number of turns in
common, and the κ of each pair is equally precise.

The standard error of κ over n items is √(p₀ (1 − p₀) / n) / (1 − pₑ) (Cohen 1960, eq. 7), with p₀ the
observed agreement and pₑ that of chance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from clawback.errors import UsageError


def plan(
    turns: Sequence[int],
    raters: Sequence[str],
    overlap: int,
    shared: float = 1.0,
    assigned: Mapping[int, Collection[str]] | None = None,
) -> list[tuple[str, int]]:
    """(rater, turn) to be added.

    Args:
        turns: to be rated, in the order in which they are asked about.
        overlap: raters of a shared turn.
        shared: share of the turns that go to so many; each other goes to one.
        before: turn → raters who have it, of these and other turns.

    Raises ``UsageError`` where there are fewer raters than ``overlap``.
    """
    if not 1 <= overlap <= len(raters):
        raise UsageError(
            f"{overlap} raters per turn were requested, but there are {len(raters)}: `clawback raters invite NAME`."
        )
    if not 0 <= shared <= 1:
        raise UsageError("The share of turns that several rate is from 0 to 1.")
    has = {turn: set(of) for turn, of in (assigned or {}).items()}
    load = Counter(name for of in has.values() for name in of)
    common = Counter(pair for of in has.values() for pair in combinations(sorted(of), 2))
    made = []
    for place, turn in enumerate(turns):
        of = has.setdefault(turn, set())
        several = math.floor((place + 1) * shared + 1e-9) > math.floor(place * shared + 1e-9)
        while len(of & set(raters)) < (overlap if several else 1):
            free = [name for name in raters if name not in of]
            turned = free[place % len(free) :] + free[: place % len(free)]  # so that ties go round
            chosen = min(turned, key=lambda n: (load[n], sum(common[_pair(n, o)] for o in of)))
            common.update(_pair(chosen, other) for other in of)
            of.add(chosen)
            load[chosen] += 1
            made.append((chosen, turn))
    return made


def in_common(assigned: Mapping[int, Collection[str]], raters: Sequence[str]) -> dict[tuple[str, str], int]:
    """Pair of raters → turns that both are asked about."""
    counts = Counter(pair for of in assigned.values() for pair in combinations(sorted(of), 2))
    return {pair: counts[pair] for pair in combinations(sorted(raters), 2)}


def kappa_error(count: int, kappa: float = 0.6, chance: float = 0.5) -> float | None:
    """Half of the 95 % interval of a κ over so many things; None for none."""
    if count < 1:
        return None
    seen = chance + kappa * (1 - chance)
    return 1.96 * math.sqrt(seen * (1 - seen) / count) / (1 - chance)


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if a < b else (b, a)
