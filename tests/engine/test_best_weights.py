"""Which weights are kept as the best ones of a run on episodes."""

import random

import torch

from clawback.trainer.best_weights import BestWeights


class Playing:
    def __init__(self):
        self.model = torch.nn.Linear(1, 1, bias=False)


def after(batches, window=32):
    """What is kept after these batches of returns (the weight says which batch it played), and the sentence about it."""
    policy = Playing()
    best = BestWeights(policy, window)
    for number, returns in enumerate(batches):
        policy.model.weight.data.fill_(number)
        best.see(returns)
    notice = best.restore_best()
    return policy.model.weight.item(), notice


def share(successes):
    return [1.0] * successes + [0.0] * (8 - successes)


def test_a_peak_that_is_lost_at_once_is_kept_and_not_the_end_of_its_stretch():
    kept, notice = after([share(n) for n in (0, 1, 2, 5, 8, 5, 0, 0, 0, 0)])
    assert kept == 4
    assert "best 8 episodes (+1.000)" in notice


def test_a_policy_that_stays_as_good_keeps_its_newest_weights():
    assert after([share(n) for n in (0, 1, 5, 8, 8, 8, 7, 8)]) == (7, "")


def test_a_lucky_batch_of_noise_is_not_preferred_to_a_good_stretch():
    draws = random.Random(3)
    means = [0.0] * 6 + [1.2] + [1.5] * 5 + [-1.0] * 4
    kept, _ = after([[draws.gauss(mean, 1.0) for _ in range(8)] for mean in means])
    assert 7 <= kept < 12


def test_what_was_kept_is_carried_over_by_a_checkpoint():
    policy = Playing()
    policy.model.weight.data.fill_(1.0)
    first, again = BestWeights(policy, 8), BestWeights(policy, 8)
    first.see(share(8))
    again.restore(first.state())
    policy.model.weight.data.fill_(5.0)
    again.see(share(0))
    assert "best 8 episodes (+1.000)" in again.restore_best()
    assert policy.model.weight.item() == 1.0
