"""The adapter as GGUF, against llama.cpp's own converter and a real llama-server."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clawback import engine, store
from clawback.errors import ModelError
from clawback.extensions.publishers import gguf_adapter as ours
from clawback.paths import Home

from . import llama_cpp as real
from .conftest import Run, Server

gguf = pytest.importorskip("gguf")


def read(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {t.name: np.array(t.data, dtype=np.float32) for t in gguf.GGUFReader(path).tensors}


def base() -> Path:
    return Path(engine.load("embedded").model.name_or_path)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not real.SERVER.exists():
        pytest.skip(real.MISSING)
    out = tmp_path_factory.mktemp("gguf") / "base.gguf"
    real.to_gguf(base(), out)
    return out


def adapter_of(home: Home) -> Path:
    with store.connect(home.database) as db:
        return Path(db.version(1).path)


def test_the_rows_of_query_and_key_heads_change_places_and_nothing_else_does(
    improved: Home, tmp_path: Path
) -> None:
    from clawback.models import adapter as adapters

    config = json.loads((base() / "config.json").read_text())
    ours.convert(adapter_of(improved), config, tmp_path / "a.gguf")
    made = read(tmp_path / "a.gguf")
    _, tensors = adapters.read(adapter_of(improved))
    assert len(made) == len(tensors)
    for name, tensor in tensors.items():
        part = "attn_q" if "q_proj" in name else "attn_k" if "k_proj" in name else None
        if part is None or "lora_A" in name:
            continue
        layer = name.split("layers.")[1].split(".")[0]
        heads = 4 if part == "attn_q" else 2
        there = made[f"blk.{layer}.{part}.weight.lora_b"]
        width = len(tensor) // heads
        for head in range(heads):  # the slow way: pair i of a head is rows i and i + half
            for i in range(width // 2):
                for half in (0, 1):
                    row = tensor[head * width + half * (width // 2) + i].float().numpy()
                    np.testing.assert_array_equal(there[head * width + 2 * i + half], row)


def test_a_family_that_is_not_known_is_refused(improved: Home, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="gemma9"):
        ours.convert(adapter_of(improved), {"model_type": "gemma9"}, tmp_path / "a.gguf")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_same_tensors_as_llama_cpps_own_converter_makes(
    improved: Home, converted: Path, tmp_path: Path
) -> None:
    config = json.loads((base() / "config.json").read_text())
    ours.convert(adapter_of(improved), config, tmp_path / "ours.gguf")
    real.to_gguf(
        adapter_of(improved), tmp_path / "theirs.gguf", "convert_lora_to_gguf.py", "--base", str(base())
    )
    made, wanted = read(tmp_path / "ours.gguf"), read(tmp_path / "theirs.gguf")
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        np.testing.assert_array_equal(made[name], tensor)


@pytest.mark.slow
def test_a_real_llama_server_answers_as_the_version_does(
    improved: Home, run: Run, converted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "clawback.gguf"
    code, _, err = run("publish", "llama-cpp", "--output", str(out))
    assert code == 0, err
    with real.server(tmp_path / "log", "-m", str(converted)) as url:
        code, _, err = run("publish", "llama-cpp", "--output", str(out), "--url", url)
        assert code == 1
        assert f"start it again with --lora {out}" in err, (
            "a server without the adapter says success to everything"
        )
    with real.server(tmp_path / "log", "-m", str(converted), "--lora", str(out)) as url:
        code, said, err = run("publish", "llama-cpp", "--output", str(out), "--url", url)
        assert code == 0, err
        assert "answers as the new version does" in said


@pytest.mark.slow
def test_a_router_takes_version_after_version_while_it_runs(
    improved: Home, run: Run, converted: Path, tmp_path: Path
) -> None:
    presets, out = tmp_path / "presets.ini", tmp_path / "clawback.gguf"
    presets.write_text(f"version = 1\n\n; mine\n[small]\nmodel = {converted}\n")
    where = ("--output", str(out), "--presets", str(presets), "--base", "small")
    with real.server(tmp_path / "log", "--models-preset", str(presets)) as url:
        code, said, _ = run("publish", "llama-cpp", *where, "--url", url, "--dry-run")
        assert code == 0
        assert "put the preset [clawback]" in said
        assert not out.exists()
        assert "[clawback]" not in presets.read_text()
        for _ in range(2):
            code, said, err = run("publish", "llama-cpp", *where, "--url", url)
            assert code == 0, f"{err}\n{(tmp_path / 'log').read_text()[-2000:]}"
            assert "answers as the new version does" in said
        assert presets.read_text().count("[clawback]") == 1
        assert "; mine\n[small]" in presets.read_text()


@pytest.mark.slow
def test_another_base_is_refused_with_both_names(
    improved: Home, run: Run, converted: Path, tmp_path: Path
) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    small = LlamaConfig(
        vocab_size=1980, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2
    )
    LlamaForCausalLM(small).save_pretrained(tmp_path / "other")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "other" / name).write_bytes((base() / name).read_bytes())
    real.to_gguf(tmp_path / "other", tmp_path / "other.gguf")
    with real.server(tmp_path / "log", "-m", str(tmp_path / "other.gguf")) as url:
        code, _, err = run("publish", "llama-cpp", "--output", str(tmp_path / "a.gguf"), "--url", url)
    assert code == 1
    assert "made for embedded" in err
    assert "other" in err
    assert not (tmp_path / "a.gguf").exists()


class PlayedLmStudio(Server):
    """Its documented API, in front of a real llama-server that has the merged file."""

    behind = ""

    def do_GET(self) -> None:
        self.body()
        self.say(200, {"data": [{"id": "clawback-v1", "object": "model"}]})

    def do_POST(self) -> None:
        request = urllib.request.Request(
            self.behind + self.path, self.body(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.say(200, json.loads(answer.read()))


@pytest.fixture
def studio() -> Iterator[tuple[type[PlayedLmStudio], str]]:
    class Here(PlayedLmStudio):
        seen: list[str] = []

    server = ThreadingHTTPServer(("127.0.0.1", 0), Here)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Here, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.mark.slow
def test_lm_studio_gets_a_model_of_its_own(
    improved: Home,
    run: Run,
    converted: Path,
    studio: tuple[type[PlayedLmStudio], str],
    tmp_path: Path,
) -> None:
    before = converted.read_bytes()
    played, url = studio
    where = ("--base", str(converted), "--output", str(tmp_path / "models"), "--url", url)
    code, said, _ = run("publish", "lm-studio", *where, "--dry-run")
    assert code == 0
    assert not (tmp_path / "models").exists()
    code, _, err = run("publish", "lm-studio", *where)  # nothing behind it answers yet
    assert code == 1
    assert "It was undone" in " ".join(err.split())
    assert not list((tmp_path / "models").rglob("*.gguf"))
    file = tmp_path / "me.gguf"
    assert run("publish", "gguf", "--base", str(converted), "--output", str(file))[0] == 0
    with real.server(tmp_path / "log", "-m", str(file)) as behind:
        played.behind = behind
        code, said, err = run("publish", "lm-studio", *where)
    assert code == 0, err
    assert "answers as the new version does" in said
    assert converted.read_bytes() == before
