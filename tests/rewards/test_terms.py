"""Rewards that add up in a run: the same sum for rated turns and for imagined answers, and what was said is not lost in it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.errors import UsageError
from clawback.extensions.reward.answer_checks import Regex
from clawback.records import Part, Sample
from clawback.rewards import composite
from clawback.rewards.composite import SIGNED, UNIT, Weights, add_up, scale
from clawback.rewards.terms import RewardTerms, read

BULLETS = Regex(r"(?m)^- ")
ASKED = ({"role": "user", "content": "Tell me about otters."},)


def sample(reward: float, response: str, **more: object) -> Sample:
    return Sample(7, ASKED, response, reward, (Part(1, "rating", reward, 1.0),), **more)  # type: ignore[arg-type]


def test_a_rated_turn_by_hand() -> None:
    terms = RewardTerms(Weights(0.5, 0.3, 0.0, 0.1, 0.1), (BULLETS, Regex("otter")), target=10, limit=20)
    made = terms.of(sample(-0.5, "- fish\n- crabs"), tokens=15)
    # feedback ¼, critic ½ (one of two), tokens ½, safety 1; the weights are 1 together.
    assert made.reward == pytest.approx(2 * (0.5 * 0.25 + 0.3 * 0.5 + 0.1 * 0.5 + 0.1 * 1) - 1)
    assert {t.name: (t.value, pytest.approx(t.share)) for t in made.terms} == {
        "feedback": (0.25, 0.5),
        "critic": (0.5, 0.3),
        "tokens": (0.5, 0.1),
        "safety": (1.0, 0.1),
    }
    assert (made.feedback_value, made.parts) == (-0.5, sample(-0.5, "").parts)


LAMBDAS = st.lists(st.floats(0, 5), min_size=5, max_size=5).filter(lambda w: sum(w) - w[1] > 0.1)
ANSWERS = st.lists(
    st.tuples(st.floats(-1, 1), st.text("ab -\n", max_size=30), st.integers(1, 40)), min_size=1, max_size=6
)


@given(LAMBDAS, ANSWERS, st.booleans())
def test_imagined_answers_get_what_a_turn_rated_like_that_would(
    lambdas: list[float], answers: list[tuple[float, str, int]], checked: bool
) -> None:
    lambdas = lambdas if checked or lambdas[1] == 0 else [lambdas[0], 0.0, *lambdas[2:]]
    terms = RewardTerms(Weights(*lambdas), (BULLETS,) if checked and lambdas[1] else (), target=10, limit=30)
    rewards = terms.add(
        [r for r, _, _ in answers], [("q", text) for _, text, _ in answers], [n for *_, n in answers]
    )
    for found, (reward, text, count) in zip(rewards, answers, strict=True):
        parts = {
            "feedback": scale(reward, SIGNED, UNIT),
            "critic": BULLETS("q", text) if terms.verifiers else None,
            "coherence": composite.coherence(text),
            "tokens": composite.tokens(count, 10, 30),
            "safety": 1.0,
        }
        assert found == pytest.approx(add_up(parts, terms.weights).value, abs=1e-9)
        assert terms.of(sample(reward, text), count).reward == pytest.approx(found, abs=1e-9)
        assert terms.of(sample(reward, text), count).feedback_value == pytest.approx(reward, abs=1e-12)


def test_what_a_head_expects_keeps_its_order_beyond_the_scale() -> None:
    terms = RewardTerms(Weights(0.6, 0.0, 0.0, 0.0, 0.4))
    low, high, unsafe = terms.add([1.5, 2.0, 2.0], [("", "a"), ("", "a"), ("", "rm -rf /")], [1, 1, 1])
    assert high - low == pytest.approx(0.6 * 0.5)
    assert high - unsafe == pytest.approx(0.4 * 2)


def test_words_alone_stay_words_alone() -> None:
    spoken = Sample(1, ASKED, "No.", 0.0, hints=("As a list.",))
    assert RewardTerms(Weights()).of(spoken, 3) == spoken


def test_without_a_say_for_feedback_what_was_said_is_still_known() -> None:
    made = RewardTerms(Weights(0, 1, 0, 0, 0), (BULLETS,)).of(sample(-1.0, "- a"), 3)
    assert (made.reward, made.feedback_value) == (1.0, -1.0)


def test_settings() -> None:
    assert read({}) is None
    assert read({"weights": {}, "verifiers": (), "tokens": (1, 2)}) is None
    assert read({"weights": {"feedback": 3, "safety": 1}}) == RewardTerms(Weights(3, 0, 0, 0, 1))
    asked = {"verifiers": [{"name": "regex", "pattern": "x"}], "tokens": [5, 9]}
    assert read(asked) == RewardTerms(Weights(), (Regex("x"),), 5, 9)
    assert str(read({"weights": {"feedback": 3, "safety": 1}})) == "0.75·feedback + 0.25·safety"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"weights": {"feedback": 1}, "verifiers": [{"name": "regex", "pattern": "x"}]}, "critic"),
        ({"weights": {"critic": 1}}, "critic"),
        ({"weights": {"feedback": 0}}, "above"),
        ({"verifiers": [{"pattern": "x"}]}, "needs a name"),
        ({"verifiers": [{"name": "regex"}]}, "cannot be made"),
        ({"verifiers": [{"name": "regex", "pattern": "("}]}, "regular expression"),
        ({"verifiers": [{"name": "oracle"}]}, "no verifier"),
        ({"weights": {"tokens": 1}, "tokens": [9, 9]}, "under the limit"),
    ],
)
def test_what_cannot_be_meant_is_said(settings: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(settings)


def test_another_verifier_is_another_name_and_the_same_is_the_same() -> None:
    one, same, other = (read({"verifiers": [{"name": "regex", "pattern": p}]}) for p in "xxy")
    assert isinstance(one, RewardTerms)
    assert isinstance(same, RewardTerms)
    assert isinstance(other, RewardTerms)
    assert one.name == same.name != other.name


def test_what_runs_code_keeps_its_limits() -> None:
    """Whatever is named in the settings is the verifier itself, with its own time limit."""
    made = read(
        {
            "verifiers": [
                {"name": "exit-code", "command": [sys.executable, "-c", "while 1: pass"], "seconds": 0.3}
            ]
        }
    )
    assert made is not None
    assert made.measured("q", "a", 3)["critic"] == 0.0
