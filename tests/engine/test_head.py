"""The tiled head against a table of all logits."""

import pytest
import torch

from clawback.scoring import lm_head as heads
from clawback.scoring.lm_head import Head


def table(head, hidden, temperature=1.0):
    logits = hidden.double() @ head.weight.double().T
    if head.bias is not None:
        logits = logits + head.bias.double()
    return (head.capped(logits * head.scale) / temperature).log_softmax(-1)


def make(vocabulary=5000, width=24, count=7, seed=0, size=1.0, **more):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(vocabulary, width, generator=generator) * 0.3
    hidden = (torch.randn(count, width, generator=generator) * size).requires_grad_()
    targets = torch.randint(0, vocabulary, (count,), generator=generator)
    return Head(weight, **more), hidden, targets


BIAS = torch.randn(5000, generator=torch.Generator().manual_seed(1))
CASES = [{}, {"softcap": 2.0}, {"scale": 0.3}, {"scale": 0.5, "softcap": 4.0}, {"bias": BIAS}]


@pytest.mark.parametrize("more", CASES)
@pytest.mark.parametrize("size", [1.0, 60.0])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_values_gradient_and_entropy(more, size, temperature):
    # At size 60 the largest logit is hundreds of nats above the target's: the pass relative to it overflows.
    head, hidden, targets = make(size=size, **more)
    full = table(head, hidden, temperature)
    head = head.at(temperature)
    values, entropy = heads.token_logprobs(head, hidden, targets, entropy=True)
    expected = full.gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(values.double(), expected, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(entropy.double(), -(full.exp() * full).sum(1).detach(), atol=1e-3, rtol=1e-3)
    weight = torch.randn(len(targets), generator=torch.Generator().manual_seed(2))
    (mine,) = torch.autograd.grad((values * weight).sum(), hidden)
    (other,) = torch.autograd.grad((expected * weight).sum(), hidden)
    # float32 rounds a logit of a thousand by up to 3e-5, and each probability by as large a part of itself.
    atol = max(2e-5, 1e-7 * full.detach().abs().max().item())
    torch.testing.assert_close(mine, other, atol=atol, rtol=1e-4)
    with torch.no_grad():
        again, _ = heads.token_logprobs(head, hidden, targets)
    torch.testing.assert_close(again, values.detach())


def test_a_16_bit_head_does_not_round_the_token_itself():
    head, hidden, targets = make(size=3.0, count=64)
    narrow, inputs = Head(head.weight.bfloat16()), hidden.detach().bfloat16()
    exact = (inputs.double() * narrow.weight[targets].double()).sum(1)
    torch.testing.assert_close(narrow.target_logits(inputs, targets).double(), exact, atol=1e-5, rtol=1e-5)
