"""The best of several draws, as the ratings read, right after the taps: started and ended in one command, marked, ended by a version that goes live."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from clawback import config, engine, feedback, release, store
from clawback.errors import UsageError
from clawback.extensions.demo import corpus, tastes
from clawback.gate import headroom
from clawback.jobs.answering import Answering
from clawback.models.types import Completion, Sampling
from clawback.paths import Home
from clawback.records import Turn, Version
from clawback.release import best_of
from clawback.sources.targets import is_foreign

Run = Callable[..., tuple[int, str, str]]
TASTE = tastes.TASTES["bullets"]


def user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def rated(home: Home, count: int, wrong: float = 0.0, seed: int = 0) -> None:
    """Taps of somebody who likes bullets, a share of them at random."""
    rng = random.Random(seed)
    with store.connect(home.database) as db:
        for prompt in corpus.prompts("rated", count, seed):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            value = TASTE.rate(prompt, text, rng, 0.0) if rng.random() >= wrong else rng.choice((1, -1))
            turn = db.add_turn(Turn("s", tuple(prompt.messages), text, version=0))
            feedback.rate(db, turn.id, value)


@pytest.fixture
def liked(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    home.config.write_text("[training]\nbackground = false\n[generation]\nmax_tokens = 60\n")
    rated(home, 20)
    return home


def begun(home: Home, count: int = 4) -> best_of.BestOfTrial:
    with store.connect(home.database) as db:
        return best_of.begin(db, config.load(home.config), count, 1.0)


@pytest.mark.slow  # 60 answers
def test_it_answers_better_at_once_and_says_how(liked: Home) -> None:
    policy = engine.load("embedded")
    prompts = corpus.prompts("held_out", 12, 5)
    shares = {}
    for count in (1, 4):
        if count > 1:
            begun(liked, count)
        with store.connect(liked.database) as db:
            answering, live = Answering(liked, db), db.live()
            draws = [answering.draw(policy, live, one.messages, seed) for seed, one in enumerate(prompts)]
            assert {draw.count for draw in draws} == {count}
            likes = [TASTE.fits(one, draw.completion.text) for one, draw in zip(prompts, draws, strict=True)]
            shares[count] = sum(likes) / len(likes)
            turn = db.add_turn(draws[0].turn("s", prompts[0].messages, live.number, ""))
    assert shares[4] >= shares[1] + 0.2, shares
    assert turn.model == "clawback/v0-best-of-4"
    assert (turn.version, turn.response_ids, turn.response_logprobs) == (None, None, None)
    with store.connect(liked.database) as db:
        feedback.rate(db, turn.id, 1.0)
        [sample] = [one for one in feedback.samples(db) if one.turn_id == turn.id]
        assert not is_foreign(sample, "embedded"), "the model's own words may be learned"
        assert sample.version is None, "and say nothing of how good the version is"


@pytest.mark.slow  # two readings of all answers
def test_what_was_chosen_is_no_evidence_about_the_version(liked: Home) -> None:
    with store.connect(liked.database) as db:
        settings = config.load(liked.config)
        before = headroom.estimate(db, settings)
        for number in range(4):
            turn = Turn("s", user(f"Q {number}?"), "- a\n- b", model=best_of.model_name(0, 4))
            feedback.rate(db, db.add_turn(turn).id, 1.0)
        after = headroom.estimate(db, settings)
    assert before is not None
    assert after is not None
    assert after.rated == before.rated


@pytest.mark.parametrize(
    ("count", "wrong", "why"), [(0, 0.0, "some of each kind"), (16, 1.0, "nothing to choose answers by")]
)
def test_without_anything_to_read_it_is_refused(home: Home, count: int, wrong: float, why: str) -> None:
    rated(home, count, wrong)
    with pytest.raises(UsageError, match=why):
        begun(home)
    with store.connect(home.database) as db:
        assert best_of.running(db) is None


def test_too_many_are_refused(liked: Home) -> None:
    liked.config.write_text("[gate]\nmax_kl = 0.5\n")
    with pytest.raises(UsageError, match="at most"):
        begun(liked, 16)


def test_it_ends_with_another_live_version_and_is_never_beside_a_versions_trial(liked: Home) -> None:
    begun(liked)
    with store.connect(liked.database) as db:
        assert best_of.running(db) is not None
        version = db.add_candidate(Version(0, "candidate", "embedded", prompt="Be brief.", parent=0))
        db.set(release.trial.KEY, {"candidate": 1, "live": 0, "share": 0.2, "alpha": 0.05, "began": 0.0})
        assert best_of.running(db) is None
        with pytest.raises(UsageError, match="on trial"):
            best_of.begin(db, config.load(liked.config), 4, 1.0)
        release.trial.stop(db)
        db.promote(version.number)
        assert best_of.running(db) is None


def test_the_best_is_what_the_ratings_speak_for(liked: Home) -> None:
    reading = best_of.AnswerReading(config.load(liked.config))
    with store.connect(liked.database) as db:
        assert reading.unread(db) == ""
        texts = ["It is a bird that wades.", "- It is a bird.\n- It wades.", "- a bird\n- it wa"]
        assert reading.best("What is a heron?", texts, [True, True, False]) == 1
        assert reading.best("What is a heron?", ["", *texts], [True, True, True, False]) == 2
        assert reading.best("What is a heron?", texts[1:], [False, False]) in (0, 1)
        for one in db.feedback():
            db.undo_feedback(one.id)
        assert "0 of 0 rated answers are good" in reading.unread(db)


class Scripted:
    """Draws these texts, in turn."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.sampling = texts, Sampling()

    def generate(
        self, conversations: object, samples: int = 1, seed: int = 0, max_tokens: int | None = None
    ) -> list[list[Completion]]:
        return [[Completion(text, (1,), (-0.1,), True) for text in self.texts[:samples]]]


def test_a_draw_is_marked_and_ratings_that_were_taken_back_pause_it(liked: Home) -> None:
    begun(liked, 2)
    policy: Any = Scripted("It is a bird that wades.", "- It is a bird.\n- It wades.")
    with store.connect(liked.database) as db:
        answering = Answering(liked, db)
        draw = answering.draw(policy, db.live(), user("What is a heron?"), 1)
        assert (draw.count, draw.completion.text) == (2, policy.texts[1])
        turn = draw.turn("s", user("What is a heron?"), 0, "")
        assert (turn.model, turn.version, turn.response_logprobs) == ("clawback/v0-best-of-2", None, None)
        for one in db.feedback():
            db.undo_feedback(one.id)
        draw = answering.draw(policy, db.live(), user("What is a heron?"), 1)
        assert (draw.count, draw.completion.text) == (1, policy.texts[0])
        assert "not the best of 2" in draw.notice
        assert draw.turn("s", user("What is a heron?"), 0, "").version == 0


@pytest.mark.slow  # it loads the model twice
def test_the_commands(run: Run, liked: Home) -> None:
    assert "No trial is on" in run("trial")[1]
    code, out, _ = run("trial", "--best-of", "4")
    assert code == 0
    assert "draws 4 answers" in " ".join(out.split())
    assert json.loads(run("trial", "--json")[1])["best_of"]["count"] == 4
    data = json.loads(run("ask", "What is rain?", "--seed", "1", "--json")[1])
    assert data["best_of"] == 4
    assert run("trial", "1", "--best-of", "4")[0] == 2
    assert "The trial is over" in run("trial", "--stop")[1]
    assert "No trial is on" in run("trial", "--stop")[1]
    assert "best_of" not in json.loads(run("ask", "What is rain?", "--seed", "1", "--json")[1])


def test_the_status_names_the_trial_that_is_on(run: Run, liked: Home) -> None:
    assert "Trial" not in run("status")[1]
    begun(liked)
    assert "Trial     each answer is the best of 4 draws" in " ".join(run("status")[1].split("\n"))
    assert json.loads(run("status", "--json")[1])["trial"] == "each answer is the best of 4 draws"
    assert "The trial is over" in run("trial", "--stop")[1]
    assert "Trial" not in run("status")[1]
