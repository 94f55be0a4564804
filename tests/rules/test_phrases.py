"""Sentences become checks, or stay with a judge; a sentence is never read as what it does not say."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks._rule_sentences import LATER_TRAPS, TRAPS, WISHES
from clawback.rules.checks import compiled, parse
from clawback.rules.lexicon import FEATURES, PHRASES, UNITS


def test_most_ways_of_saying_a_wish_are_read() -> None:
    for part, least in (("said", 0.95), ("other", 0.9)):
        sentences = [sentence for wish in WISHES for sentence in getattr(wish, part)]
        assert sum(bool(parse(one)) for one in sentences) >= least * len(sentences), part


def test_all_ways_of_saying_a_wish_give_the_same_check() -> None:
    for wish in WISHES:
        read = {check for sentence in (*wish.said, *wish.other) if (check := parse(sentence))}
        same = {"; ".join(sorted(check.split("; "))) for check in read}
        assert len(same) == 1, (wish.name, read)
        assert all(compiled(check) for check in read)


@pytest.mark.parametrize("sentence", [*TRAPS, *LATER_TRAPS])
def test_what_only_looks_like_a_wish_is_not_read(sentence: str) -> None:
    assert parse(sentence) == ""


@pytest.mark.parametrize(
    ("sentence", "check"),
    [
        ("don't say 'I'", 'says "I" = no'),
        ("Never say “Great question”.", 'says "Great question" = no'),
        ("Answer in German.", "language = de"),
        ("Use between 50 and 100 words.", "words >= 50; words <= 100"),
        ("Answer in 3 to 5 sentences.", "sentences >= 3; sentences <= 5"),
        ("No more than 1,000 words", "words <= 1000"),
        ("No lists, tables or headings.", "list = no; table = no; headings = no"),
        ("Use a list, not a table.", "list = yes; table = no"),
        ("Answers of at least two hundred and fifty words", "words >= 250"),
        ("Never answer in fewer than fifty-five words!", "words >= 55"),
        ("Don't ask me any questions, and no emoji!", "questions = no; emoji = no"),
        ("Would you please write in lowercase?", "capitals = no"),
    ],
)
def test_other_sentences(sentence: str, check: str) -> None:
    assert parse(sentence) == check


@pytest.mark.parametrize(
    "sentence",
    [
        "Never use lists and write more than 80 words.",  # what "never" reaches is not certain
        "Answer in at most two short sentences.", "Don't be bold.", "Give bold answers.", "Answer three questions.", "Never use at most 80 words.",
        "Use lists. Never use lists.", "kein Emoji", "", " ", "No.", "please", "80", "80 words and", 'say ""', "not not lists", "Use a list\nand nothing else",
    ],
)  # fmt: skip
def test_what_is_not_certain_is_left_to_a_judge(sentence: str) -> None:
    assert parse(sentence) == ""


def test_every_thing_that_is_known_can_be_checked() -> None:
    for feature in FEATURES.values():
        assert all(compiled(check) for check in (feature.present, feature.absent) if check)
    assert all(compiled(f"{unit} <= 3") for unit in UNITS.values() if unit)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    check = parse(text)
    assert not check or compiled(check)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([*PHRASES, "80", "twelve", '"x"', "."]), max_size=9))
def test_no_order_of_known_words_raises_and_what_is_read_compiles(words: list[str]) -> None:
    check = parse(" ".join(words))
    assert not check or compiled(check)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([one for wish in WISHES for one in wish.said]),
    st.sampled_from(["unless", "if", "sometimes", "fewer", "xyzzy", "rarely"]),
)
def test_one_unknown_word_is_enough_to_leave_it_to_a_judge(sentence: str, word: str) -> None:
    assert parse(f"{sentence.rstrip('.!')} {word}") == ""
