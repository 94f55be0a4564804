"""The lean decoder against the module whose weights it takes."""

from __future__ import annotations

import pytest
import torch

from clawback import engine
from clawback.models.linear import onednn
from clawback.models.types import Sampling
from clawback.sampling import decoder, scheduler
from clawback.sampling.batched_sampler import DrawSettings, sample
from clawback.sampling.decoder import Cache, Decoder
from clawback.sampling.decoder_choice import fits


def logits_of(made, ids, first):
    """Read the first tokens, step through the others. [tokens - first + 1, vocabulary]"""
    cache = Cache(made, 3, 4)
    rows = [made.read([ids[:2], ids[:first]], cache, torch.tensor([0, 2]))[1]]
    cache.move(torch.tensor([2]), torch.tensor([0]), first)
    for place, token in enumerate(ids[first:], first):
        rows.append(made.step(torch.tensor([token]), torch.tensor([place]), cache, place + 3)[0])
    return torch.stack(rows).float()


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("adapter", [False, True])
@torch.no_grad()
def test_it_says_what_the_module_says(folders, family, adapter):
    policy = engine.load(str(folders(family)))
    if adapter:
        policy.attach(rank=4, alpha=4, seed=1)
        torch.manual_seed(5)
        for name, parameter in policy.model.named_parameters():
            if "lora_B" in name:
                parameter.data = torch.randn_like(parameter) * 0.05
    assert fits(policy.model, 40)
    ids = torch.randint(3, 384, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = policy.model(input_ids=torch.tensor([ids])).logits[0, 5:]
    torch.testing.assert_close(logits_of(Decoder(policy.model), ids, 6), expected, atol=1e-4, rtol=1e-4)
    narrow = logits_of(Decoder(policy.model, torch.bfloat16), ids, 6)
    assert float((narrow.log_softmax(-1) - expected.log_softmax(-1)).abs().mean()) < 0.05


@pytest.mark.parametrize("attend", [decoder.fused, decoder.by_products])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_one_query_a_row_is_attended_to_as_by_a_slow_loop(dtype, attend):
    draw = torch.Generator().manual_seed(0)
    rows, heads, shared, columns, size = 3, 6, 2, 11, 8
    q, keys, values = (
        torch.randn(shape, generator=draw).to(dtype)
        for shape in ((rows, heads, size), *[(rows + 1, shared, columns + 5, size)] * 2)
    )
    keys, values = keys[:rows, :, :columns], values[:rows, :, :columns]  # of a cache with room
    places = [4, 10, 1]
    hidden = torch.arange(columns) > torch.tensor(places)[:, None]
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)[:, None, None]
    out = attend(q, keys, values, mask, 0.3).view(rows, heads, size)
    for row, place in enumerate(places):
        for head in range(heads):
            of = head // (heads // shared)
            k, v = (x[row, of, : place + 1].double() for x in (keys, values))
            weights = (0.3 * (k @ q[row, head].double())).softmax(0)
            torch.testing.assert_close(
                out[row, head].double(), weights @ v, atol=2e-2 if dtype == torch.bfloat16 else 1e-6, rtol=0
            )


@pytest.mark.parametrize("family", ["gemma2", "gpt2", "mamba", "mixtral", "granite", "cohere"])
def test_other_families_are_left_to_their_module(folders, family):
    assert not fits(engine.load(str(folders(family))).model, 40)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_seed_gives_the_same_bits(folders, monkeypatch, dtype):
    monkeypatch.setattr(scheduler, "drawing_dtype", lambda _: dtype)
    model = engine.load(str(folders("llama"))).model
    asked = [[5, 6, 7], [8, 9], [10, 11, 12, 13, 14], [15]]
    options = {"samples": 3, "max_tokens": 9, "sampling": Sampling(0.8, 0.9), "stop": (3, 40, 41), "rows": 5}
    first = sample(model, asked, DrawSettings(seed=2, **options))
    assert first == sample(model, asked, DrawSettings(seed=2, **options))
    assert [len(group) for group in first] == [3] * 4
    assert all(one.ids for group in first for one in group)


@torch.no_grad()
def test_weights_in_onednns_order_say_what_the_module_says(folders, monkeypatch):
    policy = engine.load(str(folders("llama")), dtype="bfloat16")
    policy.attach(rank=4, alpha=4, seed=1)
    torch.manual_seed(5)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.05
    ids = torch.randint(3, 384, (20,), generator=torch.Generator().manual_seed(0)).tolist()
    expected = policy.model(input_ids=torch.tensor([ids])).logits[0, 5:].float().log_softmax(-1)
    made = Decoder(policy.model)
    assert bool(made.packed_for) == decoder.can_pack()
    assert float((logits_of(made, ids, 6).log_softmax(-1) - expected).abs().mean()) < 0.05
    monkeypatch.setattr(decoder, "can_pack", lambda: False)
    assert float((logits_of(Decoder(policy.model), ids, 6).log_softmax(-1) - expected).abs().mean()) < 0.05


@torch.no_grad()
def test_several_rows_of_a_small_model_go_through_weights_in_onednns_order(folders, monkeypatch):
    policy = engine.load(str(folders("llama")))
    made = Decoder(policy.model)
    assert bool(made.ordered_for) == onednn()
    assert (made.blocks[0].down.ordered is not None) == onednn()
    x = torch.randn(5, policy.info.intermediate, generator=torch.Generator().manual_seed(0))
    together, apart = made.blocks[0].down(x), torch.cat([made.blocks[0].down(row[None]) for row in x])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)
    monkeypatch.setattr(decoder, "SMALL", 0)
    assert not Decoder(policy.model).ordered_for


def test_the_bases_own_weights_are_copied_where_there_is_memory_alone(folders, monkeypatch):
    model = engine.load(str(folders("llama")), dtype="bfloat16").model
    monkeypatch.setattr(decoder, "SMALL", 0)
    monkeypatch.setattr(decoder, "_spared", lambda _: False)
    assert not Decoder(model).packed_for
    monkeypatch.setattr(decoder, "_spared", lambda _: True)
    assert bool(Decoder(model).packed_for) == decoder.can_pack()
