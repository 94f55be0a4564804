"""``model path info make``: the small model that ships."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clawback.engine.embedded import build

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
