"""Which measurable thing a remark that no pattern knows is about."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.style_features import wishes
from clawback.rewards.instructions import COUNTED, SENTENCES, near_to, resembling
from clawback.rewards.reward_ensemble import Answers, Ratings, _remark_likelihood, learn
from clawback.rewards.rule_posterior import Space
from clawback.rewards.views import Views


@pytest.mark.parametrize(
    ("remark", "meant"),
    [
        ("Simpler words!", ("letters a word", False)),
        ("too many brackets", ("brackets", False)),
        ("Be definite", ("hedge", False)),
        ("Vary your vocabulary and your words", ("different words", True)),
    ],
)
def test_the_nearest_sentence_is_about_the_same(remark, meant):
    near = resembling(remark)
    assert max(near, key=near.get) == meant


@pytest.mark.parametrize("remark", ["This is wrong.", "Cite sources", "…", "", "答えが違う"])
def test_what_is_about_something_else_is_near_to_nothing(remark):
    assert near_to(remark) == {}


def test_each_sentence_is_nearest_to_itself():
    for name, both in (SENTENCES | COUNTED).items():
        for more, sentence in zip((True, False), both, strict=True):
            assert resembling(sentence)[name, more] == pytest.approx(1.0)


@given(st.text(max_size=300))
def test_a_similarity_is_a_cosine(remark):
    assert all(0.0 < similarity <= 1.0 + 1e-9 for similarity in resembling(remark).values())


LONG, SHORT = ("considerations", "notwithstanding", "responsibilities"), ("cat", "hat", "dog")


def answers(count, seed):
    """Answers of twenty words, some long and some short; a comma here and there, which means nothing."""
    rng = np.random.default_rng(seed)
    texts = []
    for share in rng.random(count):
        words = [str(rng.choice(LONG if rng.random() < share else SHORT)) for _ in range(20)]
        texts.append(" ".join(word + "," * int(rng.random() < 0.3) for word in words))
    return Answers([[i % 7] for i in range(count)], texts, rng.normal(size=(count, 4)))


def plain(text):
    return np.mean([len(word.strip(",")) for word in text.split()]) <= 8


def ensemble(remark):
    """From six ratings, two of them wrong, and a remark to each bad answer."""
    rated = answers(6, 1)
    rewards = np.array([1.0 if plain(text) else -1.0 for text in rated.texts]) * [1, -1, 1, 1, -1, 1]
    bad = [i for i, reward in enumerate(rewards) if reward < 0]
    remarks = [(rated.ids[i], rated.texts[i], remark) for i in bad] if remark else []
    return learn(answers(200, 0), rated, Ratings(rewards), remarks)


def told_apart(reward, liked):
    """AUC: the share of pairs of a liked and a disliked answer of which the liked one is expected to be."""
    more = reward[liked][:, None] - reward[~liked]
    return (more > 1e-9).mean() + (abs(more) <= 1e-9).mean() / 2


def test_a_remark_that_no_pattern_knows_says_where_to_look():
    assert not wishes("Simpler words!")
    asked = answers(200, 2)
    liked = np.array([plain(text) for text in asked.texts])
    silent, spoken = ensemble(""), ensemble("Simpler words!")
    assert silent.recognised_remarks == 0 < spoken.recognised_remarks
    before, after = (told_apart(made.reward(asked, 0.5, 0.0), liked) for made in (silent, spoken))
    assert after > 0.95 > before


def test_what_it_resembles_is_no_evidence_against_the_ratings():
    """Ratings that say the opposite win: "do not quote" is nearer to the sentence for more of it."""
    rated, base = answers(24, 3), answers(200, 0)
    rewards = np.array([-1.0 if plain(text) else 1.0 for text in rated.texts])
    remarks = [(rated.ids[0], rated.texts[0], "Simpler words!")]
    made = learn(base, rated, Ratings(rewards), remarks)
    asked = answers(200, 2)
    liked = np.array([not plain(text) for text in asked.texts])
    assert told_apart(made.reward(asked, 0.5, 0.0), liked) > 0.9


def test_a_remark_tells_the_direction_and_the_ratings_how_far():
    """A remark about an answer in the middle says the same of each limit of what it names, and not that only the strictest will do."""
    base = answers(200, 0)
    views = Views.ground(base)
    space = Space.of(views.signs(base), views.layout)
    wish = {"letters a word": False}
    letters = [np.mean([len(word.strip(",")) for word in text.split()]) for text in base.texts]
    middle = base.texts[int(np.argsort(letters)[100])]
    said, heard = _remark_likelihood(space, views, [((1,), middle, wish)])
    assert heard == 1
    k, none = len(space.columns), 2 * len(space.columns)
    limits = [list(space.columns).index(c) + k for c in views.columns("letters a word") if c in space.columns]
    alone = [said[np.flatnonzero((space.literals == [limit, none, none]).all(1))[0]] for limit in limits]
    assert len(alone) == 5
    assert set(alone) == {max(said)}


def test_neither_kind_of_model_is_left_alone_with_a_grade():
    made = ensemble("Simpler words!")
    asked = answers(50, 3)
    seen = made.views.view(asked)
    assert made.share(0.5) > 0.75
    rules, kernels = (made.score(seen, share, 0.0) for share in (1.0, 0.0))
    assert made.score(seen, 0.5, 0.0) == pytest.approx(0.75 * rules + 0.25 * kernels)
