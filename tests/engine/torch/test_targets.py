"""Edits, comparisons and answers of other models are learned as they are, and only those that may be."""

import dataclasses
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("peft")

from clawback import engine
from clawback.errors import TrainingError
from clawback.records import Part, Sample
from clawback.sources import distillation_plan, distilled, plan
from clawback.sources.targets import evidence, is_foreign, is_named, may_learn, opening
from clawback.templates.chat_tokens import Encoded
from clawback.trainer import training_loop
from clawback.trainer.run import TrainingRun
from tests.engine.torch.test_rollouts import LikesBullets, recipe_for, same, weights

OTHER = "acme/strong-1"


@pytest.fixture(scope="module")
def base():
    return engine.load("embedded")


@pytest.fixture
def policy():
    fresh = engine.load("embedded")
    fresh.attach(rank=8, alpha=8, seed=0)
    return fresh


def user(text):
    return ({"role": "user", "content": text},)


def tapped(number, response, value, kind="rating", **more):
    part = Part(more.pop("feedback", number), kind, value, 1.0)
    asked = more.pop("asked", f"Tell me about otter {number}.")
    return Sample(number, user(asked), response, value, (part,), **more)


def edited(number, response, text):
    """What ``feedback.samples`` makes of one edit."""
    feedback = 1000 + number
    asked = f"Tell me about heron {number}."
    rejected = tapped(number, response, -0.5, "edit", feedback=feedback, asked=asked, version=0)
    return [rejected, tapped(number, text, 1.0, "edit", feedback=feedback, asked=asked, edited=True)]


def edits():
    return [
        sample
        for number in range(1, 5)
        for sample in edited(
            number,
            "It is a bird. It eats fish. It lives near rivers.",
            "- a bird\n- eats fish\n- near rivers",
        )
    ]


def unreadable(count=12):
    """The same kind of answer, rated by chance."""
    rng = random.Random(3)
    return [
        tapped(
            50 + i, f"Otters eat {rng.choice(['fish', 'crabs', 'eggs'])}. They swim.", rng.choice((1.0, -1.0))
        )
        for i in range(count)
    ]


def no_pattern(policy, extra=()):
    """Samples whose ratings show no pattern to the reader: their plan, and they."""
    samples = [*unreadable(), *extra]
    return samples, plan.plan(TrainingRun(policy, samples, recipe_for(policy), seed=1))


# ------------------------------------------------------------------------------------------------ who wrote it


@pytest.mark.parametrize(
    ("sample", "foreign", "allowed"),
    [
        ({}, False, True),
        ({"model": OTHER}, True, False),
        ({"model": "hub/Mini:latest"}, False, True),
        ({"model": OTHER, "version": 3}, False, True),
        ({"edited": True}, False, True),
        ({"model": OTHER, "edited": True}, True, False),
        ({"model": "local"}, False, True),
        ({"model": "clawback-base"}, False, True),
        ({"model": "clawback/4"}, False, True),
    ],
)
def test_an_answer_of_another_model_is_known_as_such(sample, foreign, allowed):
    one = tapped(1, "Hello.", 1.0, **sample)
    assert is_foreign(one, "/models/mini") is foreign
    assert may_learn(one, "/models/mini", ()) is allowed
    assert may_learn(one, "/models/mini", ("strong-*",))


def test_models_are_named_by_pattern_and_nothing_names_an_unknown_one():
    assert is_named("acme/Strong-1", ("strong-1",))
    assert is_named("acme/Strong-1", ("acme/*",))
    assert not is_named("acme/Strong-1", ("strong",))
    assert not is_named("", ("*",))


# ------------------------------------------------------------------------------------------------ what is learned


def test_an_edit_is_preferred_to_what_it_corrects(base):
    [target] = evidence(edited(1, "Too long an answer.", "Short."), base, ()).edits
    assert base.tokenizer.decode(target.better.response).startswith("Short.")
    assert base.tokenizer.decode(target.worse.response).startswith("Too long")
    assert target.likelihood == 1.0


def test_an_edit_of_an_answer_that_is_not_learned_still_counts(base):
    [target] = evidence(edited(1, "x", "Short.")[1:], base, ()).edits
    assert target.worse is None


def test_a_comparison_raises_the_better_answer_only_where_it_is_liked(base):
    asked, more = "Tell me about otters.", {"kind": "preference", "feedback": 9}
    compared = [tapped(1, "Good.", 0.5, asked=asked, **more), tapped(2, "Bad.", -0.5, asked=asked, **more)]
    [target] = evidence(compared, base, ()).comparisons
    assert target.likelihood == 0.0
    liked = dataclasses.replace(
        compared[0], reward=1.0, parts=(*compared[0].parts, Part(7, "rating", 1.0, 1.0))
    )
    [target] = evidence([liked, compared[1]], base, ()).comparisons
    assert target.likelihood == 1.0


def test_a_foreign_answer_is_no_target_unless_its_model_is_named(base):
    asked, more = "Tell me about otters.", {"kind": "preference", "feedback": 9}
    foreign = [
        tapped(1, "Liked.", 1.0, model=OTHER),
        tapped(2, "Preferred.", 0.5, asked=asked, model=OTHER, **more),
        tapped(3, "Not preferred.", -0.5, asked=asked, **more),
    ]
    assert not evidence(foreign, base, ())
    assert not evidence(foreign, base, ("other-*",))
    shown = evidence(foreign, base, ("strong-*",))
    assert len(shown.answers) == 1
    assert len(shown.comparisons) == 1


@pytest.mark.parametrize("more", [{"ending": "length"}, {"has_calls": True}, {"response": ""}])
def test_an_answer_that_is_not_complete_is_no_target(base, more):
    one = dataclasses.replace(tapped(1, "Liked.", 1.0, model=OTHER), **more)
    assert not evidence([one], base, ("*",))


def test_what_a_late_rating_credits_is_not_liked(base):
    late = [
        tapped(1, "Before.", 0.5, feedback=5, model=OTHER),
        tapped(2, "Rated.", 1.0, feedback=5, model=OTHER),
    ]
    [one] = evidence(late, base, ("*",)).answers
    assert base.tokenizer.decode(one.response).startswith("Rated.")


tokens = st.lists(st.integers(0, 3), min_size=1, max_size=12)


@given(tokens, tokens, st.integers(1, 5))
def test_a_worse_answer_counts_up_to_some_tokens_beyond_the_first_difference(better, worse, count):
    low = opening(Encoded((1,), tuple(better)), Encoded((1,), tuple(worse)), count)
    shared = next(
        (i for i, two in enumerate(zip(better, worse, strict=False)) if two[0] != two[1]), min(len(better), len(worse))
    )  # fmt: skip
    if low is None:
        assert better[: len(worse)] == worse
    else:
        assert low.response == tuple(worse[: shared + count])
        assert len(low.response) > shared


def test_targets_are_examples_with_their_weights_and_in_pairs(base):
    shown = evidence(edits(), base, ())
    run = TrainingRun(base, edits(), recipe_for(base), seed=1)
    grading = plan.Grading(run, plan.GradingSettings(grounding=48), 64)
    grading.draw_base([one.better.question for one in shown.edits])
    settings = distilled.DistilSettings(target_passes=2)
    units = distilled.examples(grading, distilled.nothing(shown.targets), settings)
    paired = [unit for unit in units if unit[0].paired]
    assert len(paired) == 2 * len(shown.edits)
    assert {(one.advantage, two.advantage) for one, two in paired} == {(1.0, 0.0)}
    held = [one for unit in units if not unit[0].paired for one in unit]
    assert held
    assert all(float(one.kl_weight[0]) == 1.0 for one in held)
    assert len([u for u in distilled.examples(grading, distilled.nothing(shown.targets), settings, 1) if u[0].paired]) == 4  # fmt: skip


# ------------------------------------------------------------------------------------------------ runs


def margins(policy, samples):
    """How much likelier each edit is than what it corrects, in nats a token."""
    shown = evidence(samples, policy, ()).edits
    with torch.no_grad():
        better = policy.scorer([one.better for one in shown]).split()
        worse = policy.scorer([one.worse for one in shown]).split()
    return np.array([float(b.mean() - w.mean()) for b, w in zip(better, worse, strict=True)])


def test_a_run_whose_taps_cannot_be_read_learns_the_edits(tmp_path):
    policy = engine.load("embedded")
    samples, before = [*unreadable(), *edits()], margins(policy, edits())
    alike = [dataclasses.replace(one, reward=1.0) if one.reward > 0 else one for one in samples]
    settings = dataclasses.replace(recipe_for(policy), options={"distilled": {"least_steps": 8}})
    result = engine.train(policy, alike, settings, seed=5, out=tmp_path)
    assert result.algorithm in ("kto", "rollouts")
    assert "4 edits" in result.note
    after = margins(policy, edits())
    assert (after > before + 0.2).all()


def test_without_a_pattern_more_ratings_than_edits_are_learned_as_they_are(policy, monkeypatch):
    found = no_trust(monkeypatch)
    samples, made = no_pattern(policy, edits())
    assert found == [True]
    assert made.name == "kto"
    assert "4 edits" in made.note
    advantages = {
        e.encoded: e.advantage for step in range(made.source.steps) for e in made.source.examples(step)
    }
    assert set(advantages) == {policy.encode(one) for one in samples}
    for one in evidence(samples, policy, ()).edits:
        assert advantages[one.better] > 0 > advantages[one.worse]


def no_trust(monkeypatch):
    """The reader sees no pattern in any ratings."""
    learn, found = plan.Grading.learn, []

    def distrust(self, *given, **more):
        ensemble = learn(self, *given, **more)
        found.append(True)
        return dataclasses.replace(ensemble, trust=dataclasses.replace(ensemble.trust, trusted=False, p=1.0))

    monkeypatch.setattr(plan.Grading, "learn", distrust)
    return found


def test_without_a_pattern_liked_and_disliked_answers_of_a_named_model_are_told_apart(policy):
    """Nothing is drawn or graded."""
    liked = [tapped(i, f"Otters are animals, number {i}.", 1.0, model=OTHER) for i in range(1, 5)]
    disliked = [tapped(10 + i, f"Nobody knows {i} otters.", -1.0, model=OTHER) for i in range(4)]
    cut = dataclasses.replace(tapped(30, "Otters are", 1.0, model=OTHER), ending="length")
    samples = [*(one for two in zip(liked, disliked, strict=True) for one in two), cut]
    settings = dataclasses.replace(recipe_for(policy), learn_from=("strong-*",))
    draws = []
    run = TrainingRun(policy, samples, settings, seed=1, tell=lambda one: draws.append(one["phase"]))
    shown = evidence(samples, policy, ("strong-*",))
    made = plan.learned_directly(None, shown, run, samples, "no pattern")
    assert made.name == "kto"
    assert "draw" not in draws
    assert made.note == "8 ratings as they are: no pattern"
    examples = {e.encoded: e.advantage for step in range(made.source.steps) for e in made.source.examples(step)}  # fmt: skip
    assert policy.encode(cut) not in examples
    assert all(examples[policy.encode(one)] > 0 for one in liked)
    assert all(examples[policy.encode(one)] < 0 for one in disliked)


@pytest.mark.parametrize("learn_from", [(), ("strong-*",)])
def test_liked_foreign_answers_are_learned_only_from_named_models(policy, learn_from):
    liked = [tapped(i, f"Otters are animals, number {i}.", 1.0, model=OTHER) for i in range(1, 5)]
    own = [tapped(10 + i, "Otters eat fish.", 1.0) for i in range(4)]
    settings = dataclasses.replace(recipe_for(policy), learn_from=learn_from)
    made = plan.plan(TrainingRun(policy, [*liked, *own], settings, seed=1))
    texts = {policy.encode(one) for one in liked}
    learned = {e.encoded for step in range(made.source.steps) for e in made.source.examples(step)}
    if learn_from:
        assert made.name == "rpo"
        assert "4 liked answers of other models" in made.note
        assert texts <= learned
    else:
        assert made.name == "reinforce"
        assert "4 liked answers of other models left out" in made.note
        assert not texts & learned


def test_only_foreign_liked_answers_are_nothing_to_learn_from(policy):
    liked = [tapped(i, "Otters are animals.", 1.0, model=OTHER) for i in range(1, 5)]
    disliked = [dataclasses.replace(one, turn_id=one.turn_id + 9, reward=-1.0) for one in liked]
    for samples in (liked, [*liked, *disliked]):
        with pytest.raises(TrainingError, match="learn_from"):
            plan.plan(TrainingRun(policy, samples, recipe_for(policy), seed=1))


@pytest.mark.slow
def test_named_answers_that_are_graded_well_take_the_place_of_drawn_ones(policy, monkeypatch):
    asked = [user(f"Tell me about otter {i}.") for i in range(8)]
    captured = [
        Sample(
            100 + i,
            messages,
            "- a river\n- a fish\n- a bank" if i % 2 else "It is an otter.",
            0.0,
            model=OTHER,
        )
        for i, messages in enumerate(asked)
    ]
    disliked = tapped(101, captured[1].response, -1.0, asked=asked[1][0]["content"], model=OTHER)
    samples = [disliked, tapped(60, "- one\n- two", 1.0, asked="What is a heron?")]
    monkeypatch.setattr(distilled, "relevance", lambda _, answers, __: np.zeros(len(answers)))
    monkeypatch.setattr(
        distillation_plan, "search", lambda *_, **__: pytest.fail("a sentence was looked for")
    )

    def planned(learn_from):
        settings = dataclasses.replace(
            recipe_for(policy, "distil", other_answers=4, better=0.0, shortest=0.0),
            learn_from=learn_from,
        )
        return plan.plan(
            TrainingRun(
                policy, samples, settings, seed=1, grader=LikesBullets(), prompts=asked, captured=captured
            )
        )

    made = planned(("strong-*",))
    assert "answers of other models, chosen from" in made.note
    learned = {one.encoded for one in made.source.round.answers}
    assert learned <= {policy.encode(one) for one in captured if one.response.startswith("- ")}
    assert policy.encode(captured[1]) not in learned, "somebody disliked it"
    assert len(learned) >= 2
    with pytest.raises(BaseException, match="a sentence was looked for"):
        planned(())


def test_fresh_answers_are_as_long_as_the_policys_own_and_not_as_foreign_ones(base):
    long = "Otters live in rivers and eat fish. " * 40
    foreign = [tapped(i, long, 1.0, model=OTHER) for i in range(4)]
    own = [tapped(9, "Otters eat fish.", 1.0)]

    def room(samples):
        encoded = [base.encode(one) for one in samples]
        asked = {one.prompt: sample.messages for one, sample in zip(encoded, samples, strict=True)}
        grading = plan._grading(TrainingRun(base, samples, recipe_for(base)), samples, encoded, asked)
        wide = grading.room
        grading.draw_base(list(asked))
        return wide, grading.room, grading

    wide, narrow, grading = room(foreign)
    longest = max(len(one.response) for one in grading.base)
    assert narrow <= max(64, 2 * longest) < wide
    assert room([*foreign, *own])[:2] == (64, 64)


@pytest.mark.slow
def test_a_killed_run_on_edits_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    no_trust(monkeypatch)
    samples = [*unreadable()[:4], *edits()]
    real = training_loop.LoopSettings
    monkeypatch.setattr(training_loop, "LoopSettings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))

    def train(folder, on_progress=None):
        fresh = engine.load("embedded")
        settings = recipe_for(fresh)
        settings = dataclasses.replace(settings, options={"distilled": {"least_steps": 4}})
        result = engine.train(fresh, samples, settings, seed=5, out=folder, on_progress=on_progress)
        assert result.algorithm == "rpo"
        return weights(fresh)

    def kill(progress):
        if progress["phase"] == "train" and progress["step"] == 3:
            raise KeyboardInterrupt

    expected = train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", kill)
    assert (tmp_path / "killed" / "checkpoint.pt").is_file()
    assert same(expected, train(tmp_path / "killed"))


def test_rounds_of_fresh_answers_learn_edits_beside_them_and_resume(policy):
    def source():
        settings = recipe_for(policy, "rollouts", targets=2)
        run = TrainingRun(policy, edits(), settings, seed=3, grader=LikesBullets())
        return plan.plan(run).source

    rounds = source()
    first = [*rounds.examples(0), *rounds.examples(1)]
    better = {one.better for one in rounds.targets}
    shown = [e for e in first if e.encoded in better]
    assert len(shown) == 2
    assert {e.advantage for e in shown} == {1.0}
    again = source()
    again.restore(rounds.state())
    assert [(e.encoded, e.advantage) for e in again.examples(1)] == [
        (e.encoded, e.advantage) for e in rounds.examples(1)
    ]
