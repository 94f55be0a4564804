"""Whatever goes live is published: promotions, rollbacks and resets reach every server that follows the live version."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clawback import config, engine, release, store
from clawback.admin import health
from clawback.paths import Home
from clawback.release import following, publishing, version_registry
from clawback.runs import trigger

from .conftest import Run
from .test_publishers import PlayedLmStudio, PlayedOllama, PlayedVllm


@pytest.fixture
def play(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    servers = []

    def start(kind: Any) -> tuple[str, Any]:
        more = {
            "policy": engine.load("embedded"),
            "loaded": {},
            "seen": [],
            "blobs": {},
            "made": {},
            "folder": tmp_path / "models",
            "version": request.getfixturevalue("improved").version(1),
        }
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Played", (kind,), more))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", server.RequestHandlerClass

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the detached process does, done at once; and what it told."""
    told: list[str] = []

    def start(db: Any, home: Home) -> None:
        if any(not one.current(db.live()) for one in following.standings(db, config.load(home.config))):
            publishing.publish_live(home, told.append)

    monkeypatch.setattr(following, "start", start)
    return told


@pytest.fixture
def two(improved: Home, inline: list[str]) -> Iterator[Home]:
    """A home with version 1, which is live, and settings that are put back."""
    before = improved.config.read_bytes()
    yield improved
    improved.config.write_bytes(before)
    with store.connect(improved.database) as db:
        db.set(following.KEY, {})
        db.promote(1)


def follow(home: Home, *targets: dict[str, str]) -> None:
    config.save(home.config, {"publish": {"targets": list(targets)}})


@pytest.mark.slow
def test_promotion_and_rollback_reach_vllm(two: Home, play: Any) -> None:
    url, server = play(PlayedVllm)
    server.loaded["somebody-elses"] = two.version(1)
    follow(two, {"where": "vllm", "url": url})
    with store.connect(two.database) as db:
        release.rollback(db, two, 0)
        assert sorted(server.loaded) == ["somebody-elses"]
        version_registry.promote(db, two, 1)
        assert sorted(server.loaded) == ["clawback-v1", "somebody-elses"]
        release.rollback(db, two)
        assert sorted(server.loaded) == ["somebody-elses"], "the base answers there, too"
        [standing] = following.standings(db, config.load(two.config))
        assert standing.current(db.live())


def test_the_end_of_a_trial_and_what_heals_a_home_go_the_same_way(
    two: Home, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, server = play(PlayedVllm)
    follow(two, {"where": "vllm", "url": url})
    with store.connect(two.database) as db:
        db.promote(0)
        release.trial.begin(db, 1, 0.5, 0.05, 0.0)
        score = release.trial.Score
        better = score(**{f.name: 1 for f in dataclasses.fields(score)} | {"verdict": "better"})
        monkeypatch.setattr(release.trial, "score", lambda *_: better)
        assert release.trial.settle(db, two, 1.0) is not None
        assert list(server.loaded) == ["clawback-v1"]
        path = two.version(1) / version_registry.PROVENANCE
        whole = path.read_bytes()
        try:
            path.unlink()
            assert (release.heal(db, two) or db.live()).number == 0
        finally:
            path.write_bytes(whole)
        assert not server.loaded


def test_ollama_answers_as_the_base_after_a_rollback(two: Home, play: Any, in_ollama: str) -> None:
    url, server = play(PlayedOllama)
    follow(two, {"where": "ollama", "url": url, "base": "small:1b"})
    with store.connect(two.database) as db:
        release.rollback(db, two, 0)
        assert server.loaded == {"small-clawback:1b": None}
        version_registry.promote(db, two, 1)
        assert server.loaded["small-clawback:1b"] is not None
        release.rollback(db, two)
        assert server.loaded == {"small-clawback:1b": None}


def test_a_merged_file_of_lm_studio_comes_and_goes_with_the_live_version(
    two: Home, play: Any, base_gguf: Path, tmp_path: Path
) -> None:
    url, _ = play(PlayedLmStudio)
    models = tmp_path / "models"
    follow(two, {"where": "lm-studio", "url": url, "base": str(base_gguf), "output": str(models)})
    with store.connect(two.database) as db:
        release.rollback(db, two, 0)
        assert not list(models.rglob("*.gguf"))
        version_registry.promote(db, two, 1)
        [file] = models.rglob("*.gguf")
        assert file.stat().st_size == base_gguf.stat().st_size
        assert file.read_bytes() != base_gguf.read_bytes()
        release.rollback(db, two)
        assert not list(models.rglob("*.gguf"))
        [standing] = following.standings(db, config.load(two.config))
        assert standing.current(db.live())


@pytest.mark.slow
def test_a_folder_of_mlx_is_renewed_and_taken_away(two: Home, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "mlx"
    assert run("publish", "mlx", "--output", str(out), "--always")[0] == 0
    assert (out / "adapters.safetensors").exists()
    assert run("publish", "mlx", "--output", str(out))[0] == 2, "by hand nothing is overwritten"
    with store.connect(two.database) as db:
        release.rollback(db, two)
        assert not out.exists()
        version_registry.promote(db, two, 1)
        assert (out / "adapters.safetensors").exists()
        standing = following.standings(db, config.load(two.config))[0]
        following.remember(db, following.Standing(standing.target, 9, "elsewhere", "", 0.0))
        version_registry.go_live(db, two, 1)
        assert not list(out.parent.glob("mlx.*"))
        assert (out / "adapters.safetensors").exists(), "one version after the other in the same folder"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a-file-of-mine").write_text("x")
    follow(two, {"where": "mlx", "output": str(mine)})
    with store.connect(two.database) as db:
        version_registry.go_live(db, two, 1)
        assert "not empty" in following.standings(db, config.load(two.config))[0].error
        release.rollback(db, two)
    assert [p.name for p in mine.iterdir()] == ["a-file-of-mine"]


def test_lm_studio_and_llama_cpp_go_back_to_the_base(tmp_path: Path) -> None:
    from clawback.release.publishers import Target, make

    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    studio = make(Target("lm-studio", out=tmp_path / "models", base=str(model)))
    mine, other = (tmp_path / "models" / "clawback" / name for name in ("clawback-v3", "verse-v3"))
    for folder in (mine, other):
        folder.mkdir(parents=True)
    assert "clawback-v3" in studio.withdraw()
    assert (mine.exists(), other.exists(), model.exists()) == (False, True, True)
    out = tmp_path / "me.gguf"
    out.write_bytes(b"x")
    server = make(Target("llama-cpp", out=out))
    assert "is removed" in server.withdraw()
    assert not out.exists()
    assert "no version" in server.withdraw(), "again, it does nothing"


def test_a_server_that_is_down_holds_up_nothing_and_is_tried_again(
    two: Home, play: Any, run: Run, inline: list[str]
) -> None:
    url, server = play(PlayedVllm)
    follow(two, {"where": "vllm", "url": "http://127.0.0.1:9"}, {"where": "vllm", "url": url})
    with store.connect(two.database) as db:
        release.rollback(db, two, 0)
        assert db.live().number == 0
        assert version_registry.promote(db, two, 1).status == "live"
    assert list(server.loaded) == ["clawback-v1"], "one that fails stops no other"
    assert any("http://127.0.0.1:9" in line for line in inline)
    code, out, _ = run("status")
    assert code == 0
    words = " ".join(out.split())
    assert "Published version 1 is not published to vllm yet: http://127.0.0.1:9" in words
    assert "Published vllm has version 1" in words
    findings = health.check(two)
    [bad] = [one for one in findings if "not published" in one["what"]]
    assert not bad["ok"]
    assert "clawback versions publish" in bad["fix"]
    code, out, _ = run("publish")
    assert code == 1
    assert "127.0.0.1:9" in out
    held = json.loads(run("status", "--json")[1])["published"]
    assert [one["current"] for one in held] == [False, True]


@pytest.mark.slow
def test_what_failed_is_tried_again_after_a_while(
    two: Home, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, server = play(PlayedVllm)
    follow(two, {"where": "vllm", "url": url})
    settings = config.load(two.config)
    with store.connect(two.database) as db:
        [standing] = following.standings(db, settings)
        monkeypatch.setattr(following.time, "time", lambda: 1_000_000.0)
        for age, tried in ((60, False), (settings.schedule.retry_minutes * 60 + 1, True)):
            following.remember(
                db, following.Standing(standing.target, 1, "", "it was down", 1_000_000.0 - age)
            )
            following.retry(db, two, settings)
            assert bool(server.loaded) == tried


def test_always_and_stop_write_the_settings(two: Home, play: Any, run: Run) -> None:
    url, server = play(PlayedVllm)
    code, out, err = run("publish", "vllm", "--url", url, "--always")
    assert code == 0, err
    assert "follows the live version from now on" in out
    assert list(server.loaded) == ["clawback-v1"]
    [target] = config.load(two.config).publish.targets
    assert (target.where, target.url) == ("vllm", url)
    assert run("publish", "--json")[0] == 0
    code, out, _ = run("rollback", "base")
    assert code == 0
    assert not server.loaded
    assert run("publish", "vllm", "--stop")[0] == 0
    assert config.load(two.config).publish.targets == ()
    code, _, err = run("publish", "vllm", "--stop")
    assert code == 2
    assert "does not follow" in err
    code, _, err = run("publish")
    assert code == 2
    assert "--always" in err


def test_going_live_starts_a_process_of_its_own_and_only_where_something_follows(
    improved: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(trigger.subprocess, "Popen", lambda *a, **k: started.append((a, k)))
    monkeypatch.setenv("SECRET_KEY", "s")
    before = improved.config.read_bytes()
    try:
        with store.connect(improved.database) as db:
            version_registry.go_live(db, improved, 1)
            assert not started
            follow(improved, {"where": "vllm", "url": "http://127.0.0.1:9"})
            version_registry.go_live(db, improved, 1)
            [((command,), more)] = started
            assert command[1:] == ["-m", "clawback", "publish"]
            assert "SECRET_KEY" not in more["env"]
            assert more["env"]["CLAWBACK_HOME"] == str(improved.root)
            monkeypatch.setattr(
                trigger.subprocess, "Popen", lambda *a, **k: (_ for _ in ()).throw(OSError("no"))
            )
            assert version_registry.go_live(db, improved, 1).status == "live", "it never holds a promotion up"
    finally:
        improved.config.write_bytes(before)
