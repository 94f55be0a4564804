"""Guards against reward over-optimisation: a policy trained on a reward model exploits its errors.

The proxy's reward goes on rising while people's ratings fall (Gao, Schulman & Hilton 2022, Scaling laws for reward
model overoptimization). The guards are plain arithmetic: a lower reward where the ensemble disagrees, a KL budget, a stop
when proxy and ratings diverge, and no reward for an answer that repeats itself, breaks off, repeats the question or is the same for
every prompt.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from clawback.errors import UsageError
from clawback.rewards.rating_likelihood import Floats

TOLERANCE = 0.1
"""Of the range [0, 1]: a proxy may promise this much more than people say."""
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ITEM = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s+\S")
_EMPTY_ITEM = re.compile(r"(?:[-*•]|\d{1,3}[.)])\s*\Z")
_GOES_ON = frozenset(",;:&/\\、，；：·")
"""Punctuation that something should follow."""
_RUN = 4
COPIED = 0.6
"""An answer of which so many words stand in runs of four that the question has, too, repeats the question."""
_STUTTER = re.compile(r"\b([^\W\d_]{2,})(?: +\1){2}\b")

SURE = 1.645
"""Standard errors that the gap must be beyond what is tolerated: one-sided 95 %."""


def pessimistic(members: ArrayLike, pessimism: float = 1.0) -> Floats:
    """``[members, n]`` scores → ``[n]``: the mean less ``pessimism`` standard deviations between members, at least 0.

    Conservative ensembles as in Coste et al. 2023 (Reward model ensembles help mitigate overoptimization, §3).
    """
    scores = np.atleast_2d(np.asarray(members, dtype=np.float64))
    return np.asarray(np.maximum(scores.mean(0) - pessimism * scores.std(0), 0.0), dtype=np.float64)


def best_of_kl(count: int) -> float:
    """Nats that taking the best of ``count`` answers moves from the policy: log n − (n − 1)/n (Stiennon et al. 2020, app. G.3)."""
    if count < 1:
        raise UsageError("The best of fewer than one answer is none.")
    return math.log(count) - (count - 1) / count


def best_of_within(budget: float) -> int:
    """The largest n whose ``best_of_kl`` is within the budget in nats; at least 1."""
    low, high = 1, 2
    while best_of_kl(high) <= budget and high < 1 << 40:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if best_of_kl(middle) <= budget else (low, middle)
    return low


@dataclass(frozen=True, slots=True)
class Check:
    """One look at a policy (a version, a round): mean of the proxy and of people's ratings on the same held-back answers, both in
    [0, 1], and how many answers that were, with the standard deviation of proxy − rating among them."""

    proxy: float
    human: float
    count: int
    spread: float


@dataclass(frozen=True, slots=True)
class Gap:
    """``opened``: number of the check at which to stop, None where there is no reason; ``best``: the check to return to."""

    opened: int | None
    best: int
    sizes: tuple[float, ...]


def gap(checks: Sequence[Check], tolerance: float = TOLERANCE) -> Gap:
    """Whether the proxy's reward has diverged from people's ratings.

    With gap ``g_t = (proxy_t − human_t) − (proxy_0 − human_0)`` (how far the proxy was off at the start is calibration, not
    over-optimisation) and its standard error ``e_t = √(spread_0²/n_0 + spread_t²/n_t)``, the rule is to stop at the first t where

        g_t − 1.645 e_t > tolerance    and    human_t < max human_s + tolerance, s < t

    that is: the gap is significantly larger than the tolerance, and people's ratings did not rise as much themselves. The check to
    return to is the one that people rated best before that.
    """
    if not checks:
        return Gap(None, 0, ())
    first, sizes = checks[0], []
    best = 0
    for number, now in enumerate(checks):
        size = (now.proxy - now.human) - (first.proxy - first.human)
        sizes.append(size)
        error = math.sqrt(first.spread**2 / max(first.count, 1) + now.spread**2 / max(now.count, 1))
        gained = now.human >= checks[best].human + tolerance
        if number and size - SURE * error > tolerance and not gained:
            return Gap(number, best, tuple(sizes))
        if now.human > checks[best].human:
            best = number
    return Gap(None, best, tuple(sizes))


def check(proxy: ArrayLike, human: ArrayLike) -> Check:
    """A check of answers ``[n]`` of one policy. Raises ``UsageError`` for none."""
    p, h = np.asarray(proxy, dtype=np.float64), np.asarray(human, dtype=np.float64)
    if not len(p):
        raise UsageError("A check needs at least one rated answer.")
    # One answer says nothing about the spread: the widest that values in [0, 1] can have is taken.
    spread = float((p - h).std(ddof=1)) if len(p) > 1 else 1.0
    return Check(float(p.mean()), float(h.mean()), len(p), spread)


def repeats(text: str) -> bool:
    """Whether an answer is repetitive: a word three times in a row with nothing but spaces between, a line or
    sentence of two words or more twice in a row (one of a single word three times), or most of its four-word
    runs more than once.

    Code and rows of tables are left out: repetition there is mostly necessary. So are single letters, numbers
    ("0, 0, 0") and words repeated three times for emphasis ("practice, practice, practice").
    """
    prose = _CODE.sub("\n", text.lower())
    prose = "\n".join(line for line in prose.split("\n") if not line.lstrip().startswith("|"))
    if _STUTTER.search(prose):
        return True
    said = [tuple(re.findall(r"\w+", piece)) for piece in re.split(r"[\n.!?]+", prose)]
    said = [piece for piece in said if piece and not all(word.isdigit() for word in piece)]
    if any(
        a == b and (len(a) > 1 or a == c) for a, b, c in zip(said, said[1:], [*said[2:], ()], strict=False)
    ):
        return True
    words = re.findall(r"\w+", prose)
    runs = Counter(zip(*(words[i:] for i in range(4)), strict=False))
    total = sum(runs.values())
    return total >= 4 and sum(n for n in runs.values() if n > 1) > 0.5 * total


def quotes(text: str, instruction: str) -> bool:
    """Whether an answer repeats the instruction that it was drawn under: four words of one of its sentences in a row, or a shorter sentence whole. A base
    model without instruction tuning often goes on with the prompt in place of an answer."""
    words = re.findall(r"\w+", text.lower())
    sentences = [re.findall(r"\w+", piece) for piece in re.split(r"[\n.!?]+", instruction.lower())]
    return any(
        _contains(words, sentence[i : i + 4])
        for sentence in sentences
        if len(sentence) > 1
        for i in range(max(1, len(sentence) - 3))
    )


def _contains(words: Sequence[str], run: Sequence[str]) -> bool:
    return any(words[i : i + len(run)] == run for i in range(len(words) - len(run) + 1))


def ends_whole(text: str) -> bool:
    """Whether an answer ends completely: with a sentence, a bracket or quotation, an emoji, an item of a list, a row of a table, code.

    An answer that ends in a letter or a digit elsewhere, in a comma or colon, in a heading, or within code
    that was not closed, breaks off.
    """
    if text.count("```") % 2:
        return False
    last = text.rstrip().rpartition("\n")[2].strip()
    if not last or last.startswith("#") or _EMPTY_ITEM.match(last):
        return False
    if last.startswith("```") or (last.startswith("|") and last.endswith("|")):
        return True
    # Markup and what only colours an emoji are looked through.
    bare = last.rstrip("*_`").rstrip("".join(c for c in last if unicodedata.category(c) in ("Mn", "Cf")))
    end = bare[-1:]
    if not end or end in _GOES_ON:
        return False
    kind = unicodedata.category(end)
    return kind in ("Po", "Pe", "Pf") or kind.startswith("S") or bool(_ITEM.match(last))


def copies(prompt: str, answer: str) -> bool:
    """Whether an answer says little more than its question."""
    asked, said = (re.findall(r"\w+", text.lower()) for text in (prompt, answer))
    if len(said) < _RUN:
        return bool(said) and said == asked
    known = set(zip(*(asked[i:] for i in range(_RUN)), strict=False))
    covered = [False] * len(said)
    for place in range(len(said) - _RUN + 1):
        if tuple(said[place : place + _RUN]) in known:
            covered[place : place + _RUN] = [True] * _RUN
    return sum(covered) >= COPIED * len(said)


def canned(prompts: Sequence[str], answers: Sequence[str]) -> float:
    """Share of the answers that were also given, word for word, to another prompt."""
    asked: dict[tuple[str, ...], set[str]] = {}
    said = [tuple(re.findall(r"\w+", answer.lower())) for answer in answers]
    for prompt, words in zip(prompts, said, strict=True):
        asked.setdefault(words, set()).add(prompt)
    return sum(len(asked[words]) > 1 for words in said if words) / max(len(said), 1)
