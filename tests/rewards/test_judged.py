"""Verdicts on rules in words, as features that the ratings weigh."""

import numpy as np
import pytest

from clawback.rewards.reward_ensemble import Answers, Ratings, fit, learn
from clawback.rewards.rule_posterior import Space
from clawback.rewards.views import Views, mean_verdicts, rule_verdicts


def answers(count, seed):
    """Of words that say nothing; the number at the end of each is what the judge goes by."""
    rng = np.random.default_rng(seed)
    words = [f"word{chr(97 + i)}" for i in range(12)]
    texts = [
        " ".join(w for w in words if rng.random() < 0.5) + f" {rng.integers(10_000)}" for _ in range(count)
    ]
    return Answers([[i % 7] for i in range(count)], texts, np.zeros((count, 0)))


def truth(texts):
    """``[S, 6]`` independent of what features can see."""
    return np.array([np.random.default_rng(int(t.rsplit(" ", 1)[1])).random(6) < 0.3 for t in texts])


class Judge:
    """Right in nine of ten cases."""

    def __init__(self, right=0.9, unjudged=0.0):
        self.right, self.unjudged, self.judged = right, unjudged, []

    def __call__(self, questions, texts):
        assert len(questions) == len(texts)
        self.judged += texts
        made = truth(texts).astype(float)
        rng = np.random.default_rng(len(texts))
        made = np.where(rng.random(made.shape) < self.right, made, 1 - made)
        made[rng.random(made.shape) < self.unjudged] = np.nan
        return made


def read(judge, count=64):
    base, rated, asked = answers(120, 0), answers(count, 1), answers(300, 2)
    rng = np.random.default_rng(3)
    wanted = truth(rated.texts)[:, 2] ^ (rng.random(count) < 0.1)
    made = learn(base, rated, Ratings(np.where(wanted, 1.0, -1.0)), judge=judge)
    return made, asked, truth(asked.texts)[:, 2]


def ahead(made, asked, liked):
    """How often a liked answer has the higher grade."""
    grades = made.reward(asked, 0.5, 0.0)
    return (
        np.mean(grades[liked][:, None] > grades[~liked][None])
        + np.mean(grades[liked][:, None] == grades[~liked][None]) / 2
    )


def test_what_only_a_judge_can_see_is_read_from_taps():
    made, asked, liked = read(Judge())
    assert ahead(made, asked, liked) > 0.85
    assert made.trust.trusted
    blind = read(None)
    assert ahead(*blind) < 0.65


def test_verdicts_that_are_missing_count_as_what_is_usual():
    made, asked, liked = read(Judge(unjudged=0.2))
    assert ahead(made, asked, liked) > 0.75
    assert np.isfinite(made.reward(asked, 0.5, 0.5)).all()


def test_of_a_judge_that_tosses_a_coin_hardly_anybody_is_trusted():
    judge = Judge(right=0.5)
    base = answers(120, 0).judged(judge)
    views = Views.ground(base, judge=judge)
    space, trusted = Space.of(views.signs(base), views.layout), 0
    for person in range(5):
        rated = answers(40, 100 + person)
        ratings = np.where(truth(rated.texts)[:, 2], 1.0, -1.0)
        trusted += fit(views, space, views.view(rated), Ratings(ratings)).trust.trusted
    assert trusted <= 2


def test_every_answer_is_judged_once():
    judge = Judge()
    read(judge)
    assert len(judge.judged) == 120 + 64


def test_an_attribute_that_nobody_judged_is_even():
    values = np.array([[0.2, np.nan], [np.nan, np.nan], [0.6, np.nan]])
    np.testing.assert_allclose(mean_verdicts(values), [0.4, 0.5])


@pytest.mark.parametrize(
    "wrong", [np.zeros(3), np.zeros((2, 4)), np.full((3, 1), 1.5), np.full((3, 1), -0.1)]
)
def test_verdicts_of_another_form_are_refused(wrong):
    with pytest.raises(ValueError, match="verdict"):
        rule_verdicts(lambda questions, texts: wrong, ["q"] * 3, ["a"] * 3)
