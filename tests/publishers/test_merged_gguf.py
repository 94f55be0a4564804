"""A version merged into a copy of its base's GGUF file: PEFT's own merge is the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clawback import engine
from clawback.errors import ModelError
from clawback.extensions.publishers import gguf_writer
from clawback.models import gguf_file
from tests.engine import gguf_files
from tests.engine.conftest import TEMPLATE, tokenizer

gguf = pytest.importorskip("gguf")
from gguf import GGMLQuantizationType as Kind  # noqa: E402

from clawback.extensions.publishers import gguf_merge  # noqa: E402

IDS = torch.tensor([[5, 40, 300, 41, 17, 200, 90, 3]])


def tensors(path: Path) -> dict[str, Any]:
    return {one.name: one for one in gguf.GGUFReader(path).tensors}


def values(path: Path) -> dict[str, np.ndarray]:
    return {name: gguf.dequantize(one.data, one.tensor_type) for name, one in tensors(path).items()}


def adapter(base: str, folder: Path, size: float = 0.02) -> Any:
    """A policy with a random adapter, which is written to the folder."""
    policy = engine.load(base)
    policy.attach(rank=4, alpha=8, seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * size
    folder.mkdir()
    policy.save(folder)
    return policy


@pytest.fixture(scope="module")
def words() -> Any:
    return tokenizer()


@pytest.mark.parametrize(
    "kind",
    [
        Kind.F32,
        pytest.param(Kind.Q8_0, marks=pytest.mark.slow),
        pytest.param(Kind.Q4_1, marks=pytest.mark.slow),
    ],
)
def test_the_file_is_the_bases_but_for_the_weights_that_the_version_changes(
    tmp_path: Path, words: Any, kind: Kind
) -> None:
    file = gguf_files.write(tmp_path / "t.gguf", gguf_files.llama(), words, kind=kind, template=TEMPLATE)
    policy = adapter(str(file), tmp_path / "a")
    out = tmp_path / "merged.gguf"
    written = gguf_merge.merge(file, str(file), None, tmp_path / "a", out)
    header = gguf_file.read(file)
    assert out.read_bytes()[: header.weights] == file.read_bytes()[: header.weights]
    assert out.stat().st_size == file.stat().st_size == written.size
    assert not written.widened
    before, after = tensors(file), tensors(out)
    changed = {name for name in before if not np.array_equal(before[name].data, after[name].data)}
    assert changed == set(written.changed)
    assert len(changed) == 14, "all linear maps of two layers, and neither embeddings nor norms"
    if kind == Kind.F32:
        with torch.no_grad():
            wanted, got = policy.model(IDS).logits, engine.load(str(out)).model(IDS).logits
        assert torch.allclose(got, wanted, atol=1e-4)


@pytest.mark.parametrize(
    "kind",
    [
        Kind.Q4_1,
        pytest.param(Kind.Q4_0, marks=pytest.mark.slow),
        pytest.param(Kind.Q5_0, marks=pytest.mark.slow),
    ],
)
def test_a_small_change_is_not_rounded_away(tmp_path: Path, words: Any, kind: Kind) -> None:
    model = gguf_files.llama()
    file = gguf_files.write(tmp_path / "t.gguf", model, words, kind=kind, template=TEMPLATE)
    exact = gguf_files.write(tmp_path / "f.gguf", gguf_files.rounded(model, kind), words, template=TEMPLATE)
    adapter(str(file), tmp_path / "a", size=0.02)
    gguf_merge.merge(file, str(file), None, tmp_path / "a", tmp_path / "m.gguf")
    gguf_merge.merge(exact, str(file), None, tmp_path / "a", tmp_path / "e.gguf")
    before, got, wanted = values(exact), values(tmp_path / "m.gguf"), values(tmp_path / "e.gguf")
    moved = np.concatenate([(got[name] - before[name]).ravel() for name in before])
    change = np.concatenate([(wanted[name] - before[name]).ravel() for name in before])
    assert 0.85 < moved @ change / (change @ change) < 1.1


def test_a_file_of_another_model_is_refused_and_nothing_is_written(tmp_path: Path, words: Any) -> None:
    file = gguf_files.write(tmp_path / "t.gguf", gguf_files.llama(), words, template=TEMPLATE)
    other = gguf_files.write(tmp_path / "o.gguf", gguf_files.llama(seed=1), words, template=TEMPLATE)
    adapter(str(file), tmp_path / "a")
    with pytest.raises(ModelError, match=r"o\.gguf is not a file of the version's base"):
        gguf_merge.merge(other, str(file), None, tmp_path / "a", tmp_path / "m.gguf")
    assert not list(tmp_path.glob("*m.gguf*"))


def test_a_disk_that_is_full_is_said_before_anything_is_written(
    tmp_path: Path, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    file = gguf_files.write(tmp_path / "t.gguf", gguf_files.llama(), words)
    monkeypatch.setattr(gguf_writer.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(ModelError, match="GB of disk"):
        gguf_writer.write(gguf_file.read(file), {}, tmp_path / "m.gguf")
    assert not list(tmp_path.glob("*m.gguf*"))


def test_a_failure_half_way_leaves_what_was_there(tmp_path: Path, words: Any) -> None:
    file = gguf_files.write(tmp_path / "t.gguf", gguf_files.llama(), words)
    out = tmp_path / "m.gguf"
    out.write_bytes(b"older")

    def fail(*_: Any) -> Any:
        raise ModelError("no")

    with pytest.raises(ModelError):
        gguf_writer.write(gguf_file.read(file), {"blk.1.ffn_up.weight": fail}, out)
    assert out.read_bytes() == b"older"
    assert not list(tmp_path.glob(".*.part"))


def test_a_wider_tensor_moves_those_behind_it(tmp_path: Path, words: Any) -> None:
    file = gguf_files.write(tmp_path / "t.gguf", gguf_files.llama(), words, kind=Kind.Q4_0)
    name, out = "blk.0.ffn_up.weight", tmp_path / "m.gguf"
    wide = np.ones((96, 64), np.float16)
    written = gguf_writer.write(
        gguf_file.read(file), {name: lambda *_: (wide.view(np.uint8), int(Kind.F16))}, out
    )
    assert written.widened == (name,)
    before, after = tensors(file), tensors(out)
    for one in before:
        if one != name:
            assert np.array_equal(before[one].data, after[one].data)
    assert (gguf.dequantize(after[name].data, after[name].tensor_type) == 1).all()
    assert out.stat().st_size > file.stat().st_size


# ---------------------------------------------------------------------------------------------------------- families


def _tiny(kind: str) -> Any:
    import transformers as t

    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "pad_token_id": 0, "initializer_range": 0.2,
    }  # fmt: skip
    if kind == "gpt2":
        shape = {
            "vocab_size": 64,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "n_inner": 48,
            "initializer_range": 0.2,
        }
    config = t.AutoConfig.for_model(kind, **shape)
    return t.AutoModelForCausalLM.from_config(config).eval()


def _write(path: Path, architecture: str, model: Any, heads: tuple[str, ...] = ()) -> None:
    """All of a model's matrices as llama.cpp's converter has them. ``heads``: tensors whose rows it reorders."""
    names = gguf.get_tensor_name_map(
        next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture), 2
    )
    writer = gguf.GGUFWriter(path, architecture)
    for name, value in model.state_dict().items():
        short, _, ending = name.rpartition(".")
        there = names.get_name(short)
        if there is None or value.ndim > 2:
            continue
        data = value.numpy()
        if architecture == "gemma3" and short.endswith("norm"):
            data = data + 1
        if there.endswith(heads or ("nothing",)):
            data = gguf_files.rotated(data, 4 if there.endswith("attn_q") else 2)
        if architecture == "gpt2" and "blk" in there and data.ndim == 2:
            data = np.ascontiguousarray(data.T)
        writer.add_tensor(f"{there}.{ending}", data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("family", "architecture", "heads"),
    [
        ("llama", "llama", ("attn_q", "attn_k")),
        pytest.param(*("qwen2", "qwen2", ()), marks=pytest.mark.slow),
        pytest.param(*("qwen3", "qwen3", ()), marks=pytest.mark.slow),
        ("gemma3_text", "gemma3", ()),
        pytest.param(*("phi3", "phi3", ()), marks=pytest.mark.slow),
        ("gpt2", "gpt2", ()),
        # transformers reads no GGUF files of these; the order of rows is found by comparing.
        ("granite", "granite", ("attn_q", "attn_k")),
        pytest.param(*("olmo2", "olmo2", ()), marks=pytest.mark.slow),
        pytest.param(*("smollm3", "smollm3", ("attn_q", "attn_k")), marks=pytest.mark.slow),
    ],
)
def test_what_peft_merges_is_in_the_file(
    tmp_path: Path, family: str, architecture: str, heads: tuple[str, ...]
) -> None:
    from peft import LoraConfig, get_peft_model

    model = _tiny(family)
    model.save_pretrained(tmp_path / "base")
    _write(tmp_path / "base.gguf", architecture, model, heads)
    before = values(tmp_path / "base.gguf")
    wrapped: Any = get_peft_model(model, LoraConfig(r=2, lora_alpha=6, target_modules="all-linear"))
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2))
    wrapped.save_pretrained(tmp_path / "a")
    gguf_merge.merge(
        tmp_path / "base.gguf", str(tmp_path / "base"), None, tmp_path / "a", tmp_path / "m.gguf"
    )
    _write(tmp_path / "wanted.gguf", architecture, wrapped.merge_and_unload(), heads)
    got, wanted = values(tmp_path / "m.gguf"), values(tmp_path / "wanted.gguf")
    assert got.keys() == wanted.keys() == before.keys()
    changed = [name for name in got if not np.array_equal(got[name], before[name])]
    assert len(changed) >= 8
    for name in got:
        np.testing.assert_allclose(got[name], wanted[name], atol=1e-5)


def test_a_version_of_all_weights_is_merged_norms_included(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model = _tiny("gemma3_text")
    model.save_pretrained(tmp_path / "base")
    _write(tmp_path / "base.gguf", "gemma3", model)
    added = {
        name: torch.full(tuple(value.shape), 0.25)
        for name, value in model.named_parameters()
        if ".layers.1." in name
    }
    (tmp_path / "v").mkdir()
    save_file(added, tmp_path / "v" / "delta.safetensors")
    gguf_merge.merge(
        tmp_path / "base.gguf", str(tmp_path / "base"), None, tmp_path / "v", tmp_path / "m.gguf"
    )
    before, after = values(tmp_path / "base.gguf"), values(tmp_path / "m.gguf")
    for name in before:
        change = 0.25 if name.startswith("blk.1.") else 0.0
        np.testing.assert_allclose(after[name], before[name] + change, atol=1e-6)
    assert sum("norm" in name for name in before if name.startswith("blk.1.")) >= 4


def test_the_file_that_the_base_came_from_is_taken_and_has_to_be_the_same(tmp_path: Path) -> None:
    from clawback.extensions.publishers import merged_gguf
    from clawback.release.publishers import Probe, Publication

    def write(path: Path, value: float) -> Path:
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor("blk.0.ffn_up.weight", np.full((32, 32), value, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    file, other = write(tmp_path / "own.gguf", 1.0), write(tmp_path / "other.gguf", 2.0)
    identity = gguf_file.read(file).identity()
    publication = Publication(3, tmp_path, str(file), identity, Probe("", "", ""))
    assert merged_gguf.origin(publication, str(other)) == file
    write(file, 3.0)
    with pytest.raises(ModelError, match="is not the file that version 3 was made for"):
        merged_gguf.origin(publication, "")
    file.unlink()
    assert merged_gguf.origin(publication, str(other)) == other
