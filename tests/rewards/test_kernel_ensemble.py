"""Views weighed by their evidence, against the slow way and scikit-learn."""

import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.stats import multivariate_normal
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import KernelCenterer

from clawback.rewards.kernel_ensemble import Kernel, KernelEvidenceOverTime, Spectra
from clawback.rewards.reward_head import TRUSTED_BELOW, permutation_test

RNG = np.random.default_rng(0)
KERNELS = (Kernel("linear", ("a",), 4.0), Kernel("linear", ("b",), 6.0), Kernel("rbf", ("a",), 3.0), Kernel("product", ("a", "b"), 24.0))  # fmt: skip


def seen(count, rng=RNG):
    return {"a": rng.normal(size=(count, 4)), "b": rng.normal(size=(count, 6))}


def test_evidence_is_the_bayes_factor_against_noise():
    rated, y = seen(12), RNG.choice([-1.0, 1.0], 12)
    found = Spectra.of(KERNELS[:1], rated, 0.8).evidence(y[:, None])[0, :, 0]
    contrasts = null_space(np.ones((1, 12))).T  # [11, 12]: what is left of ratings whose mean is not known
    z, gram = contrasts @ y, contrasts @ KERNELS[0](rated, rated) @ contrasts.T

    def best(covariance):
        scale = z @ np.linalg.solve(covariance, z) / 11
        return multivariate_normal(np.zeros(11), scale * covariance).logpdf(z)

    expected = [best(gram + ridge * np.eye(11)) - best(np.eye(11)) for ridge in (0.2, 0.8, 3.2)]
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_predictions_are_those_of_kernel_ridge_regression():
    rated, new, y = seen(20), seen(7), RNG.normal(size=20)
    made = Spectra.of(KERNELS[:1], rated).fit(y)
    gram, across = KERNELS[0](rated, rated), KERNELS[0](new, rated)
    centre = KernelCenterer().fit(gram)
    expected = sum(
        weight * KernelRidge(alpha=ridge, kernel="precomputed").fit(centre.transform(gram), y - y.mean()).predict(centre.transform(across))
        for weight, ridge in zip(made.weights[0], (0.25, 1.0, 4.0), strict=True)
    )  # fmt: skip
    np.testing.assert_allclose(made.predict(new)[0], expected + y.mean(), atol=1e-8)


def test_the_view_that_ratings_are_about_is_found():
    rated, new = seen(60), seen(200)
    made = Spectra.of(KERNELS, rated).fit(np.sign(rated["b"][:, 0]))
    assert max(made.shares(), key=made.shares().get) == "b"
    mean, sd = made.predict(new)
    assert np.corrcoef(mean, new["b"][:, 0])[0, 1] > 0.7
    assert (sd > 0).all()
    far = {name: 50 * x for name, x in new.items()}
    assert made.predict(far)[1].mean() > sd.mean()


def test_what_is_left_out_is_predicted_as_if_it_had_never_been_rated():
    rated, count = seen(18), 18
    y = np.sign(rated["b"][:, 0] + RNG.normal(size=count))
    found = Spectra.of(KERNELS, rated).fit(y).left_out(y)
    for i in range(count):
        others = [j for j in range(count) if j != i]
        without = Spectra.of(KERNELS, {name: x[others] for name, x in rated.items()}).fit(y[others])
        [expected] = without.predict({name: x[[i]] for name, x in rated.items()})[0]
        assert found[i] == pytest.approx(expected, abs=0.01), (
            "models of less than a thousandth are left out on both sides"
        )


def test_many_ratings_are_left_out_as_one_is():
    rated, ratings = seen(18), RNG.choice([-1.0, 1.0], (18, 5))
    spectra = Spectra.of(KERNELS, rated)
    found = spectra.left_out(ratings)
    for column, y in enumerate(ratings.T):
        np.testing.assert_allclose(found[:, column], spectra.fit(y).left_out(y), atol=0.02)


def test_the_evidence_of_a_part_is_that_of_these_ratings_alone():
    rated, y = seen(24), RNG.choice([-1.0, 1.0], 24)
    two, likelier = (
        KERNELS[1:3],
        {"b": 2.0},
    )  # of two kernels, models are each and both: pairs are not left out
    over_time = KernelEvidenceOverTime(two, rated, y, 0.8, likelier)

    def expected(ratings, start, end):
        part = {name: x[start:end] for name, x in rated.items()}
        logs = Spectra.of(two, part, 0.8, likelier).evidence(ratings[:, None])
        return np.logaddexp.reduce(logs.ravel()) - np.log(logs.size)

    assert over_time.of_part(5, 20) == pytest.approx(expected(y[5:20], 5, 20), abs=1e-8)
    turned = np.concatenate([y[2:10] - y[2:10].mean(), y[10:22].mean() - y[10:22]])
    assert over_time.turned(2, 10, 22) == pytest.approx(expected(turned, 2, 22), abs=1e-8)


def test_equal_ratings_say_nothing_and_break_nothing():
    made = Spectra.of(KERNELS, seen(5)).fit(np.ones(5))
    mean, sd = made.predict(seen(3))
    np.testing.assert_allclose(mean, 1.0, atol=1e-6)
    assert np.isfinite(sd).all()
    with pytest.raises(ValueError):
        Spectra.of((), seen(5))


def test_of_coin_tossers_few_are_trusted_and_of_tastes_most():
    rng = np.random.default_rng(1)

    def trusted(about):
        rated = seen(32, rng)
        spectra = Spectra.of(KERNELS, rated)
        y = np.where(rng.random(32) < 0.35, 1.0, -1.0) if about is None else np.sign(rated[about][:, 0])
        trust = permutation_test(
            y, lambda dealt: np.logaddexp.reduce(spectra.evidence(dealt).reshape(-1, dealt.shape[1]))
        )
        assert trust.trusted == (trust.p <= TRUSTED_BELOW)
        assert ("show no pattern" in trust.reason) != trust.trusted
        return trust.trusted

    assert np.mean([trusted(None) for _ in range(200)]) <= 0.1
    assert np.mean([trusted("a") for _ in range(30)]) >= 0.9


def test_ratings_that_are_all_the_same_are_not_tested():
    assert not permutation_test(np.ones(20), lambda dealt: dealt.sum(0)).trusted
    assert "fewer than 4" in permutation_test([1.0, -1.0], lambda dealt: dealt.sum(0)).reason


def test_each_kind_of_feedback_is_permuted_among_itself():
    kinds = np.array([0] * 6 + [2] * 8)
    ratings = np.where(kinds == 0, 1.0, 0.125) * np.resize([1.0, -1.0, -1.0], 14)
    seen = []
    permutation_test(ratings, lambda dealt: (seen.append(dealt), dealt[0])[1], kinds=kinds)
    [dealt] = seen
    np.testing.assert_array_equal(dealt[:, 0], ratings)
    for kind in (0, 2):
        np.testing.assert_array_equal(
            np.sort(dealt[kinds == kind], axis=0), np.sort(ratings[kinds == kind])[:, None] + 0 * dealt[:1]
        )
    assert (dealt[:, 1:] != dealt[:, :1]).any(axis=0).mean() > 0.9
