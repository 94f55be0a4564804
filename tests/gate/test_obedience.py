"""How often rules are kept, and whether one version keeps them more often than the other."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import store
from clawback.gate import guards
from clawback.records import Rule


def short(question: str, answer: str) -> float | None:
    """At most three words; of an empty answer nothing is told."""
    return None if not answer else float(len(answer.split()) <= 3)


PROMPTS = [f"Question {i}?" for i in range(12)]
RULE = Rule("At most three words.", "words <= 3")


def test_it_counts_what_can_be_told() -> None:
    assert guards.obedience(short, [("q", "one two"), ("q", "one two three four"), ("q", "")]) == (1.0, 2)


def test_a_version_that_keeps_a_rule_more_often() -> None:
    [found] = guards.measure([(RULE, short)], PROMPTS * 2, ["Yes."] * 24, ["Yes, I think so."] * 23 + [""])
    assert (found.candidate, found.live, found.answers, found.owners) == (1.0, 0.0, 23, True)
    assert found.p_more == pytest.approx(1 / 2**12)
    assert found.p_less == 1.0
    assert str(found) == '"At most three words." 100% of 23 answers, the live version\'s 0%'


def test_a_rule_of_which_nothing_can_be_told_is_left_out() -> None:
    assert guards.measure([(RULE, short)], PROMPTS, [""] * 12, ["Yes."] * 12) == ()


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8))
def test_the_exchange_test_counts_every_way(differences: list[float]) -> None:
    ways = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    slow = sum(way >= sum(differences) - 1e-9 for way in ways) / len(ways)
    assert guards.exchange_test(differences) == pytest.approx(slow)


def test_with_many_prompts_it_is_near_the_exact_value() -> None:
    differences = [0.5, -0.2, 0.1, 0.4, -0.1, 0.3, 0.2, 0.0, 0.1, -0.3, 0.2, 0.1]
    exact = guards.exchange_test(differences)
    assert guards.exchange_test([*differences, 0.0]) == pytest.approx(exact, abs=0.02), (
        "a prompt that says nothing"
    )


def test_which_rules_are_asked_about(tmp_path: Path) -> None:
    with store.connect(tmp_path / "clawback.db") as db:
        for text, check, author, status in (
            ("The owner's.", "words <= 3", "owner", "believed"),
            ("A remark that the ratings speak against.", "words <= 3", "owner", "proposed"),
            ("Believed.", "words <= 9", "model:m", "believed"),
            ("Proposed.", "words <= 3", "model:m", "proposed"),
            ("Dropped.", "words <= 3", "owner", "dropped"),
            ("Only a judge can tell.", "", "owner", "believed"),
        ):
            db.add_rule(Rule(text, check, author, status=status))  # type: ignore[arg-type]
        assert [rule.text for rule, _ in guards.checked(db)] == ["The owner's.", "Believed."]
