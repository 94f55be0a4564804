"""`clawback train` with a trainer elsewhere: the version comes back, is judged here, and goes live or not."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from clawback import config, engine, jobs, store
from clawback.episode_jobs import playing
from clawback.errors import ConfigError, Interrupted, UsageError
from clawback.extensions.hosted import hosted_run as elsewhere
from clawback.extensions.hosted.trainer_records import CapReached
from clawback.extensions.trainer_server.around import Faults
from clawback.jobs import training_job
from clawback.jobs.run_job import RunJob
from clawback.paths import Home
from clawback.records import Run
from tests.conftest import rate_some
from tests.hosted.conftest import KEY, Running


@pytest.fixture
def away(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Home, Running]:
    """A home with ratings whose trainer is on loopback, and has a bad day."""
    rate_some(home)
    server = Running(engine.load("embedded", dtype="float32"), tmp_path / "service", Faults(0.2, 3))
    config.save(
        home.config,
        {
            "hosted": {"url": server.url, "model": "embedded", "save_every": 1},
            "generation": {"temperature": 1.0},
        },
    )
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    server.service.base = "embedded"
    yield home, server
    server.close()


@pytest.mark.slow
def test_a_run_elsewhere_gives_a_version_that_the_gate_judges(away: tuple[Home, Running]) -> None:
    home, server = away
    told: list[dict[str, object]] = []
    outcome = jobs.train_once(home, on_progress=lambda p: told.append(dict(p)))
    assert outcome.version.number == 1
    assert outcome.version.status in ("live", "rejected", "candidate")
    assert outcome.report.reasons
    folder = Path(outcome.version.path)
    provenance = json.loads((folder / "provenance.json").read_text())
    assert server.url in provenance["algorithm_note"]
    assert provenance["recipe"]["conditions"]["hosted"] == server.url
    assert provenance["recipe"]["alpha"] == 32
    assert provenance["metrics"]["tokens"] == server.service.bill.tokens > 0
    assert any(p.get("phase") == "estimate" and "tokens at" in str(p.get("text")) for p in told)
    assert not server.service.models  # given back
    with store.connect(home.database) as db:
        assert db.run(outcome.run.id).status == "done"
        assert db.steps(outcome.run.id)


def test_without_a_key_nothing_is_begun(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    rate_some(home)
    config.save(
        home.config, {"hosted": {"url": "https://trainer.invalid"}, "generation": {"temperature": 1.0}}
    )
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="TINKER_API_KEY is not set"):
        jobs.train_once(home)
    with store.connect(home.database) as db:
        assert not db.runs()


@pytest.mark.parametrize(
    "url", ["http://trainer.invalid", "http://10.0.0.7:8753", "ftp://trainer.invalid", "trainer.invalid"]
)
def test_nothing_goes_over_a_network_in_the_clear(
    home: Home, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    rate_some(home)
    config.save(home.config, {"hosted": {"url": url}, "generation": {"temperature": 1.0}})
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    with pytest.raises(ConfigError, match="could be read on the way"):
        jobs.train_once(home)


def test_an_algorithm_that_cannot_be_hosted_is_refused_before_a_run(home: Home) -> None:
    rate_some(home)
    config.save(home.config, {"hosted": {"url": "http://127.0.0.1:9"}, "generation": {"temperature": 1.0}})
    with pytest.raises(UsageError, match="hosted trainer"):
        jobs.train_once(home, algorithm="ppo")
    with store.connect(home.database) as db:
        assert not db.runs()


@pytest.mark.slow
def test_a_limit_stops_a_run_that_can_be_gone_on_with(
    away: tuple[Home, Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after settings that would lead elsewhere, or to nobody: what was paid for is not lost."""
    home, server = away
    config.save(home.config, {"hosted": {"max_tokens": 1500}})
    with pytest.raises(CapReached, match=r"`clawback runs resume` continues it"):
        jobs.train_once(home)
    with store.connect(home.database) as db:
        [run] = db.runs()
        assert (run.status, db.stop_wanted(run.id)) == ("stopped", False)
        assert "max_tokens" in run.error
    spent = server.service.bill
    config.save(home.config, {"hosted": {"max_tokens": 0, "url": "http://127.0.0.1:1"}})
    with pytest.raises(Interrupted, match=f"was begun at {server.url}.* set it back"):
        jobs.train_once(home, resume=run.id)
    config.save(home.config, {"hosted": {"url": server.url, "key_env": "NO_SUCH_KEY"}})
    with monkeypatch.context() as patch:
        patch.setattr(elsewhere, "LOOPBACK", ())
        patch.setattr(elsewhere, "urlsplit", lambda url: urlsplit(url.replace("http:", "https:")))
        with pytest.raises(Interrupted, match="NO_SUCH_KEY is not set"):
            jobs.train_once(home, resume=run.id)
    config.save(home.config, {"hosted": {"key_env": "TINKER_API_KEY"}})
    outcome = jobs.train_once(home, resume=run.id)
    assert outcome.run.id == run.id
    assert outcome.run.status == "done"
    assert server.service.bill.tokens > spent.tokens


def test_what_is_answered_at_another_temperature_is_not_trained_elsewhere(
    away: tuple[Home, Running],
) -> None:
    """Nothing is begun, nothing is paid."""
    home, server = away
    config.save(home.config, {"generation": {"temperature": 0.7}})
    with pytest.raises(UsageError, match="knows temperature 1 alone"):
        jobs.train_once(home)
    assert not server.service.bill.tokens
    with store.connect(home.database) as db:
        assert not db.runs()


@pytest.mark.parametrize(
    ("job", "again"),
    [(training_job._Job, "clawback runs resume"), (playing._Job, "clawback env train --resume 1")],
)
def test_what_interrupts_a_run_says_how_that_run_goes_on(job: type[RunJob], again: str, home: Home) -> None:
    with store.connect(home.database) as db:
        run = db.start_run(Run(base="b", base_revision="r", algorithm="a", recipe={}, seed=0, parent=0))
        with pytest.raises(Interrupted, match=f"`{again}` continues it"), job(home, db, None).entered(run):
            raise Interrupted("A worker has ended.")
        assert (db.run(run.id).status, db.run(run.id).error) == ("stopped", "A worker has ended.")
