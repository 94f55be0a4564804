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

FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=30.0, logprob=-1.5, relevance=0.8)
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
    says=3.0,
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
        ({"kl": 8.1}, "drifted"),
        ({"kl": float("nan")}, "drifted"),
        ({"perplexity_ratio": 2.0}, "perplexing"),
        ({"perplexity_ratio": float("inf")}, "perplexing"),
        ({"candidate": replace(FINE, finished=0.8)}, "do not end"),
        ({"candidate": replace(FINE, empty=0.2)}, "empty"),
        ({"candidate": replace(FINE, repeating=0.2)}, "repeat themselves"),
        ({"candidate": replace(FINE, length=110.0)}, "tokens long"),
        ({"candidate": replace(FINE, length=2.0)}, "tokens long"),
        (
            {"candidate": replace(FINE, length=12.0), "enjoyed": replace(FINE, length=28.0)},
            "those that were liked 28",
        ),
        ({"candidate": replace(FINE, whole=0.8)}, "break off"),
        ({"candidate": replace(FINE, copied=0.2)}, "repeat what was asked"),
        ({"candidate": replace(FINE, canned=0.2)}, "the same for different questions"),
        ({"candidate": replace(FINE, relevance=0.3)}, "little to do with what was asked"),
        ({"candidate": replace(FINE, relevance=float("nan"))}, "little to do with what was asked"),
        ({"candidate": replace(FINE, logprob=-2.6)}, "unlikely text"),
        ({"good": 0, "bad": 48}, "not enough ratings: 0 good"),
        ({"good": 48, "bad": 1}, "and 1 bad, and at least 2 of each"),
    ],
)
def test_guards_reject_whatever_the_score(harm: dict[str, object], word: str) -> None:
    decision = decide(replace(CLEAR, **harm), GATE)  # type: ignore[arg-type]
    assert not decision.accepted
    assert word in decision.reasons[0]


@pytest.mark.parametrize(
    "usual",
    [
        {"candidate": replace(FINE, length=20.0), "enjoyed": replace(FINE, length=22.0)},
        {"candidate": replace(FINE, length=90.0), "enjoyed": replace(FINE, length=80.0)},
        {"candidate": replace(FINE, whole=0.3), "enjoyed": replace(FINE, whole=0.35)},  # they like it so
        {"candidate": replace(FINE, canned=0.5), "enjoyed": replace(FINE, canned=0.45)},
        {"candidate": replace(FINE, relevance=0.3), "enjoyed": replace(FINE, relevance=0.5)},
        {"candidate": replace(FINE, logprob=-2.6), "enjoyed": replace(FINE, logprob=-1.8)},
        {"candidate": replace(FINE, length=400.0), "base": replace(FINE, length=400.0), "kl": 90.0},
        {
            "candidate": replace(FINE, length=60.0, finished=0.72, repeating=0.28),
            "base": replace(FINE, finished=0.9, repeating=0.1),
        },
    ],
)
def test_what_is_usual_depends_on_what_is_liked_and_how_long_answers_are(usual: dict[str, object]) -> None:
    assert decide(replace(CLEAR, **usual), GATE).accepted  # type: ignore[arg-type]


def test_a_head_that_predicts_nothing_proves_nothing() -> None:
    sure_of_itself = replace(CLEAR, gain=5.0, gain_sd=0.1, head_p=0.5, liked=(), disliked=(), says=-2.0)
    assert not decide(sure_of_itself, GATE).accepted


def test_a_taste_may_be_what_is_seen_in_answers_or_what_the_head_finds() -> None:
    neither = replace(CLEAR, head_p=0.5, liked=(), disliked=(), says=-2.0)
    seen, found = replace(neither, says=4.0), replace(neither, head_p=0.001)
    assert decide(neither, GATE).probability < GATE.confidence
    assert decide(seen, GATE).accepted
    assert decide(found, GATE).accepted
    assert "55 times as likely" in " ".join(decide(seen, GATE).reasons)
    for sure in (1e9, -1e9):
        assert 0 < decide(replace(CLEAR, says=sure), GATE).probability < 1


def test_what_the_ratings_may_be_about_must_agree_with_the_head() -> None:
    """A run that took a coincidence for the taste is liked by a head that saw the same coincidence."""
    assert decide(replace(CLEAR, agreed=0.95), GATE).accepted
    doubted = decide(replace(CLEAR, gain=5.0, agreed=0.6), GATE)
    assert not doubted.accepted
    assert "may be about with probability 0.60" in " ".join(doubted.reasons)


def test_held_back_ratings_that_contradict_the_head_count() -> None:
    open_ = replace(CLEAR, says=0.0)
    contradicting = replace(open_, liked=CLEAR.disliked, disliked=CLEAR.liked)
    assert decide(contradicting, GATE).probability < decide(open_, GATE).probability - 0.05


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


@given(st.permutations(range(12)), st.integers(1, 11), st.integers(0, 5))
def test_without_ties_it_is_the_librarys_exact_test(order: list[int], a: int, left_out: int) -> None:
    """SciPy counts the observed arrangement whole in both tails, we half: (1 + P(U ≥ u) - P(U ≤ u)) / 2."""
    values = [float(value) for value in order[: max(a + 1, 12 - left_out)]]
    above, below = (
        stats.mannwhitneyu(values[:a], values[a:], alternative=side, method="exact").pvalue
        for side in ("greater", "less")
    )
    assert rank_test(values[:a], values[a:]) == pytest.approx((1 + above - below) / 2)


def test_the_approximation_for_many_agrees_with_a_library() -> None:
    rng = random.Random(0)
    liked, disliked = [rng.gauss(0.3, 1) for _ in range(30)], [rng.gauss(0, 1) for _ in range(40)]
    theirs = stats.mannwhitneyu(
        liked, disliked, alternative="greater", method="asymptotic", use_continuity=False
    )
    assert rank_test(liked, disliked) == pytest.approx(theirs.pvalue, abs=1e-3)


def simulated(rng: random.Random, *, taste: bool = True, moved: float = 1.0) -> Evidence:
    """Evidence as 32 noisy taps on a rare taste give it.

    What a head finds (z_head), the Bayes factor, and by how much candidates of its making gain on it (3.5 ± 1) are drawn from what was measured on
    simulated people; ``taste=False`` are ratings that say nothing, where the gain is there all the same, because the
    candidate learned from what the head was fitted on. ``moved`` is the share of that gain that the candidate has.
    """
    good = rng.randint(5, 14)
    held_good, held_bad = rng.randint(1, 3), rng.randint(3, 5)
    apart = 0.05 if taste else 0.0
    return replace(
        CLEAR,
        good=good,
        bad=32 - good,
        head_p=float(stats.norm.sf(rng.gauss(1.6, 1.1) if taste else rng.gauss(0, 1))),
        says=rng.gauss(2, 2) if taste else rng.gauss(-2, 2),
        gain=0.2 * rng.gauss((3.5 if taste else 2.5) * moved, 1),
        gain_sd=0.2,
        liked=tuple(rng.gauss(apart * moved, 0.15) for _ in range(held_good)),
        disliked=tuple(rng.gauss(-apart * moved, 0.15) for _ in range(held_bad)),
    )


def accepted(cases: int = 2000, **kind: object) -> float:
    """Share of simulated cases that the rule accepts."""
    rng = random.Random(0)
    return sum(decide(simulated(rng, **kind), GATE).accepted for _ in range(cases)) / cases  # type: ignore[arg-type]


def test_its_errors_are_as_rare_as_the_docs_say() -> None:
    assert accepted() > 0.70, "a candidate that learned what the person likes"
    assert accepted(moved=0.0) < 0.20, "one that learned something else, or nothing"
    assert accepted(taste=False) < 0.50, (
        "ratings that say nothing: the prior lets them through nearly half of the time"
    )
    assert accepted(taste=False, moved=0.0) < 0.08


def test_what_it_says_is_a_probability() -> None:
    """Where the world is as the rule takes it to be, of the cases that it calls about 0.8 sure about four in five are better."""
    rng = random.Random(1)
    called: dict[bool, list[bool]] = {True: [], False: []}
    for _ in range(6000):
        taste = rng.random() < 0.8
        evidence = simulated(rng, taste=taste, moved=rng.choice([1.0, 0.5, 0.0]))
        truly = rng.gauss(evidence.gain, evidence.gain_sd) > 0 if taste else rng.random() < 0.5
        if (probability := decide(evidence, GATE).probability) > 0.7:
            called[probability >= 0.9].append(truly)
    assert 0.70 < sum(called[False]) / len(called[False]) < 0.90
    assert sum(called[True]) / len(called[True]) > 0.90


def test_more_ratings_of_a_kind_make_it_surer() -> None:
    weak = replace(CLEAR, head_p=0.2, liked=(), disliked=())
    assert decide(weak, GATE).probability < decide(replace(weak, head_p=0.02), GATE).probability


def test_what_was_folded_into_the_weights_may_drift_as_far_as_the_prompt_did() -> None:
    far = replace(CLEAR, kl=12.0)
    assert not decide(far, GATE).accepted
    kept = decide(replace(far, folded=True, prompt_kl=13.0), GATE)
    assert kept.accepted
    assert "without the prompt as good as with it" in kept.reasons[0]
    assert not decide(replace(far, folded=True, prompt_kl=11.0), GATE).accepted
