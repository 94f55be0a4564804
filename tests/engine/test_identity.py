"""A version belongs to weights, settings, a tokenizer and a chat template: each is compared, and named where it differs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

from clawback import engine, paths
from clawback.errors import ModelError
from clawback.models import identity
from clawback.models import identity as bases

A, B = "a" * 40, "b" * 40


@pytest.fixture
def folder(folders, tmp_path):
    return Path(shutil.copytree(folders("llama"), tmp_path / "model"))


def trained(name, into):
    """A version of a base in a new folder."""
    policy = engine.load(str(name))
    policy.attach(rank=2, alpha=2, seed=0)
    into.mkdir()
    policy.save(into)
    return into


def edit(path, **values):
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held | values))


def reworded(folder, word):
    """Another chat template in the folder."""
    path = folder / "chat_template.jinja"
    if path.exists():
        path.write_text(path.read_text().replace("<|end|>", word))
    else:
        config = folder / "tokenizer_config.json"
        edit(config, chat_template=json.loads(config.read_text())["chat_template"].replace("<|end|>", word))


def other_weights(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] + 1
    save_file(tensors, path, metadata={"format": "pt"})


def saved_by_another_release(folder):
    """What every ``save_pretrained`` of another transformers does to ``config.json``."""
    config = json.loads((folder / "config.json").read_text()) | {
        "transformers_version": "9.9.9",
        "use_cache": False,
    }
    theta = config.pop("rope_parameters", {}).get("rope_theta", 10000.0)
    for default in ("attention_bias", "attention_dropout", "mlp_bias", "hidden_act"):
        config.pop(default, None)
    (folder / "config.json").write_text(
        json.dumps(config | {"rope_theta": theta, "rope_scaling": None}, indent=7)
    )


def tokens_written_again(folder):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=3))


SAME = {
    "a README": lambda folder: (folder / "README.md").write_text("# now with a nicer card"),
    "config.json written again": saved_by_another_release,
    "tokenizer.json written again": tokens_written_again,
    "generation_config.json": lambda folder: (folder / "generation_config.json").write_text(
        '{"temperature": 0.7}'
    ),
    "a second set of weights beside": lambda folder: shutil.copy(
        folder / "model.safetensors", folder / "consolidated.safetensors"
    ),
    "an index of parts": lambda folder: split(folder),
}
OTHER = {
    "weights": other_weights,
    "rms_norm_eps": lambda folder: edit(folder / "config.json", rms_norm_eps=0.1),
    "chat template": lambda folder: reworded(folder, "<|eos|>"),
    "tokenizer": lambda folder: retold(folder),
}


def split(folder):
    """The one file of weights under a name that an index gives it."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        names = list(file.keys())
    shutil.move(folder / "model.safetensors", folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def retold(folder):
    """Fewer merges: the same vocabulary, other tokens."""
    path = folder / "tokenizer.json"
    held = json.loads(path.read_text())
    held["model"]["merges"] = held["model"]["merges"][:5]
    path.write_text(json.dumps(held))


@pytest.mark.parametrize("what", SAME)
def test_what_changes_no_answer_changes_no_base(folder, tmp_path, what):
    version = trained(folder, tmp_path / "version")
    SAME[what](folder)
    assert engine.load(str(folder), adapter=version).has_adapter


@pytest.mark.parametrize("what", OTHER)
def test_what_differs_is_named(folder, tmp_path, what):
    version = trained(folder, tmp_path / "version")
    OTHER[what](folder)
    with pytest.raises(ModelError, match=what) as error:
        engine.load(str(folder), adapter=version)
    assert "put back" in str(error.value)
    assert sum(word in str(error.value) for word in OTHER) == 1


def test_a_full_version_is_as_careful(folder, tmp_path):
    policy = engine.load(str(folder))
    policy.attach_full()
    (tmp_path / "version").mkdir()
    policy.save(tmp_path / "version")
    saved_by_another_release(folder)
    assert engine.load(str(folder), adapter=tmp_path / "version").full
    reworded(folder, "<|eos|>")
    with pytest.raises(ModelError, match="chat template"):
        engine.load(str(folder), adapter=tmp_path / "version")


def old_stamp(version):
    """As releases wrote it that knew the place of the base alone."""
    path = version / bases.STAMP
    held = json.loads(path.read_text())
    path.write_text(
        json.dumps({k: held[k] for k in ("base", "base_revision", "architecture")} | {"format": 1})
    )


def test_versions_of_earlier_releases_load_on_their_folder_and_on_no_other(folder, tmp_path):
    version = trained(folder, tmp_path / "version")
    old_stamp(version)
    assert engine.load(str(folder), adapter=version).has_adapter
    other_weights(folder)
    with pytest.raises(ModelError, match=r"was made for .* weights"):
        engine.load(str(folder), adapter=version)


# ------------------------------------------------------------------------------------------------------ the hub


@pytest.fixture
def hub(folders, tmp_path, monkeypatch):
    """A cache of the hub with the model someone/tiny; ``move(commit)`` adds a commit that ``main`` then means."""
    import huggingface_hub

    cache = tmp_path / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    for name, value in (("HF_HUB_CACHE", str(cache)), ("HF_HUB_OFFLINE", True)):
        monkeypatch.setattr(huggingface_hub.constants, name, value)
    repository = cache / "models--someone--tiny"
    (repository / "refs").mkdir(parents=True)

    def move(commit):
        made = shutil.copytree(folders("llama"), repository / "snapshots" / commit)
        (repository / "refs" / "main").write_text(commit)
        return Path(made)

    move(A)
    return move


@pytest.mark.parametrize("stamped", ["now", "by an earlier release"])
def test_a_commit_that_changes_a_readme_leaves_versions_alone(hub, tmp_path, stamped):
    version = trained("someone/tiny", tmp_path / "version")
    if stamped != "now":
        old_stamp(version)
    (hub(B) / "README.md").write_text("# now with a nicer card")
    policy = engine.load("someone/tiny", adapter=version)
    assert (policy.info.revision, policy.has_adapter) == (B, True)


@pytest.mark.parametrize("what", OTHER)
def test_a_commit_that_changes_more_is_refused_with_the_cure(hub, tmp_path, what):
    version = trained("someone/tiny", tmp_path / "version")
    OTHER[what](hub(B))
    with pytest.raises(ModelError, match=what) as error:
        engine.load("someone/tiny", adapter=version)
    [commit] = re.findall(r"clawback config set model\.revision ([0-9a-f]{40})", str(error.value))
    assert engine.load("someone/tiny", revision=commit, adapter=version).has_adapter


def test_an_old_version_of_a_commit_that_is_gone_is_refused_with_the_cure(hub, tmp_path):
    version = trained("someone/tiny", tmp_path / "version")
    old_stamp(version)
    shutil.rmtree(hub(B).parent / A)
    with pytest.raises(ModelError, match=f"config set model.revision {A}"):
        engine.load("someone/tiny", adapter=version)


def test_a_folder_and_the_hub_have_the_same_model(hub, folder, tmp_path):
    """A model that was downloaded into a folder is the one that was in the cache."""
    version = trained("someone/tiny", tmp_path / "version")
    assert engine.load(str(folder), adapter=version).has_adapter


def test_names_of_blobs_are_their_hashes_and_other_files_are_read_once(folder, tmp_path, monkeypatch):
    paths.home().root.mkdir(parents=True, exist_ok=True)
    read = []
    monkeypatch.setattr(identity.files, "sha256", lambda path: read.append(path) or _sha256(path))
    first = identity.of_weights(folder)
    assert identity.of_weights(folder) == first
    assert len(read) == 1
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    blob = blobs / _sha256(folder / "model.safetensors")
    shutil.move(folder / "model.safetensors", blob)
    (folder / "model.safetensors").symlink_to(blob)
    assert identity.of_weights(folder) == first
    assert len(read) == 1


def _sha256(path):
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---------------------------------------------------------------------------------------------- missing weights


@pytest.mark.parametrize(
    ("lost", "word"),
    [
        ("model.layers.1.", "layer 1"),
        ("model.layers.1.mlp.down_proj", "down_proj"),
        ("lm_head", "lm_head"),
        ("embed_tokens", "embed_tokens"),
        ("model.norm", "model.norm"),
    ],
)
def test_weights_that_are_in_no_file_are_not_made_up(folders, tmp_path, lost, word):
    folder = Path(shutil.copytree(folders("qwen3"), tmp_path / "m"))
    rewrite(folder, lambda tensors: {k: v for k, v in tensors.items() if lost not in k})
    with pytest.raises(ModelError, match=f"incomplete.*{re.escape(word)}"):
        engine.load(str(folder))


@pytest.mark.parametrize("prefix", ["module.", "base_model.model.", "_orig_mod."])
def test_weights_under_a_foreign_prefix(folders, tmp_path, prefix):
    folder = Path(shutil.copytree(folders("qwen3"), tmp_path / "m"))
    rewrite(folder, lambda tensors: {prefix + k: v for k, v in tensors.items()})
    with pytest.raises(ModelError, match=f"incomplete.*holds {re.escape(prefix)}"):
        engine.load(str(folder))


def test_tied_weights_and_weights_too_many_are_no_fault(folder):
    assert engine.load(str(folder)).info.weights  # its head is its embeddings
    rewrite(folder, lambda tensors: tensors | {"model.layers.7.mlp.down_proj.weight": torch.zeros(4, 4)})
    assert engine.load(str(folder)).info.weights


def test_weights_of_another_shape(folder):
    rewrite(folder, lambda tensors: tensors | {"model.layers.1.mlp.down_proj.weight": torch.zeros(32, 40)})
    with pytest.raises(ModelError, match=r"another shape than its config\.json says"):
        engine.load(str(folder))


def rewrite(folder, change):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})
