"""`clawback env train` as a job: before, rounds, after, a version; killed anywhere it goes on and loses no finished episode."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from clawback import jobs, release, store
from clawback.environments.core import EnvironmentFailure
from clawback.episode_jobs import playing
from clawback.errors import Busy, Stopped, TrainingError, UsageError
from clawback.rollouts.concurrent import Rollouts
from tests.environments.worlds import Worlds

WISH = playing.Wish("rows", episodes=12, groups=4, held_out=4, max_tokens=3, together=8)


class Killed(BaseException):
    """As kill -9: nothing tidies up after it."""


@pytest.fixture
def quiet(home):
    home.config.write_text("[training]\nbackground = false\n")
    return home


def learn(home, worlds=None, wish=WISH, **options):
    return playing.learn(home, wish, seed=1, worlds=worlds or Worlds(turns=2), **options)


def test_a_run_makes_a_version_with_all_that_made_it(quiet):
    told = []
    made = learn(quiet, on_progress=told.append)
    assert made.counts == {"completed": 12 + 4 + 4}
    assert made.version.status == "candidate"
    assert made.run.status == "done"
    report = made.version.report
    assert report["kind"] == "episodes"
    assert not report["accepted"]  # four held-out tasks decide nothing
    release.check(made.version)
    provenance = json.loads((Path(made.version.path) / "provenance.json").read_text())
    assert provenance["episodes"]["environment"] == "rows"
    assert provenance["episodes"]["counts"] == {"completed": 20}
    assert provenance["feedback"] == []
    with store.connect(quiet.database) as db:
        assert {s["phase"] for s in db.steps(made.run.id)} == {"train"}
        assert all("return" in s and "gap" in s for s in db.steps(made.run.id))
        held = db.episodes(100, split="test")
        tasks = [{e.task for e in held if (e.number >= playing.AFTER) == after} for after in (False, True)]
    assert tasks[0] == tasks[1] == {f"test-{i}" for i in range(4)}
    assert [t["phase"] for t in told if t["phase"] != "train"][:2] == ["load", "before"]
    with pytest.raises(UsageError, match="has not passed"):
        release.promote(store.connect(quiet.database), quiet, made.version.number)


def test_killed_three_times_it_goes_on_and_plays_nothing_twice(quiet, monkeypatch):
    real = Rollouts.wave
    before = {}
    for last in (1, 4, 3):
        waves = [0]

        def dying(self, waves=waves, last=last):
            waves[0] += 1
            if waves[0] == last:
                raise Killed
            return real(self)

        monkeypatch.setattr(Rollouts, "wave", dying)
        with pytest.raises(Killed):
            learn(quiet)
        with store.connect(quiet.database) as db:
            [run] = db.runs()
            assert run.status == "running"
            episodes = {e.number: e.id for e in db.episodes(100)}
        assert before.items() <= episodes.items()
        before = episodes
    monkeypatch.setattr(Rollouts, "wave", real)
    worlds = Worlds(turns=2)
    made = learn(quiet, worlds)
    assert made.run.id == run.id
    assert made.counts == {"completed": 20}
    assert len(worlds.resets) == 20 - len(before)
    with store.connect(quiet.database) as db:
        after = {e.number: e.id for e in db.episodes(100)}
    assert before.items() <= after.items()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(quiet, tmp_path):
    from clawback.paths import Home
    from clawback.release.version_registry import WEIGHTS

    other = Home(tmp_path / "other")
    other.create()
    contents = [(Path(learn(h).version.path) / WEIGHTS).read_bytes() for h in (quiet, other)]
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_the_learning_rate_falls_to_nothing_where_that_is_asked_for(quiet):
    made = learn(quiet, wish=dataclasses.replace(WISH, episodes=48), overrides={"decay": True})
    with store.connect(quiet.database) as db:
        rates = [step["learning_rate"] for step in db.steps(made.run.id)]
    warm = rates.index(max(rates))
    assert rates[warm:] == sorted(rates[warm:], reverse=True)
    assert rates[-1] < max(rates) / 2


def test_most_worlds_broken_is_a_failed_run_in_words(quiet):
    with pytest.raises((EnvironmentFailure, TrainingError), match="environment failed"):
        learn(quiet, Worlds(breaks=lambda w, row: True))
    with store.connect(quiet.database) as db:
        [run] = db.runs()
        assert run.status == "failed"
        assert "environment failed" in run.error


@pytest.mark.slow
def test_it_keeps_out_of_the_way_of_runs_on_feedback(rated, monkeypatch):
    monkeypatch.setattr(playing._Job, "version", lambda *a: (_ for _ in ()).throw(Killed()))
    with pytest.raises(Killed):
        learn(rated)
    checkpoint = rated.runs / "1" / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"of an hour of play")
    (rated.runs / "77").mkdir()
    outcome = jobs.train_once(rated)  # the dead one is set aside, not trained on ratings
    assert outcome.run.id == 2
    assert checkpoint.exists(), "run 1 can still be gone on with"
    assert not (rated.runs / "77").exists(), "of a run that nobody knows"
    with store.connect(rated.database) as db:
        assert db.run(1).status == "stopped"
        db.update_run(2, status="running")
    with pytest.raises(Busy, match="Run 2 was interrupted"):
        learn(rated)
    with store.connect(rated.database) as db:
        db.update_run(2, status="done")
    with pytest.raises(UsageError, match="env train --resume"):
        jobs.train_once(rated, resume=1)


def test_another_wish_begins_another_run(quiet, monkeypatch):
    monkeypatch.setattr(playing._Job, "version", lambda *a: (_ for _ in ()).throw(Killed()))
    for wish in (WISH, dataclasses.replace(WISH, episodes=16)):
        with pytest.raises(Killed):
            learn(quiet, wish=wish)
    with store.connect(quiet.database) as db:
        assert [(r.id, r.status) for r in db.runs()] == [(2, "running"), (1, "stopped")]


def test_the_same_command_goes_on_with_a_run_that_was_stopped(quiet, monkeypatch):
    def stopping(self):
        raise KeyboardInterrupt

    real = Rollouts.wave
    monkeypatch.setattr(Rollouts, "wave", stopping)
    with pytest.raises(KeyboardInterrupt):
        learn(quiet)
    with store.connect(quiet.database) as db:
        assert db.run(1).status == "stopped"
    with pytest.raises(UsageError, match="env train --resume 1"):
        jobs.resumable(quiet)
    with pytest.raises(KeyboardInterrupt):
        learn(quiet, overrides={"kl": 0.5})  # another recipe is another run
    monkeypatch.setattr(Rollouts, "wave", real)
    made = playing.learn(quiet, WISH, worlds=Worlds(turns=2), resume=2)
    assert (made.run.id, made.run.recipe["kl"], made.run.seed) == (2, 0.5, 1)


@pytest.mark.parametrize("phase", [pytest.param("before", marks=pytest.mark.slow), "after"])
def test_a_wish_to_stop_is_heard_in_held_out_play_too(quiet, phase):
    def asking(told):
        if told["phase"] == phase:
            with store.connect(quiet.database) as db:
                db.update_run(1, stop_at=1.0)

    with pytest.raises(Stopped, match="env train --resume 1"):
        learn(quiet, on_progress=asking)
    with store.connect(quiet.database) as db:
        assert db.run(1).status == "stopped"
        before = len(db.episodes(100))
    worlds = Worlds(turns=2)
    made = learn(quiet, worlds, resume=1)
    assert made.run.id == 1
    assert made.counts == {"completed": 20}
    assert len(worlds.resets) == 20 - before


@pytest.mark.slow
def test_ratings_are_learned_from_in_the_same_run_and_have_a_say_in_it(rated):
    small = {"grounding": 32, "prompts": 2, "samples": 2}
    wish = dataclasses.replace(WISH, episodes=8, ratings=True)
    made = learn(rated, wish=wish, overrides=small)
    assert made.run.train_ids
    assert made.run.held_out_ids
    provenance = json.loads((Path(made.version.path) / "provenance.json").read_text())
    assert provenance["feedback"] == list(made.run.train_ids)
    assert provenance["episodes"]["environment"] == "rows"
    report = made.version.report
    assert report["kind"] == "episodes"
    assert report["rated"]["evidence"]
    assert any("by ratings" in reason for reason in report["reasons"])
    with store.connect(rated.database) as db:
        assert all({"return", "rated"} <= s.keys() for s in db.steps(made.run.id) if s["phase"] == "train")


def test_ratings_that_the_gate_could_not_go_by_are_refused_before_anything_is_played(quiet):
    worlds = Worlds(turns=2)
    with pytest.raises(TrainingError, match="nothing to learn from yet"):
        learn(quiet, worlds, wish=dataclasses.replace(WISH, ratings=True))
    assert not worlds.resets
