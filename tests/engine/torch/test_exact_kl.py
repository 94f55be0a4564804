"""The exact divergence and its gradient against autograd on the full table."""

import pytest
import torch

from clawback.scoring import lm_head
from clawback.scoring import lm_head as head_module
from clawback.scoring.lm_head import Head, divergence


def by_autograd(head, hidden, reference, cover, temperature):
    def log_p(h):
        z = (h @ head.weight.T + (0 if head.bias is None else head.bias)) * head.scale
        z = head.softcap * torch.tanh(z / head.softcap) if head.softcap else z
        return (z / temperature).log_softmax(-1)

    ours, theirs = log_p(hidden), log_p(reference)
    return (ours.exp() * (ours - theirs)).sum(1) + cover * (theirs.exp() * (theirs - ours)).sum(1)


@pytest.mark.parametrize("cover", [0.0, 0.7])
@pytest.mark.parametrize("tile", [64, 100, 4096])
@pytest.mark.parametrize(
    "extra", [{}, {"scale": 0.3}, {"softcap": 3.0}, {"scale": 2.0, "softcap": 5.0}, {"bias": True}]
)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_value_and_gradient(monkeypatch, tile, extra, cover, temperature):
    monkeypatch.setattr(lm_head, "TILE", tile)
    monkeypatch.setattr(head_module, "TILE", tile)
    g = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(300, 16, generator=g) * 0.5, torch.randn(300, generator=g)
    head = Head(weight, **(extra | {"bias": bias} if "bias" in extra else extra)).at(temperature)
    plain = head.at(1 / temperature)
    reference = torch.randn(9, 16, generator=g)
    hidden = (reference + 0.3 * torch.randn(9, 16, generator=g)).requires_grad_()
    upstream = torch.randn(9, generator=g)

    expected = by_autograd(plain, hidden, reference, cover, temperature)
    (expected_gradient,) = torch.autograd.grad(expected @ upstream, hidden)
    value = divergence(head, hidden, reference, cover)
    (gradient,) = torch.autograd.grad(value @ upstream, hidden)
    torch.testing.assert_close(value, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(gradient, expected_gradient, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        divergence(head, hidden.detach(), reference, cover), expected.detach(), atol=1e-5, rtol=1e-4
    )


def test_no_distance_from_itself():
    draw = torch.Generator().manual_seed(0)
    head = Head(torch.randn(50, 8, generator=draw))
    hidden = torch.randn(5, 8, generator=draw).requires_grad_()
    value = divergence(head, hidden, hidden.detach(), 1.0)
    (gradient,) = torch.autograd.grad(value.sum(), hidden)
    assert value.abs().max() < 1e-5
    assert gradient.abs().max() < 1e-5
