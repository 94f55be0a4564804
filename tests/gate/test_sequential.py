"""The sequential test of A or B: its error is exact, and what it accepts is what it says."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clawback.gate import questions


def accepts(alpha: float, count: int, preferred: float) -> float:
    """By going through every order of answers, one by one."""
    total = 0.0
    for way in itertools.product((True, False), repeat=count):
        if questions.verdict(alpha, count, way) == "accepted":
            wins = sum(way)
            total += preferred**wins * (1 - preferred) ** (count - wins)
    return total


@pytest.mark.parametrize(("alpha", "count"), [(0.05, 12), (0.044, 11), (0.2, 9), (0.01, 12)])
def test_the_error_is_at_most_what_is_allowed_over_every_order_of_answers(alpha: float, count: int) -> None:
    error = accepts(alpha, count, 0.5)
    assert 0 < error <= alpha
    assert accepts(alpha, count, 0.4) < error
    assert questions.chance(alpha, count, (), 0.5) == pytest.approx(error, rel=0.2), "forlorn ones are few"


@given(st.integers(4, 11), st.data())
def test_given_which_questions_are_ties_the_error_is_at_most_what_is_allowed(
    count: int, data: st.DataObject
) -> None:
    ties = data.draw(st.sets(st.integers(0, count - 1), max_size=count))
    decided = count - len(ties)
    error = 0.0
    for way in itertools.product((True, False), repeat=decided):
        tosses = iter(way)
        answers = [None if place in ties else next(tosses) for place in range(count)]
        error += (questions.verdict(0.05, count, answers) == "accepted") / 2**decided
    assert error <= 0.05 + 1e-12


def test_a_tie_leaves_its_share_of_the_error_to_the_answers_after_it() -> None:
    ties: list[bool | None] = [None] * 8
    seven = [*ties, *[True] * 3, False, *[True] * 4]
    assert questions.verdict(0.05, 16, seven) == "accepted", "7 of 8, p = 0.035"
    assert questions.verdict(0.05, 16, [one for one in seven if one is not None]) == "", "there are 8 to come"
    assert questions.verdict(0.05, 16, [*[None] * 11, *[True] * 5]) == "accepted", "5 of 5, p = 0.031"
    assert questions.verdict(0.05, 16, [None] * 12) == "rejected", "4 of 4 would be p = 0.06"


def test_whoever_makes_ties_as_the_answers_come_gains_little() -> None:
    """The worst that can be: after each answer it is chosen whether the next question is a tie, so that a version that is no better is accepted most often."""
    alpha, count = 0.05, 10

    def worst(ties: frozenset[int], asked: int, wins: int) -> float:
        if asked and wins >= questions.boundary(alpha, count, ties)[asked - 1]:
            return 1.0
        if asked == count:
            return 0.0
        tossed = [worst(ties, asked + 1, wins + more) for more in (0, 1)]
        return max(sum(tossed) / 2, worst(ties | {asked}, asked + 1, wins))

    assert alpha / 2 < worst(frozenset(), 0, 0) < 0.065


def test_the_figures_of_the_docs() -> None:
    limits = questions.boundary(0.05, 16)
    assert [limits[n - 1] for n in (8, 10, 11, 14, 16)] == [8, 9, 10, 11, 12]
    assert questions.chance(0.05, 16, (), 0.5) == pytest.approx(0.047, abs=0.0005)
    shares = [questions.chance(0.05, 16, (), share) for share in (0.9, 0.85, 0.8)]
    assert [round(share, 2) for share in shares] == [0.98, 0.93, 0.81]
    best = stats.binom.sf(11, 16, 0.8) + (0.05 - stats.binom.sf(11, 16, 0.5)) / stats.binom.pmf(11, 16, 0.5) * stats.binom.pmf(11, 16, 0.8)  # fmt: skip
    assert best == pytest.approx(0.82, abs=0.005), "the likeliest test of all: Neyman and Pearson"


@given(st.floats(0.01, 0.3), st.integers(1, 16))
def test_whoever_chooses_the_next_question_by_the_answers_so_far_gains_nothing(
    alpha: float, count: int
) -> None:
    """The chance to be preferred may fall with every answer, as long as it is at most a half: the error only falls."""
    rng = random.Random(count)

    def reached(n: int, wins: int) -> float:
        if n and wins >= questions.boundary(alpha, count)[n - 1]:
            return 1.0
        if n == count:
            return 0.0
        preferred = rng.choice((0.5, 0.3, 0.0))
        return preferred * reached(n + 1, wins + 1) + (1 - preferred) * reached(n + 1, wins)

    if count <= 10:
        assert reached(0, 0) <= questions.chance(alpha, count, (), 0.5) + 1e-12


@given(st.lists(st.sampled_from((True, False, None)), max_size=20), st.integers(1, 16))
def test_what_was_decided_stays_decided_whatever_is_said_later(
    answers: list[bool | None], count: int
) -> None:
    verdicts = [questions.verdict(0.05, count, answers[:n]) for n in range(len(answers) + 1)]
    decided = [v for v in verdicts if v]
    assert set(decided) <= {decided[0]} if decided else True
    first = next((n for n, v in enumerate(verdicts) if v), None)
    if first is not None:
        assert verdicts[first:] == [verdicts[first]] * (len(verdicts) - first)
        assert questions.fewest(0.05, count, answers[:first]) == 0


@given(st.lists(st.sampled_from((True, False, None)), max_size=15))
def test_the_fewest_further_answers_are_enough_and_one_less_is_not(answers: list[bool | None]) -> None:
    if questions.verdict(0.05, 16, answers):
        return
    fewest = questions.fewest(0.05, 16, answers)
    ways = list(itertools.product((True, False, None), repeat=min(fewest, 6)))
    assert fewest > 0
    assert not any(questions.verdict(0.05, 16, [*answers, *way[:-1]]) for way in ways)


def test_with_few_questions_nothing_can_be_accepted() -> None:
    assert questions.boundary(0.05, 4)[-1] > 4
    assert questions.verdict(0.05, 0, ()) == "rejected"
