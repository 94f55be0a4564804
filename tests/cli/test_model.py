"""``model path info make``: the small model that ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clawback.extensions.demo import build

Run = Callable[..., tuple[int, str, str]]


def test_where_it_is_and_what_it_is(run: Run) -> None:
    path = Path(run("model", "path")[1].strip())
    assert (path / "model.safetensors").is_file()
    assert json.loads(run("model", "path", "--json")[1]) == {"path": str(path)}
    info = json.loads(run("model", "info", "--json")[1])
    assert info == json.loads((path / "provenance.json").read_text())
    shown = run("model", "info")[1]
    assert all(key in shown for key in info)


@pytest.mark.slow
def test_make_says_where_it_went_and_how_to_use_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build.make
    # The real thing in small: a few dozen dialogues instead of minutes of them.
    monkeypatch.setattr(build, "make", lambda out, **given: whole(out, dialogue_count=60, **given))
    folder = tmp_path / "mine"
    code, out, _ = run("model", "make", "--output", str(folder), "--seed", "1")
    assert code == 0
    assert f"clawback init --model {folder}" in out
    assert (folder / "model.safetensors").is_file()
    assert json.loads((folder / "provenance.json").read_text())["seed"] == 1


def test_the_list_shows_kind_and_size_and_marks_the_model_that_is_set(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawback import config, paths
    from clawback.models import local_models
    from tests.engine import gguf_files
    from tests.engine.conftest import TEMPLATE, tokenizer

    for name in ("HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "XDG_CACHE_HOME", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_models, "smollm2", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("COLUMNS", "250")
    there = gguf_files.write(Path.home() / "models" / "tiny-it.gguf", gguf_files.llama(), tokenizer(), template=TEMPLATE, more={"general.file_type": 15})  # fmt: skip
    elsewhere = gguf_files.write(tmp_path / "far.gguf", gguf_files.llama(), tokenizer())
    config.save(paths.home().config, {"model": {"base": str(elsewhere)}})
    header, first, second, *_ = run("model", "list")[1].splitlines()
    assert header.split() == ["#", "model", "kind", "size", "on", "disk", "training", "here"]
    assert first.split()[:4] == ["▶", "1", str(elsewhere), "base"]
    assert second.split()[:4] == ["2", "~/models/tiny-it.gguf", "instruct,", "Q4_K_M"]
    rows = json.loads(run("model", "list", "--json")[1])
    assert [(row["name"], row["set"], row["kind"], row["bytes"]) for row in rows] == [
        (str(elsewhere), True, "base", elsewhere.stat().st_size),
        (str(there), False, "instruct", there.stat().st_size),
    ]
