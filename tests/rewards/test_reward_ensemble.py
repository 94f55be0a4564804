"""What is read out of ratings and remarks."""

import numpy as np

from clawback.rewards.features import SHARES
from clawback.rewards.reward_ensemble import PHRASES, Answers, learn

WORDS = [f"word{chr(97 + i)}" for i in range(26)]


def answers(count, seed):
    """Answers of random words, half of them as a list; nothing to see in the hidden states."""
    rng = np.random.default_rng(seed)
    texts = [
        ("- {}\n- {}" if rng.random() < 0.5 else "{} and {}.").format(
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
        np.where(lists, 1.0, -1.0),
        [([0], "a and b.", said) for said in remarks],
        ridge=0.8,
        shares=SHARES,
    )


def test_a_remark_makes_sure_of_what_ratings_leave_open():
    asked = answers(300, 9)
    lists = np.array([text.startswith("-") for text in asked.texts])

    def apart(ensemble):
        reward = ensemble.reward(asked, 0.5, 0.5)
        return reward[lists].min() - reward[~lists].max(), ensemble.heard

    silent, spoken = apart(taught([])), apart(taught(["As a list, please!"]))
    assert (silent[1], spoken[1]) == (0, 1)
    assert spoken[0] > max(silent[0], 0)


def test_what_cannot_be_told_apart_is_not_heard():
    assert taught(['Say "never said".', "Use Fahrenheit."]).heard == 0


def test_however_much_is_quoted_only_the_most_spoken_of_is_looked_for():
    """All hypotheses on every quoted word would be millions."""
    spoken = [f'Say "{word}".' for word in WORDS] + ['Say "wordz".', 'Say "wordy".']
    ensemble = taught(spoken)
    assert len(ensemble.views.features.phrases) == PHRASES
    assert {"wordz", "wordy"} <= set(ensemble.views.features.phrases)
    assert ensemble.heard == PHRASES
