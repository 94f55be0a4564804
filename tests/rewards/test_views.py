"""Answers as a reward model looks at them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.features.text_statistics import NAMES, text_statistics
from clawback.rewards import rule_posterior
from clawback.rewards.rule_posterior import ASKED_SIGN, STATISTIC_SIGN
from clawback.rewards.views import Answers, Views, relation


@given(st.lists(st.text(), max_size=5))
def test_statistics_of_any_text_are_finite(texts):
    found = text_statistics(texts)
    assert found.shape == (len(texts), len(NAMES))
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("name", "more", "less"),
    [
        ("words a sentence", "One two three four five six.", "One two. Three four. Five six."),
        ("letters a word", "Extraordinary considerations", "It is so"),
        ("different words", "all of these words differ", "so so so so so"),
        ("paragraphs", "One.\n\nTwo.\n\nThree.", "One. Two. Three."),
        ("words a sentence", "我们今天去公园散步然后回家。", "我们去。回家。好。"),
        ("commas", "a, b, c, d", "a b c d"),
        ("last line", "Short.\nA line that is rather longer.", "A line that is rather longer.\nShort."),
    ],
)
def test_statistics_count_what_they_say(name, more, less):
    a, b = text_statistics([more, less])[:, NAMES.index(name)]
    assert a > b


def answers(count, seed=0, prompts=True):
    rng = np.random.default_rng(seed)
    asked = [
        "What is that?" if rng.random() < 0.5 else "Tell me all about the long way home, please"
        for _ in range(count)
    ]
    texts = [
        ("- {}\n- {}" if rng.random() < 0.5 else "{} and {}.").format(
            *(" ".join(rng.choice(["river", "cloud", "stone", "field"], int(rng.integers(1, 9)))) for _ in range(2))
        )
        for _ in range(count)
    ]  # fmt: skip
    ids = [[len(word) for word in text.split()] for text in texts]
    return Answers(
        ids,
        texts,
        rng.normal(size=(count, 3)),
        asked if prompts else (),
        {"end": rng.normal(size=(count, 2))},
    )


def test_views_are_standard_on_the_base_and_cut_off_far_from_it():
    base = answers(120)
    views = Views.ground(base)
    for name, x in views(base).items():
        assert np.abs(x).max() <= 4.0, name
        assert np.abs(x.mean(0)).max() < 0.3, name
    assert {"style", "statistics", "hidden", "prompt", "relation", "end"} <= set(views(base))
    assert {"prompt", "relation"}.isdisjoint(
        Views.ground(answers(50, prompts=False))(answers(5, 1, prompts=False))
    )
    for kernel in views.kernels:
        assert np.linalg.eigvalsh(kernel(views(base), views(base))).min() > -1e-6


def test_signs_are_what_the_layout_says():
    base = answers(120)
    views = Views.ground(base)
    signs, layout = views.signs(base), views.layout
    assert signs.shape == (120, len(layout.kinds)) == (120, len(layout.cut_of))
    cut = layout.kinds == STATISTIC_SIGN
    assert (layout.cut_of[cut] >= 0).all()
    assert (layout.cut_of[~cut] == -1).all()
    asked = signs[:, layout.kinds == ASKED_SIGN]
    questions = np.array([prompt.endswith("?") for prompt in base.prompts])
    assert any((column == questions).all() for column in asked.T)
    assert not views.response_signs(base.ids[0], base.texts[0])[layout.kinds != 0][-3:].any()


@pytest.mark.parametrize("taste", ["either", "question", "between"])
def test_rules_that_are_no_conjunctions_are_found(taste):
    base, new = answers(200), answers(300, 5)
    views = Views.ground(base)

    def likes(of):
        lists = np.array([text.startswith("-") for text in of.texts])
        words = np.array([len(text.split()) for text in of.texts])
        asked = np.array([prompt.endswith("?") for prompt in of.prompts])
        return {
            "either": lists | (words < 7),
            "question": lists == asked,
            "between": (words > 7) & (words < 13),
        }[taste]

    space = rule_posterior.Space.of(views.signs(base), views.layout)
    rated = answers(60, 9)
    found = rule_posterior.fit(space, views.signs(rated), np.where(likes(rated), 1.0, -1.0))
    grades, liked = found.predict(views.signs(new))[0], likes(new)
    assert np.mean(grades[liked][:, None] > grades[~liked]) > 0.93


def test_relation_is_of_words_and_lengths():
    one, other = relation(
        ["where is the river", "where is the river"], ["the river is here", "no idea at all"]
    )
    assert one[0] > other[0]
    assert one[2] > other[2]


def test_limits_that_are_also_cut_from_other_answers_divide_these():
    """Rated answers that are shorter than every fresh one have one length to a reader that looked at fresh ones alone."""
    long = [f"{'word ' * (60 + i)}." for i in range(20)]
    short = [f"{'word ' * (10 + i)}." for i in range(20)]
    fresh, rated = (
        Answers([[i] for i in range(20)], texts, np.zeros((20, 0)), ["Why?"] * 20) for texts in (long, short)
    )

    def different(base):
        views = Views.ground(base)
        return len({tuple(row) for row in views.signs(rated)[:, views.columns("words")].tolist()})

    assert different(fresh) == 1
    assert different(fresh.with_others(rated)) > 1
