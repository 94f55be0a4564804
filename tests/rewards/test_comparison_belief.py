"""What is believed of answers from comparisons: against sums over a grid, and that it finds what differs."""

from __future__ import annotations

import numpy as np
import pytest

from clawback.feedback.information import best_pairs
from clawback.rewards.acquisition import LOGISTIC, Comparable, Comparison, Fit


def exact(kernel: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean, covariance and log evidence of two values by summing over a grid."""
    axis = np.linspace(-8, 8, 801)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    inverse = np.linalg.inv(kernel)
    log = (
        -0.5 * np.einsum("gi,ij,gj->g", grid, inverse, grid)
        - np.log(2 * np.pi)
        - 0.5 * np.log(np.linalg.det(kernel))
    )
    log -= np.logaddexp(0, -(grid @ rows.T)) @ weights
    mass = np.exp(log) * (axis[1] - axis[0]) ** 2
    evidence = mass.sum()
    mean = mass @ grid / evidence
    second = (grid * mass[:, None]).T @ grid / evidence
    return mean, second - np.outer(mean, mean), float(np.log(evidence))


@pytest.mark.parametrize("weight", [0.25, 1.0])
def test_the_posterior_is_near_the_exact_one(weight: float) -> None:
    kernel = np.array([[1.0, 0.3], [0.3, 0.8]])
    rows = np.array([[1.0, -1.0], [1.0, 0.0], [-1.0, 1.0]])
    weights = np.array([1.0, weight, weight])
    mean, covariance, evidence = exact(kernel, rows, weights)
    fit = Fit.of(kernel, rows, weights)
    np.testing.assert_allclose(fit.mean, mean, atol=0.03)
    np.testing.assert_allclose(fit.covariance(), covariance, atol=0.03)
    assert fit.evidence == pytest.approx(evidence, abs=0.02)


def test_nothing_that_was_said_leaves_the_prior() -> None:
    kernel = np.array([[1.0, 0.3], [0.3, 0.8]])
    fit = Fit.of(kernel, np.zeros((0, 2)), np.zeros(0))
    np.testing.assert_allclose(fit.mean, 0)
    np.testing.assert_allclose(fit.covariance(), kernel)
    assert fit.evidence == 0


WORDS = ["river", "stone", "cloud", "field", "horse", "light", "north", "paper", "queen", "sugar"]


def texts(count: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        ("- {}\n- {}\n- {}" if place % 2 else "{}, {} and {} are there.").format(
            *rng.choice(WORDS, 3, replace=False)
        )
        for place in range(count)
    ]


def test_what_is_liked_in_some_answers_is_expected_of_others_like_them() -> None:
    some = texts(40)
    answers = Comparable(["What?"] * 40, some)
    belief = answers.belief([Comparison(2 * i + 1, 2 * i, better=True) for i in range(8)])
    assert belief is not None
    assert belief.mean[17::2].min() > belief.mean[16::2].max(), "lists were preferred"
    # Eight comparisons leave less open about a list beside prose than about two lists of other words.
    none = answers.belief([])
    assert none is not None
    assert np.allclose(none.mean, 0)
    apart = np.zeros(40)
    apart[17], apart[16] = 1, -1
    assert apart @ belief.covariance @ apart < apart @ none.covariance @ apart


def test_a_guess_counts_less_than_a_word_and_two_that_contradict_say_nothing() -> None:
    answers = Comparable(["What?"] * 20, texts(20))
    word, guess, both = (
        answers.belief(said)
        for said in (
            [Comparison(1, 0, better=True)],
            [Comparison(1, 0, better=True, weight=0.25)],
            [Comparison(1, 0, better=True), Comparison(1, 0, better=False)],
        )
    )
    assert word is not None
    assert guess is not None
    assert both is not None
    assert word.mean[1] - word.mean[0] > guess.mean[1] - guess.mean[0] > 0
    np.testing.assert_allclose(both.mean, 0, atol=1e-6)


def test_of_pairs_the_one_is_asked_about_that_differs_in_what_is_open() -> None:
    some = [
        *texts(40),
        "- stone\n- cloud\n- queen",
        "stone, cloud and queen are there.",
        "- light\n- north\n- paper",
        "- light\n- north\n- paper",
    ]
    answers = Comparable(["What?"] * len(some), some)
    belief = answers.belief([])
    assert belief is not None
    assert belief.noise == pytest.approx(LOGISTIC / 2)
    (first, bits), (second, none) = best_pairs(belief, [(42, 43), (40, 41)], 2)
    assert (first, second) == (1, 0)
    assert bits > 0.01 > 1e-9 > none, "nothing tells two equal answers apart"


def test_where_nothing_varies_there_is_no_belief() -> None:
    assert Comparable(["What?"] * 3, ["The same."] * 3).belief([]) is None
    assert Comparable([], []).belief([]) is None
    assert Comparable(["What?"], ["One."]).belief([]) is None
