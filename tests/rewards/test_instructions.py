"""What is believed of a taste becomes sentences: the right ones first, the person's own words before all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.style_features import NAMES
from clawback.records import BETTER, Sample
from clawback.rewards import instructions

LISTED = "Here it is:\n- one thing\n- another thing"
LONG = "The answer is long and goes on and on for many words, since there is so much to be said about it all."
TEXTS = [LISTED, LONG, "Short.", LONG + "\n- a\n- b", "Brief.", LONG + " And more."] * 4


def liked(test):
    return np.array([1.0 if test(text) else -1.0 for text in TEXTS])


def test_every_sentence_belongs_to_a_feature():
    assert set(instructions.SENTENCES) <= set(NAMES)


def test_a_taste_for_lists_asks_for_a_list_first():
    found = instructions.candidates(TEXTS, liked(lambda text: "- " in text))
    assert found[0].text == "Answer with a bulleted list."
    assert found[0].believed > 1


def test_a_taste_for_short_answers_asks_for_short_ones():
    found = instructions.candidates(TEXTS, liked(lambda text: len(text.split()) < 3))
    assert "Answer in at most two short sentences." in [one.text for one in found]
    assert "Answer thoroughly and in detail." not in [one.text for one in found]


def test_remarks_come_first_in_the_persons_own_words_once_each():
    said = ["Too long.", "Explain it like to a child.", "Too long."]
    found = [one.text for one in instructions.candidates(TEXTS, liked(lambda text: "- " in text), said)]
    assert found[:2] == ["Please note: Too long.", "Please note: Explain it like to a child."]


def test_a_long_text_is_no_remark():
    found = instructions.candidates(TEXTS, np.zeros(len(TEXTS)), ["x " * 400])
    assert found == []


@given(st.lists(st.text(max_size=40), min_size=1, max_size=12), st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_whatever_answers_say_there_are_at_most_as_many_as_asked_for(texts, seed, limit):
    rewards = np.random.default_rng(seed).normal(size=len(texts))
    found = instructions.candidates(texts, rewards, ["Be brief"], limit)
    assert 1 <= len(found) <= limit
    assert len({one.text for one in found}) == len(found)


def test_believed_rules_come_before_the_list_alone_and_together_and_replace_its_sentences():
    rules = ["Give an example.", "Answer with a bulleted list.", "Give an example.", " "]
    found = [
        one.text
        for one in instructions.candidates(
            TEXTS, liked(lambda text: "- " in text), ["Too long."], rules=rules
        )
    ]
    assert found[:4] == [
        "Please note: Too long.",
        "Give an example.",
        "Give an example. Answer with a bulleted list.",
        "Answer with a bulleted list.",
    ]
    assert len(set(found)) == len(found) <= 7


def test_without_rules_nothing_changes_and_many_leave_room_for_no_more_than_the_limit():
    rewards = liked(lambda text: "- " in text)
    assert instructions.candidates(TEXTS, rewards, rules=()) == instructions.candidates(TEXTS, rewards)
    assert len(instructions.candidates(TEXTS, rewards, limit=3, rules=[f"Rule {n}." for n in range(9)])) == 3


def test_wishes_are_neither_edits_nor_verdicts_nor_other_people_s_words():
    hints = ("Who?", "wrong", f"{BETTER} This.", "Mine says more.")
    sample = Sample(1, (), "A man.", -1.0, hints=hints, foreign_hints=("Mine says more.",))
    assert instructions.wishes(sample) == ["Who?"]


@pytest.mark.parametrize("remark", ["bad", "No!", "Nope, that's wrong. Try again.", "not a good answer", "👎", "", "still wrong", "Terrible response, I didn't like it at all"])  # fmt: skip
def test_a_verdict_asks_for_nothing(remark):
    assert not instructions.asks(remark)


@pytest.mark.parametrize("remark", ["no, shorter", "Which obstacles are there?", "wrong tone", "too vague", "You gave no example.", "boring", "寫短一點", "zu lang"])  # fmt: skip
def test_a_remark_that_says_more_asks_for_something(remark):
    assert instructions.asks(remark)
