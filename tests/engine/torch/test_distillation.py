"""What distillation and entropy need of the head, against the whole table of logits."""

import pytest
import torch

from clawback.scoring.lm_head import Head, entropy, overlap, teacher_divergence, top

HEADS = {"plain": {}, "capped": {"scale": 0.7, "softcap": 2.0}, "biased": {"bias": True, "scale": 1.3}}


def make(kind, seed=0):
    draw = torch.Generator().manual_seed(seed)
    fields = dict(HEADS[kind])
    # More columns than a tile holds.
    weight = torch.randn(2500, 8, generator=draw)
    if fields.pop("bias", False):
        fields["bias"] = torch.randn(2500, generator=draw)
    states, other = torch.randn(2, 6, 8, generator=draw)
    return Head(weight, **fields), states.requires_grad_(), other


def table(head, states):
    logits = states @ head.weight.T
    logits = (logits + (head.bias if head.bias is not None else 0.0)) * head.scale
    if head.softcap:
        logits = head.softcap * torch.tanh(logits / head.softcap)
    return logits.log_softmax(-1)


@pytest.mark.parametrize("kind", HEADS)
def test_entropy(kind):
    head, states, _ = make(kind)
    if kind == "biased":
        head = Head(head.weight, head.bias, 1.0)
    ours, logp = entropy(head, states), table(head, states)
    theirs = -(logp.exp() * logp).sum(1)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    mine, other = (torch.autograd.grad(x.sum(), states)[0] for x in (ours, theirs))
    torch.testing.assert_close(mine, other, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(entropy(head, states), ours)


@pytest.mark.parametrize("kind", ["plain", "capped"])
def test_the_likeliest_tokens(kind):
    head, states, _ = make(kind)
    ids, logprobs = top(head, states, 5)
    expected = table(head, states).topk(5, dim=1)
    torch.testing.assert_close(logprobs, expected.values, atol=1e-5, rtol=1e-5)
    assert ids.tolist() == expected.indices.tolist()


@pytest.mark.parametrize("kind", ["plain", "capped"])
@pytest.mark.parametrize("k", [1, 7])
def test_divergence_from_the_likeliest_tokens_of_a_teacher(kind, k):
    head, states, other = make(kind)
    ids, logprobs = top(head, other, k)
    ours = teacher_divergence(head, states, ids, logprobs)
    p, q = table(head, states).gather(1, ids).exp(), logprobs.exp()
    rest_p, rest_q = 1 - p.sum(1), 1 - q.sum(1)
    theirs = (q * (q.log() - p.log())).sum(1) + rest_q * (rest_q.log() - rest_p.log())
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    weight = torch.rand(6, generator=torch.Generator().manual_seed(3))
    mine, reference = (torch.autograd.grad((x * weight).sum(), states)[0] for x in (ours, theirs))
    torch.testing.assert_close(mine, reference, atol=1e-4, rtol=1e-4)


def test_a_policy_that_is_the_teacher_is_at_no_distance():
    head, states, _ = make("plain")
    ids, logprobs = top(head, states.detach(), 9)
    apart = teacher_divergence(head, states, ids, logprobs)
    assert apart.abs().max().item() < 1e-5
    assert torch.autograd.grad(apart.sum(), states)[0].abs().max().item() < 1e-4


def test_overlap():
    ours = torch.tensor([[1, 2], [3, 4]])
    assert overlap(ours, torch.tensor([[2, 1], [3, 9]])) == 0.75
    assert overlap(ours, ours + 10) == 0.0
