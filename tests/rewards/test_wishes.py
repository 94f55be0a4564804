"""No word of a reported wish is one of the product's, or of an earlier taste: what is learned of it was not written down before."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from benchmarks import _wishes

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "clawback"
KNOWN = [
    *(
        SOURCE / f"{name}.py"
        for name in ("rewards/instructions", "features/style_features", "features/text_statistics")
    ),
    *(ROOT / "benchmarks" / f"{name}.py" for name in ("_real_tastes", "_reading_tastes")),
    ROOT / "src" / "clawback" / "extensions" / "demo" / "tastes.py",
]
CLOSED_CLASS = """
a an the and or nor as if of in on at to for from by with into over up out about is are was were be been being had did do does it this these those that they
them what when where which who how there here so than off
"""
FUNCTION_WORDS = frozenset(CLOSED_CLASS.split())
"""Closed-class words of English that no taste is about: articles, conjunctions, prepositions, forms of to be, to have and to do, pronouns of the third person,
demonstratives and question words. "You", "I", "we", "no", "not", "may" and the like are not among them: tastes are about those."""
ENDINGS = ("ing", "ed", "es", "s", "d", "e", "y")


def texts(path: Path) -> list[str]:
    """All texts of a module but its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in said]  # fmt: skip


def words(text: str) -> set[str]:
    """Words of three letters and more of a text or of a pattern, without endings; function words are none."""
    plain = re.sub(r"\(\?[:!=<]+|\\[A-Za-z]", " ", text.lower())
    return {stem(word) for word in re.findall(r"[a-z]{3,}", plain)} - {stem(w) for w in FUNCTION_WORDS}


def stem(word: str) -> str:
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def known() -> set[str]:
    return {word for path in KNOWN for text in texts(path) for word in words(text)}


def test_no_word_of_a_wish_is_known_to_the_product() -> None:
    ours = {word: text for text in texts(Path(_wishes.__file__)) for word in words(text)}
    shared = {word: ours[word] for word in ours.keys() & known()}
    assert not shared


@pytest.mark.parametrize(
    "sentence", ["Use short sentences.", "no lists, please", "as a friend", "Answers in paragraphs"]
)
def test_known_words_are_found_whatever_their_form(sentence: str) -> None:
    assert words(sentence) & known()


def test_half_of_the_reported_wishes_are_about_form() -> None:
    assert sum(wish.form for wish in _wishes.TEST) * 2 == len(_wishes.TEST) >= 12


def test_reported_wishes_are_kept_apart_from_those_to_choose_on() -> None:
    names = [wish.name for wish in (*_wishes.TEST, *_wishes.DEVELOPMENT)]
    assert len(set(names)) == len(names)
    development = {word for wish in _wishes.DEVELOPMENT for word in words(wish.remark)}
    assert not development & {word for wish in _wishes.TEST for word in words(wish.remark)}
