"""``clawback lab hosted`` against the stand-ins, as it is typed; and runs whose trainer or vLLM is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawback import config, engine, store
from clawback.extensions.hosted import trainer_http
from clawback.paths import Home
from tests.cli.conftest import Run
from tests.hosted.conftest import KEY
from tests.hosted.conftest import Running as Tinker
from tests.hosted.test_fireworks import MODEL, SHAPE
from tests.hosted.test_fireworks import Running as Fireworks

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def tinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tinker]:
    running = Tinker(engine.load("embedded", dtype="float32"), tmp_path_factory.mktemp("tinker"))
    running.service.base = "embedded"
    yield running
    running.close()


@pytest.fixture
def fireworks(tmp_path: Path, rated: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fireworks]:
    """With the settings of the home at it."""
    running = Fireworks(engine.load("embedded", dtype="float32"), tmp_path / "cloud")
    monkeypatch.setenv("FIREWORKS_API_KEY", KEY)
    hosted = {"url": running.url, "provider": "fireworks", "model": MODEL, "shape": SHAPE}
    config.save(rated.config, {"hosted": hosted, "generation": {"temperature": 1.0}})
    yield running
    running.close()


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_http, "PRESENT", 0.1)


def begun(home: Home) -> int:
    with store.connect(home.database) as db:
        return len(db.runs())


def test_check_says_what_can_be_trained_and_what_it_may_cost(
    run: Run, rated: Home, tinker: Tinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    config.save(rated.config, {"hosted": {"url": tinker.url, "model": "embedded", "max_money": 2.0}})
    code, out, _ = run("hosted", "check")
    assert (code, "embedded can be trained there" in out, "2 in money" in out) == (0, True, True)
    config.save(rated.config, {"hosted": {"model": "another"}})
    code, out, _ = run("hosted", "check", "--json")
    assert (code, json.loads(out)["models"], json.loads(out)["known"]) == (1, ["embedded"], False)
    monkeypatch.setenv("TINKER_API_KEY", "wrong")
    code, _, err = run("hosted", "check")
    assert (code, "[hosted] key_env" in err) == (1, True)


def test_jobs_lists_what_costs_and_deletes_it(run: Run, fireworks: Fireworks) -> None:
    assert run("hosted", "jobs")[:2] == (0, "No trainer of ours.\n")
    fireworks.cloud.jobs |= {"clawback-1": 0, "clawback-2": 0, "somebody-elses": 0}
    code, out, _ = run("hosted", "jobs")
    assert (code, "clawback-1" in out, "somebody-elses" in out) == (0, True, False)
    code, out, _ = run("hosted", "jobs", "--delete", "--json")
    rows = json.loads(out)
    assert (code, [row["name"] for row in rows]) == (0, ["clawback-1", "clawback-2"])
    assert all(row["deleted"] for row in rows)
    assert list(fireworks.cloud.jobs) == ["somebody-elses"]
    assert run("hosted", "jobs")[:2] == (0, "No trainer of ours.\n")


def test_jobs_of_another_provider_are_none(run: Run, rated: Home) -> None:
    code, _, err = run("hosted", "jobs")
    assert (code, "hosted.provider fireworks" in err) == (2, True)


@pytest.mark.usefixtures("briefly")
@pytest.mark.parametrize(
    "words", [("train",), ("hosted", "check"), ("train", "--draw", NOWHERE)], ids=["train", "check", "draw"]
)
def test_an_address_where_nothing_answers_begins_nothing(
    words: tuple[str, ...], run: Run, rated: Home
) -> None:
    if "--draw" not in words:
        config.save(
            rated.config, {"hosted": {"url": NOWHERE, "timeout": 60}, "generation": {"temperature": 1.0}}
        )
    code, _, err = run(*words)
    assert (code, begun(rated)) == (1, 0)
    assert "Nothing was begun" in err
    assert "resume" not in err


@pytest.mark.usefixtures("briefly")
def test_episodes_are_not_waited_for_where_nothing_draws(run: Run, rated: Home) -> None:
    code, _, err = run("gym", "tools:shop", "--draw", NOWHERE, "--num-samples", "1")
    assert (code, "Nothing was begun" in err) == (1, True)


def test_what_is_no_address_is_said(run: Run, rated: Home) -> None:
    code, _, err = run("train", "--draw", "nonsense")
    assert (code, "'nonsense' is no address" in err, "[hosted]" in err) == (2, True, False)


@pytest.mark.parametrize(
    "words",
    [
        ("train", "--draw", "vllm"),
        ("train", "--algorithm", "auto", "--anyway"),
        ("gym", "tools:shop"),
        ("gym", "tools:shop", "--num-samples", "1"),
        ("hosted", "draw"),
    ],
    ids=["option", "setting", "gym", "samples", "server"],
)
def test_without_vllm_nothing_is_begun_and_what_to_do_is_said(
    words: tuple[str, ...], run: Run, rated: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    config.save(rated.config, {"training": {"draw": "vllm"}, "vllm": {"command": "/nowhere/vllm"}})
    code, _, err = run(*words)
    assert (code, begun(rated)) == (2, 0)
    assert "/nowhere/vllm is neither the program vllm nor an environment with it" in err
    assert "docs/vllm.md" in err


@pytest.mark.slow
def test_a_setting_that_vllm_draws_counts_only_where_something_is_drawn(run: Run, rated: Home) -> None:
    config.save(rated.config, {"training": {"draw": "vllm"}, "vllm": {"command": "/nowhere/vllm"}})
    assert run("train", "--anyway")[0] == 0  # by `reinforce`
    assert begun(rated) == 1
