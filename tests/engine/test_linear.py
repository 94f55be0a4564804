"""The quick linear layers compute what the stock ones do, values and gradients alike."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from clawback.models import linear

peft = pytest.importorskip("peft")


class Two(nn.Module):
    """Two linear layers with and without a bias, and a head that must be left alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(24, 40, bias=False)
        self.second = nn.Linear(40, 24)
        self.head = nn.Linear(24, 7, bias=False)

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def adapted(dtype: torch.dtype, quick: bool) -> nn.Module:
    model = Two().to(dtype).requires_grad_(False)
    if quick:
        linear.quicken(model)
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=["first", "second"])
    torch.manual_seed(1)
    wrapped = peft.get_peft_model(model, config)
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)) * 0.1
        if "lora_" in name:
            parameter.data = parameter.data.float()
    if quick:
        linear.fuse(wrapped)
    return wrapped


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_a_lora_on_a_frozen_layer(dtype: torch.dtype, tolerance: float) -> None:
    x = torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(3)).to(dtype)
    outcomes = []
    for quick in (False, True):
        model, own = adapted(dtype, quick), x.clone().requires_grad_()
        out = model(own)
        (out.float() * torch.arange(24)).sum().backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        assert all(grad.dtype == torch.float32 for grad in grads.values())
        outcomes.append({"out": out, "x": own.grad, **grads})
    stock, quick_ones = outcomes
    assert stock.keys() == quick_ones.keys()
    for name, value in stock.items():
        difference = (value.float() - quick_ones[name].float()).norm() / value.float().norm()
        assert difference < tolerance, name


def test_the_first_layer_needs_no_gradient_of_its_input() -> None:
    model = adapted(torch.float32, quick=True)
    model(torch.randn(3, 24)).sum().backward()
    assert all(p.grad is not None for n, p in model.named_parameters() if "lora_B" in n)


def test_without_its_adapter_a_layer_is_the_base() -> None:
    x = torch.randn(3, 24)
    model = adapted(torch.float32, quick=True)
    with torch.no_grad(), model.disable_adapter():
        torch.testing.assert_close(model(x), Two()(x))


@pytest.mark.parametrize("change", ["merged", "two adapters", "dropout"])
def test_what_is_more_than_a_plain_lora_is_left_to_peft(change: str) -> None:
    x = torch.randn(3, 24)
    stock, quick = (adapted(torch.float32, q) for q in (False, True))
    for model in (stock, quick):
        if change == "merged":
            model.merge_adapter()
        elif change == "two adapters":
            torch.manual_seed(5)
            model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["first"]))
            model.base_model.set_adapter(["default", "other"])
        else:
            for module in model.modules():
                if hasattr(module, "lora_dropout"):
                    module.lora_dropout["default"] = nn.Dropout(0.5)
            model.train()
        torch.manual_seed(6)
    results = []
    for model in (stock, quick):
        torch.manual_seed(6)
        results.append(model(x))
    torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)


def test_only_plain_frozen_layers_are_changed() -> None:
    model = Two()
    model.first.requires_grad_(False)
    model.head.requires_grad_(False)
    linear.quicken(model)
    assert type(model.first) is linear.FrozenLinear
    assert type(model.second) is nn.Linear
    assert type(model.head) is nn.Linear
    assert set(model.state_dict()) == set(Two().state_dict())


def test_a_frozen_layer_passes_the_gradient_on() -> None:
    model = Two().requires_grad_(False)
    x = torch.randn(4, 24)
    expected, found = x.clone().requires_grad_(), x.clone().requires_grad_()
    model(expected).square().sum().backward()
    linear.quicken(model)
    model(found).square().sum().backward()
    torch.testing.assert_close(found.grad, expected.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [(1, 64), (3, 5, 64), (0, 64)])
def test_product(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.randn(32, 64)
    expected = x @ weight.t()
    torch.testing.assert_close(linear.product(x, weight), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(linear.product(x, weight.t().contiguous().t()), expected, atol=1e-4, rtol=1e-4)


def test_the_same_product_twice_is_the_same_to_the_bit() -> None:
    x, weight = torch.randn(300, 64), torch.randn(200, 64)
    assert torch.equal(linear.product(x, weight), linear.product(x.clone(), weight.clone()))


def test_the_head_is_given_its_input_in_one_piece() -> None:
    """The last column of several rows is a view with gaps; PyTorch copies the head's weights once a row for such a product."""
    model = Two().requires_grad_(False)
    linear.quicken(model)
    inputs: list[torch.Tensor] = []
    model.head.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
    x = torch.randn(3, 5, 24, generator=torch.Generator().manual_seed(3))
    last = x[:, -1:, :]
    assert not last.is_contiguous()
    out = model.head(last)
    assert inputs[0].is_contiguous()
    assert torch.equal(out, x[:, -1:, :].contiguous() @ model.head.weight.T)
