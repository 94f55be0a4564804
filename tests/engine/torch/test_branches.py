"""Attention of sequences that begin alike, against the plain one of each sequence by itself."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from clawback.scoring import branches
from clawback.scoring.attention import Layout, packed_attention

CASES = {
    "all alike": (3, 3, (70,) + (63,) * 8, (0,) + (40,) * 8),
    "of several lengths": (4, 2, (70, 63, 75, 51, 90, 66, 44, 150, 61), (0, 40, 62, 45, 33, 41, 43, 36, 40)),
    "two families, one alone": (2, 2, (60, *(55, 58) * 3, 12, 50, *(49,) * 6), (0, *(34, 50) * 3, 0, 0, *(48,) * 6)),
}  # fmt: skip


def inputs(heads, shared, tokens, size=8):
    generator = torch.Generator().manual_seed(3)
    return [
        torch.randn(1, tokens, count, size, generator=generator).transpose(1, 2).requires_grad_()
        for count in (heads, shared, shared)
    ]


def one_by_one(query, key, value, layout):
    """Causal attention over the whole of each sequence; of it the rows of its new tokens."""
    outputs = []
    for places, common in zip(layout.places(), layout.shared, strict=True):
        q, k, v = (x[:, :, places] for x in (query, key, value))
        out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        outputs.append(out[:, :, common:].transpose(1, 2))
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_are_those_of_each_sequence_by_itself(name):
    heads, shared, lengths, common = CASES[name]
    layout = Layout(lengths, common)
    assert branches.find(lengths, common)  # or it would not be what is tested
    qkv = inputs(heads, shared, sum(layout.new))
    got, _ = packed_attention(nn.Module(), *qkv, None, packed_layout=layout)
    wanted = one_by_one(*qkv, layout)
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    towards = torch.randn(got.shape, generator=torch.Generator().manual_seed(4))
    for mine, theirs in zip(*(torch.autograd.grad(x, qkv, towards) for x in (got, wanted)), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


def test_few_and_long_sequences_go_one_by_one():
    few = (50,) * branches._FEWEST, (0,) + (40,) * (branches._FEWEST - 1)
    assert not branches.find(*few)
    assert branches.find(few[0] + (50,), few[1] + (40,))
    long = branches._LONGEST + 1
    assert not branches.find((50,) * 8 + (long,), (0,) + (40,) * 8)
