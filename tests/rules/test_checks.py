"""Checks by code: what they say of texts whose truth is plain, and that no text makes them raise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.records import Rule
from clawback.rules import checks
from clawback.rules.checks import MEASURES, check_of, compiled
from clawback.rules.lexicon import NAMES, language_of

GERMAN = "Das ist eine kurze Antwort auf die Frage, und sie ist nicht auf Englisch, wie man sieht."


def keeps(check: str, answer: str) -> float | None:
    return checks.keeps(Rule("a rule", check), "a question", answer)


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        ("words <= 3", "Only three words.", "There are four words."),
        ("words <= 3", "```\none two three four five\n```\nOnly three words.", "One two `three` four."),
        ("words = 2", "Two words.", "Not at all two."),
        ("sentences <= 2", "Dr. Smith came, e.g. at 3.5 m. He left.", "One. Two. Three."),
        ("sentence words <= 4", "One two three four. One two.", "One. One two three four five."),
        ("paragraphs <= 1", "One\ntwo.", "One.\n\nTwo."),
        ("list = no", "One - two - three.\n- one", "- one\n- two"),
        ("list = yes", "1. one\n2. two", "One and two."),
        ("bullets = no", "1. one\n2. two", "* one\n* two"),
        ("numbered list = yes", "1) one\n2) two", "- one\n- two"),
        ("headings = no", "#hashtag and C# code", "# Heading\ntext"),
        ("table = no", "a | b", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("bold = no", "2 ** 3 ** 4", "A **bold** word."),
        ("code block = yes", "See:\n```python\nx = 1\n```", "See `x = 1`."),
        ("emoji = no", "Fine → ok ✓"[:8], "Fine 🙂"),
        ("contains number", "It takes 5 minutes.", "1. Some time\n2. More time"),
        ("digits = no", "five", "1. one\n2. two"),
        ("first person = no", "In the US, World War I ended; i.e. it was over. A.I. is here.", "I'm sure."),
        ("first person = no", "```\nfor i in me:\n```\nDone.", "It helps us."),
        ("second person = yes", "Ask your doctor.", "Youth is short."),
        ('says "however" = no', "How ever did it go?", "It works; However, not well."),
        ('says "do not" = no', "Don't.", "Do\nnot."),
        ('says "I" = no', "World War II, and it is AI.", "So I’m here."),
        ('says ";" = no', "a, b", "a; b"),
        ('starts with "Sure" = yes', "**Sure!** Here it is.", "Surely not."),
        ('ends with "the end" = yes', "This is The End.", "The end is near."),
        ("ends with question = yes", 'Shall we "go?" 🙂', "Why? Because."),
        ("exclamation marks = no", "Fine.", "Fine!"),
        ("commas <= 1", "a, b", "a, b, c"),
        ("capitals = no", "all small", "One capital"),
        ("word letters <= 5", "short words", "words abcdef"),
        ("language = de", GERMAN, "This is a short answer to the question, and it is in English as you can see."),
        ("list = no; words <= 3", "Three words here.", "- a\n- b"),
        ('says "a; b" = no; emoji = no', "a, b", "a; b"),
    ],
)  # fmt: skip
def test_a_check_tells_what_keeps_from_what_breaks(check: str, good: str, bad: str) -> None:
    assert keeps(check, good) == 1.0
    assert keeps(check, bad) == 0.0


def test_where_it_does_not_apply_nothing_is_said() -> None:
    assert keeps("words <= 3", "  ") is None
    assert keeps("language = de", "Ja.") is None
    # What breaks one clause breaks the rule, also where another does not apply.
    assert keeps("language = de; emoji = no", "Ja 🙂") == 0.0


@pytest.mark.parametrize(
    "check",
    ["", "words", "lots of fun = no", "words < 3", "words <= many", 'says ""', 'says "a', "language = xx", "list = maybe", "; ", "words <= 3; nonsense",
     "x" * 10_000, "list = no; " * 40],
)  # fmt: skip
def test_what_is_no_check_is_left_to_a_judge(check: str) -> None:
    if check == "words":  # how often: at least once
        assert keeps(check, "word") == 1.0
    else:
        assert check_of(Rule("a rule", check)) is None


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=300), st.text(max_size=60))
def test_no_text_and_no_check_raises(answer: str, check: str) -> None:
    every = "; ".join(f"{name} <= 3" for name in list(MEASURES)[:12])
    for one in (every, check, 'says "x" = no', "language = fr", "ends with question"):
        assert keeps(one, answer) in (None, 0.0, 1.0)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MEASURES)), st.integers(0, 20), st.text(max_size=200))
def test_a_bound_and_its_opposite_never_agree(name: str, bound: int, answer: str) -> None:
    at_most, more = keeps(f"{name} <= {bound}", answer), keeps(f"{name} >= {bound + 1}", answer)
    assert (at_most is None and more is None) or {at_most, more} == {0.0, 1.0}


def test_languages_are_told_apart() -> None:
    texts = {
        "en": "You can use it for this, but the other one is what they have in mind.",
        "de": GERMAN,
        "fr": "Vous pouvez le faire dans la ville, mais ce n'est pas une bonne idée pour nous et les autres.",
        "es": "Se puede hacer en la ciudad, pero no es una buena idea para los que no tienen tiempo.",
        "it": "Si può fare nella città, ma non è una buona idea per chi non ha il tempo di farlo con gli altri.",
        "nl": "Je kan het in de stad doen, maar dat is niet een goed idee voor wie er geen tijd voor heeft.",
        "pt": "Você pode fazer isso na cidade, mas não é uma boa ideia para os que não têm tempo.",
        "ja": "これは短い日本語の文章です。", "zh": "这是一个很短的中文句子。", "ru": "Это короткий ответ на вопрос.",
    }  # fmt: skip
    assert {code: language_of(text) for code, text in texts.items()} == {code: code for code in texts}
    assert set(texts) <= set(NAMES.values())
    assert language_of("ok") == language_of("x y z " * 10) == ""


def test_a_check_is_compiled_once() -> None:
    assert compiled("words <= 3") is compiled("words <= 3")
