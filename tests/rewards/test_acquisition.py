"""Which answer to ask about next."""

import random
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.rewards.acquisition import Acquisition

WORDS = ["river", "stone", "cloud", "field", "horse", "light", "north", "paper", "queen", "sugar"]


def answers(count, seed):
    """Of ten words each is there in a third of the answers; two of five are lists."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        words = [w for w in WORDS if rng.random() < 1 / 3]
        texts.append("\n".join(f"- {w}" for w in words) if rng.random() < 0.4 else " ".join(words) + ".")
    return texts


def liked(text):
    return text.startswith("-") and "stone" in text


def sureness(chosen, seed, count=20):
    """How much more of an answer that is wanted is expected than of others, after ``count`` ratings with one in ten wrong."""
    texts, rng = answers(120, seed), random.Random(seed)
    acquisition, ratings = Acquisition(texts), {}
    order = rng.sample(range(len(texts)), len(texts))
    while len(ratings) < count:
        left = [i for i in order if i not in ratings]
        place = acquisition.next(ratings, left)[0][0] if chosen else left[0]
        ratings[place] = (1 if liked(texts[place]) else -1) * (1 if rng.random() < 0.9 else -1)
    left = [i for i in order if i not in ratings]
    mean = acquisition._belief(ratings, left).mean
    good = np.array([liked(texts[i]) for i in left])
    return float(mean[good].mean() - mean[~good].mean())


@pytest.mark.slow
def test_asking_well_finds_a_taste_sooner_than_asking_at_random():
    apart = [sureness(True, seed) - sureness(False, seed) for seed in range(60)]
    error = statistics.stdev(apart) / len(apart) ** 0.5
    assert statistics.mean(apart) > 3 * error
    assert statistics.mean(apart) > 0.2


def test_only_what_is_left_is_asked_about_and_nothing_twice():
    acquisition = Acquisition(answers(40, 0))
    asked = [place for place, _ in acquisition.next({0: 1.0, 1: -1.0}, range(10, 20), 30)]
    assert sorted(asked) == list(range(10, 20))


def test_where_all_answers_are_alike_nothing_is_known_and_the_order_stays():
    acquisition = Acquisition(["The same."] * 5)
    assert acquisition.next({}, [3, 1, 4], 2) == [(3, 0.0), (1, 0.0)]
    assert Acquisition([]).next({}, []) == []


@given(st.lists(st.text(max_size=80), max_size=8), st.dictionaries(st.integers(0, 7), st.floats(-1, 1)))
@settings(deadline=None)
def test_any_texts_can_be_asked_about(texts, ratings):
    ratings = {place: value for place, value in ratings.items() if place < len(texts)}
    left = [i for i in range(len(texts)) if i not in ratings]
    asked = Acquisition(texts).next(ratings, left, 8)
    assert sorted(place for place, _ in asked) == left
    assert all(np.isfinite(gain) and gain >= 0 for _, gain in asked)
