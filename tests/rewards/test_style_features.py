"""What is seen in an answer at a glance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.style_features import COUNTS, NAMES, SIGNS, manner


def signs(text):
    return {name for name, value in zip(NAMES, manner([text])[0], strict=True) if name in SIGNS and value}


@pytest.mark.parametrize(
    ("text", "seen", "not_seen"),
    [
        ("- Kind: a cat\n- Weight: 4 kg", {"list", "metric", "number", "colon"}, {"imperial", "asks back"}),
        ("1. Boil it.\n2) Eat it.", {"list", "number"}, {"metric"}),
        ("* only one", set(), {"list"}),
        ("Certainly. Would you like to know more? 🙂", {"formal", "greeting", "emoji", "asks back", "you"}, {"casual"}),
        ("Hey, it's 3 feet long!", {"casual", "imperial", "exclaims"}, {"metric", "formal"}),
        ("The city's trams are old.", set(), {"casual"}),
        ("I apologize. It may vary, first of all.", {"apology", "hedge", "order", "I"}, {"greeting"}),
        ("**Bold**\n```\ncode\n```", {"markup"}, {"list"}),
        ("A 5 minute walk, 3 generations", {"number"}, {"metric", "imperial"}),
        ("", set(), set(SIGNS)),
    ],
)  # fmt: skip
def test_signs(text, seen, not_seen):
    assert seen <= signs(text)
    assert not not_seen & signs(text)


def test_counts_grow_with_what_they_count():
    short, long = manner(["One. Two.", "One and two. Three and four. Five!\n- six\n- seven"])[:, len(SIGNS) :]
    for name, a, b in zip(COUNTS, short, long, strict=True):
        assert b > a or name == "words a line"


def test_long_runs_of_blank_lines_are_no_items():
    """Quadratic time in their number would show here as a test that never ends: 5 · 10⁹ steps."""
    assert signs("\n" * 100_000) == set()
    assert "list" in signs("\n" * 100_000 + "- a\n\n\n- b")


@given(st.lists(st.text(), max_size=5))
def test_any_text_has_finite_manners(texts):
    seen = manner(texts)
    assert seen.shape == (len(texts), len(NAMES))
    assert np.isfinite(seen).all()
