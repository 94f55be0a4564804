"""How the settings make a run: which conversations wait, what credit reaches, whose word counts, and what rewards add up from."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawback import config, engine, feedback, jobs, store
from clawback.errors import ConfigError, TrainingError, UsageError
from clawback.jobs import inputs
from clawback.jobs.training_job import _Job
from clawback.paths import Home
from clawback.policy.policy import Policy
from clawback.records import Run, Turn
from clawback.store import Store
from tests.jobs.test_training import rated_home, weights

OLD, TIMEOUT = 7200.0, 3600.0


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        yield opened


def conversation(db: Store, session: str, count: int, ago: float = OLD, kind: str = "main") -> list[int]:
    """Turns, the last of them that long ago."""
    made = []
    for number in range(count):
        asked = ({"role": "user", "content": f"question {number} of {session}"},)
        at = time.time() - ago - (count - number)
        turn = Turn(session, asked, f"answer {number}", kind=kind, created_at=at)  # type: ignore[arg-type]
        made.append(db.add_turn(turn).id)
    return made


def settings(home: Home, text: str) -> config.Config:
    home.config.write_text(text)
    return config.load(home.config)


# -------------------------------------------------------------------------------------------- what waits


def test_with_credit_a_conversation_that_goes_on_waits(home: Home, db: Store) -> None:
    over, going, done = (conversation(db, s, 2, ago) for s, ago in (("a", OLD), ("b", 60), ("c", 60)))
    db.finish_session("c")
    conversation(db, "a", 1, ago=10, kind="side")  # a title made now is nobody going on
    rows = {t: feedback.rate(db, t, 1).id for t in (*over, *going, *done)}
    linked = feedback.prefer(db, over[0], going[0]).id

    def settled(text: str) -> set[int]:
        return {f.id for f in inputs.settled(db, settings(home, text))}

    everything = {*rows.values(), linked}
    assert settled("") == everything
    assert settled("[training]\ncredit = 0.5") == {rows[t] for t in (*over, *done)}
    assert settled("[training]\ncredit = 0.5\nsession_timeout = 30") == everything
    assert settled("[training]\ncredit = 0.5\nsession_timeout = 0") == everything
    assert settled("[training]\ncredit = 0.5\nsession_timeout = 90000") == {rows[t] for t in done}


def test_when_all_goes_on_it_is_said_and_no_run_is_entered(home: Home, db: Store) -> None:
    for turn in conversation(db, "now", 4, ago=5):
        feedback.rate(db, turn, 1 if turn % 2 else -1)
    home.config.write_text("[training]\ncredit = 0.5")
    with pytest.raises(TrainingError, match="open conversations"):
        jobs.train_once(home)
    assert (db.runs(), db.count_fresh()) == ([], 4)


# ---------------------------------------------------------------------------------------- what credit reaches


def test_short_conversations_are_left_as_they_are(db: Store) -> None:
    short, long = conversation(db, "short", 2), conversation(db, "long", 3)
    conversation(db, "short", 5, kind="side")
    for turns in (short, long):
        feedback.rate(db, turns[-1], 1)
    found = {
        s.turn_id: s.reward for s in feedback.samples(db, query=feedback.SampleQuery(credit=0.5, min_turns=3))
    }
    assert found == {short[1]: 1.0, long[0]: 0.25, long[1]: 0.5, long[2]: 1.0}
    assert set(found) | {short[0]} == {
        s.turn_id for s in feedback.samples(db, query=feedback.SampleQuery(credit=0.5, min_turns=1))
    }
    assert [s.turn_id for s in feedback.samples(db, query=feedback.SampleQuery(credit=0.5, min_turns=4))] == [
        short[1],
        long[2],
    ]


@pytest.fixture(scope="module")
def base() -> Policy:
    return engine.load("embedded")


def begun(home: Home) -> Run:
    """A run whose process dies when its samples are made."""

    class Died(BaseException):
        pass

    def die(progress: object) -> None:
        if isinstance(progress, dict) and progress["phase"] == "prepare":
            raise Died

    with pytest.raises(Died):
        jobs.train_once(home, on_progress=die)
    with store.connect(home.database) as db:
        run = db.active_run()
        assert run is not None
        return run


def test_a_run_that_goes_on_sees_what_it_saw_at_first(home: Home, db: Store, base: Policy) -> None:
    """Whatever is said, asked and set meanwhile: the conversations go on, others rate, the settings are others."""
    short, long = conversation(db, "short", 2), conversation(db, "long", 4)
    bad, good = conversation(db, "bad", 1), conversation(db, "good", 1)  # a run needs two of each sign
    for turns, value in ((short, -1.0), (long, 1.0), (bad, -1.0), (good, 1.0)):
        feedback.rate(db, turns[-1], value)
        feedback.rate(db, turns[-1], value, source="slack:U1")
    home.config.write_text(
        "[training]\nalgorithm = 'reinforce'\ncredit = 0.5\nmin_turns = 3\n[gate]\nheld_out = 0.0\n"
        "[reward]\nweights = {feedback = 1.0, coherence = 1.0}\n"
    )
    run = begun(home)
    recipe = engine.recipe_from(run.recipe)
    first, terms = _Job(home, db, None).samples(run, recipe, base)
    assert {s.turn_id for s in first} == {short[1], *long, *bad, *good}
    assert terms is not None

    conversation(db, "short", 5, ago=-5)
    conversation(db, "long", 5, ago=-5)
    for turn in long:
        feedback.rate(db, turn, -1.0, source="slack:U1")
        feedback.rate(db, turn, -1.0)
    home.config.write_text("[training]\ncredit = 0.0\nraters = 'equal'\n")
    again = _Job(home, db, None)
    assert again.interrupted() is not None
    assert again.samples(run, recipe, base) == (first, terms)
    assert {
        s.turn_id
        for s in feedback.samples(db, run.train_ids, query=feedback.SampleQuery(credit=0.5, min_turns=3))
    } > {s.turn_id for s in first}, "the bound is what keeps them out"


# ------------------------------------------------------------------------------------- what rewards add up from

ADDS_UP = """
[reward]
tokens = [20, 60]
weights = {feedback = 0.5, critic = 0.3, tokens = 0.2}
[[reward.verifiers]]
name = "regex"
pattern = "(?m)^- "
"""


@pytest.mark.slow
def test_what_rewards_add_up_from_is_kept_with_the_version(tmp_path: Path) -> None:
    from tests.jobs.test_training import SETTINGS

    plain, added = rated_home(tmp_path / "a", 10), rated_home(tmp_path / "b", 10, settings=SETTINGS + ADDS_UP)
    notes: list[str] = []
    jobs.train_once(plain)
    outcome = jobs.train_once(added, on_progress=lambda p: notes.append(str(p.get("note", ""))))
    assert weights(plain, 1) != weights(added, 1)
    assert "Rewards add up: 0.5·feedback + 0.3·critic + 0.2·tokens" in notes
    kept = json.loads((added.version(1) / "provenance.json").read_text())
    assert "rewards" not in json.loads((plain.version(1) / "provenance.json").read_text())
    assert kept["recipe"]["reward"]["verifiers"] == [{"name": "regex", "pattern": "(?m)^- "}]
    with store.connect(added.database) as db:
        said = {f.turn_id: f.value for f in db.feedback() if f.id in outcome.run.train_ids}
        assert {row["turn"] for row in kept["rewards"]} == set(said)
        for row in kept["rewards"]:
            terms = row["terms"]
            assert terms["feedback"][0] == (said[row["turn"]] + 1) / 2
            lists = any(line.startswith("- ") for line in db.turn(row["turn"]).response.splitlines())
            assert terms["critic"] == [float(lists), 0.3]
            assert row["reward"] == pytest.approx(
                2 * sum(value * share for value, share in terms.values()) - 1
            )


def test_a_verifier_that_there_is_not_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    home = rated_home(tmp_path, 6)
    config.save(home.config, {"reward": {"verifiers": [{"name": "oracle"}]}})
    phases: list[object] = []
    with pytest.raises(UsageError, match="oracle"):
        jobs.train_once(home, on_progress=lambda p: phases.append(p["phase"]))
    assert "load" not in phases


@pytest.mark.parametrize(
    "text",
    [
        "[training]\ncurriculum = 'hard'",
        "[training]\nmin_turns = 0",
        "[training]\nsession_timeout = -1",
        "[training]\nraters = 'loudest'",
        "[reward]\nweights = {charm = 1.0}",
        "[reward]\nweights = {critic = -1.0}",
        "[reward]\ntokens = [10]",
    ],
)
def test_settings_that_cannot_be_meant_are_refused(home: Home, text: str) -> None:
    home.config.write_text(text)
    with pytest.raises(ConfigError):
        config.load(home.config)


def test_the_settings_reach_the_recipe_and_those_set_by_hand_stand_above_them(home: Home) -> None:
    made = inputs.making(
        settings(
            home,
            "[training]\ncurriculum = 'both'\nmin_turns = 2\n[training.overrides]\ncurriculum = 'length'\nsteps = 3",
        )
    )
    info = engine.load("embedded").info
    recipe = engine.recipe(info, "balanced", "reinforce", made)
    assert (recipe.curriculum, recipe.min_turns, recipe.steps, recipe.reward) == ("length", 2, 3, {})
