"""The demo's parts in small: real turns, real taps, a real run, and nobody's files but its own."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from clawback import config, jobs, store
from clawback.admin import rating_inbox
from clawback.errors import UsageError
from clawback.extensions.demo import Demo, corpus, loop
from clawback.paths import Home
from clawback.records import Run, Version
from tests.engine import gguf_files
from tests.engine.conftest import TEMPLATE, tokenizer

TASTE = "bullets"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "HELD_OUT", 8)


def made(home: Home, taste: str | None = TASTE) -> Demo:
    demo = Demo(home, taste, algorithm="reinforce")
    config.save(home.config, {"training": {"overrides": {"steps": 2}}, "generation": {"max_tokens": 40}})
    return demo


def test_a_home_that_somebody_uses_is_refused_and_left_as_it_was(home: Home) -> None:
    home.config.write_text('[model]\nbase = "mine"\n')
    with pytest.raises(UsageError, match="not an empty folder"):
        Demo(home, TASTE)
    assert [p.name for p in home.root.iterdir()] == ["config.toml"]
    assert home.config.read_text() == '[model]\nbase = "mine"\n'
    with pytest.raises(UsageError, match="not an empty folder"):
        Demo(Home(home.config), TASTE)


def test_a_taste_that_there_is_not_names_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="metric units"):
        Demo(Home(tmp_path / "new"), "salty")
    assert not (tmp_path / "new").exists()


def test_another_model_gets_everyday_questions_that_are_rated_or_held_out_never_both(tmp_path: Path) -> None:
    demo = Demo(Home(tmp_path / "new"), "at most 50 words", base="smollm2", seed=3)
    rated = [p.text for p in demo.world.rated(48, 0, 3)]
    held = [p.text for p in demo.world.held_out(loop.HELD_OUT, 3)]
    assert len(set(rated)) == 48
    assert len(set(held)) == 16
    assert not set(rated) & set(held)
    assert [p.text for p in demo.world.rated(48, 48, 3)] == rated, "the next round asks the same again"
    chosen = config.load(demo.home.config)
    assert (chosen.model.base, chosen.training.seed, chosen.training.background) == ("smollm2", 3, False)
    assert (chosen.generation.max_tokens, chosen.training.budget) == (128, "3h")
    with pytest.raises(UsageError, match="There are: at most 50 words; a list"):
        Demo(Home(tmp_path / "other"), "metric units", base="smollm2")


@pytest.mark.parametrize(
    ("text", "liked"),
    [
        (
            "Keep it in a glass of water, as you would a flower.",
            {"at most 50 words", "speaks to you", "one paragraph"},
        ),
        ("Three ideas:\n- bake bread\n- read a book", {"at most 50 words", "a list"}),
        (" ".join(["word"] * 51), {"one paragraph"}),
        ("Yes.", set()),
    ],
)
def test_what_the_everyday_people_like_shows_in_the_text(text: str, liked: set[str]) -> None:
    from clawback.extensions.demo.worlds import Everyday

    prompt = corpus.TopicPrompt("?", "")
    assert {name for name, one in Everyday().people.items() if one.fits(prompt, text)} == liked


def test_the_loop_runs_on_a_model_that_is_not_the_embedded_one(tmp_path: Path, small: None) -> None:
    """A model of random weights: nobody likes what it says, and every step is taken all the same."""
    file = gguf_files.write(tmp_path / "tiny.gguf", gguf_files.llama(), tokenizer(), template=TEMPLATE)
    demo = Demo(Home(tmp_path / "new"), "one paragraph", base=str(file), algorithm="reinforce")
    config.save(demo.home.config, {"training": {"overrides": {"steps": 1}}, "generation": {"max_tokens": 12}})
    look = demo.look()
    assert look.facts is None
    assert len(look.answers) == 8
    given = demo.collect(6, demo.simulated)
    with store.connect(demo.home.database) as db:
        assert (len(db.turns(limit=50)), len(db.feedback())) == (9, len(given))


def test_each_answer_is_a_turn_and_each_tap_a_row(home: Home, small: None) -> None:
    demo = made(home)
    given = demo.collect(6, demo.simulated)
    with store.connect(home.database) as db:
        turns, taps = db.turns(limit=50), db.feedback()
        chosen = rating_inbox.waiting(home, 1)
    assert [f.value for f in taps] == given
    assert len({f.turn_id for f in taps}) == 6
    assert [f.turn_id for f in taps][:4] == [t.id for t in turns[:4]], "the newest, while nothing is known"
    assert chosen[0].gain > 0, "then what the inbox asks about"
    assert len(turns) == 6 * 4, "most of what an agent says is never rated"
    assert {f.source for f in taps} == {"demo"}
    assert all(t.version == 0 and t.response_ids for t in turns)


def test_the_simulated_person_taps_wrong_one_time_in_ten(tmp_path: Path) -> None:
    demo, rng = Demo(Home(tmp_path / "new"), TASTE), random.Random(1)
    wrong = 0
    for prompt in corpus.prompts("rated", 1000, 3):
        text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
        assert demo.taste is not None
        wrong += (demo.simulated(prompt, text) > 0) != demo.taste.fits(prompt, text)
    assert 70 <= wrong <= 130


def test_a_person_may_pass_over_an_answer_and_stop_early(home: Home, small: None) -> None:
    demo = made(home, taste=None)
    keys = iter([1, 0, -1, None])
    assert demo.collect(8, lambda *_: next(keys)) == [1, 0, -1]
    with store.connect(home.database) as db:
        newest = 8 * 4
        assert [(f.turn_id, f.value) for f in db.feedback()] == [(newest, 1.0), (newest - 2, -1.0)]


def test_what_the_gate_asks_is_answered_by_whoever_rates(
    home: Home, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulated person prefers the list, whichever stands first, and the version goes live by it."""
    from clawback.gate import adapter_gate, questions, rule
    from clawback.gate.guards import AnswerStatistics
    from clawback.models.types import Completion

    demo = made(home)
    demo.noise = 0.0
    demo.collect(4, demo.simulated)
    fine = AnswerStatistics(1.0, 0.0, 0.0, 40.0)
    with store.connect(home.database) as db:
        run = db.start_run(Run("embedded", "r", "auto", {}, 0, 0))
        version = db.add_candidate(Version(0, "candidate", "embedded", parent=0, run_id=run.id))
        db.update_run(run.id, status="done")
        asked = [t.messages for t in db.turns(limit=16)]

        def measured(*_: object) -> tuple[rule.Evidence, questions.ShownAnswers]:
            ours, theirs = (
                [Completion(text, (1,), (0.0,), True) for i in range(16)]
                for text in ("- It eats fish.\n- It is big.", "It eats.")
            )
            pairs = [questions.Question(i, i, 1.0) for i in range(16)]
            found = rule.Evidence(
                9, 9, (), (), 0.01, 0.5, 0.1, 0.99, 1.0, 1.0, fine, fine, fine, questions=16
            )
            return found, questions.ShownAnswers(asked, ours, theirs, pairs)

        monkeypatch.setattr("clawback.gate.adapter_gate.measure", measured)
        monkeypatch.setattr("clawback.gate.adapter_gate.base_of", lambda *_: None)
        report = adapter_gate.gate(db, home, version.number)
        outcome = jobs.RunResult(db.run(run.id), version, report)
    assert report.verdict == "waits"
    done, count = demo.answer(outcome, demo.chosen)
    assert (done.live, done.report.accepted, count) == (True, True, 8)
    waits, count = demo.answer(outcome, None)
    assert (waits.report, count) == (report, 0), "where nobody chooses it waits"


def test_a_contented_person_is_left_alone(home: Home, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from clawback.errors import NothingToGain

    demo = made(home)
    monkeypatch.setattr(
        "clawback.jobs.train_once", lambda *_, **__: (_ for _ in ()).throw(NothingToGain("little"))
    )
    done = demo.round(4)
    assert done is not None
    assert (done.outcome, done.why, done.questions) == (None, "little", 0)


def test_no_tap_at_all_trains_nothing(home: Home, small: None) -> None:
    demo = made(home, taste=None)
    assert demo.round(4, rate=lambda *_: None) is None
    with store.connect(home.database) as db:
        assert db.runs(limit=1) == []


def test_nobody_is_there_to_rate(home: Home, small: None) -> None:
    demo = made(home, taste=None)
    with pytest.raises(UsageError, match="name a taste"):
        demo.collect(2, demo.simulated)


def test_what_nobody_can_know_is_not_measured(home: Home, small: None) -> None:
    look = made(home, taste=None).look()
    assert look.satisfaction is None
    assert set(look.habits) >= {"bullets", "apology"}
    assert all(0 <= share <= 1 for share in look.habits.values())


def test_the_same_version_is_seen_the_same_twice(home: Home, small: None) -> None:
    demo = made(home)
    first = demo.look()
    assert demo.look() == first
    assert first.kl == pytest.approx(0, abs=1e-3), "the base has not drifted from itself"
    assert len(first.answers) == 8


@pytest.mark.slow
def test_a_round_learns_is_judged_and_goes_on_from_there(home: Home, small: None) -> None:
    demo = made(home)
    before = demo.look()
    done = demo.round(12)
    assert done is not None
    assert done.outcome is not None
    assert (done.ratings, done.enough, done.outcome.run.algorithm) == (12, False, "reinforce")
    assert done.outcome.report.version == 1
    with store.connect(home.database) as db:
        assert db.live().number == (1 if done.outcome.live else 0)
    if not done.outcome.live:
        assert done.look == before, "a version that was turned away leaves the live one as it was"
