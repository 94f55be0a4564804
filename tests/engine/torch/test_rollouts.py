"""RolloutSettings answers: what is chosen and why, that a killed run goes on to the same bits, and that a taste is learned."""

import dataclasses
import random

import pytest
import torch

pytest.importorskip("peft")

from clawback import engine
from clawback.errors import TrainingError
from clawback.extensions.demo import corpus, tastes
from clawback.models.adapter import merged
from clawback.records import BETTER, Sample
from clawback.sources import plan
from clawback.templates.chat_tokens import Encoded
from clawback.trainer import training_loop
from clawback.trainer.run import TrainingRun

SMALL = {"rounds": 2, "prompts": 3, "samples": 4, "round_steps": 2, "grounding": 48, "sentences": 0}


def recipe_for(policy, algorithm="auto", **extra):
    return dataclasses.replace(engine.recipe(policy.info, algorithm=algorithm), extra={**SMALL, **extra})


def rated(policy, taste="bullets", count=24, seed=0, noise=0.0):
    """What a person with a taste says of answers of the base, one to a prompt."""
    asked = corpus.prompts("rated", count, seed)
    answers = policy.generate([p.messages for p in asked], seed=seed)
    rng = random.Random(seed)
    return [
        Sample(
            turn_id=number,
            messages=tuple(prompt.messages),
            response=one.text,
            reward=float(tastes.TASTES[taste].rate(prompt, one.text, rng, noise)),
            response_ids=one.ids,
            response_logprobs=one.logprobs,
        )
        for number, (prompt, [one]) in enumerate(zip(asked, answers, strict=True), 1)
    ]


@pytest.fixture(scope="module")
def base():
    return engine.load("embedded")


@pytest.fixture(scope="module")
def samples(base):
    return rated(base)


@pytest.fixture
def policy():
    fresh = engine.load("embedded")
    fresh.attach(rank=8, alpha=8, seed=0)
    return fresh


def weights(policy):
    return {name: p.detach().clone() for name, p in policy.model.named_parameters() if "lora_" in name}


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_ratings_that_can_be_predicted_are_learned_from_by_fresh_answers(policy, samples):
    made = plan.plan(TrainingRun(policy, samples, recipe_for(policy), seed=1))
    assert made.name == "rollouts"
    assert "ratings show a pattern" in made.note
    assert f"{len(samples)} ratings" in made.note
    assert made.source.steps == SMALL["rounds"] * SMALL["round_steps"]


def test_ratings_that_cannot_fall_back_and_say_so(policy, samples):
    found = None
    for seed in range(20):  # a few in a hundred pass by chance
        rewards = [s.reward for s in samples]
        random.Random(seed).shuffle(rewards)
        dealt = [dataclasses.replace(s, reward=r) for s, r in zip(samples, rewards, strict=True)]
        made = plan.plan(TrainingRun(policy, dealt, recipe_for(policy), seed=1))
        if made.name == "reinforce":
            found = made
            break
    assert found is not None
    assert "show no pattern" in found.note
    assert found.algorithm.name == "reinforce"


@pytest.mark.parametrize(("sign", "word"), [(1.0, "good"), (-1.0, "bad")])
def test_ratings_of_one_sign_are_never_drawn_for(policy, samples, sign, word):
    alike = [dataclasses.replace(s, reward=sign) for s in samples]
    made = plan.plan(TrainingRun(policy, alike, recipe_for(policy)))
    assert made.name == "reinforce"
    assert f"all {len(samples)} ratings are {word}" in made.note
    with pytest.raises(TrainingError, match=word):
        plan.plan(TrainingRun(policy, alike, recipe_for(policy, "rollouts")))


@pytest.mark.slow
def test_a_remark_is_enough_where_all_ratings_are_alike(policy, samples):
    """Somebody who calls everything bad and says why has said what they want; words that nobody understands change nothing."""
    alike = [dataclasses.replace(s, reward=-1.0) for s in samples]
    # An answer that somebody put in its place is none, whatever it says.
    puzzling = [dataclasses.replace(alike[0], hints=("Hm.", f"{BETTER}\nSorry! It is short.")), *alike[1:]]
    assert plan.plan(TrainingRun(policy, puzzling, recipe_for(policy))).name == "reinforce"
    # Nor is one about what the base never says: it tells nothing apart.
    idle = [dataclasses.replace(alike[0], hints=('Say "heretofore".', "No headings.")), *alike[1:]]
    assert plan.plan(TrainingRun(policy, idle, recipe_for(policy))).name == "reinforce"
    with pytest.raises(TrainingError, match="ratings are bad, so there is nothing to compare"):
        plan.plan(TrainingRun(policy, idle, recipe_for(policy, "rollouts")))
    alike[0] = dataclasses.replace(alike[0], hints=("Too wordy, and no emoji!",))
    made = plan.plan(TrainingRun(policy, alike, recipe_for(policy)))
    assert made.name == "rollouts"
    assert made.note.endswith("remarks recognised: 2")


def test_a_round_is_answers_to_the_persons_prompts_with_their_true_logprobs(policy, samples):
    further = [p.messages for p in corpus.prompts("held_out", 3, 9)]
    made = plan.plan(TrainingRun(policy, samples, recipe_for(policy, "rollouts"), prompts=further, seed=3))
    source = made.source
    known = {policy.encode(s).prompt for s in samples} | {tuple(policy.chat.prompt(m)) for m in further}
    assert set(source.asked) == known
    first, second = source.examples(0), source.examples(1)
    everything = [*first, *second]
    fresh = SMALL["prompts"] * SMALL["samples"]
    assert len(everything) == fresh + fresh // 4
    known_answers = {(e.prompt, e.response) for e in source.grading.base}
    replayed = [
        e for e in everything if e.advantage == 0 and (e.encoded.prompt, e.encoded.response) in known_answers
    ]
    assert len(replayed) >= fresh // 4
    assert {e.encoded.prompt for e in everything} <= known
    with torch.no_grad():
        values = policy.scorer([e.encoded for e in everything]).split()
    for example, value in zip(everything, values, strict=True):
        torch.testing.assert_close(example.old, value, atol=1e-4, rtol=0)
        torch.testing.assert_close(example.ref, value, atol=1e-4, rtol=0)  # the adapter changes nothing yet
        assert example.base.shape == (len(example.encoded.response), policy.info.hidden)
    by_prompt = {}
    for example in everything:
        by_prompt.setdefault(example.encoded.prompt, []).append(example.advantage)
    assert all(abs(sum(group)) < 1e-4 for group in by_prompt.values())


def test_an_answer_that_does_not_end_is_worth_less(policy, samples):
    source = plan.plan(TrainingRun(policy, samples, recipe_for(policy, "rollouts"), seed=3)).source
    answers = [policy.encode(samples[0])] * 2
    hidden = source.grading.look(answers).hidden
    ended, cut = source.grading.grade(answers, hidden, [True, False])
    assert ended - cut == pytest.approx(plan.GradingSettings.cut_off)


@pytest.mark.slow
def test_an_answer_that_goes_round_in_circles_is_worth_less(policy, samples):
    source = plan.plan(TrainingRun(policy, samples, recipe_for(policy, "rollouts"), seed=3)).source
    said = "It eats fish. It lives in rivers."
    answers = [
        Encoded((1,), tuple(policy.tokenizer(text, add_special_tokens=False).input_ids))
        for text in (said, f"{said} It lives in rivers.")
    ]
    whole, circling = source.grading.grade(answers, source.grading.look(answers).hidden, [True, True])
    assert whole - circling > 0.5 * plan.GradingSettings.cut_off


@pytest.mark.slow
def test_drift_makes_the_hold_grow_and_let_go(policy, samples):
    source = plan.plan(
        TrainingRun(policy, samples, recipe_for(policy, "rollouts", max_kl=-1.0), seed=3)
    ).source
    source.examples(0)
    source.examples(2)
    assert source.hold == pytest.approx(2.25)
    source.settings = dataclasses.replace(source.settings, max_kl=99.0)
    source.examples(4)
    assert source.hold == pytest.approx(1.5)
    assert float(source.examples(5)[0].kl_weight[0]) == pytest.approx(1.5)


class Killed(Exception):
    pass


def train(samples, folder, seed=5, on_progress=None):
    fresh = engine.load("embedded")
    settings = recipe_for(fresh, "rollouts")
    result = engine.train(fresh, samples, settings, seed=seed, out=folder, on_progress=on_progress)
    return result, (folder / "adapter" / "adapter_model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(samples, tmp_path_factory):
    """A run that nothing interrupted, and the bytes of its adapter."""
    torch.manual_seed(0)
    return train(samples, tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
def test_a_run_killed_after_every_step_goes_on_each_time_to_the_same_bits(
    samples, whole, tmp_path, monkeypatch
):
    real = training_loop.LoopSettings
    monkeypatch.setattr(training_loop, "LoopSettings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))
    begun = []

    def follow(last):
        steps = []

        def told(progress):
            if progress["phase"] == "train":
                if not steps:
                    begun.append(progress["step"])
                steps.append(progress["step"])
                if progress["step"] == last:
                    raise Killed

        return told

    for after in (1, 2, 3):
        with pytest.raises(Killed):
            train(samples, tmp_path, on_progress=follow(after + 1))
    result, got = train(samples, tmp_path, on_progress=follow(99))
    assert begun[1:] == [2, 3, 4], "each time it did go on, and not begin again"
    assert result.steps == whole[0].steps
    assert got == whole[1]


@pytest.mark.slow
def test_same_seed_same_bits_and_another_seed_others(samples, whole, tmp_path):
    assert train(samples, tmp_path / "b")[1] == whole[1]
    assert train(samples, tmp_path / "c", seed=6)[1] != whole[1]


def test_merged_weights_say_the_same_and_leave_nothing_behind(policy):
    for parameter in policy.model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.05, generator=torch.Generator().manual_seed(0))
    encoded = [Encoded((4, 8, 15), (16, 23, 42))]
    untouched = [p.detach().clone() for p in policy.model.parameters()]
    with torch.no_grad():
        before = policy.scorer(encoded).logprobs
        with merged(policy.model):
            within = policy.scorer(encoded).logprobs
        after = policy.scorer(encoded).logprobs
    torch.testing.assert_close(before, within, atol=1e-4, rtol=0)
    assert torch.equal(before, after)
    assert all(torch.equal(a, b) for a, b in zip(untouched, policy.model.parameters(), strict=True))


@pytest.mark.slow
def test_a_taste_is_learned_and_facts_are_kept(samples, tmp_path):
    policy = engine.load("embedded")
    asked = corpus.prompts("held_out", 64, 1)

    def satisfied():
        made = [one for [one] in policy.generate([p.messages for p in asked], seed=9)]
        checks = [corpus.check_facts(p, one.text) for p, one in zip(asked, made, strict=True)]
        fits = [tastes.TASTES["bullets"].fits(p, one.text) for p, one in zip(asked, made, strict=True)]
        return sum(fits) / len(fits), sum(c.right for c in checks) / sum(c.stated for c in checks)

    before, facts_before = satisfied()
    recipe = dataclasses.replace(engine.recipe(policy.info, algorithm="auto"), extra={"rounds": 8})
    result = engine.train(policy, samples, recipe, seed=0, out=tmp_path / "run")
    after, facts_after = satisfied()
    assert result.algorithm == "rollouts"
    assert before < 0.65
    assert after > 0.8
    assert facts_after > facts_before - 0.03


@pytest.mark.slow
def test_what_the_policy_no_longer_says_is_held_by_answers_of_the_base(base, tmp_path):
    """The same ratings with and without: what the base says stays likelier where some of it is replayed."""
    samples = rated(base, "formal prose, no emoji", 32)
    asked = [p.messages for p in corpus.prompts("held_out", 48, 4)]
    likely = {}
    for replay in (0.0, 0.5):
        policy = engine.load("embedded")
        said = [one.ids for [one] in policy.generate(asked, seed=2)]
        extra = {"rounds": 12, "exact_kl": 0.03, "replay": replay}
        recipe = dataclasses.replace(engine.recipe(policy.info, algorithm="rollouts"), extra=extra)
        engine.train(policy, samples, recipe, seed=0, out=tmp_path / str(replay))
        likely[replay] = sum(float(values.sum()) for values in policy.logprobs(asked, said))
    assert likely[0.5] > likely[0.0]


@pytest.mark.slow
def test_a_run_stops_where_the_reward_falls_under_its_limit(samples, tmp_path):
    """No answer reaches a limit that high; what the run had before is kept, and whoever watches is told."""
    heard, policy = [], engine.load("embedded")
    recipe = dataclasses.replace(recipe_for(policy), min_reward=50.0)
    asked = [s.messages for s in samples]
    result = engine.train(
        policy, samples, recipe, out=tmp_path, prompts=asked, on_progress=lambda p: heard.append(dict(p))
    )
    assert "under the limit of 50.00" in result.stopped
    assert [p["text"] for p in heard if p["phase"] == "alert"] == [result.stopped]


class LikesBullets:
    """A grader that reads text; it keeps what it was shown."""

    name = "likes bullets"

    def __init__(self):
        self.shown = []

    def __call__(self, pairs):
        self.shown += pairs
        return [1.0 if "\n- " in "\n" + response else -1.0 for _, response in pairs]


@pytest.mark.slow
def test_a_reward_model_grades_in_place_of_the_head(policy, samples):
    """Even where all ratings are alike, for it knows more than these; it sees the person's words, not the template's."""
    grader = LikesBullets()
    alike = [dataclasses.replace(s, reward=1.0) for s in samples]
    made = plan.plan(TrainingRun(policy, alike, recipe_for(policy), seed=3, grader=grader))
    assert (made.name, made.note) == ("rollouts", "fresh answers, graded by likes bullets")
    assert made.source.grading.ensemble is None
    examples = made.source.examples(0) + made.source.examples(1)
    asked = {s.messages[-1]["content"] for s in samples}
    assert {prompt for prompt, _ in grader.shown} <= asked
    replayed = {(e.prompt, e.response) for e in made.source.grading.base}
    for example in examples:
        if (example.encoded.prompt, example.encoded.response) in replayed:
            continue  # nothing to gain there, and the round's mean for a reward
        text = policy.tokenizer.decode(example.encoded.response, skip_special_tokens=True)
        likes = 1.0 if "\n- " in "\n" + text else -1.0
        assert text in {r for _, r in grader.shown}
        assert (
            example.reward * made.source.grading.scale + made.source.grading.usual <= likes + 1e-5
        )  # less, where it was cut off


def test_a_run_with_another_grader_is_another_run(policy, samples):
    recipe, grader = recipe_for(policy), LikesBullets()
    marks = [TrainingRun(policy, samples, recipe, grader=g).fingerprint() for g in (None, grader)]
    grader.name = "likes bullets more"
    assert len({*marks, TrainingRun(policy, samples, recipe, grader=grader).fingerprint()}) == 3
