import torch

from clawback.rl import Batch


def batch(lengths, advantages, **fields):
    segment = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    zeros = torch.zeros(sum(lengths))
    return Batch(zeros, zeros, zeros, segment, torch.tensor(advantages), **fields)


def test_means_are_per_answer_and_an_empty_answer_is_zero():
    ragged = batch([2, 0, 1], [0.0, 0.0, 0.0])
    values = torch.tensor([1.0, 3.0, 5.0])
    assert ragged.means(values).tolist() == [2.0, 0.0, 5.0]
    assert ragged.sums(values).tolist() == [4.0, 0.0, 5.0]
    assert ragged.sample_mean(values).item() == torch.tensor(7 / 3).item()
    assert ragged.token_mean(values).item() == 3.0


def test_normalisers_of_the_step_replace_those_of_the_piece():
    ragged = batch([2, 1], [0.0, 0.0], samples_in_step=4, tokens_in_step=6)
    values = torch.ones(3)
    assert ragged.token_mean(values).item() == 0.5
    assert ragged.sample_mean(values).item() == 0.5
