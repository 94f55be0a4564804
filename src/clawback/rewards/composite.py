"""Composite rewards: ``R = λ₁·feedback + λ₂·critic + λ₃·coherence + λ₄·tokens + λ₅·safety``.

Every part is in [0, 1]; the λ are normalised over the parts that are present, so R is in [0, 1] too
(``scale`` maps it to [0, 10] or [-1, 1]). A missing part (no rating, no critic) is left out, not counted as
zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from clawback.errors import UsageError

Range = tuple[float, float]
UNIT: Range = (0.0, 1.0)
TEN: Range = (0.0, 10.0)
SIGNED: Range = (-1.0, 1.0)
"""The range of rewards everywhere else in Clawback."""

BANNED = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    r"\b(?:sk|pk|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{16,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\brm\s+-[a-z]*r[a-z]*f?[a-z]*\s+(?:--\S+\s+)*/(?:\s|\*|$)",
    r"\bcurl\b[^\n|]*\|\s*(?:sudo\s+)?(?:ba|z)?sh\b",
)
"""What ``safety`` looks for unless told otherwise: keys, and commands that wipe a disk or run what was just fetched."""


def scale(value: float, source: Range, target: Range) -> float:
    """The same place in another range: [0, 1] ↔ [0, 10] ↔ [-1, 1]. What lies outside the source is brought to its edge."""
    low, high = source
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return target[0] + share * (target[1] - target[0])


def feedback(reward: float) -> float:
    """What was said about the answer, [-1, 1] → [0, 1]: (r + 1) / 2."""
    return scale(reward, SIGNED, UNIT)


def critic(scores: Sequence[float], pessimism: float = 0.0) -> float:
    """Reward models or verifiers, each in [0, 1]: their mean less ``pessimism`` standard deviations, at least 0."""
    if not scores:
        raise UsageError("A critic needs at least one score.")
    mean = sum(scores) / len(scores)
    spread = math.sqrt(sum((s - mean) ** 2 for s in scores) / len(scores))
    return scale(mean - pessimism * spread, UNIT, UNIT)


def coherence(response: str) -> float:
    """Π_{n=2..4} (share of different word n-grams): 1 where nothing is said twice, towards 0 for repetitive text.

    The diversity measure of Su et al. 2022 (A Contrastive Framework for Neural Text Generation, §4.2). Empty: 0.
    """
    words = re.findall(r"\w+", response.lower())
    product = 1.0
    for n in (2, 3, 4):
        runs = list(zip(*(words[i:] for i in range(n)), strict=False))
        product *= len(set(runs)) / len(runs) if runs else 1.0
    return product if words else 0.0


def tokens(count: int, target: int, limit: int) -> float:
    """1 up to ``target`` tokens, falling in a line to 0 at ``limit``: (limit − n) / (limit − target).

    The soft overlong punishment of DAPO (Yu et al. 2025, eq. 13), moved to [0, 1]. No tokens at all: 0.
    """
    if not 0 < target < limit:
        raise UsageError("The target length must be above 0 and under the limit.")
    return scale(limit - count, (0, limit - target), UNIT) if count > 0 else 0.0


def safety(response: str, banned: Iterable[str] = BANNED) -> float:
    """0 where any of the regular expressions is found, else 1. It knows words, not intent: a net with wide meshes."""
    return 0.0 if any(re.search(pattern, response, re.IGNORECASE) for pattern in banned) else 1.0


@dataclass(frozen=True, slots=True)
class Weights:
    """λ of each part; at least 0. 0 leaves a part out."""

    feedback: float = 0.5
    critic: float = 0.2
    coherence: float = 0.1
    tokens: float = 0.1
    safety: float = 0.1

    def __post_init__(self) -> None:
        if min(asdict(self).values()) < 0 or not any(asdict(self).values()):
            raise UsageError("The weights of a reward are at least 0, and one of them is above it.")


@dataclass(frozen=True, slots=True)
class Composite:
    """A reward and how it was made up: ``parts`` as they came, ``shares`` their λ, adding up to 1."""

    value: float
    parts: Mapping[str, float]
    shares: Mapping[str, float]


def add_up(
    parts: Mapping[str, float | None], weights: Weights | None = None, target: Range = SIGNED
) -> Composite:
    """``R`` in ``target``. ``parts``: name → value in [0, 1], None or missing where there is none.

    Raises ``UsageError`` for an unknown name, a value outside [0, 1], or where no part with a weight is there.
    """
    lambdas = asdict(weights or Weights())
    if unknown := set(parts) - set(lambdas):
        raise UsageError(f"A reward has no part {sorted(unknown)[0]!r}. It has: {', '.join(lambdas)}.")
    there = {n: float(v) for n, v in parts.items() if v is not None and lambdas[n] > 0}
    if wrong := [n for n, v in there.items() if not 0 <= v <= 1]:
        raise UsageError(f"The part {wrong[0]!r} is outside 0 to 1.")
    total = sum(lambdas[n] for n in there)
    if not total:
        raise UsageError("There is nothing to add up: no part with a weight was given.")
    shares = {n: lambdas[n] / total for n in there}
    return Composite(scale(sum(shares[n] * v for n, v in there.items()), UNIT, target), there, shares)
