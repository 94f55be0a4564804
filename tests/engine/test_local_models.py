"""What the machine has: Ollama's store, LM Studio's folders, the hub cache; found by name, and refused in words."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from clawback import engine
from clawback.errors import ModelError, NotFound
from clawback.models import local_models
from tests.engine import gguf_files
from tests.engine.conftest import TEMPLATE, tokenizer


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small GGUF file."""
    path = tmp_path_factory.mktemp("gguf") / "m.gguf"
    return gguf_files.write(path, gguf_files.llama(), tokenizer(), template=TEMPLATE).read_bytes()


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person with no models at all."""
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_models, "OLLAMA_SERVICE", tmp_path / "service")
    monkeypatch.setattr(local_models, "smollm2", lambda: None)
    return Path.home()


def pull(models: Path, name: str, weights: bytes, **layers: Any) -> None:
    """What ``ollama pull REGISTRY/SPACE/NAME/TAG`` leaves on the disk."""
    listed = [{"mediaType": "application/vnd.ollama.image.model", "digest": blob(models, weights)}]
    for kind, value in layers.items():
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        listed.append({"mediaType": f"application/vnd.ollama.image.{kind}", "digest": blob(models, data)})
    manifest = models / "manifests" / name
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": listed}))


def blob(models: Path, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    path = models / "blobs" / f"sha256-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"sha256:{digest}"


LIBRARY = "registry.ollama.ai/library"


def test_a_model_of_ollama_becomes_a_base_with_its_settings(alone: Path, content: bytes) -> None:
    params = {"stop": ["<|user|>"], "temperature": 0.7, "top_p": 0.8, "num_ctx": 4096}
    licence = "\n   Tiny License\nversion 1"
    pull(
        alone / ".ollama/models",
        f"{LIBRARY}/tiny/latest",
        content,
        params=params,
        license=licence,
        template="{{ .Prompt }}",
    )
    source = local_models.source("ollama:tiny")
    assert source is not None
    assert source.sampling == {"temperature": 0.7, "top_p": 0.8, "top_k": 40}
    assert (source.stop, source.licence) == (("<|user|>",), "Tiny License")
    assert local_models.source("ollama:tiny:latest") == source
    policy = engine.load("ollama:tiny")
    assert policy.info.base == "ollama:tiny"
    assert policy.model.generation_config.temperature == 0.7


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        (f"{LIBRARY}/tiny/1b", "ollama:tiny:1b"),
        ("registry.ollama.ai/somebody/tiny/latest", "ollama:somebody/tiny"),
        ("hf.co/somebody/tiny-GGUF/Q4_K_M", "ollama:hf.co/somebody/tiny-GGUF:Q4_K_M"),
    ],
)
def test_what_ollama_calls_a_model_is_its_name(alone: Path, content: bytes, manifest: str, name: str) -> None:
    pull(alone / ".ollama/models", manifest, content)
    assert [one.name for one in local_models.find()] == [name]
    assert local_models.source(name) is not None


def test_ollama_elsewhere_and_as_a_service(
    alone: Path, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull(tmp_path / "service", f"{LIBRARY}/served/latest", content)
    assert [one.name for one in local_models.find()] == ["ollama:served"]
    pull(tmp_path / "named", f"{LIBRARY}/other/latest", content)
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "named"))
    assert [one.name for one in local_models.find()] == ["ollama:other"]


def test_a_name_that_ollama_has_not_is_answered_with_one_that_it_has(alone: Path, content: bytes) -> None:
    with pytest.raises(NotFound, match=r"holds none here.*ollama pull tiny"):
        local_models.source("ollama:tiny")
    pull(alone / ".ollama/models", f"{LIBRARY}/tiny/latest", content)
    with pytest.raises(NotFound, match=r"Did you mean ollama:tiny\?"):
        local_models.source("ollama:tinny")


def test_what_ollama_holds_in_pieces_is_refused_and_listed_with_the_reason(
    alone: Path, content: bytes
) -> None:
    models = alone / ".ollama/models"
    pull(models, f"{LIBRARY}/tuned/latest", content, adapter="x")
    (models / "manifests" / LIBRARY / "broken").mkdir(parents=True)
    (models / "manifests" / LIBRARY / "broken" / "latest").write_text("[]")
    with pytest.raises(ModelError, match="nothing on top"):
        local_models.source("ollama:tuned")
    with pytest.raises(ModelError, match="cannot be read"):
        local_models.source("ollama:broken")
    assert all(one.problem for one in local_models.find())


def test_weights_that_ollama_has_lost_are_fetched_again(alone: Path, content: bytes) -> None:
    models = alone / ".ollama/models"
    pull(models, f"{LIBRARY}/tiny/latest", content)
    for path in (models / "blobs").iterdir():
        path.unlink()
    with pytest.raises(ModelError, match="ollama pull tiny"):
        local_models.source("ollama:tiny")


@pytest.mark.parametrize("folder", [".lmstudio/models", ".cache/lm-studio/models"])
def test_lm_studio_by_any_of_its_names(alone: Path, content: bytes, folder: str) -> None:
    path = alone / folder / "somebody" / "Tiny-1B-GGUF" / "tiny-q8_0.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    (path.parent / "mmproj-tiny.gguf").write_bytes(b"eyes")
    assert [one.name for one in local_models.find()] == ["lmstudio:somebody/Tiny-1B-GGUF"]
    for name in ("tiny-1b", "Tiny-1B-GGUF", "somebody/tiny-1b", "somebody/Tiny-1B-GGUF"):
        source = local_models.source(f"lmstudio:{name}")
        assert source is not None
        assert (source.path, source.name) == (path, "lmstudio:somebody/Tiny-1B-GGUF")
    with pytest.raises(NotFound, match="holds lmstudio:somebody/Tiny-1B-GGUF"):
        local_models.source("lmstudio:huge")


def test_several_files_of_lm_studio_are_told_apart(alone: Path, content: bytes) -> None:
    folder = alone / ".lmstudio/models/somebody/tiny"
    folder.mkdir(parents=True)
    for name in ("a.gguf", "b.gguf"):
        (folder / name).write_bytes(content)
    with pytest.raises(
        NotFound, match=r"may mean lmstudio:somebody/tiny/a.gguf, lmstudio:somebody/tiny/b.gguf"
    ):
        local_models.source("lmstudio:tiny")
    source = local_models.source("lmstudio:somebody/tiny/b.gguf")
    assert source is not None
    assert source.path == folder / "b.gguf"


def cached(home: Path, name: str, folder: Path, **config: Any) -> Path:
    """What the hub cache holds of a model."""
    import shutil

    root = home / ".cache/huggingface/hub" / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / ("0" * 40)
    shutil.copytree(folder, snapshot)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0" * 40)
    held = json.loads((snapshot / "config.json").read_text()) | config
    (snapshot / "config.json").write_text(json.dumps(held))
    return snapshot


def test_the_hub_cache_is_counted_without_loading_anything(alone: Path, folders: Any) -> None:
    snapshot = cached(alone, "somebody/tiny", folders("llama"))
    (snapshot / "README.md").write_text("---\nlicense: mit\n---\n")
    cached(alone, "somebody/reads-only", folders("llama"), architectures=["BertModel"])
    cached(alone, "somebody/packed", folders("llama"), quantization_config={"quant_method": "awq"})
    tiny, packed = local_models.find()
    info = engine.load(str(folders("llama"))).info
    assert (tiny.name, tiny.licence, tiny.chat, tiny.problem) == ("somebody/tiny", "mit", True, "")
    assert tiny.info.total_parameters == info.total_parameters
    assert (tiny.info.hidden, tiny.info.layers, tiny.info.context) == (info.hidden, info.layers, info.context)
    assert "quantised" in packed.problem


def test_the_hub_cache_is_where_the_environment_says(
    alone: Path, folders: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached(alone, "somebody/tiny", folders("llama"))
    (alone / ".cache/huggingface").rename(tmp_path / "moved")
    assert local_models.find() == []
    monkeypatch.setenv("HF_HOME", str(tmp_path / "moved"))
    assert [one.name for one in local_models.find()] == ["somebody/tiny"]


def test_the_shape_of_a_file_is_that_of_the_model_it_becomes(
    alone: Path, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    from clawback.models import gguf_file

    shape, info = local_models.shape(gguf_file.read(path), "m"), engine.load(str(path)).info
    assert shape.total_parameters == info.total_parameters
    for name in ("hidden", "layers", "vocabulary", "intermediate", "context"):
        assert getattr(shape, name) == getattr(info, name)


USUAL = [
    "models/m.gguf",
    "Downloads/m.gguf",
    "Downloads/new/m.gguf",
    ".cache/llama.cpp/owner_m.gguf",
    ".cache/huggingface/hub/models--owner--m-GGUF/snapshots/abc/m.gguf",
    ".local/share/nomic.ai/GPT4All/m.gguf",
    ".local/share/Jan/data/llamacpp/models/m/model.gguf",
    "jan/models/m/m.gguf",
]


@pytest.mark.parametrize("place", USUAL)
def test_gguf_files_in_the_usual_folders_are_found(
    alone: Path, content: bytes, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_DATA_HOME", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    path = alone / place
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    [model] = local_models.find()
    assert (model.name, model.holder, model.bytes) == (str(path), "file", len(content))
    assert local_models.source(model.name) is not None


def test_nothing_but_names_and_headers_is_read_of_what_lies_about(alone: Path, content: bytes) -> None:
    models = alone / "models"
    models.mkdir()
    for name in ("mmproj-m.gguf", "m-00002-of-00003.gguf"):
        (models / name).write_bytes(content)
    (alone / "Downloads" / "a" / "b").mkdir(parents=True)
    (alone / "Downloads" / "a" / "b" / "deep.gguf").write_bytes(content)
    (models / "letter.txt").write_bytes(content)
    (models / ".hidden").mkdir()
    (models / ".hidden" / "m.gguf").write_bytes(content)
    (models / "damaged.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    [damaged] = local_models.find()
    assert "damaged" in damaged.problem
    (models / "m.gguf").write_bytes(content)
    (models / "again.gguf").symlink_to(models / "m.gguf")
    assert len(local_models.find()) == 2, "the same file is listed once"


def test_a_file_that_lies_about_is_proposed_only_where_nothing_else_is(alone: Path, content: bytes) -> None:
    from clawback.admin import model_choice

    machine = model_choice.Machine(16 << 30, 8)
    path = alone / "Downloads" / "m.gguf"
    path.parent.mkdir()
    path.write_bytes(content)
    assert model_choice.choose(local_models.find(), machine) == str(path)
    pull(alone / ".ollama/models", f"{LIBRARY}/tiny/latest", content)
    assert model_choice.choose(local_models.find(), machine) == "ollama:tiny"
