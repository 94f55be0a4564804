"""A sequential test of "A or B": how many of the answers so far must prefer the candidate, so that it is accepted.

If a version is no better, the chance that the person prefers its answer is at most ½ at each question, whatever was asked before. The plan
has a boundary ``c(n)`` for each number of answers n: the candidate is accepted at the first n at which ``c(n)`` of n preferred it. The boundary
spends the allowed error over the questions as ``α (n / N)³`` (Kim and DeMets 1987, Biometrika 74), by exact enumeration of the binomial paths
and not by its continuous approximation (Jennison and Turnbull 2000, Group Sequential Methods, ch. 12). So the chance that a version that is no
better is ever accepted is at most α, however one looks in between, and also where the next question depends on the answers so far: to
raise one of the chances that are at most ½ to ½ can only raise that of reaching the boundary.

With α = 0.05 and 16 questions: 8 of 8, 9 of 10, 10 of 11, 11 of 14, 12 of 16; error 0.047. Of versions whose answer is preferred with
chance 0.9, 0.85, 0.8 it accepts 98, 93, 81 %. (No test of 16 such answers that errs in at most 5 % accepts more than 82 % of the last.)

Questions end early where the boundary is out of reach: the chance to reach it is under ``FORLORN`` even if the candidate is as much better as
``HOPED``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

FORLORN = 0.1
HOPED = 0.8
"""Chance that a candidate's answer is preferred where it is clearly better, and the person is wrong now and then."""
EXPONENT = 3


@cache
def boundary(alpha: float, questions: int) -> tuple[int, ...]:
    """``c(1) … c(questions)``; ``n + 1`` where nothing is enough yet."""
    paths, spent, limits = {0: 1.0}, 0.0, []
    for n in range(1, questions + 1):
        after: dict[int, float] = {}
        for wins, chance in paths.items():
            for more in (0, 1):
                after[wins + more] = after.get(wins + more, 0.0) + chance / 2
        allowed, limit = alpha * (n / questions) ** EXPONENT, n + 1
        while limit > 0 and spent + after.get(limit - 1, 0.0) <= allowed + 1e-12:
            limit -= 1
            spent += after.get(limit, 0.0)
        limits.append(limit)
        paths = {wins: chance for wins, chance in after.items() if wins < limit}
    return tuple(limits)


@cache
def chance(alpha: float, questions: int, wins: int, losses: int, preferred: float) -> float:
    """That the boundary is reached in the end, if each further answer prefers the candidate with chance ``preferred``."""
    n = wins + losses
    if n and wins >= boundary(alpha, questions)[n - 1]:
        return 1.0
    if n >= questions:
        return 0.0
    more = chance(alpha, questions, wins + 1, losses, preferred)
    return preferred * more + (1 - preferred) * chance(alpha, questions, wins, losses + 1, preferred)


def verdict(alpha: float, questions: int, answers: Sequence[bool]) -> str:
    """``accepted``, ``rejected``, or "" where another answer is wanted. ``answers``: in their order, whether each preferred the candidate; what came
    after the decision does not count."""
    wins = 0
    for n, preferred in enumerate(answers[:questions], 1):
        wins += preferred
        if wins >= boundary(alpha, questions)[n - 1]:
            return "accepted"
        if n == questions or chance(alpha, questions, wins, n - wins, HOPED) < FORLORN:
            return "rejected"
    return "" if questions else "rejected"


def fewest(alpha: float, questions: int, answers: Sequence[bool]) -> int:
    """Further answers after which it can be decided at the earliest; 0 where it is."""
    for more in range(questions - len(answers) + 1):
        if any(verdict(alpha, questions, [*answers, *[way] * more]) for way in (True, False)):
            return more
    return 0
