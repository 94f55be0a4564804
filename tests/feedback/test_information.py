"""What to ask about next: gains against brute force, batches without near copies, and that asking well teaches more."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from clawback.feedback.information import Belief, best_pairs, best_turns, condition, information, newest
from clawback.records import Turn
from clawback.rewards import reward_head


def random_belief(seed: int, n: int = 8, noise: float = 0.3) -> Belief:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)) * rng.uniform(0.2, 2, size=(n, 1))
    return Belief(rng.normal(size=n), root @ root.T / n, noise)


@pytest.mark.parametrize(
    ("mean", "variance", "noise"), [(0.0, 1.0, 0.5), (0.8, 0.3, 0.2), (-2.0, 1.5, 1.0), (0.1, 0.01, 0.5)]
)
def test_information_is_the_mutual_information(mean: float, variance: float, noise: float) -> None:
    def entropy(p: float) -> float:
        return float(stats.entropy([p, 1 - p], base=2))

    def inside(f: float) -> float:
        good = stats.norm.cdf(f / noise**0.5)
        return float(stats.norm.pdf(f, mean, variance**0.5) * entropy(good))

    marginal = stats.norm.cdf(mean / (noise + variance) ** 0.5)
    width = 9 * variance**0.5
    exact = entropy(marginal) - integrate.quad(inside, mean - width, mean + width, limit=200)[0]
    assert information([mean], [variance], noise)[0] == pytest.approx(exact, abs=2e-4)


def test_nothing_is_learned_where_all_is_known() -> None:
    assert information([0.0, 1.0], [0.0, 0.0], 0.5) == pytest.approx([0, 0], abs=1e-12)


def test_conditioning_is_that_of_a_gaussian() -> None:
    """Against the block formula with the observation as one more variable."""
    belief = random_belief(3)
    a = np.random.default_rng(4).normal(size=8)
    joint = np.block(
        [
            [belief.covariance, (belief.covariance @ a)[:, None]],
            [a @ belief.covariance, a @ belief.covariance @ a + 0.7],
        ]
    )
    exact = joint[:8, :8] - joint[:8, 8:] @ np.linalg.inv(joint[8:, 8:]) @ joint[8:, :8]
    np.testing.assert_allclose(condition(belief.covariance, a, 0.7), exact, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_each_choice_shrinks_the_variance_most_and_says_by_how_much(seed: int) -> None:
    belief = random_belief(seed)
    k, before = belief.covariance, set()
    for place, gain in best_turns(belief, 4):
        after = {i: np.trace(condition(k, np.eye(8)[i], belief.noise)) for i in set(range(8)) - before}
        assert np.trace(k) - after[place] == pytest.approx(gain)
        assert after[place] == pytest.approx(min(after.values()))
        k = condition(k, np.eye(8)[place], belief.noise)
        before.add(place)


def test_near_copies_are_not_asked_about_together() -> None:
    k = np.diag([2.0, 2.0, 1.0])
    k[0, 1] = k[1, 0] = 1.999
    chosen = [i for i, _ in best_turns(Belief(np.zeros(3), k, 0.1), 2)]
    assert sorted(chosen) != [0, 1]
    assert 2 in chosen


def test_the_head_hands_over_its_belief() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 40)), rng.choice([-1.0, 1.0], size=20)
    fitted, new = reward_head.fit(x, y), rng.normal(size=(6, 40))
    mean, covariance = fitted.joint(new)
    one, variance = fitted.predict(new)
    np.testing.assert_allclose(mean, one)
    np.testing.assert_allclose(np.diag(covariance), variance, rtol=1e-9)
    # The weights' posterior, written out: noise (XᵀX + λI)⁻¹ on standardised features, and the intercept's 1/n.
    z = (x - x.mean(0)) / x.std(0)
    at = (new - x.mean(0)) / x.std(0)
    slow = fitted.noise * (at @ np.linalg.inv(z.T @ z + fitted.ridge * np.eye(40)) @ at.T + 1 / 20)
    np.testing.assert_allclose(covariance, slow, atol=1e-10)


def test_pairs_are_chosen_by_what_is_open_between_them() -> None:
    k = np.diag([1.0, 1.0, 1.0, 1.0])
    k[2, 3] = k[3, 2] = 0.99  # whatever they are worth, it is the same
    belief = Belief(np.array([0.0, 0.1, 0.0, 0.1]), k, 0.2)
    pairs = [(2, 3), (0, 1)]
    [(best, bits)] = best_pairs(belief, pairs, 1)
    assert pairs[best] == (0, 1)
    assert 0 < bits < 1
    sure = Belief(np.array([0.0, 9.0, 0.0, 0.1]), np.diag([1.0, 1.0, 1.0, 1.0]), 0.2)
    assert pairs[best_pairs(sure, pairs, 1)[0][0]] == (2, 3)  # everybody knows how (0, 1) ends


def test_asking_well_teaches_more_than_asking_at_random() -> None:
    """200 answers in twelve clusters of very different sizes; the error on all of them after twelve ratings."""

    def error(seed: int, clever: bool) -> float:
        rng = np.random.default_rng(seed)
        sizes = rng.multinomial(200 - 12, rng.dirichlet([0.3] * 12)) + 1
        centres = rng.normal(size=(12, 12)) * 2
        x = np.concatenate([centres[i] + 0.2 * rng.normal(size=(n, 12)) for i, n in enumerate(sizes)])
        truth = x @ rng.normal(size=12) / 5
        asked = list(rng.choice(200, size=3, replace=False))
        while len(asked) < 12:
            y = truth[asked] + 0.1 * rng.normal(size=len(asked))
            fitted = reward_head.fit(x[asked], y, ridge=1.0, spread=1.0)
            mean, covariance = fitted.joint(x)
            if clever:
                belief = Belief(mean, covariance, fitted.noise)
                asked += [i for i, _ in best_turns(belief, 15) if i not in asked][:3]
            else:
                asked += [int(i) for i in rng.permutation(200) if i not in asked][:3]
        fitted = reward_head.fit(x[asked], truth[asked], ridge=1.0, spread=1.0)
        return float(np.mean((fitted.predict(x)[0] - truth) ** 2))

    apart = [error(seed, False) - error(seed, True) for seed in range(20)]
    assert stats.ttest_1samp(apart, 0, alternative="greater").pvalue < 0.01


def test_where_nothing_is_known_the_newest_of_each_conversation_come_first_and_short_ones_last() -> None:
    said = [("a", "word " * 20)] * 3 + [("b", "word " * 20)] * 2 + [("c", "Done.")]
    turns = [Turn(session, (), text, id=number) for number, (session, text) in enumerate(said, 1)]
    assert [turn.id for turn in newest(turns[::-1])] == [5, 3, 4, 2, 1, 6]
