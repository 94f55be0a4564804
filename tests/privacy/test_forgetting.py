"""Forgetting: gone from every file, marked where it was learned from, and a version trained without it is one that never saw it."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback import feedback, jobs, store
from clawback.admin import forgetting
from clawback.cli import main
from clawback.errors import Busy, ConfigError, NotFound, UsageError
from clawback.extensions import importers
from clawback.paths import Home
from clawback.privacy import erasure, retention
from clawback.records import Feedback, Run, Turn, Version
from clawback.store.pending import PendingPrompt

SECRET = "The treasure of Abelard lies beneath the seventh oak."
ASKED = "Where did Abelard hide it?"


def turn(number: int, **more: object) -> Turn:
    given: dict[str, object] = {
        "session": "s",
        "messages": ({"role": "user", "content": f"Question {number}?"},),
        "response": f"Answer {number}.",
    }
    return Turn(**(given | more))  # type: ignore[arg-type]


def files(home: Home) -> bytes:
    return b"".join(p.read_bytes() for p in home.root.rglob("*") if p.is_file())


def learned(db: store.Store, ids: list[int], parent: int = 0) -> Version:
    run = db.add_ended_run(Run("embedded", "", "reinforce", {}, 0, parent, train_ids=tuple(ids)))
    return db.add_candidate(Version(0, "candidate", "embedded", parent=parent, run_id=run.id))


def test_nothing_of_a_turn_is_left_in_any_file(home: Home) -> None:
    with store.connect(home.database) as db:
        asked = {"role": "user", "content": ASKED}
        one = db.add_turn(turn(1, messages=(asked,), response=SECRET))
        said = ({"role": "assistant", "content": SECRET}, {"role": "user", "content": "Thanks! Next?"})
        two = db.add_turn(turn(2, messages=(asked, *said)))
        other = db.add_turn(turn(3, session="resumed elsewhere", messages=(asked, *said), response="Later."))
        db.put_next_state(one.id, [{"role": "user", "content": "Thanks! Next?"}])
        db.put_prompt("a", "s", PendingPrompt("p", ASKED))
        feedback.edit(db, one.id, SECRET + " Dig.")
        feedback.critique(db, one.id, "Abelard is private.")
        for folder in (home.runs / "3", home.prompts):
            folder.mkdir(parents=True)
            (folder / "state.json").write_text(SECRET)
        (home.root / "clawback.db.schema-9.backup").write_text(SECRET)
        done = erasure.erase(db, home, erasure.wanted(db, turns=[one.id]))
        assert (done.turns, len(done.feedback), len(done.also)) == ((one.id,), 2, 3)
        assert [m["content"] for m in db.turn(two.id).messages] == [
            "[forgotten]",
            "[forgotten]",
            "Thanks! Next?",
        ]
        assert db.turn(other.id).response == "Later."
        with pytest.raises(NotFound):
            db.turn(one.id)
        assert db.integrity() == []
        assert b"Abelard" not in files(home)


def test_what_was_said_of_others_stays(home: Home) -> None:
    with store.connect(home.database) as db:
        a, b, c = (db.add_turn(turn(n)) for n in range(3))
        feedback.prefer(db, a.id, b.id)
        kept = feedback.rate(db, b.id, 1)
        erasure.erase(db, home, erasure.wanted(db, turns=[a.id]))
        assert [f.id for f in db.feedback()] == [kept.id]
        assert {t.id for t in db.turns()} == {b.id, c.id}


def test_versions_that_learned_from_it_are_marked_and_their_descendants(home: Home) -> None:
    with store.connect(home.database) as db:
        a, b = db.add_turn(turn(1)), db.add_turn(turn(2))
        ra, rb = feedback.rate(db, a.id, 1), feedback.rate(db, b.id, 1)
        clean = learned(db, [rb.id])
        db._db.execute("UPDATE runs SET created_at = 0")  # before the turn was there
        stained = learned(db, [ra.id, rb.id])
        child = learned(db, [rb.id], parent=stained.number)
        done = erasure.erase(db, home, erasure.wanted(db, turns=[a.id]))
        assert done.versions == (stained.number, child.number)
        assert not db.version(clean.number).stale
        # A candidate that learned from it is not to go live any more.
        assert [db.version(n).status for n in done.versions] == ["rejected", "rejected"]
        assert [f.versions for f in db.forgotten()] == [done.versions]


def test_an_unrated_prompt_marks_the_runs_that_may_have_drawn_answers_to_it(home: Home) -> None:
    with store.connect(home.database) as db:
        unrated, rated = db.add_turn(turn(1)), db.add_turn(turn(2))
        version = learned(db, [feedback.rate(db, rated.id, 1).id])
        assert erasure.erase(db, home, erasure.wanted(db, turns=[unrated.id])).versions == (version.number,)


def test_a_person_is_forgotten_with_survey_and_waiting_taps(home: Home) -> None:
    with store.connect(home.database) as db:
        a = db.add_turn(turn(1))
        feedback.critique(db, a.id, "Zebedee says no", source="slack:U1")
        mine = feedback.rate(db, a.id, 1)
        db.add_survey(0, 4, "slack:U1", "Zebedee liked it")
        db.put_early("place", Feedback(0, "critique", 0.0, "Zebedee waits", source="slack:U1"))
        done = erasure.erase(db, home, erasure.wanted(db, person="slack:U1"))
        assert (done.turns, len(done.feedback)) == ((), 1)
        assert [f.id for f in db.feedback()] == [mine.id]
        assert b"Zebedee" not in files(home)
        with pytest.raises(NotFound, match="slack:U1"):
            erasure.wanted(db, person="slack:U1")
        with pytest.raises(UsageError):
            erasure.wanted(db)


def test_nothing_is_deleted_while_a_run_learns_from_it(home: Home) -> None:
    from filelock import FileLock

    with store.connect(home.database) as db, FileLock(home.train_lock):
        a = db.add_turn(turn(1))
        with pytest.raises(Busy):
            erasure.erase(db, home, erasure.wanted(db, turns=[a.id]))
        assert db.turn(a.id).response == "Answer 1."


@settings(max_examples=20)
@given(gone=st.sets(st.integers(1, 12), min_size=1), rated=st.sets(st.integers(1, 12)))
def test_forgetting_leaves_exactly_the_rest(
    tmp_path_factory: pytest.TempPathFactory, gone: set[int], rated: set[int]
) -> None:
    home = Home(tmp_path_factory.mktemp("any"))
    with store.connect(home.database) as db:
        messages: tuple[dict[str, str], ...] = ()
        for n in range(1, 13):
            messages += ({"role": "user", "content": f"Question number {n:02}?"},)
            db.add_turn(turn(n, messages=messages, response=f"Answer number {n:02}."))
            messages += ({"role": "assistant", "content": f"Answer number {n:02}."},)
        for n in sorted(rated):
            feedback.rate(db, n, 1)
        erasure.erase(db, home, erasure.wanted(db, turns=gone))
        assert {t.id for t in db.turns(limit=50)} == set(range(1, 13)) - gone
        assert {f.turn_id for f in db.feedback()} == rated - gone
        assert db.integrity() == []
    left = files(home)
    for n in gone:
        assert f"Answer number {n:02}.".encode() not in left
        assert f"Question number {n:02}?".encode() not in left


# ---------------------------------------------------------------------------------------------------------- retrain


@pytest.mark.slow
def test_a_version_trained_without_it_is_the_one_that_never_saw_it(rated: Home, tmp_path: Path) -> None:
    """The same weights, bit for bit: what was deleted had no part in them."""
    control = Home(tmp_path / "control")
    shutil.copytree(rated.root, control.root)
    never = jobs.train_once(control).version
    with store.connect(rated.database) as db:
        asked = {"role": "user", "content": ASKED}
        # Two of them: one turn in eight is kept for the gate.
        extra = [db.add_turn(turn(n, session="x", messages=(asked,), response=SECRET)) for n in (98, 99)]
        for one in extra:
            feedback.rate(db, one.id, 1)
    first = jobs.train_once(rated).version
    with store.connect(rated.database) as db:
        db.set_report(first.number, dict(db.version(first.number).report or {}) | {"accepted": True})
        db._db.execute("UPDATE versions SET status = 'retired' WHERE number = 0")
        db._db.execute("UPDATE versions SET status = 'live' WHERE number = ?", (first.number,))
        wish = erasure.wanted(db, turns=[t.id for t in extra])
    done = forgetting.forget(rated, wish, retrain=True)
    assert done.erased.live == first.number
    assert done.version is not None
    assert done.version.parent == 0  # it went back to a version that had not learned from it
    assert done.memory is not None
    assert (done.memory.live or 0) > (done.memory.retrained or 0)

    def weights(version: Version) -> bytes:
        return (Path(version.path) / "adapter_model.safetensors").read_bytes()

    assert weights(done.version) == weights(never)
    assert weights(done.version) != weights(first)
    assert b"Abelard" not in files(rated)


def test_the_command_deletes_and_says_what_learned_from_it(
    trained: Home, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    copy = tmp_path / "mine.jsonl"
    assert main(["forget", "--turn", "2", "--export", str(copy), "--yes"]) == 0
    said = capsys.readouterr().out
    assert "1 turns and 1 pieces of feedback are deleted" in said
    assert "clawback data forget --retrain" in said
    assert [json.loads(line)["rating"] for line in copy.read_text().splitlines()]
    assert main(["versions"]) == 0
    assert "deleted since" in capsys.readouterr().out
    assert main(["forget", "--turn", "2", "--yes"]) == 2
    assert main(["forget", "--session", "s", "--dry-run", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["turns"]) == 11


# ------------------------------------------------------------------------------------------------------- retention


def test_prune_goes_by_age_count_and_version(home: Home) -> None:
    now = time.time()
    with store.connect(home.database) as db:
        old = db.add_turn(turn(1, created_at=now - 100 * retention.DAY, version=0))
        old_rated = db.add_turn(turn(2, created_at=now - 100 * retention.DAY))
        feedback.rate(db, old_rated.id, 1)
        young = [db.add_turn(turn(n, version=3)) for n in range(3, 6)]
        of = lambda **rules: retention.plan(db, retention.RetentionRules(**rules), now).turns  # noqa: E731
        assert of(days=90) == (old.id,)
        assert of(days=90, rated=True) == (old.id, old_rated.id)
        assert of(keep_turns=2) == (old.id, young[0].id)
        assert of(version=2) == (old.id,)
        assert of(version=3) == (old.id, *(t.id for t in young))
        retention.prune(db, home, retention.plan(db, retention.RetentionRules(days=90, keep_turns=2), now))
        assert {t.id for t in db.turns()} == {old_rated.id, young[1].id, young[2].id}
        assert db.integrity() == []


def test_prune_keeps_the_way_back(trained: Home) -> None:
    with store.connect(trained.database) as db:
        for status in ("rejected", "retired", "candidate"):
            made = db.add_version(Version(0, "candidate", "embedded", parent=1, path=str(trained.version(9))))
            if status != "candidate":
                db._db.execute("UPDATE versions SET status = ? WHERE number = ?", (status, made.number))
        chosen = retention.plan(db, retention.RetentionRules(keep_versions=1))
        assert chosen.versions == (2,)
        retention.prune(db, trained, chosen)
        assert [v.number for v in db.versions()] == [0, 1, 3, 4]
        assert db.next_version() == 5  # numbers are not used again
        assert Path(db.live().path).is_dir()
        db._db.execute("UPDATE versions SET stale = 1 WHERE number IN (1, 3)")
        assert retention.plan(db, retention.RetentionRules(stale=True)).versions == (3,)  # what is live stays


# ------------------------------------------------------------------------------------------------ rules and consent


def test_own_rules_are_applied_to_everything_that_is_stored(home: Home) -> None:
    home.config.write_text('[privacy]\nrules = ["PROJ-[0-9]+", "(?i)acme gmbh"]\n')
    with store.connect(home.database) as db:
        made = db.add_turn(
            turn(
                1,
                response="PROJ-77 is for ACME GmbH.",
                messages=({"role": "user", "content": [{"type": "text", "text": "PROJ-1?"}]},),
            )
        )
        assert made.response == "[redacted] is for [redacted]."
        feedback.critique(db, made.id, "not PROJ-9")
    assert b"PROJ-" not in home.database.read_bytes()


@pytest.mark.parametrize("rule", ["(", "a*"])
def test_a_rule_that_cannot_be_used_is_refused_when_it_is_set(home: Home, rule: str) -> None:
    from clawback import config

    with pytest.raises(ConfigError, match="rule"):
        config.save(home.config, {"privacy": {"rules": [rule]}})


def test_without_consent_nothing_is_learned_from_a_turn(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    lines = [
        {"prompt": "a?", "response": "A.", "rating": 1, "consent": True, "licence": "CC0-1.0"},
        {"prompt": "b?", "response": "B.", "rating": 1, "consent": False},
        {"prompt": "c?", "response": "C.", "rating": 1},
        {"prompt": "d?", "response": "D.", "rating": 1, "consent": "perhaps"},
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    with store.connect(home.database) as db:
        report = importers.import_file(db, file, required=True)
        assert report.problems == ["line 4: `consent` is neither true nor false"]
        assert [s.response for s in feedback.samples(db)] == ["A."]
        assert db.count_fresh() == 1
        assert db.turn(1).licence == "CC0-1.0"
        out = tmp_path / "out.jsonl"
        importers.export_file(db, out)
    back = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line.get("consent") for line in back] == [True, False, False]
