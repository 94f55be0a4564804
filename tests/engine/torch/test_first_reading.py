"""A run of which nothing can be read ends before anything is drawn; what needs no reading is learned all the same."""

import contextlib
import copy
import dataclasses
import random

import pytest

pytest.importorskip("peft")

from clawback import engine
from clawback.errors import NothingRead, NothingToGain
from clawback.learning import training
from clawback.rewards.reward_ensemble import LEAST_CORRELATION
from clawback.sources import graded, plan
from clawback.sources.first_reading import Inputs
from clawback.trainer import RunConditions, RunRules
from clawback.trainer.run import TrainingRun
from tests.engine.torch.test_targets import edits, tapped

PLAIN = ["Otters eat fish.", "They swim in rivers.", "Some of them live at the sea.", "Their fur is thick."]
ENDS = ["They sleep a lot.", "Nobody knows why.", "They play with stones.", "A group is called a raft."]
SIZE = 135_000_000


@pytest.fixture(scope="module")
def base():
    made = engine.load("embedded")
    made.attach(rank=4, alpha=4, seed=0)
    return made


@pytest.fixture
def policy(base):
    """The embedded model, taken for one that is large enough to follow a sentence."""
    made = copy.copy(base)
    made.info = dataclasses.replace(made.info, total_parameters=SIZE, active_parameters=SIZE)
    return made


@pytest.fixture
def drawn(monkeypatch):
    """Whether something was drawn; nothing is."""
    calls = []

    def draw(*_, **__):
        calls.append(True)
        raise KeyError("drawn")

    monkeypatch.setattr(graded.Grading, "draw", draw)
    return calls


def answers(count, liked, seed=0):
    """Short answers, some of them with a list, rated as ``liked`` says of (has a list, a random number)."""
    rng = random.Random(seed)
    samples = []
    for i in range(count):
        text = " ".join(rng.sample(PLAIN, 2)) + " " + rng.choice(ENDS)
        listed = i % 2 == 0
        text = "- " + text.replace(". ", ".\n- ") if listed else text
        samples.append(tapped(i + 1, text, 1.0 if liked(listed, rng.random()) else -1.0, version=0))
    return samples


def by_chance(count, seed):
    return answers(count, lambda _, chance: chance < 0.5, seed)


def run_of(policy, samples, algorithm="auto", **more):
    return TrainingRun(policy, samples, engine.recipe(policy.info, algorithm=algorithm), seed=1, **more)


def test_nearly_all_ratings_by_chance_end_before_anything_is_drawn(policy, drawn):
    unread = 0
    for seed in range(5):
        try:
            plan.plan(run_of(policy, by_chance(16, seed)))
        except NothingRead as error:
            unread += 1
            assert "Nothing read: these 16 ratings show no pattern" in str(error)
        except KeyError:
            pass
    assert unread >= 4  # at most 8 in 100 pass by chance


def test_a_taste_of_form_is_read_and_drawn_for(policy, drawn):
    samples = answers(24, lambda listed, _: listed)
    plan.check(run_of(policy, samples))
    with pytest.raises(KeyError, match="drawn"):
        plan.plan(run_of(policy, samples))


def unread_samples():
    return answers(24, lambda listed, _: False)


@pytest.mark.parametrize("of", [plan.check, plan.plan])
def test_all_alike_is_nothing_to_read(policy, drawn, of):
    with pytest.raises(NothingToGain, match="Nothing read: all 24 ratings are bad"):
        of(run_of(policy, unread_samples()))
    cut = [dataclasses.replace(one, ending="length") for one in unread_samples()]
    with pytest.raises(NothingRead, match="cut off"):
        of(run_of(policy, cut))
    assert not drawn


@pytest.mark.parametrize("more", ["edits", "rules", "remarks", "pairs"])
def test_what_needs_no_reading_is_learned_all_the_same(policy, drawn, more):
    samples = unread_samples()
    run = run_of(policy, samples)
    if more == "edits":
        run = dataclasses.replace(run, samples=[*samples, *edits()[:2]])
    elif more == "pairs":
        better = tapped(77, "A list.", 0.5, "preference", asked="Which?", feedback=9, version=0)
        worse = dataclasses.replace(better, turn_id=78, response="No list.", reward=-0.5)
        run = dataclasses.replace(run, samples=[*samples, better, worse])
    elif more == "rules":
        conditions = RunConditions(rules=RunRules(("Be short.",)))
        run = dataclasses.replace(run, recipe=dataclasses.replace(run.recipe, conditions=conditions))
    else:
        samples[0] = dataclasses.replace(samples[0], hints=("Say it in one paragraph.",))
    plan.check(run)
    with pytest.raises(KeyError, match="drawn"):
        plan.plan(run)


@pytest.mark.parametrize("way", ["chosen", "anyway", "small"])
def test_who_wants_it_all_the_same_learns_the_ratings_themselves(policy, drawn, way):
    run = run_of(policy, unread_samples(), "reinforce" if way == "chosen" else "auto")
    if way == "anyway":
        run = dataclasses.replace(
            run, recipe=dataclasses.replace(run.recipe, conditions=RunConditions(anyway=True))
        )
    if way == "small":
        policy.info = dataclasses.replace(policy.info, total_parameters=2_000_000)
    engine.check_readable(policy, run.samples, run.recipe, seed=1)
    made = training.plan_for(run)
    assert made.algorithm.name == "reinforce"
    assert not drawn


def trusting(monkeypatch, trusted, correlation=0.9):
    """Have the first reading say whether what it reads is trusted, and how well it reads."""
    real = graded.Grading.read

    def read(self, *given, **named):
        made = real(self, *given, **named)
        trust = dataclasses.replace(
            made.trust, trusted=trusted, correlation=correlation, reason="a pattern or none"
        )
        return dataclasses.replace(made, trust=trust)

    monkeypatch.setattr(graded.Grading, "read", read)


def test_ratings_that_are_read_weakly_are_learned_as_they_are_beside_edits(policy, monkeypatch, drawn):
    trusting(monkeypatch, True, correlation=0.3)
    samples = answers(24, lambda listed, _: listed)
    made = plan.plan(run_of(policy, [*samples, *edits()]))
    assert made.name == "kto"
    assert made.note == (
        "24 ratings as they are; beside them 4 edits: they are read too weakly to grade answers by (correlation 0.30; at least 0.5)"
    )
    learned = {e.encoded for step in range(made.source.steps) for e in made.source.examples(step)}
    assert {policy.encode(one) for one in samples} < learned
    assert not drawn
    with pytest.raises(KeyError, match="drawn"):  # without what needs no reading the reader is all there is
        plan.plan(run_of(policy, samples))
    samples[1] = dataclasses.replace(samples[1], hints=("Say it in one paragraph.",))
    with pytest.raises(KeyError, match="drawn"):  # what is said in words is not read from ratings
        plan.plan(run_of(policy, [*samples, *edits()]))


def test_a_taste_that_is_read_well_has_a_high_correlation(policy, monkeypatch, drawn):
    real, correlations = graded.Grading.read, []

    def read(self, *given, **named):
        made = real(self, *given, **named)
        correlations.append(made.trust.correlation)
        return made

    monkeypatch.setattr(graded.Grading, "read", read)
    for samples in (answers(24, lambda listed, _: listed), by_chance(24, 2)):
        with contextlib.suppress(NothingRead, KeyError):
            plan.plan(run_of(policy, samples))
    assert correlations[0] > 0.7
    assert correlations[1] < LEAST_CORRELATION


def test_what_edits_alone_tell_is_searched_for_where_it_is_read(policy, monkeypatch, drawn):
    trusting(monkeypatch, True)
    with pytest.raises(KeyError, match="drawn"):
        plan.plan(run_of(policy, edits()))


def test_edits_alone_that_cannot_be_read_are_learned_and_nothing_is_searched(policy, monkeypatch):
    trusting(monkeypatch, False)
    numbers, real = [], graded.Grading.draw

    def draw(self, prompts, each, generator):
        numbers.append((len(prompts), each))
        self.room = 8
        return real(self, prompts, each, generator)

    monkeypatch.setattr(graded.Grading, "draw", draw)
    asked = [({"role": "user", "content": f"Tell me about heron number {i}."},) for i in range(20, 26)]
    settings = dataclasses.replace(
        engine.recipe(policy.info, algorithm="auto"), options={"graded": {"grounding": 6}}
    )
    samples = edits()
    made = plan.plan(TrainingRun(policy, samples, settings, seed=1, prompts=asked))
    shown = {one.better for one in Inputs.of(policy, samples, settings).shown.targets}
    assert (made.name, len(shown)) == ("rpo", 4)
    assert made.note == "what needs no reading alone (4 edits): a pattern or none"
    assert numbers == [(6, 1)], "one answer of the base to each of some prompts"
    held = {one.question for one in made.source.grading.base}
    assert not held & {one.question for one in shown}
    learned = {
        one.encoded
        for step in range(made.source.steps)
        for one in made.source.examples(step)
        if one.advantage
    }
    assert learned == shown
    assert made.source.rounds == 0
