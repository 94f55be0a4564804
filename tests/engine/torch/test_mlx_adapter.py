"""Adapters in mlx-lm's layout: there and back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clawback import engine
from clawback.errors import ModelError
from clawback.models import adapter, mlx_adapter


@pytest.fixture
def folder(folders: Any, tmp_path: Path) -> Path:
    """A llama's adapter as mlx-lm keeps it, with PEFT's beside it in ``peft``."""
    policy = engine.load(str(folders("llama")))
    policy.attach(rank=4, alpha=6, seed=0)
    torch.manual_seed(0)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.1
    peft, made = tmp_path / "peft", tmp_path / "mlx"
    peft.mkdir()
    made.mkdir()
    policy.save(peft)
    settings, tensors = mlx_adapter.to_mlx(*adapter.read(peft))
    save_file(tensors, made / mlx_adapter.WEIGHTS)
    (made / mlx_adapter.CONFIG).write_text(json.dumps(settings))
    return made


def test_there_and_back(folders: Any, folder: Path, tmp_path: Path) -> None:
    policy = engine.load(str(folders("llama")), adapter=folder)
    again = tmp_path / "again"
    again.mkdir()
    policy.save(again)
    before, after = (load_file(f / adapter.WEIGHTS) for f in (folder.parent / "peft", again))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    asked = [[{"role": "user", "content": "Tell me about otters, please."}]]
    straight = engine.load(str(folders("llama")), adapter=folder.parent / "peft")
    [one], [other] = (p.logprobs(asked, ["Otters live in rivers."]) for p in (policy, straight))
    assert torch.equal(one, other)  # rank and scale came with it


def test_an_adapter_of_the_last_layer_alone_goes_there(folders: Any, folder: Path) -> None:
    """mlx-lm trains the last few layers unless it is told otherwise."""
    some = {n: t for n, t in load_file(folder / mlx_adapter.WEIGHTS).items() if ".layers.1.self_attn." in n}
    save_file(some, folder / mlx_adapter.WEIGHTS)
    policy = engine.load(str(folders("llama")), adapter=folder)
    names = [name for name, _ in policy.model.named_parameters() if "lora_" in name]
    assert names
    assert all(".layers.1.self_attn." in name for name in names)
    assert policy.moved


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fine_tune_type": "dora"}, "not a plain LoRA"),
        ({"lora_parameters": {"rank": 4}}, "damaged"),
        ({"lora_parameters": {"rank": 4, "scale": float("nan")}}, "alpha"),
        ({"lora_parameters": {"rank": 0, "scale": 1.0}}, "rank"),
        ({"lora_parameters": []}, "damaged"),
    ],
)
def test_settings_that_cannot_be_used(folders: Any, folder: Path, change: dict[str, Any], words: str) -> None:
    settings = json.loads((folder / mlx_adapter.CONFIG).read_text())
    (folder / mlx_adapter.CONFIG).write_text(json.dumps(settings | change))
    with pytest.raises(ModelError, match=words):
        engine.load(str(folders("llama")), adapter=folder)


def test_tensors_that_do_not_belong(folders: Any, folder: Path) -> None:
    tensors = load_file(folder / mlx_adapter.WEIGHTS)
    for more, words in (
        ({"model.embed_tokens.weight": torch.ones(2, 2)}, "no part of a LoRA"),
        ({"model.layers.7.self_attn.q_proj.lora_a": torch.ones(2, 2)}, "does not fit"),
        ({next(iter(tensors)): torch.full((32, 4), torch.nan)}, "not finite"),
    ):
        save_file(tensors | more, folder / mlx_adapter.WEIGHTS)
        with pytest.raises(ModelError, match=words):
            engine.load(str(folders("llama")), adapter=folder)


def test_what_is_frozen_stays_frozen_when_the_base_is_asked(folders: Any) -> None:
    """PEFT switches an adapter on again with everything in it trainable: A of a federation would be learned, and not sent."""
    policy = engine.load(str(folders("llama")))
    policy.attach(rank=2, alpha=2, seed=0)
    for name, parameter in policy.model.named_parameters():
        if "lora_A" in name:
            parameter.requires_grad_(False)
    with policy.base():
        pass
    trainable = {n.split(".")[-3] for n, p in policy.model.named_parameters() if p.requires_grad}
    assert trainable == {"lora_B"}
