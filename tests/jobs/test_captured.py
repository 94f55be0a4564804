"""Of captured answers, a run gets those of named models, to prompts that it may ask, that nobody has refused."""

import dataclasses

import pytest

from clawback import feedback, store
from clawback.config import Config, TrainingSection
from clawback.errors import TrainingError
from clawback.jobs import beginning, inputs
from clawback.records import GATE, Turn


def user(text):
    return ({"role": "user", "content": text},)


ANSWER = Turn("s", user("What is an otter?"), "A mammal.", model="acme/strong-1", created_at=10.0)


def answers(db, learn_from=("strong-*",), until=100.0, kept_out=()):
    prompts = inputs.prompts(db, set(kept_out), until, 0.0)
    return beginning.captured_answers(db, prompts, learn_from, until)


def test_an_answer_of_a_named_model_is_found(home):
    with store.connect(home.database) as db:
        turn = db.add_turn(ANSWER)
        [one] = answers(db)
        assert (one.turn_id, one.response, one.model) == (turn.id, "A mammal.", "acme/strong-1")
        assert answers(db, ()) == []
        assert answers(db, ("other",)) == []
        assert answers(db, until=5.0) == []
        assert answers(db, kept_out=[turn.id]) == [], "the gate keeps its prompt"


@pytest.mark.parametrize(
    "change",
    [
        {"consent": "no"},
        {"kind": "side"},
        {"ending": "length"},
        {"ending": "refusal"},
        {"response": " "},
        {"version": 2},
        {"agent": GATE},
        {"model": ""},
        {"calls": ({"id": "1", "name": "ls", "arguments": "{}"},)},
    ],
)
def test_others_are_not(home, change):
    with store.connect(home.database) as db:
        db.add_turn(dataclasses.replace(ANSWER, **change))
        # The prompt may be asked all the same, for another turn has it.
        db.add_turn(dataclasses.replace(ANSWER, model="another", event_id="2"))
        assert answers(db, ("strong-*",)) == []


def test_a_deleted_turn_is_gone(home):
    with store.connect(home.database) as db:
        turn = db.add_turn(ANSWER)
        assert answers(db)
        db.forget([turn.id])
        assert answers(db) == []


def test_samples_say_who_wrote_them(home):
    with store.connect(home.database) as db:
        foreign = db.add_turn(ANSWER)
        own = db.add_turn(Turn("s", user("And a heron?"), "A bird.", model="mini", version=0))
        feedback.rate(db, foreign.id, 1.0)
        edit = feedback.edit(db, own.id, "A wading bird.")
        first, rejected, edited = feedback.samples(db)
        assert (first.model, first.version, first.edited) == ("acme/strong-1", None, False)
        assert (rejected.version, rejected.edited) == (0, False)
        assert (edited.response, edited.edited, edited.model) == ("A wading bird.", True, "")
        db.undo_feedback(edit.id)
        assert [one.edited for one in feedback.samples(db)] == [False]


def test_the_setting_is_in_the_recipe():
    settings = Config(training=TrainingSection(learn_from=["strong-*"]))
    assert inputs.making(settings)["learn_from"] == ["strong-*"]
    from clawback import engine
    from clawback.trainer.recipe import Recipe, changed

    assert changed(Recipe(), {"learn_from": ["strong-*"]}).learn_from == ("strong-*",)
    assert engine.recipe_from({"learn_from": ["a"]}).learn_from == ("a",)
    assert Recipe().learn_from == ()


def test_nothing_of_a_turn_is_learned_that_somebody_refused(home):
    with store.connect(home.database) as db:
        turn = db.add_turn(dataclasses.replace(ANSWER, consent="no"))
        feedback.rate(db, turn.id, 1.0)
        feedback.edit(db, turn.id, "An animal.")
        assert feedback.samples(db) == []


def test_a_run_gets_them_where_the_settings_name_their_model(tmp_path, monkeypatch):
    from clawback import engine, jobs
    from tests.jobs.test_training import SETTINGS, rated_home

    found = {}

    def train(*_, captured, prompts, **__):
        found.update(captured=captured, prompts=prompts)
        raise TrainingError("reached")

    monkeypatch.setattr(engine, "train", train)
    named = SETTINGS.replace("[training]", '[training]\nlearn_from = ["strong-*"]')
    for settings, responses in ((SETTINGS, []), (named, ["A mammal."])):
        home = rated_home(tmp_path / str(len(responses)), count=8, settings=settings)
        with store.connect(home.database) as db:
            db.add_turn(ANSWER)
        with pytest.raises(TrainingError, match="reached"):
            jobs.train_once(home)
        assert [one.response for one in found["captured"]] == responses
        assert ANSWER.messages in found["prompts"]
