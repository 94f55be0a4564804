"""What is read out of ratings and remarks."""

from dataclasses import replace

import numpy as np

from clawback.rewards.reward_ensemble import PHRASES, Answers, Ratings, learn

WORDS = [f"word{chr(97 + i)}" for i in range(26)]


def answers(count, seed):
    """Answers of random words, half of them as a list; nothing to see in the hidden states."""
    rng = np.random.default_rng(seed)
    texts = [
        ("- {}\n- {}" if rng.random() < 0.5 else "{} {}.").format(
            *(" ".join(w for w in WORDS if rng.random() < 0.5) for _ in range(2))
        )
        for _ in range(count)
    ]
    return Answers([[i % 7] for i in range(count)], texts, rng.normal(size=(count, 4)))


def taught(remarks, seed=0):
    rated = answers(6, seed + 1)
    lists = np.array([text.startswith("-") for text in rated.texts])
    return learn(
        answers(200, seed),
        rated,
        Ratings(np.where(lists, 1.0, -1.0)),
        [([0], "a and b.", said) for said in remarks],
    )


def test_a_remark_makes_sure_of_what_ratings_leave_open():
    asked = answers(300, 9)
    lists = np.array([text.startswith("-") for text in asked.texts])

    def apart(ensemble):
        reward = ensemble.reward(asked, 0.5, 0.5)
        return reward[lists].min() - reward[~lists].max(), ensemble.recognised_remarks

    silent, spoken = apart(taught([])), apart(taught(["As a list, please!"]))
    assert (silent[1], spoken[1]) == (0, 1)
    assert spoken[0] > max(silent[0], 0)


def test_what_cannot_be_told_apart_is_not_heard():
    assert taught(['Say "never said".', "Use Fahrenheit."]).recognised_remarks == 0


def test_however_much_is_quoted_only_the_most_spoken_of_is_looked_for():
    """All hypotheses on every quoted word would be millions."""
    spoken = [f'Say "{word}".' for word in WORDS] + ['Say "wordz".', 'Say "wordy".']
    ensemble = taught(spoken)
    assert len(ensemble.views.features.phrases) == PHRASES
    assert {"wordz", "wordy"} <= set(ensemble.views.features.phrases)
    assert ensemble.recognised_remarks == PHRASES


def mixture(seed=0, count=24):
    """An ensemble on ratings that mean something, and two other sets of answers."""
    rated = answers(count, seed + 1)
    rewards = np.array([1.0 if text.startswith("-") or "wordb" in text else -1.0 for text in rated.texts])
    made = learn(answers(200, seed), rated, Ratings(rewards))
    return made, made.views.view(answers(40, seed + 2)), made.views.view(answers(40, seed + 3))


def test_a_contrast_is_the_difference_of_the_means_that_are_expected():
    made, ours, before = mixture()
    for share in (0.0, 1.0):
        expected = [made.score(side, share, 0.0).mean() for side in (ours, before)]
        for paired in (False, True):
            contrast = made.contrast(ours, before, share, paired=paired)
            np.testing.assert_allclose(contrast.gain, expected[0] - expected[1], rtol=0.05, atol=1e-3)
    same = made.contrast(ours, ours, 0.5, paired=True)
    assert abs(same.gain) < 1e-9
    np.testing.assert_allclose(same.better, 0.5)


def test_the_variance_of_a_kernels_contrast_is_that_of_its_posterior():
    """Against the covariance of a Gaussian process worked out number by number, ratings centred as the ensemble centres them."""
    made, ours, before = mixture()
    kernels = made.kernels
    weights, means, variances = kernels.contrast(ours.views, before.views)
    np.testing.assert_allclose(weights.sum(), 1.0)
    rated = kernels.rated
    count = len(next(iter(rated.values())))
    centre = np.eye(count) - 1.0 / count
    towards = np.concatenate([np.full(40, 1 / 40), np.full(40, -1 / 40)])
    both = {name: np.vstack([ours.views[name], before.views[name]]) for name in rated}
    places = [(model, i) for model, i in np.argwhere(kernels.weights > 1e-3)]
    for row, (model, i) in enumerate(places[:12]):
        mix = kernels.mixes[model]
        all_, cross = (
            np.tensordot(mix, [k(both, side) for k in kernels.kernels], 1) for side in (both, rated)
        )
        seen = cross @ centre
        covariance = kernels.scales[model, i] * (all_ - seen @ kernels.inverses[model, i] @ seen.T)
        expected = seen @ kernels.alphas[model, i]
        drawn = sum(np.var(part, ddof=1) / 40 for part in (expected[:40], expected[40:]))
        np.testing.assert_allclose(means[row], towards @ expected, atol=1e-9)
        np.testing.assert_allclose(variances[row], towards @ covariance @ towards + drawn, atol=1e-9)


def test_pairs_take_the_prompts_out_of_the_noise():
    """Answers that follow their prompts, and one side that a few more of them please: what the prompts do to both is no reason to be unsure."""
    made, ours, _ = mixture()
    signs = ours.signs.copy()
    signs[:4] = ~signs[:4]
    changed = replace(ours, signs=signs)
    alone, together = (made.contrast(ours, changed, 1.0, paired=paired) for paired in (False, True))
    assert abs(together.better - 0.5) > abs(alone.better - 0.5)
    assert np.sign(together.gain) == np.sign(alone.gain)
