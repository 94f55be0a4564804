"""A sequential test of "A or B": how many of the answers so far must prefer the candidate, so that it is accepted.

If a version is no better, the chance that the person prefers its answer is at most ½ wherever they prefer one at all, whatever was asked before. The
plan has a boundary for each question: the candidate is accepted at the first at which so many of the n decided answers so far preferred it. The boundary
spends the allowed error over the N questions as ``α (k / N)³`` (Kim and DeMets 1987, Biometrika 74), by exact enumeration of the binomial paths
and not by its continuous approximation (Jennison and Turnbull 2000, Group Sequential Methods, ch. 12). So the chance that a version that is no
better is ever accepted is at most α, however one looks in between, and also where the next question depends on the answers so far: to
raise one of the chances that are at most ½ to ½ can only raise that of reaching the boundary.

**A tie is a question that was asked**, and no coin was tossed: the error that it would have spent is left for the answers after it. Given which questions
are ties, the enumeration is exact; what it needs is that a tie does not depend on which answers were preferred before it. To count the decided answers
alone leaves most of the error unspent where half are ties: 8 of 8 would have to prefer the candidate in 16 questions, and 7 of 8 do now.

With α = 0.05 and 16 questions without a tie: 8 of 8, 9 of 10, 10 of 11, 11 of 14, 12 of 16; error 0.047. Of versions whose answer is preferred with
chance 0.9, 0.85, 0.8 it accepts 98, 93, 81 %. (No test of 16 such answers that errs in at most 5 % accepts more than 82 % of the last.)

Questions end early where the boundary is out of reach: the chance to reach it is under ``FORLORN`` even if the candidate is as much better as
``HOPED`` and no further pair is a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

Answers = Sequence[bool | None]
"""In their order, whether each preferred the candidate; None: neither."""

FORLORN = 0.1
HOPED = 0.8
"""Chance that a candidate's answer is preferred where it is clearly better, and the person is wrong now and then."""
EXPONENT = 3


@cache
def boundary(alpha: float, questions: int, ties: frozenset[int] = frozenset()) -> tuple[int, ...]:
    """The wins that are enough after each question; one more than there are decided answers where nothing is enough yet. ``ties``: places, from 0, of the questions
    of which neither answer was better."""
    paths, spent, decided, limits = {0: 1.0}, 0.0, 0, []
    for place in range(questions):
        if place not in ties:
            decided += 1
            paths = _tossed(paths)
        allowed, limit = alpha * ((place + 1) / questions) ** EXPONENT, decided + 1
        while limit > 0 and spent + paths.get(limit - 1, 0.0) <= allowed + 1e-12:
            limit -= 1
            spent += paths.get(limit, 0.0)
        limits.append(limit)
        paths = {wins: chance for wins, chance in paths.items() if wins < limit}
    return tuple(limits)


def _tossed(paths: dict[int, float]) -> dict[int, float]:
    """The chances of each number of wins after another fair coin."""
    after: dict[int, float] = {}
    for wins, chance in paths.items():
        for more in (0, 1):
            after[wins + more] = after.get(wins + more, 0.0) + chance / 2
    return after


def reaches_boundary(alpha: float, questions: int, answers: Answers) -> bool:
    """Whether the boundary is reached after the last of the answers; the earlier ones are not looked at."""
    count = len(answers)
    return 0 < count <= questions and wins(answers) >= boundary(alpha, questions, _ties(answers))[count - 1]


def chance(alpha: float, questions: int, answers: Answers, preferred: float) -> float:
    """That the boundary is reached in the end, if each further answer is decided and prefers the candidate with chance ``preferred``."""
    return _chance(alpha, questions, _ties(answers), len(answers), wins(answers), preferred)


@cache
def _chance(
    alpha: float, questions: int, ties: frozenset[int], count: int, score: int, preferred: float
) -> float:
    if count and score >= boundary(alpha, questions, ties)[count - 1]:
        return 1.0
    if count >= questions:
        return 0.0
    after = [_chance(alpha, questions, ties, count + 1, score + more, preferred) for more in (0, 1)]
    return (1 - preferred) * after[0] + preferred * after[1]


def verdict(alpha: float, questions: int, answers: Answers) -> str:
    """``accepted``, ``rejected``, or "" where another answer is wanted. What came after the decision does not count."""
    for count in range(1, min(len(answers), questions) + 1):
        if reaches_boundary(alpha, questions, answers[:count]):
            return "accepted"
        if count == questions or chance(alpha, questions, answers[:count], HOPED) < FORLORN:
            return "rejected"
    return "" if questions else "rejected"


def fewest(alpha: float, questions: int, answers: Answers) -> int:
    """Further answers after which it can be decided at the earliest; 0 where it is."""
    for more in range(questions - len(answers) + 1):
        if any(verdict(alpha, questions, [*answers, *[way] * more]) for way in (True, False, None)):
            return more
    return 0


def wins(answers: Answers) -> int:
    """How many preferred the candidate."""
    return sum(one is True for one in answers)


def _ties(answers: Answers) -> frozenset[int]:
    return frozenset(place for place, one in enumerate(answers) if one is None)
