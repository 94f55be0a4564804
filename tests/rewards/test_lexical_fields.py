"""Lexical fields: words whose vectors are near each other are one field, counted together."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.lexical_fields import SIZE, LexicalFields
from clawback.features.word_meanings import COMMON
from clawback.rewards.views import Answers, Views
from tests.rewards.test_word_meanings import EACH, GROUPS, answers, vectors


def test_words_with_near_vectors_are_one_field() -> None:
    fields = LexicalFields.of(answers(200), vectors)
    assert fields.count == GROUPS * EACH // SIZE
    group = fields.tokens // EACH
    same = sum(len(np.unique(fields.fields[group == one])) == 1 for one in range(GROUPS))
    assert same >= GROUPS - 2  # k-means may join two and divide one
    np.testing.assert_array_equal(fields.tokens, np.arange(GROUPS * EACH))


def test_counts_are_of_words_and_of_nothing_else() -> None:
    fields = LexicalFields.of(answers(200), vectors)
    [row, empty] = fields([[0, 1, 1, 1000, 5000], []])
    assert row.sum() == 3
    assert not empty.any()
    assert row[fields.fields[0]] >= 1


def test_what_most_answers_say_is_no_word_of_a_field() -> None:
    often = [[*ids, 3] for ids in answers(200)]
    assert np.mean([3 in ids for ids in often]) > COMMON
    assert 3 not in LexicalFields.of(often, vectors).tokens


def test_few_words_make_no_fields() -> None:
    for some in ([], [[1, 2, 3]], [[1000, 1001]]):
        fields = LexicalFields.of(some, vectors)
        assert fields.count == 0
        assert fields([[1, 2, 3]]).shape == (1, 0)


def test_the_same_answers_make_the_same_fields() -> None:
    one, other = LexicalFields.of(answers(100), vectors), LexicalFields.of(answers(100), vectors)
    np.testing.assert_array_equal(one.fields, other.fields)


@given(st.lists(st.lists(st.integers(0, 1200), max_size=30), max_size=30))
def test_any_answers_are_counted(ids: list[list[int]]) -> None:
    fields = LexicalFields.of(ids, vectors)
    counted = fields(ids)
    known = set(fields.tokens.tolist())
    np.testing.assert_array_equal(counted.sum(axis=1), [sum(t in known for t in one) for one in ids])


def test_without_vectors_there_is_no_such_view() -> None:
    every = answers(40)
    base = Answers(every, ["Words."] * 40, np.zeros((40, 0)))
    assert Views.ground(base).fields is None
    assert "fields" not in Views.ground(base)(base)
