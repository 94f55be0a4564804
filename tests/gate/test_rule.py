"""The gate's rule, on made-up evidence: what decides, what does not, and what it always refuses."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from clawback.config import GateSection
from clawback.gate.guards import AnswerStatistics, RuleObedience
from clawback.gate.report import Report
from clawback.gate.rule import Evidence, decide, error_left, mid_ranks, posterior, rank_test

FINE = AnswerStatistics(finished=1.0, empty=0.0, repeating=0.0, length=30.0, logprob=-1.5, relevance=0.8)
WON, LOST = (True,), (False,)
OPEN = Evidence(
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
    questions=16,
    prompts=16,
    unlearned=16,
)
CLEAR = replace(OPEN, answers=WON * 8)
GATE = GateSection()


def test_a_clear_case_is_accepted_and_says_why() -> None:
    decision = decide(CLEAR, GATE)
    assert decision.accepted
    assert decision.probability > 0.97
    assert decision.reasons[0] == "in 8 of 8 blind comparisons its answer was preferred to the live version's"
    assert "16 prompts, 16 of them kept out of every run" in " ".join(decision.reasons)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(0.001, 1))
def test_the_readers_opinion_alone_accepts_nothing(p: float, better: float, gain: float, sd: float) -> None:
    """It chose what the candidate learned: what trained a version cannot vouch for it."""
    opinion = replace(OPEN, read_p=p, better=better, gain=gain, gain_sd=sd)
    assert not decide(opinion, GATE).accepted
    assert not decide(opinion, GATE, may_ask=False).accepted
    lost = replace(opinion, answers=LOST * 5)
    assert (decide(lost, GATE).accepted, decide(lost, GATE).asks) == (False, 0)


def test_it_asks_where_nothing_else_decides_and_as_little_as_it_can() -> None:
    decision = decide(OPEN, GATE)
    assert (decision.accepted, decision.asks) == (False, 4)
    assert "undecided: say which of two answers is better, 4 to 16 times" in decision.reasons[0]
    assert decide(replace(OPEN, answers=WON * 7), GATE).asks == 1
    assert decide(replace(OPEN, answers=WON * 8), GATE).accepted
    assert decide(replace(OPEN, answers=(WON + LOST) * 8), GATE).asks == 0
    assert decide(OPEN, GATE, may_ask=False).asks == 0


def test_whoever_wants_no_questions_is_asked_none() -> None:
    decision = decide(OPEN, GateSection(more_ratings=0))
    assert (decision.accepted, decision.asks) == (False, 0)
    assert "nobody has compared" in decision.reasons[0]
    few = decide(OPEN, GateSection(more_ratings=3))
    assert (few.accepted, few.asks) == (False, 0)
    assert "3 questions cannot decide" in few.reasons[0]
    assert (
        decide(replace(OPEN, questions=16), GateSection(more_ratings=100)).asks == decide(OPEN, GATE).asks
    ), "16 at most"


def test_whoever_asks_for_no_confidence_gets_what_passes_the_guards() -> None:
    assert decide(OPEN, GateSection(confidence=0.0)).accepted
    assert not decide(replace(OPEN, kl=99.0), GateSection(confidence=0.0)).accepted
    never = decide(OPEN, GateSection(confidence=1.0))
    assert (never.accepted, never.asks) == (False, 0)
    assert "not shown to be better" in never.reasons[0]


@given(st.lists(st.booleans(), max_size=16))
def test_held_out_ratings_outvote_whatever_else_there_is(answers: list[bool]) -> None:
    against = replace(OPEN, answers=tuple(answers), liked=(-0.5, -0.4, -0.3), disliked=(0.1, 0.2, 0.3, 0.4))
    decision = decide(against, GATE)
    assert (decision.accepted, decision.asks) == (False, 0)
    assert "held-out ratings speak against it (p = 0.029)" in decision.reasons[0]


def test_enough_held_out_ratings_accept_without_a_question_and_a_few_do_not() -> None:
    many = replace(
        OPEN, liked=tuple(0.1 + 0.01 * i for i in range(6)), disliked=tuple(-0.01 * i for i in range(6))
    )
    decision = decide(many, GATE)
    assert decision.accepted
    assert "better by held-out ratings (p = 0.0011)" in decision.reasons[0]
    assert decide(OPEN, GATE).asks, "two against four, all as they should be, are one order in fifteen"
    assert error_left(many, 0.05) == pytest.approx(0.047)
    assert error_left(OPEN, 0.05) == 0.05, "they could not have accepted anything"


def rule(candidate: float, live: float, p_more: float, p_less: float, owners: bool = True) -> RuleObedience:
    return RuleObedience("Give an example.", owners, candidate, live, 96, p_more, p_less)


def test_a_rule_of_the_owners_accepts_and_one_that_the_ratings_made_does_not() -> None:
    obeys = decide(replace(OPEN, rules=(rule(0.9, 0.3, 0.0005, 1.0),)), GATE)
    assert obeys.accepted
    assert 'a rule of yours is kept more often: "Give an example." 90% of 96 answers' in obeys.reasons[0]
    assert not decide(replace(OPEN, rules=(rule(0.9, 0.3, 0.0005, 1.0, owners=False),)), GATE).accepted
    assert not decide(replace(OPEN, rules=(rule(0.9, 0.3, 0.02, 1.0),)), GATE).accepted, (
        "by chance, one time in fifty"
    )
    assert not decide(replace(OPEN, rules=(rule(0.38, 0.3, 0.0005, 1.0),)), GATE).accepted, "hardly more"


def test_a_rule_that_is_broken_more_often_stops_a_version_whoever_prefers_it() -> None:
    broken = decide(
        replace(CLEAR, rules=(rule(0.9, 0.3, 0.0005, 1.0), rule(0.4, 0.8, 1.0, 0.01, owners=False))), GATE
    )
    assert not broken.accepted
    assert "a rule is kept less often" in broken.reasons[0]


def test_what_cannot_be_told_apart_is_dropped_without_a_question() -> None:
    for evidence, word in (
        (replace(OPEN, questions=3, alike=0.95), "95% of the answers read the same"),
        (replace(OPEN, gain=0.05, gain_sd=0.05), "expected to be rated +0.11 higher at most"),
        (replace(OPEN, gain=-0.4, better=0.01), "not worth a question"),
    ):
        decision = decide(evidence, GATE)
        assert (decision.accepted, decision.asks) == (False, 0)
        assert word in decision.reasons[0]
    assert decide(replace(OPEN, gain=0.05, gain_sd=0.05, read_p=0.5), GATE).asks, (
        "a reader that reads nothing cannot tell"
    )
    assert decide(replace(OPEN, gain=0.05, gain_sd=0.05, weak_reader=True), GATE).asks, (
        "the reader does not see what was learned from remarks that it does not understand"
    )
    seen = replace(OPEN, gain=0.05, gain_sd=0.05, rules=(rule(0.6, 0.3, 0.02, 1.0),))
    assert decide(seen, GATE).asks, "a rule sees a difference"


def test_prompts_that_a_run_may_have_seen_are_marked() -> None:
    said = " ".join(decide(replace(OPEN, prompts=8, unlearned=5), GATE).reasons)
    assert "8 prompts, 5 of them kept out of every run; THE OTHER 3 MAY HAVE BEEN LEARNED FROM" in said


@given(st.lists(st.booleans(), max_size=16))
def test_the_probability_is_that_of_a_uniform_prior(answers: list[bool]) -> None:
    wins = sum(answers)
    assert posterior(answers) == pytest.approx(stats.beta.sf(0.5, 1 + wins, 1 + len(answers) - wins))


def test_of_versions_that_are_no_better_at_most_one_in_twenty_is_accepted() -> None:
    """Held-out shifts, a rule and comparisons, all by chance; and of those whose answer is preferred nine times in ten nearly all are."""
    rng = random.Random(0)

    def accepted(preferred: float, cases: int = 300) -> float:
        count = 0
        for _ in range(cases):
            shifts = [rng.gauss(0, 1) for _ in range(12)]
            p = rng.random()
            seen = replace(
                OPEN, liked=tuple(shifts[:6]), disliked=tuple(shifts[6:]), rules=(rule(0.6, 0.3, p, 1 - p),)
            )
            decision = decide(seen, GATE)
            answers: list[bool] = []
            while decision.asks:
                answers.append(rng.random() < preferred)
                decision = decide(replace(seen, answers=tuple(answers)), GATE)
            assert len(answers) <= 16
            count += decision.accepted
        return count / cases

    assert accepted(0.5) < 0.05 + 2 * (0.05 * 0.95 / 300) ** 0.5
    assert accepted(0.9, 80) > 0.88


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
        ({"candidate": replace(FINE, complete=0.8)}, "break off"),
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
        {
            "candidate": replace(FINE, complete=0.3),
            "enjoyed": replace(FINE, complete=0.35),
        },  # they like it so
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


def test_the_p_value_that_keeps_its_error_counts_all_that_is_as_good() -> None:
    assert rank_test([3.0, 4.0], [1.0, 2.0], 1.0) == pytest.approx(1 / 6)
    assert rank_test([3.0, 4.0], [1.0, 2.0]) == pytest.approx(1 / 12)


FOLDED = replace(OPEN, folded=True)


def test_what_was_folded_into_the_weights_is_judged_by_the_reader_which_has_not_trained_it() -> None:
    kept = decide(FOLDED, GATE)
    assert kept.accepted
    assert "above half of the prompt's gain" in kept.reasons[0]
    lost = decide(replace(FOLDED, better=0.6), GATE)
    assert (lost.accepted, lost.asks) == (False, 0)
    assert "better with probability 0.60" in " ".join(lost.reasons)
    nothing = replace(FOLDED, better=1.0, read_p=0.5, liked=(), disliked=())
    assert not decide(nothing, GATE).accepted, "ratings that say nothing prove nothing"


@given(st.floats(0, 1), st.floats(0, 1))
def test_what_is_said_of_a_folded_prompt_is_never_certain(p: float, better: float) -> None:
    assert 0 < decide(replace(FOLDED, read_p=p, better=better), GATE).probability < 1


def test_what_was_folded_into_the_weights_may_drift_as_far_as_the_prompt_did() -> None:
    far = replace(CLEAR, kl=12.0)
    assert not decide(far, GATE).accepted
    kept = decide(replace(far, folded=True, prompt_kl=13.0), GATE)
    assert kept.accepted
    assert "above half of the prompt's gain" in kept.reasons[0]
    assert not decide(replace(far, folded=True, prompt_kl=11.0), GATE).accepted


def test_ties_that_an_earlier_report_counted_apart_are_questions_that_were_asked() -> None:
    report = Report(1, 0, False, 0.5, ("undecided",), replace(OPEN, answers=(True, False)))
    stored = report.to_dict()
    assert stored["evidence"]["kept"] == report.evidence.unlearned, "the words of reports that are stored"
    assert stored["evidence"]["candidate"]["whole"] == report.evidence.candidate.complete
    assert Report.from_dict(stored) == report
    stored["evidence"]["ties"] = 2
    assert Report.from_dict(stored).evidence.answers == (True, False, None, None)


def test_ties_alone_end_the_questions_and_say_so() -> None:
    decision = decide(replace(OPEN, answers=(*WON * 3, *[None] * 13)), GATE)
    assert (decision.accepted, decision.asks) == (False, 0)
    assert "in 3 of 3 blind comparisons" in decision.reasons[0]
    assert "in 13 more neither answer was better" in decision.reasons[0]
    assert decide(replace(OPEN, answers=(*[None] * 11, *WON * 5)), GATE).accepted
