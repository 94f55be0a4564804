"""What answers are looked at through: shares, everyday tokens, signs; it does not see one topic's words."""

from dataclasses import replace

import numpy as np
import pytest

from clawback.rewards.lens import Lens


def some_texts(count):
    """Answers that differ in how they are put, and one word each that no other has."""
    return [
        ("- one\n- two\n- three" if i % 2 else "It is so. Sorry! Is that all? " * (1 + i % 3)) + f" w{i}"
        for i in range(count)
    ]


def test_only_everyday_tokens_count():
    rng = np.random.default_rng(0)
    # 1 is in every answer, 2 in half of them, each of 100 … 149 in one: the topic's own word
    answers = [[1, 100 + i, *([2] if i % 2 else [])] for i in range(50)]
    texts = some_texts(50)
    lens = Lens.ground(answers, rng.normal(size=(50, 4)), texts)
    assert lens.tokens.tolist() == [2]
    seen = lens(answers, rng.normal(size=(50, 4)), texts)
    assert np.mean(np.sum(seen**2, 1)) == pytest.approx(1, abs=0.15)
    same = lens([[2, 100], [2, 149]], np.zeros((2, 4)), ["as it is"] * 2)
    assert np.array_equal(same[0], same[1])


def test_the_shares_are_those_of_the_squared_length():
    rng = np.random.default_rng(0)
    answers, texts, hidden = [[1, 2], [3]] * 30, some_texts(60), rng.normal(size=(60, 7))
    lens = Lens.ground(answers, hidden, texts)
    seen = lens(answers, hidden, texts)
    manners = int((lens.varies > 0).sum())
    blocks = np.split(seen, [manners, manners + len(lens.tokens)], axis=1)
    assert [np.mean(np.sum(b**2, 1)) for b in blocks] == pytest.approx(lens.shares)
    hidden_alone = replace(lens, shares=(0, 0, 1))(answers, hidden, texts)
    assert not hidden_alone[:, : manners + len(lens.tokens)].any()


def test_answers_without_everyday_tokens_leave_the_rest():
    texts = some_texts(30)
    lens = Lens.ground([[1, i + 5] for i in range(30)], np.random.default_rng(0).normal(size=(30, 3)), texts)
    assert len(lens.tokens) == 0
    assert np.isfinite(lens([[9], []], np.zeros((2, 3)), ["", "no"])).all()


def test_signs_are_manners_counts_above_their_cuts_phrases_and_tokens():
    answers, texts = [[1, 2], [3]] * 30, some_texts(60)
    lens = replace(Lens.ground(answers, np.zeros((60, 2)), texts), phrases=("is that all", "never said"))
    signs = lens.signs([[2], [9]], ["- a\n- b", "Is that all? " * 9])
    assert signs.shape == (2, lens.manners + len(lens.tokens))
    assert signs[:, lens.columns("list")].tolist() == [[True], [False]]
    assert signs[:, lens.columns("asks back")].tolist() == [[False], [True]]
    assert signs[:, lens.columns("says is that all")].tolist() == [[False], [True]]
    assert not signs[:, lens.columns("says never said")].any()
    assert signs[0, lens.columns("sentences")].tolist() == [False] * 3
    assert signs[1, lens.columns("sentences")].tolist() == [True] * 3
    there = dict(zip(lens.tokens.tolist(), signs[:, lens.manners :].T.tolist(), strict=True))
    assert there[2] == [True, False]
