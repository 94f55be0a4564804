"""Which pairs of answers are asked about: each answer in one pair, the largest differences first, never two that read the same."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.gate import questions
from clawback.records import Feedback, Turn

answers = st.lists(
    st.tuples(st.sampled_from("pqr"), st.floats(-1, 1), st.floats(-1, 1), st.sampled_from("abc"), st.sampled_from("abc")),
    min_size=1,
    max_size=30,
)  # fmt: skip


@given(answers)
def test_each_answer_is_in_one_pair_and_pairs_are_of_one_prompt(
    made: list[tuple[str, float, float, str, str]],
) -> None:
    prompts, ours, theirs, _, _ = zip(*made, strict=True)
    pairs = questions.matched(prompts, ours, theirs)
    assert sorted(p.candidate for p in pairs) == sorted(p.live for p in pairs) == list(range(len(made)))
    assert all(prompts[p.candidate] == prompts[p.live] for p in pairs)
    # So the mean difference over the pairs is that between the versions, however they are matched.
    assert sum(p.apart for p in pairs) == pytest.approx(sum(ours) - sum(theirs), abs=1e-9)


@given(answers)
def test_no_other_matching_of_the_grades_has_smaller_differences(
    made: list[tuple[str, float, float, str, str]],
) -> None:
    """Sorted against sorted: the smallest sum of squares there is (the rearrangement inequality), here against exchanges of any two."""
    prompts, ours, theirs, _, _ = zip(*made, strict=True)
    pairs = questions.matched(prompts, ours, theirs)
    for one in pairs:
        for other in pairs:
            if prompts[one.candidate] == prompts[other.candidate]:
                as_is = one.apart**2 + other.apart**2
                swapped = (ours[one.candidate] - theirs[other.live]) ** 2 + (
                    ours[other.candidate] - theirs[one.live]
                ) ** 2
                assert as_is <= swapped + 1e-9


@given(answers)
def test_what_is_asked_differs_and_the_largest_differences_come_first(
    made: list[tuple[str, float, float, str, str]],
) -> None:
    prompts, ours, theirs, texts, others = zip(*made, strict=True)
    pairs = questions.matched(prompts, ours, theirs)
    asked = questions.informative(pairs, prompts, texts, others)
    differ = [p for p in pairs if texts[p.candidate] != others[p.live]]
    assert all(p in differ for p in asked)
    assert [-abs(p.apart) for p in asked] == sorted(-abs(p.apart) for p in asked)
    of = Counter(prompts[p.candidate] for p in differ)
    most = max(questions.OF_A_PROMPT, -(-questions.MOST // max(len(of), 1)))
    assert Counter(prompts[p.candidate] for p in asked) == {prompt: min(n, most) for prompt, n in of.items()}


def test_a_change_of_sides_changes_nothing_but_the_sign() -> None:
    """So a version that is no better is not favoured by the choice of what is asked."""
    prompts, ours, theirs = "ppqq", (0.9, -0.2, 0.1, 0.4), (0.3, 0.5, -0.8, 0.0)
    texts, others = tuple("abcd"), tuple("efgh")
    one = questions.informative(questions.matched(prompts, ours, theirs), prompts, texts, others)
    other = questions.informative(questions.matched(prompts, theirs, ours), prompts, others, texts)
    assert [(p.candidate, p.live, p.apart) for p in one] == [(p.live, p.candidate, -p.apart) for p in other]


def test_answers_that_read_the_same_are_the_same() -> None:
    assert questions.same(questions.Question(0, 0, 1.0), ["Yes,  it is.\n"], ["yes, it is."])


FIRST, SECOND = Turn("s", (), "a", id=1), Turn("s", (), "b", id=2)


@pytest.mark.parametrize(
    ("said", "better"),
    [
        ([Feedback(1, "preference", 1.0, other_turn_id=2, id=1)], FIRST),
        ([Feedback(2, "preference", 1.0, other_turn_id=1, id=1)], SECOND),
        ([Feedback(1, "preference", 1.0, other_turn_id=3, id=1)], None),
        ([Feedback(1, "preference", 1.0, other_turn_id=2, id=1), Feedback(2, "preference", 1.0, other_turn_id=1, id=2)], SECOND),
        ([Feedback(1, "preference", 1.0, other_turn_id=2, id=1), Feedback(2, "preference", 1.0, other_turn_id=1, id=2, person="anna")], None),
        ([Feedback(1, "rating", 1.0, id=1), Feedback(2, "rating", -1.0, id=2)], FIRST),
        ([Feedback(1, "rating", 0.2, id=1), Feedback(2, "rating", 0.8, id=2)], SECOND),
        ([Feedback(1, "rating", 1.0, id=1), Feedback(2, "rating", 1.0, id=2)], None),
        ([Feedback(1, "rating", 1.0, id=1), Feedback(2, "rating", -1.0, id=2, person="anna")], None),
        ([], None),
    ],
)  # fmt: skip
def test_which_of_two_is_preferred(said: list[Feedback], better: Turn | None) -> None:
    assert questions.preferred(FIRST, SECOND, said) == better
