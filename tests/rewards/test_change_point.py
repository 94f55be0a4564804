"""Where a person changed their mind, by the evidence of their ratings."""

import itertools
import math

import numpy as np
import pytest

from clawback.rewards import reward_ensemble
from clawback.rewards.reward_ensemble import FEWEST, STEP, Answers, Ratings, last_change, learn, places


class OneShare:
    """Evidence of ratings whose share of good ones is unknown: the simplest model of a taste."""

    def __init__(self, ratings):
        self.good = ratings > 0

    def of_part(self, start, end):
        return self._of(self.good[start:end])

    def turned(self, start, place, end):
        return self._of(np.concatenate([self.good[start:place], ~self.good[place:end]]))

    def _of(self, good):
        return math.lgamma(good.sum() + 1) + math.lgamma((~good).sum() + 1) - math.lgamma(len(good) + 2)


@pytest.mark.parametrize("later", [16, 32, 64])
def test_a_change_is_found_within_a_step_of_where_it_was(later):
    rng = np.random.default_rng(later)
    ratings = np.where(rng.random(64 + later) < np.repeat([0.05, 0.95], [64, later]), 1, -1)
    assert abs(last_change(OneShare(ratings), len(ratings)) - 64) <= STEP


def test_a_taste_that_is_turned_round_pays_once():
    """Of two unrelated shares the same ratings say too little."""
    ratings = np.concatenate([np.where(np.arange(48) % 4 < 1, 1, -1), np.where(np.arange(16) < 12, 1, -1)])

    class Unrelated(OneShare):
        def turned(self, start, place, end):
            return -math.inf

    assert last_change(OneShare(ratings), 64) == 48
    assert last_change(Unrelated(ratings), 64) == 0


def test_of_two_changes_the_last_one_counts():
    rng = np.random.default_rng(0)
    ratings = np.where(rng.random(192) < np.repeat([0.05, 0.95, 0.05], 64), 1, -1)
    assert abs(last_change(OneShare(ratings), len(ratings)) - 128) <= STEP


def test_of_a_hundred_steady_people_nobody_changed():
    alarms = 0
    for person in range(100):
        ratings = np.where(np.random.default_rng(person).random(128) < 0.4, 1, -1)
        alarms += last_change(OneShare(ratings), len(ratings)) > 0
    assert alarms <= 3


@pytest.mark.parametrize("count", [0, 31, 32, 33, 128, 512, 4096])
def test_places_lie_between_ratings_that_say_something_and_are_densest_where_they_are_newest(count):
    tried = places(count)
    assert all(FEWEST <= place <= count - FEWEST for place in tried)
    steps = [a - b for a, b in itertools.pairwise(tried)]
    assert steps == sorted(steps)
    assert len(tried) <= 12 + count / (4 * STEP)
    assert bool(tried) == (count >= 2 * FEWEST)


def test_few_ratings_show_no_change():
    assert last_change(OneShare(np.repeat([-1, 1], FEWEST - 1)), 2 * FEWEST - 2) == 0


def answers(count, seed):
    """Half of them lists."""
    rng = np.random.default_rng(seed)
    words = [f"word{chr(97 + i)}" for i in range(12)]
    texts = [
        ("- {}\n- {}" if rng.random() < 0.5 else "{} and {}.").format(
            *(" ".join(w for w in words if rng.random() < 0.5) for _ in range(2))
        )
        for _ in range(count)
    ]
    return Answers([[i % 7] for i in range(count)], texts, np.zeros((count, 0)))


def lists(answers):
    return np.array([text.startswith("-") for text in answers.texts])


def test_who_liked_lists_and_now_does_not_is_understood_after_as_many_ratings_as_a_run_takes():
    base, rated, asked = answers(200, 0), answers(96, 1), answers(100, 2)
    rewards = np.where(lists(rated), 1.0, -1.0)
    rewards[64:] *= -1
    backwards = list(range(96))[::-1]
    reward = {}
    for name, order in {"all": (), "newest": range(96), "given backwards": backwards}.items():
        # The ratings themselves may come in any order: it is the time of each that says which are the newest.
        rows = backwards if name == "given backwards" else list(range(96))
        seen = Answers([rated.ids[i] for i in rows], [rated.texts[i] for i in rows], np.zeros((96, 0)))
        made = learn(base, seen, Ratings(rewards[rows], order=order))
        reward[name] = made.reward(asked, 0.5, 0.0)
    like = lists(asked)
    assert reward["all"][like].mean() > reward["all"][~like].mean(), "the older taste still rules"
    for name in ("newest", "given backwards"):
        assert reward[name][like].max() < reward[name][~like].min(), name


def test_of_more_ratings_than_are_read_the_newest_are(monkeypatch):
    """Those of long ago ask for something else, and nothing of it is left."""
    monkeypatch.setattr(reward_ensemble, "MOST", 40)
    base, rated, asked = answers(60, 0), answers(72, 1), answers(60, 2)
    rewards = np.where(lists(rated), 1.0, -1.0)
    rewards[:32] *= -1
    made = learn(base, rated, Ratings(rewards))
    assert len(next(iter(made.kernels.rated.values()))) == 40
    reward = made.reward(asked, 0.5, 0.0)
    assert reward[lists(asked)].min() > reward[~lists(asked)].max()
