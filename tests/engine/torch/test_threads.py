"""Brief work on one thread."""

import pytest
import torch

from clawback.sampling.choose import alone


@pytest.fixture
def two():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_brief_work_is_done_by_one_thread_and_the_others_come_back(two):
    with alone():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(RuntimeError), alone():
        raise RuntimeError
    assert torch.get_num_threads() == 2


def test_other_work_keeps_its_threads(two):
    with alone(False):
        assert torch.get_num_threads() == 2
