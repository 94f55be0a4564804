"""The gate's rule, on made-up evidence: how often it errs, and what it always refuses."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clawback.config import Gate
from clawback.release.rule import Evidence, Sampled, decide, mid_ranks, rank_test

FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=40.0)
CLEAR = Evidence(
    good=8,
    bad=24,
    liked=(0.2, 0.3),
    disliked=(-0.3, -0.1, -0.2, -0.4),
    head_p=0.01,
    head_correlation=0.4,
    gain=0.6,
    gain_sd=0.2,
    kl=2.0,
    perplexity_ratio=1.05,
    candidate=FINE,
    live=FINE,
    base=FINE,
)
GATE = Gate()


def test_a_clear_case_is_accepted_and_says_why() -> None:
    decision = decide(CLEAR, GATE)
    assert decision.accepted
    assert decision.probability > 0.97
    assert "better than the live version with probability over 0.99" in decision.reasons[0]


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        ({"kl": 9.0}, "drifted"),
        ({"kl": float("nan")}, "drifted"),
        ({"perplexity_ratio": 2.0}, "perplexing"),
        ({"perplexity_ratio": float("inf")}, "perplexing"),
        ({"candidate": replace(FINE, finished=0.8)}, "do not end"),
        ({"candidate": replace(FINE, empty=0.2)}, "empty"),
        ({"candidate": replace(FINE, repeating=0.2)}, "repeat themselves"),
        ({"candidate": replace(FINE, length=200.0)}, "tokens long"),
        ({"candidate": replace(FINE, length=2.0)}, "tokens long"),
        ({"good": 0, "bad": 48}, "without more good ones"),
        ({"good": 48, "bad": 1}, "without more bad ones"),
    ],
)
def test_guards_reject_whatever_the_score(harm: dict[str, object], word: str) -> None:
    decision = decide(replace(CLEAR, **harm), GATE)  # type: ignore[arg-type]
    assert not decision.accepted
    assert word in decision.reasons[0]


def test_a_head_that_predicts_nothing_proves_nothing() -> None:
    sure_of_itself = replace(CLEAR, gain=5.0, gain_sd=0.1, head_p=0.5, liked=(), disliked=())
    assert not decide(sure_of_itself, GATE).accepted


def test_held_back_ratings_that_contradict_the_head_count() -> None:
    contradicting = replace(CLEAR, liked=CLEAR.disliked, disliked=CLEAR.liked)
    assert decide(contradicting, GATE).probability < decide(CLEAR, GATE).probability - 0.05


values = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=5)


@given(values, values)
def test_the_rank_test_counts_every_arrangement(liked: list[float], disliked: list[float]) -> None:
    """Against a slow loop over all orders of the labels."""
    ranks = mid_ranks([*liked, *disliked])
    assert ranks == stats.rankdata([*liked, *disliked]).tolist()
    if len(ranks) > 7:
        return
    observed = sum(ranks[: len(liked)])
    sums = [sum(order[: len(liked)]) for order in permutations(ranks)]
    slow = (
        sum(s > observed + 1e-9 for s in sums) + 0.5 * sum(abs(s - observed) <= 1e-9 for s in sums)
    ) / len(sums)
    assert rank_test(liked, disliked) == pytest.approx(slow)


def test_the_approximation_for_many_agrees_with_a_library() -> None:
    rng = random.Random(0)
    liked, disliked = [rng.gauss(0.3, 1) for _ in range(30)], [rng.gauss(0, 1) for _ in range(40)]
    theirs = stats.mannwhitneyu(
        liked, disliked, alternative="greater", method="asymptotic", use_continuity=False
    )
    assert rank_test(liked, disliked) == pytest.approx(theirs.pvalue, abs=1e-3)


def simulated(rng: random.Random, effect: float) -> Evidence:
    """Evidence as 32 noisy taps on a rare taste give it: ``effect`` is 0 for a candidate that learned nothing.

    The worst case for the rule: the head was fitted on what the candidate learned from, so the gain is always there, and what
    tells is whether the head predicts (its p) and what the held-back turns say.
    """
    good = rng.randint(5, 14)
    held_good, held_bad = rng.randint(1, 3), rng.randint(3, 5)
    normal = stats.norm
    return replace(
        CLEAR,
        good=good,
        bad=32 - good,
        head_p=float(normal.sf(rng.gauss(2.5 * effect, 1))),
        gain=rng.gauss(0.5, 0.1),
        gain_sd=0.2,
        liked=tuple(rng.gauss(0.2 * effect, 0.15) for _ in range(held_good)),
        disliked=tuple(rng.gauss(-0.1 * effect, 0.15) for _ in range(held_bad)),
    )


def test_its_errors_are_as_rare_as_it_says() -> None:
    rng = random.Random(0)
    false = sum(decide(simulated(rng, 0.0), GATE).accepted for _ in range(2000)) / 2000
    true = sum(decide(simulated(rng, 1.0), GATE).accepted for _ in range(2000)) / 2000
    assert false < 0.12, "asked for 0.9, so about one in ten of what learned nothing may pass"
    assert true > 0.88
