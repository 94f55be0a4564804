"""The run itself, on the embedded model: the same bytes twice, taken up where it was killed, and never run away."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

from clawback import feedback, jobs, release, store
from clawback.errors import Busy, TrainingError
from clawback.extensions.demo import corpus, tastes
from clawback.jobs import training_job
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.release import Report, prompted

if TYPE_CHECKING:
    from .conftest import Whole

SETTINGS = """
[training]
algorithm = "reinforce"
background = false
[training.overrides]
steps = 4
[generation]
max_tokens = 24
"""


def rated_home(root: Path, count: int = 16, only: int | None = None, settings: str = SETTINGS) -> Home:
    """A home with rated turns: answers in random styles, by somebody who likes bullets (or one kind of tap only)."""
    home, rng = Home(root), random.Random(0)
    home.create()
    home.config.write_text(settings)
    taste = tastes.TASTES["bullets"]
    with store.connect(home.database) as db:
        for prompt in corpus.prompts("rated", count, 0):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            turn = db.add_turn(
                Turn(session="s", messages=tuple(prompt.messages), response=text, created_at=1.0)
            )
            feedback.rate(db, turn.id, only if only is not None else taste.rate(prompt, text, rng))
    return home


def weights(home: Home, number: int) -> bytes:
    return (home.version(number) / "adapter_model.safetensors").read_bytes()


class Died(BaseException):
    """As kill -9: nothing tidies up after it."""


def dying(phase: str) -> Any:
    """What ends a run as soon as it is in a phase."""

    def die(progress: Any) -> None:
        if progress["phase"] == phase:
            raise Died

    return die


@pytest.mark.slow
def test_the_same_feedback_and_seed_give_the_same_bytes(tmp_path: Path, whole: Whole) -> None:
    again = rated_home(tmp_path / "again")
    outcome = jobs.train_once(again)
    assert weights(again, 1) == weights(whole.home, 1)
    assert outcome.report.evidence == whole.outcome.report.evidence
    other = rated_home(tmp_path / "other")
    with pytest.raises(Died):
        jobs.train_once(other, seed=1, on_progress=dying("gate"))
    assert weights(other, 1) != weights(whole.home, 1)


@pytest.mark.slow
def test_words_alone_reach_an_algorithm_that_reads_and_no_other(tmp_path: Path) -> None:
    trained = {}
    for algorithm in ("opd", "reinforce"):
        home = rated_home(tmp_path / algorithm, 10)
        with store.connect(home.database) as db:
            said = []
            for prompt in corpus.prompts("rated", 4, 7):
                turn = Turn(session="t", messages=tuple(prompt.messages), response="No.", created_at=1.0)
                said.append(feedback.critique(db, db.add_turn(turn).id, "As a list, please.").id)
        run = jobs.train_once(home, algorithm=algorithm).run
        assert not set(said) & set(run.held_out_ids)
        trained[algorithm] = set(said) & set(run.train_ids)
    assert trained == {"opd": set(said), "reinforce": set()}


def test_words_without_any_rating_are_not_enough(tmp_path: Path) -> None:
    home = rated_home(tmp_path, 0)
    with store.connect(home.database) as db:
        turn = db.add_turn(Turn(session="t", messages=({"role": "user", "content": "q"},), response="No."))
        feedback.critique(db, turn.id, "As a list, please.")
    with pytest.raises(TrainingError, match="rate some answers"):
        jobs.train_once(home, algorithm="opd")


def test_a_run_records_exactly_what_went_into_it(whole: Whole) -> None:
    home, outcome = whole.home, whole.outcome
    run = outcome.run
    assert sorted(run.train_ids + run.held_out_ids) == list(range(1, 17))
    assert run.held_out_ids
    assert (run.status, run.version, run.algorithm) == ("done", 1, "reinforce")
    with store.connect(home.database) as db:
        assert db.count_fresh() == 0
        stored = db.version(1).report
        assert stored is not None
        assert Report.from_dict(stored) == outcome.report
        assert db.live().number == (1 if outcome.report.accepted else 0)
    assert not home.runs.joinpath("1").exists(), "a finished run leaves no checkpoints"


@pytest.mark.slow
def test_a_run_that_dies_in_every_phase_is_taken_up_each_time_to_the_same_bytes(
    tmp_path: Path, whole: Whole
) -> None:
    broken = rated_home(tmp_path / "broken")
    for phase in ("prepare", "train", "save", "gate"):
        with pytest.raises(Died):
            jobs.train_once(broken, on_progress=dying(phase))
        with store.connect(broken.database) as db:
            run = db.active_run()
            assert run is not None
            assert run.id == 1, "the same run, not another one"
            assert db.live().number == 0
    outcome = jobs.train_once(broken)
    assert outcome.run.id == 1, "the same run, not another one"
    assert weights(broken, 1) == weights(whole.home, 1)
    assert outcome.report.evidence == whole.outcome.report.evidence


def test_a_run_whose_feedback_was_taken_back_meanwhile_is_closed(tmp_path: Path) -> None:
    home = rated_home(tmp_path)
    with pytest.raises(Died):
        jobs.train_once(home, on_progress=dying("save"))
    with store.connect(home.database) as db:
        db.undo_feedback(db.run(1).train_ids[0])
    with pytest.raises(Died):
        jobs.train_once(home, on_progress=dying("train"))
    with store.connect(home.database) as db:
        assert db.run(1).status == "failed"
        assert "taken back" in db.run(1).error
        another = db.active_run()
        assert another is not None
        assert another.id == 2
        assert db.run(1).train_ids[0] not in another.train_ids


@pytest.mark.parametrize("only", [-1, 1])
def test_of_ratings_of_one_sign_no_run_is_made(tmp_path: Path, only: int) -> None:
    home = rated_home(tmp_path, count=24, only=only, settings=SETTINGS.replace("reinforce", "mis-po"))
    with pytest.raises(TrainingError, match="the gate needs at least 2 of each"):
        jobs.train_once(home)
    with store.connect(home.database) as db:
        assert db.live().number == 0
        assert "of one kind teach little" in feedback.balance(db).warning


def test_only_one_run_at_a_time_and_nothing_to_learn_is_said(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    with FileLock(home.train_lock), pytest.raises(Busy, match="training already"):
        jobs.train_once(home)
    with pytest.raises(TrainingError, match="nothing to learn from yet"):
        jobs.train_once(home)


@pytest.mark.slow
def test_a_failure_is_entered_in_the_run_and_the_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = rated_home(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(training_job.release, "propose", lambda *_: 1 / 0)
        with pytest.raises(TrainingError, match="Your ratings are safe"):
            jobs.train_once(home)
    with store.connect(home.database) as db:
        assert (db.run(1).status, db.live().number) == ("failed", 0)
        assert "ZeroDivisionError" in db.run(1).error
        assert db.count_fresh() == 16
    assert jobs.train_once(home).run.id == 2


def test_a_live_version_whose_files_were_changed_is_left_before_training(
    tmp_path: Path, whole: Whole
) -> None:
    home = whole.copied(tmp_path / "home")
    with store.connect(home.database) as db:
        if db.live().number == 0:
            db.promote(1)
        (home.version(1) / "adapter_model.safetensors").write_bytes(b"evil")
        extra = db.add_turn(
            Turn(session="s", messages=({"role": "user", "content": "Hello!"},), response="Hello.")
        )
        feedback.rate(db, extra.id, 1)
    with pytest.raises(Died):
        jobs.train_once(home, on_progress=dying("save"))
    with store.connect(home.database) as db:
        run = db.active_run()
        assert run is not None
        assert run.parent == 0
        release.check(db.live())


def flattered(home: Home) -> None:
    """A judge that finds every answer good."""
    with store.connect(home.database) as db:
        for turn in db.turns(limit=100):
            source = "judge:flatterer"
            db.add_feedback(Feedback(turn.id, "judge", 1.0, source=source, event_id=f"{source}:{turn.id}"))


@pytest.mark.slow
def test_a_flatterer_that_was_seen_through_changes_not_a_byte(tmp_path: Path) -> None:
    plain, with_judge = (rated_home(tmp_path / name) for name in "ab")
    flattered(with_judge)
    one, two = jobs.train_once(plain), jobs.train_once(with_judge)
    assert weights(plain, 1) == weights(with_judge, 1)
    assert one.report.evidence == two.report.evidence
    assert (one.live, one.report.probability) == (two.live, two.report.probability)


def test_on_a_judges_word_alone_nothing_is_trained(tmp_path: Path) -> None:
    home = rated_home(tmp_path)
    flattered(home)
    with store.connect(home.database) as db:
        for given in db.feedback():
            if given.kind == "rating":
                db.undo_feedback(given.id)
        assert len(feedback.samples(db)) == 16
    with pytest.raises(TrainingError, match="judge's word"):
        jobs.train_once(home)
    with store.connect(home.database) as db:
        assert db.runs() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "sentence", ["Use bullet points.", pytest.param("Answer with a bulleted list.", marks=pytest.mark.slow)]
)
def test_the_sentence_of_a_rejected_version_is_judged_as_a_prompt(
    tmp_path: Path, whole: Whole, sentence: str
) -> None:
    """What a run read out of the ratings is not lost because the weights did not take it."""
    home = whole.copied(tmp_path / "home")
    assert whole.outcome.prompt is None, "nothing was said in words"
    file = home.version(1) / "provenance.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"instruction": sentence}))
    with store.connect(home.database) as db:
        if db.version(1).status == "candidate":
            db.reject(1)
        job = training_job._Job(home, db, None)
        prompt = job.propose_sentence(db.run(1), db.version(1))
        assert prompt is not None
        assert (prompt.prompt, prompt.parent, prompt.path, prompt.run_id) == (sentence, 0, "", 1)
        assert prompt.report is not None
        assert prompt.report["evidence"]["kl"] == pytest.approx(0, abs=1e-4)
        assert job.propose_sentence(db.run(1), db.version(1)) == prompt, "once"
        known = sentence == "Answer with a bulleted list."
        assert (prompted.unseen(db, prompt) == []) == known
        if prompt.report["accepted"]:
            assert prompt.status == ("live" if known else "candidate"), "no sentence goes live unseen"
        [row] = prompted.changes(db)
        assert row.number == 2, "one history"


@pytest.mark.slow
def test_a_version_of_all_weights_is_judged_goes_live_and_is_gone_back_from(tmp_path: Path) -> None:
    """`training.full`: the same algorithm, gate and rollback; a version is the difference to the base."""
    text = SETTINGS.replace("background = false", "background = false\nfull = true")
    home = rated_home(tmp_path / "full", settings=text + "[gate]\nconfidence = 0.5\n")
    first = jobs.train_once(home)
    assert first.report.reasons
    assert first.report.to_dict()["evidence"]
    folder = home.version(1)
    assert (folder / "delta.safetensors").is_file()
    assert not (folder / "adapter_model.safetensors").exists()
    kept = (folder / "delta.safetensors").read_bytes()
    with store.connect(home.database) as db:
        db.set_report(1, dict(db.version(1).report or {}) | {"accepted": True})
        release.promote(db, home, 1)
        assert db.live().number == 1
    second = jobs.train_once(home, seed=1)
    assert second.version.parent == 1, "it goes on from the one that is live"
    with store.connect(home.database) as db:
        release.rollback(db, home, 0)
        assert db.live().number == 0
        assert release.load(home, db.live()).has_adapter is False
        release.rollback(db, home, 1)
        assert db.live().number == 1
    assert (folder / "delta.safetensors").read_bytes() == kept
