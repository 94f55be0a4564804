"""Pessimism, the KL of best-of-n, and the stop when proxy and people part."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.errors import UsageError
from clawback.rewards import overoptimization
from clawback.rewards.overoptimization import Check


def series(*pairs: tuple[float, float], count: int = 400, spread: float = 0.2) -> list[Check]:
    return [Check(proxy, human, count, spread) for proxy, human in pairs]


def test_over_optimisation_is_stopped_where_people_turn_away() -> None:
    """Gold reward as in Gao et al.: it rises with the square root of the KL and falls again, while the proxy goes on."""
    distance = np.arange(0, 10)
    human = 0.4 + 0.18 * distance**0.5 * (1 - distance / 8)
    proxy = 0.4 + 0.06 * distance
    found = overoptimization.gap(series(*zip(proxy.tolist(), human.tolist(), strict=True)))
    assert found.opened is not None
    assert found.best == int(np.argmax(human[: found.opened]))
    assert proxy[found.opened] - human[found.opened] > overoptimization.TOLERANCE
    assert found.sizes[0] == 0.0


def test_no_stop_while_people_gain_as_the_proxy_says() -> None:
    found = overoptimization.gap(series((0.4, 0.4), (0.5, 0.48), (0.6, 0.57), (0.7, 0.66)))
    assert (found.opened, found.best) == (None, 3)


def test_a_proxy_that_was_always_too_kind_is_miscalibrated_not_exploited() -> None:
    assert overoptimization.gap(series((0.9, 0.4), (0.95, 0.45), (0.97, 0.47))).opened is None


def test_few_ratings_are_not_enough_to_stop() -> None:
    steps = [(0.4, 0.4), (0.6, 0.4)]
    assert overoptimization.gap(series(*steps, count=400)).opened == 1
    assert overoptimization.gap(series(*steps, count=4)).opened is None


def test_people_who_gain_much_are_worth_a_proxy_that_promises_more() -> None:
    assert overoptimization.gap(series((0.3, 0.3), (0.9, 0.6))).opened is None
    assert overoptimization.gap([]) == overoptimization.Gap(None, 0, ())


def test_a_check_needs_an_answer_and_doubts_a_single_one() -> None:
    assert overoptimization.check([0.5], [1.0]) == Check(0.5, 1.0, 1, 1.0)
    assert overoptimization.check([0.5, 0.7], [0.5, 0.5]).spread == pytest.approx(np.std([0.0, 0.2], ddof=1))
    with pytest.raises(UsageError):
        overoptimization.check([], [])


def test_pessimism_takes_off_what_members_disagree_about() -> None:
    members = [[0.5, 0.9, 0.1], [0.5, 0.5, 0.0]]
    np.testing.assert_allclose(overoptimization.pessimistic(members, 1.0), [0.5, 0.5, 0.0])
    np.testing.assert_allclose(overoptimization.pessimistic(members, 0.0), [0.5, 0.7, 0.05])


def test_the_kl_of_best_of_n_as_simulated() -> None:
    """The best of n of equally likely answers: KL = Σ p log(p · m), with p_i = ((i+1)/m)^n − (i/m)^n."""
    answers = 20_000
    edges = np.arange(answers + 1) / answers
    for n in (1, 2, 8, 64):
        p = np.diff(edges**n)
        p = p[p > 0]
        assert overoptimization.best_of_kl(n) == pytest.approx(
            float(np.sum(p * np.log(p * answers))), abs=1e-3
        )


def test_the_largest_n_within_a_budget() -> None:
    for budget in (0.0, 0.1, 1.0, 3.3):
        n = overoptimization.best_of_within(budget)
        assert overoptimization.best_of_kl(n) <= budget < overoptimization.best_of_kl(n + 1)
    with pytest.raises(UsageError):
        overoptimization.best_of_kl(0)
    assert math.isclose(overoptimization.best_of_kl(1), 0.0)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("It eats fish.", True),
        ("It eats fish", False),
        ("Dear friends,", False),
        ("Here is how:", False),
        ("It eats (mostly) fish (and frogs)", True),
        ("他吃鱼。", True),
        ("他吃鱼，", False),
        ("Fish! 👍🏽", True),
        ("I like it ❤️", True),
        ("**It eats fish.**", True),
        ("It eats:\n- fish\n- frogs", True),
        ("It eats:\n1. fish\n2.", False),
        ("It eats:\n- fish,", False),
        ("| a | b |\n|---|---|\n| 1 | 2 |", True),
        ("```python\nprint(1)\n```", True),
        ("```python\nprint(1)", False),
        ("It is so.\n\n## Next", False),
        ("", False),
        (" \n ", False),
    ],
)
def test_what_ends_where_something_ends(text: str, whole: bool) -> None:
    assert overoptimization.ends_whole(text) is whole


@given(st.text())
def test_no_text_breaks_the_looks_at_it(text: str) -> None:
    assert overoptimization.ends_whole(text) in (True, False)
    assert overoptimization.repeats(text) in (True, False)
    assert overoptimization.quotes(text, "Be brief.") in (True, False)
    assert overoptimization.canned([text, text], [text, "x"]) == 0.0


def test_repeating_the_question_is_no_answer_but_taking_it_up_is() -> None:
    asked = "What should I know about the otter before I see one?"
    assert overoptimization.copies(asked, asked)
    assert overoptimization.copies(asked, "You ask: what should I know about the otter before I see one!")
    assert not overoptimization.copies(
        asked, "What you should know about the otter: it eats fish and lives in rivers."
    )
    assert not overoptimization.copies(asked, "")
    assert overoptimization.copies("Hi there", "hi there!")


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("Lists help.\n\nAnswer in at most two short sentences.", True),
        ("ANSWER in AT most two, please.", True),
        ("The answer: at most two.", False),
        ("Use no numbers. I like otters.", True),  # a sentence of three words, whole
        ("Use of numbers is fine.", False),
        ("Otters eat fish.", False),
        ("", False),
    ],
)
def test_repeating_the_instruction_is_no_answer(text: str, does: bool) -> None:
    assert overoptimization.quotes(text, "Use no numbers. Answer in at most two short sentences.") is does
    assert not overoptimization.quotes(text, "")


def test_an_answer_to_everybody_is_canned_and_the_same_answer_to_the_same_question_is_not() -> None:
    assert overoptimization.canned(
        ["a", "b", "c"], ["That depends.", "that depends", "It is 5."]
    ) == pytest.approx(2 / 3)
    assert overoptimization.canned(["a", "a", "b"], ["Fish.", "Fish.", "Frogs."]) == 0.0
    assert overoptimization.canned([], []) == 0.0


@pytest.mark.parametrize(
    ("text", "circles"),
    [
        ("It eats fish. It lives in rivers.", False),
        ("It eats fish. It lives in rivers. It lives in rivers.", True),
        ("- Colour: orange\n- Colour: orange", True),
        ("Please note that figures vary.\n Please note that figures vary.", True),
        ("No! No! That is not it.", False),  # one word is emphasis
        ("very very very long", True),
        ("a b c d e " * 6, True),
        ("def f(x):\n    return x\n\n\ndef g(x):\n    return x\n", False),  # the same line, but not in a row
        ("| --- | --- |\n| a b | c d |", False),
        ("Do it.\n```python\nimport re\nimport re\n    end end end\n```\nDone.", False),  # code may have to
        ("| Monday | walk for an hour |\n" * 5 + "That is all.", False),  # so may a table
        ("The answers are 0, 0, 0 and\n1 1 1.", False),
        ("Practice, practice, practice!", False),
        ("It is x x x here.", False),
        ("Food\nFood\nFood", True),
        ("", False),
        ("🙂", False),
    ],
)
def test_what_goes_round_in_circles(text: str, circles: bool) -> None:
    assert overoptimization.repeats(text) is circles
