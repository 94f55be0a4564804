"""Grammatical features are found where a reader of the sentence finds them, and nowhere else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.text_statistics import GRAMMAR, READ, grammar

PLAIN = "The otter eats fish"


def found(text: str) -> set[str]:
    [row] = grammar([text])
    return {name for name, value in zip(GRAMMAR, row, strict=True) if value > 0}


@pytest.mark.parametrize(
    ("feature", "sentence"),
    [
        ("past tense", "She walked home and saw him."),
        ("perfect", "They have often visited Vienna."),
        ("progressive", "It is raining."),
        ("passive", "The bridge was quickly built."),
        ("passive with an agent", "The song was written by Anna."),
        ("existential there", "There are two ways."),
        ("nominalisations", "The establishment needs honesty."),
        ("adverbs", "Walk slowly."),
        ("second person", "Bring your coat."),
        ("sentence relatives", "He left, which surprised us."),
        ("causes", "I stayed because it rained."),
        ("conditions", "Unless you hurry, we leave."),
        ("infinitives", "Try to sleep."),
        ("possibility", "This may help."),
        ("necessity", "You have to rest."),
        ("prediction", "It will rain."),
        ("not", "That isn’t so."),
        ("contractions", "We're late."),
        ("clauses joined", "It rained, and we stayed."),
        ("wh-questions", "Fine. Where do you live?"),
        ("yes-no questions", "Do you agree?"),
        ("adverbs at the start", "It ends. Slowly it returns."),
        ("conjunctions at the start", "It ends.\n- But why"),
        ("subordinators at the start", "If it ends, fine."),
    ],
)
def test_a_feature_is_found_in_its_sentence_and_not_in_a_plain_one(feature: str, sentence: str) -> None:
    assert feature in found(sentence)
    assert feature not in found(PLAIN)


@pytest.mark.parametrize(
    ("feature", "sentence"),
    [
        ("infinitives", "Go to the station."),
        ("articles at the start", "It is the end."),
        ("wh-questions", "What a day. Is it over?"),
        ("passive", "They are happy children."),
        ("nominalisations", "Wait a moment, city."),
    ],
)
def test_what_only_looks_like_it_is_not_found(feature: str, sentence: str) -> None:
    assert feature not in found(sentence)


def test_a_rate_is_of_words_whatever_the_length() -> None:
    once, often = grammar(["It may rain today again.", "It may rain today again. " * 20])
    np.testing.assert_allclose(once[GRAMMAR.index("possibility")], often[GRAMMAR.index("possibility")])


def test_no_texts_have_no_rows() -> None:
    assert grammar([]).shape == (0, len(GRAMMAR))


@given(st.text(max_size=300))
def test_any_text_has_finite_rates(text: str) -> None:
    [row] = grammar([text])
    assert np.isfinite(row).all()
    assert (row >= 0).all()


@pytest.mark.parametrize("part", ["a" * 50, "is ", "to ", "? ", ", and ", "what " * 3, "'s"])
def test_a_hostile_text_is_read_up_to_its_limit(part: str) -> None:
    text = part * (3 * READ // len(part))
    [whole], [cut] = grammar([text]), grammar([text[:READ]])
    np.testing.assert_array_equal(whole, cut)
