"""What answers are looked at through: shares, everyday tokens, signs; it does not see one topic's words."""

from dataclasses import replace

import numpy as np
import pytest

from clawback.features.style_features import Features


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
    features = Features.ground(answers, rng.normal(size=(50, 4)), texts)
    assert features.tokens.tolist() == [2]
    seen = features(answers, rng.normal(size=(50, 4)), texts)
    assert np.mean(np.sum(seen**2, 1)) == pytest.approx(1, abs=0.15)
    same = features([[2, 100], [2, 149]], np.zeros((2, 4)), ["as it is"] * 2)
    assert np.array_equal(same[0], same[1])


def test_the_shares_are_those_of_the_squared_length():
    rng = np.random.default_rng(0)
    answers, texts, hidden = [[1, 2], [3]] * 30, some_texts(60), rng.normal(size=(60, 7))
    features = Features.ground(answers, hidden, texts)
    seen = features(answers, hidden, texts)
    manners = int((features.varies > 0).sum())
    blocks = np.split(seen, [manners, manners + len(features.tokens)], axis=1)
    assert [np.mean(np.sum(b**2, 1)) for b in blocks] == pytest.approx(features.shares)
    hidden_alone = replace(features, shares=(0, 0, 1))(answers, hidden, texts)
    assert not hidden_alone[:, : manners + len(features.tokens)].any()


def test_answers_without_everyday_tokens_leave_the_rest():
    texts = some_texts(30)
    features = Features.ground(
        [[1, i + 5] for i in range(30)], np.random.default_rng(0).normal(size=(30, 3)), texts
    )
    assert len(features.tokens) == 0
    assert np.isfinite(features([[9], []], np.zeros((2, 3)), ["", "no"])).all()


def test_signs_are_manners_counts_above_their_cuts_phrases_and_tokens():
    answers, texts = [[1, 2], [3]] * 30, some_texts(60)
    features = replace(
        Features.ground(answers, np.zeros((60, 2)), texts), phrases=("is that all", "never said")
    )
    signs = features.signs([[2], [9]], ["- a\n- b", "Is that all? " * 9])
    assert signs.shape == (2, features.manners + len(features.tokens))
    assert signs[:, features.columns("list")].tolist() == [[True], [False]]
    assert signs[:, features.columns("asks back")].tolist() == [[False], [True]]
    assert signs[:, features.columns("says is that all")].tolist() == [[False], [True]]
    assert not signs[:, features.columns("says never said")].any()
    assert signs[0, features.columns("sentences")].tolist() == [False] * 3
    assert signs[1, features.columns("sentences")].tolist() == [True] * 3
    there = dict(zip(features.tokens.tolist(), signs[:, features.manners :].T.tolist(), strict=True))
    assert there[2] == [True, False]
