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
from clawback.release.proportions import larger
from clawback.release.rule import WITH_A_TASTE, Compared, Evidence, Sampled, decide, mid_ranks, rank_test

FINE = Sampled(finished=1.0, empty=0.0, repeating=0.0, length=30.0, logprob=-1.5, relevance=0.8)
CLEAR = Evidence(
    good=8,
    bad=24,
    liked=(0.2, 0.3),
    disliked=(-0.3, -0.1, -0.2, -0.4),
    read_p=0.01,
    gain=0.6,
    gain_sd=0.2,
    better=0.995,
    kl=2.0,
    perplexity_ratio=1.05,
    candidate=FINE,
    live=FINE,
    base=FINE,
)
GATE = Gate()
SEEN = WITH_A_TASTE.mean, WITH_A_TASTE.stdev


def test_a_clear_case_is_accepted_and_says_why() -> None:
    decision = decide(CLEAR, GATE)
    assert decision.accepted
    assert decision.probability > 0.97
    assert "better than the live version with probability 0.99" in decision.reasons[0]


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        ({"kl": 8.1}, "drifted"),
        ({"kl": float("nan")}, "drifted"),
        ({"perplexity_ratio": 2.0}, "perplexity"),
        ({"perplexity_ratio": float("inf")}, "perplexity"),
        ({"candidate": replace(FINE, finished=0.8)}, "do not end"),
        ({"candidate": replace(FINE, empty=0.2)}, "empty"),
        ({"candidate": replace(FINE, repeating=0.2)}, "repeat themselves"),
        ({"candidate": replace(FINE, length=110.0)}, "tokens long"),
        ({"candidate": replace(FINE, length=2.0)}, "tokens long"),
        (
            {"candidate": replace(FINE, length=9.0), "enjoyed": replace(FINE, length=28.0)},
            "liked ones 28",
        ),
        ({"candidate": replace(FINE, whole=0.8)}, "break off"),
        ({"candidate": replace(FINE, copied=0.2)}, "repeat the question"),
        ({"candidate": replace(FINE, canned=0.2)}, "the same for different questions"),
        ({"candidate": replace(FINE, relevance=0.3)}, "little to do with the question"),
        ({"candidate": replace(FINE, relevance=float("nan"))}, "little to do with the question"),
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


def test_ratings_that_say_nothing_prove_nothing() -> None:
    sure_of_itself = replace(CLEAR, gain=5.0, gain_sd=0.1, better=1.0, read_p=0.5, liked=(), disliked=())
    assert not decide(sure_of_itself, GATE).accepted


@given(st.floats(0, 1), st.floats(0, 1))
def test_what_it_says_is_never_certain(p: float, better: float) -> None:
    assert 0 < decide(replace(CLEAR, read_p=p, better=better), GATE).probability < 1


def test_models_of_the_ratings_that_doubt_it_count() -> None:
    """A run that took a coincidence for the taste is liked by the model of the ratings that took it, too."""
    doubted = decide(replace(CLEAR, gain=5.0, better=0.6), GATE)
    assert not doubted.accepted
    assert "better with probability 0.60" in " ".join(doubted.reasons)


def test_held_back_ratings_that_contradict_the_reader_count() -> None:
    open_ = replace(CLEAR, read_p=0.05)
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

    What a reader finds (z_read) and by how much candidates of its making gain on it (3.5 ± 1) are drawn from what was measured on
    simulated people; ``taste=False`` are ratings that say nothing, where the gain is there all the same, because the
    candidate learned from what the head was fitted on. ``moved`` is the share of that gain that the candidate has.
    """
    good = rng.randint(5, 14)
    held_good, held_bad = rng.randint(1, 3), rng.randint(3, 5)
    apart = 0.05 if taste else 0.0
    gained = rng.gauss((3.5 if taste else 2.5) * moved, 1)
    return replace(
        CLEAR,
        good=good,
        bad=32 - good,
        read_p=float(stats.norm.sf(rng.gauss(*SEEN) if taste else rng.gauss(0, 1))),
        gain=0.2 * gained,
        gain_sd=0.2,
        better=float(stats.norm.cdf(gained)),
        liked=tuple(rng.gauss(apart * moved, 0.15) for _ in range(held_good)),
        disliked=tuple(rng.gauss(-apart * moved, 0.15) for _ in range(held_bad)),
    )


def accepted(cases: int = 2000, **kind: object) -> float:
    """Share of simulated cases that the rule accepts."""
    rng = random.Random(0)
    return sum(decide(simulated(rng, **kind), GATE).accepted for _ in range(cases)) / cases  # type: ignore[arg-type]


def test_its_errors_are_as_rare_as_the_docs_say() -> None:
    assert accepted() > 0.60, (
        "a candidate that learned what the person likes; most of the others are asked about"
    )
    assert accepted(moved=0.0) < 0.06, "one that learned something else, or nothing"
    assert accepted(taste=False) < 0.12, "ratings that say nothing"
    assert accepted(taste=False, moved=0.0) < 0.02


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
    weak = replace(CLEAR, read_p=0.2, liked=(), disliked=())
    assert decide(weak, GATE).probability < decide(replace(weak, read_p=0.02), GATE).probability


def test_ratings_of_its_own_answers_count_in_both_directions() -> None:
    """By hand, from the sentence in the reasons: the odds times the root of the Bayes factor."""
    unsure = replace(CLEAR, read_p=0.3, liked=(), disliked=())
    before = decide(unsure, GATE).probability
    for ours, live, earlier in (
        ((9, 1), (1, 5), (8, 24)),
        ((2, 8), (5, 1), (8, 24)),
        ((5, 5), (3, 3), (0, 0)),
    ):
        after = decide(replace(unsure, compared=Compared(ours, live, earlier)), GATE)
        factor = larger(ours, (live[0] + earlier[0] / 4, live[1] + earlier[1] / 4))
        assert after.probability / (1 - after.probability) == pytest.approx(
            before / (1 - before) * factor**0.5
        )
        assert any("rated beside each other" in reason for reason in after.reasons)
    accepted = decide(replace(unsure, compared=Compared((10, 0), (0, 6), (8, 24))), GATE)
    assert accepted.accepted
    assert not decide(unsure, GATE).accepted


def test_what_was_folded_into_the_weights_is_not_to_be_better_than_the_prompt() -> None:
    compared = Compared((5, 5), (3, 3), (8, 24))
    folded = replace(CLEAR, folded=True)
    assert decide(replace(folded, compared=compared), GATE) == decide(folded, GATE)


def test_what_was_folded_into_the_weights_may_drift_as_far_as_the_prompt_did() -> None:
    far = replace(CLEAR, kl=12.0)
    assert not decide(far, GATE).accepted
    kept = decide(replace(far, folded=True, prompt_kl=13.0), GATE)
    assert kept.accepted
    assert "above half of the prompt's gain" in kept.reasons[0]
    assert not decide(replace(far, folded=True, prompt_kl=11.0), GATE).accepted
