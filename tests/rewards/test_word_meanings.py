"""What the words of an answer mean together: one of like meaning counts for another, and rare ones count for more."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.word_meanings import COMMON, RAREST, WordMeanings
from clawback.rewards.reward_ensemble import RULES, Answers, Ratings, ReadingSettings, learn
from clawback.rewards.views import Views

GROUPS, EACH = 12, 10
rng = np.random.default_rng(7)
CENTRES = rng.normal(size=(GROUPS, 24))
VECTORS = np.repeat(CENTRES, EACH, axis=0) + 0.1 * rng.normal(size=(GROUPS * EACH, 24))


def vectors(tokens):
    """Of words; tokens from 1,000 on are none."""
    rows = VECTORS[np.minimum(tokens, len(VECTORS) - 1)]
    return np.where((tokens < 1000)[:, None], rows, 0.0)


def answers(count: int, words: int = 6) -> list[list[int]]:
    drawn = np.random.default_rng(1)
    return [[*drawn.choice(GROUPS * EACH, words, replace=False).tolist(), 1000, 1001] for _ in range(count)]


def cosine(one, other) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_words_of_like_meaning_count_for_each_other() -> None:
    meanings = WordMeanings.of(answers(200), vectors)
    [first, alike, other] = meanings([[0, 1000], [EACH - 1, 1000], [5 * EACH, 1000]])
    assert cosine(first, alike) > 0.9
    assert abs(cosine(first, other)) < 0.6


def test_what_was_never_seen_counts_as_much_as_what_is_rare() -> None:
    seen = [[token for token in ids if token != 3] for ids in answers(200)]
    meanings = WordMeanings.of(seen, vectors)
    assert 3 not in meanings.tokens
    [unseen, rare] = np.linalg.norm(meanings.table(np.array([3, 4])), axis=1)
    assert unseen == RAREST
    assert 0 < rare <= RAREST


def test_what_most_answers_say_and_what_is_no_word_count_for_nothing() -> None:
    often = [[*ids, 3] for ids in answers(200)]
    assert np.mean([3 in ids for ids in often]) > COMMON
    assert not WordMeanings.of(often, vectors).table(np.array([3, 1000, 5000])).any()


def test_an_answer_is_the_sum_of_its_words_by_hand() -> None:
    meanings = WordMeanings.of(answers(200), vectors)
    [row] = meanings([[0, 7, 7, 1000]])
    table = meanings.table(np.array([0, 7]))
    np.testing.assert_allclose(row, np.sqrt(1 / 4) * table[0] + np.sqrt(2 / 4) * table[1])


def test_without_words_there_is_nothing_to_look_at() -> None:
    for some in ([], [[1000, 1001]]):
        meanings = WordMeanings.of(some, vectors)
        assert not meanings([[1, 2, 3], []]).any()


@given(st.lists(st.lists(st.integers(0, 1200), max_size=30), max_size=30))
def test_any_answers_are_looked_at(ids: list[list[int]]) -> None:
    meanings = WordMeanings.of(ids, vectors)
    sums = meanings(ids)
    assert sums.shape == (len(ids), len(meanings.centre))
    assert np.isfinite(sums).all()


def test_a_wish_about_a_field_is_read_by_meanings_alone() -> None:
    """Each word of the field is in one answer of twenty; the field is in four of ten. The text shows nothing of it."""
    every = answers(360, 5)
    wanted = np.array([any(token // EACH == 4 for token in ids) for ids in every])
    texts = ["word " * (1 + place % 7) for place in range(len(every))]
    values = np.where(wanted[:64], 1.0, -1.0)

    def auc(words) -> float:
        base = Answers(every, texts, np.zeros((len(every), 0)), words=words)
        rated = Answers(every[:64], texts[:64], np.zeros((64, 0)))
        made = learn(base, rated, Ratings(values), settings=ReadingSettings(shares=(0.5, 0.3, 0.2)))
        rest = Answers(every[64:], texts[64:], np.zeros((len(every) - 64, 0)))
        grades = made.reward(rest, RULES, 0.5)
        liked = grades[wanted[64:]][:, None]
        return float(np.mean((liked > grades[~wanted[64:]]) + 0.5 * (liked == grades[~wanted[64:]])))

    assert auc(vectors) > 0.9
    assert auc(None) < 0.75


def test_without_vectors_there_is_no_such_view() -> None:
    every = answers(40)
    base = Answers(every, ["Words."] * 40, np.zeros((40, 0)))
    assert Views.ground(base).meanings is None
    assert "meanings" not in Views.ground(base)(base)
