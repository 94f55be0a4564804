import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.rl import advantages

rewards_lists = st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=30)


@settings(deadline=None)
@given(rewards_lists, st.floats(-1, 1), st.floats(0.5, 0.999))
def test_ema_takes_the_baseline_before_each_rating(rewards, start, decay):
    result, end = advantages.ema(torch.tensor(rewards), start, decay)
    mean = start
    for reward, advantage in zip(rewards, result.tolist(), strict=True):
        assert advantage == pytest.approx(reward - mean, abs=1e-5)
        mean = decay * mean + (1 - decay) * reward
    assert end == pytest.approx(mean, abs=1e-9)
    assert -1 <= end <= 1


def test_a_first_run_of_all_good_ratings_is_worth_something():
    result, _ = advantages.ema(torch.ones(8), 0.0)
    assert (result > 0.9).all()


@settings(deadline=None)
@given(rewards_lists)
def test_batch_mean_sums_to_zero(rewards):
    assert advantages.batch_mean(torch.tensor(rewards)).sum().item() == pytest.approx(0, abs=1e-4)


def test_group_normalised_against_a_loop():
    torch.manual_seed(1)
    rewards, groups = torch.randn(40), torch.randint(-3, 4, (40,))
    result = advantages.group_normalised(rewards, groups)
    for group in groups.unique():
        mine = rewards[groups == group]
        expected = (mine - mine.mean()) / (mine.std(unbiased=False) + 1e-4)
        torch.testing.assert_close(result[groups == group], expected)


def test_groups_that_agree_have_no_say():
    result = advantages.group_normalised(torch.tensor([1.0, 1.0, 0.3]), torch.tensor([5, 5, 9]))
    assert result.abs().max().item() < 1e-3
