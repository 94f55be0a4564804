"""What a rating means: words and signs for good and bad, scales of scores, and what is usual for the person who scores.

A scale is written ``LOW-HIGH`` (``1-10``, ``0-100``, ``-1-1``). On it a score is a value in [-1, 1], with the middle of the scale at 0.

**Few people use a whole scale.** Somebody who never gives less than 6 of 10 dislikes what they give a 6. So a person's scores are *centred*: 0 is
what that person gives on average, the two ends of the scale stay where they are, and between them the value is linear:

    centred(v) = (v - m) / (1 - m) for v >= m,   (v - m) / (1 + m) otherwise

``m`` is 0, the middle of the scale, for up to ``FEW`` scores, the mean of the scores from ``MANY`` on, and moves evenly from the one to the other in
between. (The mean: unless all scores are the same it leaves some above and some below, which a median does not.)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from clawback.errors import UsageError

TEN = "1-10"
FEW, MANY = 4, 16
"""Scores of a person up to which the middle of the scale is 0, and from which on their mean is."""

SIGNS = {"👍": 1, "👎": -1, "❤": 1, "❤️": 1, "🎉": 1, "+1": 1, "-1": -1, "thumbsup": 1, "thumbsdown": -1}
"""Reactions that rate, by sign or by name."""
_GOOD = "good up yes true like liked upvote upvoted positive thumbsup thumbup right correct helpful accept accepted pass desirable + +1 👍 ❤ ♥ 🎉 ✅ ✓ ✔ 🙂 😀 😊"
_BAD = "bad down no false dislike disliked downvote downvoted negative thumbsdown thumbdown wrong incorrect unhelpful reject rejected fail undesirable - -1 👎 💔 ❌ ✗ ✘ 🙁 😠 😞"
_WORDS = dict.fromkeys(_GOOD.split(), 1.0) | dict.fromkeys(_BAD.split(), -1.0)
_ENDS = ".,;:!?…\"'“”()"
_LONGEST_SIGN = 80
"""Characters: what is longer is prose, and an import asks of every field."""


def sign_of(text: str) -> float | None:
    """1 for ``good``, ``Up!``, ``thumbs_up`` or 👍🏽, -1 for their opposites; None for anything else.

    >>> sign_of("good!"), sign_of("Thumbs Down"), sign_of("so so")
    (1.0, -1.0, None)
    """
    if len(text) > _LONGEST_SIGN:
        return None
    plain = unicodedata.normalize("NFKC", text).casefold().strip()
    plain = "".join(c for c in plain if c not in "\ufe0f\u200d" and not 0x1F3FB <= ord(c) <= 0x1F3FF)
    plain = plain.strip(_ENDS).strip()
    if plain and len(set(plain)) == 1:  # 👍👍👍, +++
        plain = plain[0]
    return _WORDS.get(plain) if plain in _WORDS else _WORDS.get("".join(c for c in plain if c not in " _-"))


def ends(scale: str) -> tuple[float, float]:
    """The lowest and the highest score of a scale. Raises ``UsageError`` for what is none.

    >>> ends("1-5"), ends("-1-1"), ends("0..100")
    ((1.0, 5.0), (-1.0, 1.0), (0.0, 100.0))
    """
    text = scale.strip().replace("–", "-").replace("..", "-")
    cut = text.find("-", 1)
    try:
        low, high = float(text[:cut]), float(text[cut + 1 :])
    except ValueError:
        low = high = 0.0
    if cut < 1 or not low < high or not abs(low) + abs(high) < 1e9:
        raise UsageError(
            f"{scale!r} is no scale: write its lowest and its highest score, such as 1-5 or 0-100."
        )
    return low, high


def name(low: float, high: float) -> str:
    """``1-10``."""
    return f"{low:g}-{high:g}"


def value_of(score: float, scale: str) -> float:
    """A score on its scale as a value in [-1, 1]. Raises ``UsageError`` for one that is outside."""
    low, high = ends(scale)
    if not low <= score <= high:
        raise UsageError(f"A score is from {low:g} to {high:g}, not {score:g}.")
    return 1.0 if score == high else (2 * score - low - high) / (high - low)


_OUT_OF = re.compile(r"\s+(?:out\s+)?of\s+", re.IGNORECASE)
_STARS = re.compile(r"(?<=\d)\s*-?stars?$", re.IGNORECASE)


def score_in(text: str) -> tuple[float, str] | None:
    """A score as a person types it, with its scale: ``7.5`` and ``7,5`` are of ten, ``4/5``, ``4 out of 5``, ``4 stars``, ``★★★★☆`` and ``80 %`` say of how
    many. None: no score.

    Raises ``UsageError`` for a score outside its scale.
    """
    plain = text.strip().rstrip("!;:?").strip()
    if plain and not plain.strip("★☆⭐"):
        return (float(sum(c in "★⭐" for c in plain)), "1-5") if len(plain) <= 5 else None
    part, slash, whole = _STARS.sub("/5", _OUT_OF.sub("/", plain)).partition("/")
    percent = part.endswith("%") and not slash
    try:
        score = _number(part.removesuffix("%") if percent else part)
        scale = name(0.0 if score == 0 else 1.0, _number(whole)) if slash else TEN
    except ValueError:
        return None
    scale = "0-100" if percent else scale
    value_of(score, scale)
    return score, scale


def _number(text: str) -> float:
    text = text.strip().replace(",", ".")
    if not text.isascii() or not text.replace(".", "", 1).removeprefix("-").isdecimal() or len(text) > 12:
        raise ValueError(text)
    return float(text)


def middle(values: Sequence[float]) -> float:
    """Where 0 is for somebody who gave these scores (as values in [-1, 1], on one scale)."""
    share = min(max((len(values) - FEW) / (MANY - FEW), 0.0), 1.0)
    return share * sum(values) / len(values) if share else 0.0


def centred(value: float, zero: float) -> float:
    """A score's value with ``zero`` at 0, and the ends of the scale where they were."""
    if (
        value == zero or not -1 < zero < 1
    ):  # whoever gives one and the same end of the scale says it of every answer
        return 0.0 if value == zero and -1 < zero < 1 else value
    return (value - zero) / (1 - zero if value > zero else 1 + zero)


# ------------------------------------------------------------------------------------------------- a whole column


def of_column(scores: Sequence[float], signed: bool = False) -> str:
    """The scale that all scores of a column are on, read from their lowest, highest and steps.

    Args:
        signed: the column is documented as -1 to 1, so that values within are no other scale's.

    Raises ``UsageError`` that names the scales it may be where that is not clear.
    """
    low, high = min(scores), max(scores)
    whole = all(score == int(score) for score in scores)
    if low < 0:
        return "-1-1" if low >= -1 and high <= 1 else _only([], scores)
    if signed and high <= 1 and not (whole and low == 0 and high == 1):
        return "-1-1"
    if high <= 1:
        clear = not whole or (low == 0 and high == 1 and not signed)
        return "0-1" if clear else _only(["0-1", "-1-1" if signed else TEN], scores)
    if high <= 5:
        five = high == 5 and (low == 1 or len(scores) >= 5) and low >= 1
        return "1-5" if five else _only(["1-5", TEN] if low >= 1 else ["0-5", "0-10"], scores)
    if high <= 10:
        likert = high == 7 and low == 1 and len(scores) >= 5
        return _only(["1-7", TEN], scores) if likert else name(0 if low < 1 else 1, 10)
    return "0-100" if 20 < high <= 100 else _only(["0-20", "0-100"] if high <= 20 else [], scores)


def _only(choices: Sequence[str], scores: Sequence[float]) -> str:
    low, high = min(scores), max(scores)
    given = f"go from {low:g} to {high:g}" if low < high else f"are all {low:g}"
    say = " or ".join(f"`--scale {one}`" for one in choices) or "`--scale LOW-HIGH`"
    raise UsageError(f"the scores {given}, which does not say what scale they are on: give {say}")
