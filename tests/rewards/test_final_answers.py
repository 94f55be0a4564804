"""What a text comes to, so that two texts can be compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.final_answers import as_number, final_answer, same_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("6 * 7 is more than 40.\nSo it is $1,042.00", "1042"),
        ("The 3 cats eat 4 fish. That makes 12.", "12"),
        ("\\[ 3 + 4 = 7 \\]\n\nThe result is \\(\\boxed{7}\\) of 12.", "7"),
        ("#### 18\n", "18"),
        ("The answer is Paris.", "paris"),
        ("<answer>B</answer>", "b"),
        ("To answer this question, we look at the three rows of the table first.", None),
        ("1. Wash it.\n2. Dry it.", None),
        ("It was built in 1913. It is still there.", None),
        ("```\n12\n```", "12"),
        ("", None),
        ("...\n---", None),
    ],
)
def test_a_marked_answer_counts_else_the_number_at_the_end(text, answer):
    assert final_answer(text) == answer


@given(
    st.integers(-(10**8), 10**8),
    st.sampled_from(["{}", "So it is {}.", "#### {}", "\\boxed{{{}}}", "Answer: ${}"]),
)
def test_a_number_is_the_same_however_it_is_written(number, form):
    for written in (str(number), f"{number:,}", f"{number}.0"):
        text = form.format(written)
        assert final_answer(text) == final_answer(str(number))
        assert same_answer(text, str(number))


@given(st.text())
def test_any_text_has_one_or_none(text):
    answer = final_answer(text)
    assert answer is None or answer
    as_number(text)
