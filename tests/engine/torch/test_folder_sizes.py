"""A model folder that asks for what its weights cannot be is refused before anything is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from clawback.errors import ModelError
from clawback.models import loading, model_files


def folder(path: Path, config: str, tensors: int = 4) -> Path:
    header = json.dumps(
        {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(tensors)}
    ).encode()
    (path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (path / "config.json").write_text(config)
    return path


@pytest.mark.parametrize(
    "config",
    [
        '{"num_hidden_layers": 10000000}',
        '{"num_hidden_layers": -1}',
        '{"n_layer": "many"}',
        '{"text_config": {"num_layers": 5}}',
        '{"vocab_size": 1e300}',
        "[" * 100_000,
        "[]",
    ],
)
def test_absurd_sizes_are_refused(tmp_path: Path, config: str) -> None:
    with pytest.raises(ModelError):
        model_files.check_folder(folder(tmp_path, config))


def test_likely_sizes_are_not(tmp_path: Path) -> None:
    config = '{"num_hidden_layers": 2, "hidden_size": null, "vocab_size": 300}'
    assert [p.name for p in model_files.check_folder(folder(tmp_path, config))] == ["model.safetensors"]


def test_a_header_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    made = folder(tmp_path, "{}")
    (made / "model.safetensors").write_bytes((10**15).to_bytes(8, "little"))
    with pytest.raises(ModelError, match="header"):
        model_files.check_folder(made)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(value: float) -> None:
    model = nn.Linear(3, 3)
    loading._check_finite(model, "it")
    with torch.no_grad():
        model.weight[1, 1] = value
    with pytest.raises(ModelError, match="weight holds values that are no numbers"):
        loading._check_finite(model, "it")


LAYERS = [f"model.layers.{layer}.{part}.weight" for layer in range(3) for part in ("up", "down")]
VISION = [f"vision.blocks.{layer}.up.weight" for layer in range(2)]


def named(path: Path, config: str, names: list[str], file: str = "model.safetensors") -> Path:
    tensor = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": {"format": "pt"}} | dict.fromkeys(names, tensor)).encode()
    (path / file).write_bytes(len(header).to_bytes(8, "little") + header)
    (path / "config.json").write_text(config)
    return path


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_layer_without_weights_is_named(tmp_path: Path, gone: int) -> None:
    names = [name for name in [*LAYERS, *VISION, "lm_head.weight"] if f"layers.{gone}." not in name]
    made = named(tmp_path, '{"text_config": {"num_hidden_layers": 3}}', names)
    with pytest.raises(ModelError, match=f"no weights of layer {gone}"):
        model_files.check_folder(made)


@pytest.mark.parametrize(
    "names", [LAYERS, [*LAYERS, *VISION], [*LAYERS, "model.layers.3.next.weight"], ["a", "b", "c"]]
)
def test_all_layers_are_there(tmp_path: Path, names: list[str]) -> None:
    model_files.check_folder(named(tmp_path, '{"num_hidden_layers": 3}', names))


def test_a_tensor_that_the_index_names_and_no_file_holds_is_named(tmp_path: Path) -> None:
    files = {name: f"model-{n % 2}.safetensors" for n, name in enumerate(LAYERS)}
    for file in set(files.values()):
        named(tmp_path, '{"num_hidden_layers": 3}', [n for n in LAYERS if files[n] == file], file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    model_files.check_folder(tmp_path)
    half = [name for name in LAYERS if files[name] == "model-1.safetensors"][:-1]
    named(tmp_path, '{"num_hidden_layers": 3}', half, "model-1.safetensors")
    with pytest.raises(ModelError, match=r"model\.layers\.2\.down\.weight is not in model-1"):
        model_files.check_folder(tmp_path)
