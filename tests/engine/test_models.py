"""What may be loaded, what is refused, and in which words."""

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from clawback import engine
from clawback.errors import ModelError, UsageError
from clawback.models import adapter, identity
from clawback.models.loading import fingerprint


@pytest.fixture
def trained(folders, tmp_path):
    """A llama's adapter that does something, in a folder of its own."""
    policy = engine.load(str(folders("llama")))
    policy.attach(rank=4, alpha=4, seed=0)
    torch.manual_seed(0)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * 0.1
    folder = tmp_path / "adapter"
    folder.mkdir()
    policy.save(folder)
    return folder


def change(folder, edit):
    tensors = load_file(folder / adapter.WEIGHTS)
    edit(tensors)
    save_file(tensors, folder / adapter.WEIGHTS)


def refused(folders, folder, words, family="llama"):
    with pytest.raises(ModelError, match=words):
        engine.load(str(folders(family)), adapter=folder)


def test_an_adapter_comes_back_as_it_was(folders, trained):
    policy = engine.load(str(folders("llama")), adapter=trained)
    assert policy.has_adapter
    assert policy.moved
    again = trained.parent / "again"
    again.mkdir()
    policy.save(again)
    assert (again / adapter.WEIGHTS).read_bytes() == (trained / adapter.WEIGHTS).read_bytes()
    policy.put(None)
    assert not policy.has_adapter
    policy.put(trained)
    assert policy.moved


def test_the_wrong_base_is_named_with_the_right_one(folders, trained, tmp_path):
    other = tmp_path / "other-llama"
    shutil.copytree(folders("llama"), other)
    change_base = load_file(other / "model.safetensors")
    save_file({k: v + 0.01 for k, v in change_base.items()}, other / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError) as caught:
        engine.load(str(other), adapter=trained)
    assert str(folders("llama")) in str(caught.value)
    assert str(other) in str(caught.value)


def test_without_a_stamp_the_shapes_decide(folders, trained):
    (trained / identity.STAMP).unlink()
    assert engine.load(str(folders("llama")), adapter=trained).moved
    refused(folders, trained, "does not fit", family="qwen3")


def test_pickled_weights_are_not_opened(folders, trained):
    class Bomb:
        def __reduce__(self):
            return (Path("exploded").write_text, ("x",))

    (trained / adapter.WEIGHTS).unlink()
    (trained / "adapter_model.bin").write_bytes(pickle.dumps(Bomb()))
    refused(folders, trained, "pickled")
    assert not Path("exploded").exists()


def test_a_pickle_under_the_name_of_safetensors_is_damage(folders, trained):
    (trained / adapter.WEIGHTS).write_bytes(pickle.dumps({"a": 1}))
    refused(folders, trained, "damaged")


def test_values_that_are_not_finite(folders, trained):
    def edit(tensors):
        next(iter(tensors.values()))[0, 0] = float("nan")

    change(trained, edit)
    refused(folders, trained, "not finite")


def test_wrong_shapes(folders, trained):
    def edit(tensors):
        name = next(n for n in tensors if "lora_B" in n)
        tensors[name] = tensors[name][:-1].clone()

    change(trained, edit)
    refused(folders, trained, "does not fit")


@pytest.mark.parametrize("name", ["base_model.model.model.embed_tokens.weight", "extra.lora_A.weight"])
def test_tensors_that_do_not_belong(folders, trained, name):
    change(trained, lambda tensors: tensors.update({name: torch.zeros(2, 2)}))
    refused(folders, trained, "no part of a LoRA|does not fit")


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"peft_type": "IA3"}',
        '{"peft_type": "LORA", "r": 1000000, "lora_alpha": 1}',
    ],
)
def test_a_damaged_configuration(folders, trained, config):
    (trained / adapter.CONFIG).write_text(config)
    refused(folders, trained, "damaged|not a LoRA|no usable rank")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lora_alpha", float("nan")),
        ("lora_alpha", 1e38),
        ("lora_alpha", 0),
        ("target_modules", "(([a-z._0-9])+)+!"),
    ],
)
def test_an_adapter_of_figures_or_patterns_that_nobody_trains_with(folders, trained, field, value):
    config = json.loads((trained / adapter.CONFIG).read_text())
    (trained / adapter.CONFIG).write_text(json.dumps(config | {field: value}))
    refused(folders, trained, field)


def test_fields_that_would_run_other_code_are_not_taken_over(folders, trained):
    config = json.loads((trained / adapter.CONFIG).read_text())
    config |= {"auto_mapping": {"base_model_class": "Evil", "parent_library": "os"}, "lora_dropout": 0.9}
    (trained / adapter.CONFIG).write_text(json.dumps(config))
    policy = engine.load(str(folders("llama")), adapter=trained)
    assert policy.model.peft_config["default"].auto_mapping is None or policy.moved
    assert policy.model.peft_config["default"].lora_dropout == 0.0


@pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_moe", "mixtral", "gemma2", "gpt2", "mamba"])
def test_lora_goes_to_the_layers_and_nowhere_else(folders, family):
    policy = engine.load(str(folders(family)))
    policy.attach(rank=2, alpha=2, seed=0)
    names = [name for name, p in policy.model.named_parameters() if p.requires_grad]
    assert names
    assert all("lora_" in name for name in names)
    assert not [n for n in names if "embed" in n or "lm_head" in n or ".gate." in n or "router" in n]
    if family in {"qwen3_moe", "mixtral"}:
        assert [n for n in names if ".experts." in n]
        assert policy.info.kind == "moe"
        assert policy.info.active_parameters < policy.info.total_parameters
    elif family != "mamba":
        assert policy.info.kind == "dense"
        assert policy.info.sparsity == 1


def test_a_fingerprint_tells_weights_apart_and_survives_a_move(folders, tmp_path):
    first, moved = fingerprint(folders("llama")), tmp_path / "moved"
    shutil.copytree(folders("llama"), moved)
    assert fingerprint(moved) == first
    path = moved / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))
    assert fingerprint(moved) != first


def test_folders_that_cannot_be_trained_say_what_to_do(folders, tmp_path):
    def attempt(folder, words):
        with pytest.raises(ModelError, match=words):
            engine.load(str(folder))

    attempt(tmp_path / "missing" / "deep", "no folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    attempt(empty, "no config.json")
    (empty / "model.gguf").touch()
    attempt(empty, "GGUF")
    attempt(empty / "model.gguf", "is no GGUF file")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    shutil.copy(folders("llama") / "config.json", pickled)
    attempt(pickled, "no weights")
    (pickled / "pytorch_model.bin").write_bytes(b"x")
    attempt(pickled, "pickled")
    torn = tmp_path / "torn"
    shutil.copytree(folders("llama"), torn)
    path = torn / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    attempt(torn, "cannot be loaded")
    parts = tmp_path / "parts"
    shutil.copytree(folders("llama"), parts)
    (parts / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-00002.safetensors"}}')
    attempt(parts, "incomplete")


def test_code_of_a_model_repository_is_not_run(folders, tmp_path):
    folder = tmp_path / "remote"
    shutil.copytree(folders("llama"), folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ModelError, match="cannot be loaded"):
        engine.load(str(folder))


def test_settings_that_make_no_sense(folders):
    with pytest.raises(UsageError, match="float16"):
        engine.load(str(folders("llama")), dtype="float16")
    with pytest.raises(UsageError, match="CUDA"):
        engine.load(str(folders("llama")), device="cpu", load_in_4bit=True)
