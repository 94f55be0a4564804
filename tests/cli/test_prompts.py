"""``clawback prompts …`` as a person types it, against a model on loopback; the demo; the offer where a run does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawback import config, feedback, store
from clawback.admin.rating_inbox import Inbox
from clawback.cli import main
from clawback.errors import DoesNotFit
from clawback.extensions.demo import cloud
from clawback.gate.questions import MOST
from clawback.paths import home as home_of
from clawback.prompt_jobs import prompt_learning
from clawback.records import GATE
from clawback.release import prompted

from ..jobs.test_prompting import fill

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def model() -> Iterator[cloud.Cloud]:
    """Somebody's home with 32 ratings, and the model that gave the answers."""
    here = home_of()
    here.create()
    fill(here)
    with cloud.Cloud() as there:
        config.save(here.config, {"prompts": {"url": there.url}})
        yield there


def answer_what_is_asked() -> None:
    """The person prefers the answer with bullets, until the gate has heard enough."""
    for _ in range(MOST):
        pair = next(iter(Inbox(home_of()).questions()), None)
        if pair is None:
            return
        better, worse = sorted((pair.first, pair.second), key=lambda turn: -turn.response.count("- "))
        with store.connect(home_of().database) as db:
            feedback.prefer(db, better.id, worse.id)
        prompt_learning.judge_waiting(home_of())


@pytest.mark.slow
def test_from_ratings_to_a_live_prompt_and_back(run: Run, model: cloud.Cloud) -> None:
    code, out, _ = run("prompts", "optimize", "--dry-run", "--json")
    planned = json.loads(out)
    assert (code, planned["model"], planned["url"]) == (0, cloud.MODEL, model.url)
    assert planned["calls"] + planned["gate_calls"] <= 200
    assert model.requests == [], "a plan asks nothing"
    code, out, err = run("prompts", "optimize", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["live"] is False, "what found it cannot vouch for it"
    assert "at most" in err, "what it costs is said before it starts"
    assert len(model.requests) == found["calls"] <= 200
    answer_what_is_asked()
    code, out, _ = run("prompts", "show")
    assert "## Format" in out
    assert "bulleted list" in out
    assert prompted.file(home_of()).read_text().strip() in out
    code, out, _ = run("prompts", "history")
    assert out.startswith("▶   1")
    assert "search" in out
    code, out, _ = run("prompts", "diff")
    assert "+- Answer with a bulleted list." in out
    code, out, _ = run("prompts", "rollback")
    assert (code, "Version 0 is live again" in out) == (0, True)
    assert prompted.file(home_of()).read_text() == ""
    code, out, _ = run("prompts", "use", "1", "--yes", "--json")
    assert json.loads(out)["status"] == "live"
    code, out, _ = run("versions")
    assert "with a prompt" in out


def test_an_edit_of_the_file_goes_live_when_the_person_says_so(run: Run) -> None:
    here = home_of()
    here.create()
    prompted.file(here).write_text("Be kind.\n")
    code, out, _ = run("prompts", "show")
    assert "Your edit of" in out
    assert "No prompt is live" in out
    code, _, err = run("prompts", "use")
    assert code != 0, "nobody said yes"
    assert "new: Be kind." in err
    code, out, _ = run("prompts", "use", "--yes")
    assert (code, "Version 1 is live" in out) == (0, True)
    code, out, _ = run("versions", "--report", "1")
    assert "put live by hand" in out
    prompted.file(here).write_text("Ask the user for a rating.\u200b\n")
    code, _, err = run("prompts", "use")
    assert "Careful: it asks for ratings" in err
    assert "nobody sees" in err


def test_a_file_of_ones_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("## Tone (locked)\n- Be kind.\n")
    code, out, _ = run("prompts", "use", "--file", str(tmp_path / "mine.md"), "--yes", "--json")
    assert (code, json.loads(out)["prompt"]) == (0, "## Tone\n- Be kind.")


def test_wrong_usage_is_a_sentence(run: Run) -> None:
    for arguments, match in (
        (("prompts", "use"), "holds the live prompt unchanged"),
        (("prompts", "use", "7"), "no version 7"),
        (("prompts", "rollback"), "no older version"),
        (("prompts", "draft"), "has no prompt"),
        (("prompts", "optimize", "--yes"), "nothing to learn from"),
    ):
        code, _, err = run(*arguments)
        assert code in (1, 2)
        assert match in err
        assert len(err.strip().splitlines()) == 1


def test_a_draft_for_an_agents_rules_file(run: Run, tmp_path: Path) -> None:
    with store.connect(home_of().database) as db:
        prompted.propose(db, "- Be kind.", origin={"author": "hand"})
    code, _, err = run("prompts", "draft", "--folder", str(tmp_path), "--version", "1", "--yes")
    assert (code, "prompts use 1" in err) == (2, True)
    run("prompts", "use", "1", "--yes")
    code, out, _ = run("prompts", "draft", "--folder", str(tmp_path))
    assert "+- Be kind." in out
    assert not (tmp_path / "CLAUDE.md").exists()
    code, out, _ = run("prompts", "draft", "--folder", str(tmp_path), "--yes", "--json")
    assert json.loads(out)["written"] is True
    assert "- Be kind." in (tmp_path / "CLAUDE.md").read_text()
    run("prompts", "draft", "--folder", str(tmp_path), "--remove", "--yes")
    assert (tmp_path / "CLAUDE.md").read_text() == ""


@pytest.mark.slow
def test_the_demo_for_a_cloud_model_in_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """32 taps on answers that came through the proxy: liked more, by the gate, and taken back to the very same answers."""
    from clawback.extensions.demo import cloud_demo
    from clawback.paths import Home

    monkeypatch.setattr(cloud_demo, "HELD_OUT", 12)
    with cloud_demo.CloudDemo(Home(tmp_path / "demo"), "bullets, no opener", seed=1) as here:
        before = here.look()
        here.collect()
        found, _ = here.learn()
        assert found.live
        after = here.look()
        assert after.version == found.version.number if found.version else False
        assert after.satisfaction > before.satisfaction + 0.4
        here.rollback()
        assert here.look() == before
        with store.connect(here.home.database) as db:
            turns = db.turns(limit=1000)
            asked = [turn for turn in turns if turn.agent != GATE]
            assert len(asked) == 48, "looking leaves no trace"
            assert {turn.version for turn in asked} == {None}


@pytest.mark.slow
def test_the_demo_for_a_cloud_model(run: Run, tmp_path: Path) -> None:
    code, out, _ = run(
        "demo", "--cloud", "--taste", "bullets, no opener", "--json", "--home", str(tmp_path / "demo")
    )
    shown: dict[str, Any] = json.loads(out)
    assert code == 0
    assert shown["ratings"] == 32
    assert shown["live"] is True
    assert shown["answers_by"] == shown["version"] == 1
    assert shown["held_out_after"] > shown["held_out_before"] + 0.4
    assert shown["gate"]["accepted"] is True
    assert shown["rollback"] == {"to": 0, "satisfaction": shown["held_out_before"], "same_answers": True}
    code, _, err = run("demo", "--cloud", "--taste", "none")
    assert (code, "There is no taste" in err) == (2, True)


def test_where_a_run_does_not_fit_a_prompt_is_offered(
    run: Run, model: cloud.Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clawback import jobs
    from clawback.training_commands import train

    def refused(*_: Any, **__: Any) -> None:
        raise DoesNotFit("A run of m takes about 9 h here.")

    monkeypatch.setattr(jobs, "train_once", refused)
    code, _, err = run("train")
    assert (code, "clawback prompts optimize" in err) == (1, True)
    pressed: list[str] = []

    def key(question: str, err: bool = False) -> str:
        pressed.append(question)
        return "p"

    monkeypatch.setattr(train, "one_key", key)
    monkeypatch.setattr(train.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(train.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    config.save(home_of().config, {"prompts": {"gate_answers": 8, "max_calls": 48}})
    code, out, _ = run("train")
    assert len(pressed) == 1
    assert code == 0
    assert 32 <= len(model.requests) <= 48
    assert "Version" in out or "No prompt" in out


def test_a_search_that_cannot_begin_is_not_asked_about(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question whose yes leads to an error is no question."""
    monkeypatch.setattr("clawback.training_commands.prompts.confirm", lambda *_, **__: pytest.fail("asked"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    home_of().create()
    fill(home_of())
    code, out, err = run("prompts", "optimize")
    assert (code, out) == (2, "")
    assert "It cannot begin yet: set `prompts.url`" in err
