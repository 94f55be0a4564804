"""A sentence is found by what it does to the base's answers, and what was said under it is learned without it."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clawback import engine
from clawback.errors import TrainingError
from clawback.extensions.demo import corpus
from clawback.rewards.instructions import Instruction
from clawback.rl.algorithms.rpo import Rpo
from clawback.rl.batch import Batch
from clawback.sources import distillation_plan, distilled, graded, instructed, plan
from clawback.sources.graded import Graded, Grading, GradingSettings
from clawback.sources.guided import GuidedRounds
from clawback.sources.instructed import Arm
from clawback.sources.rpo_rounds import RpoRounds
from clawback.sources.teacher import appended
from clawback.templates.chat_tokens import Encoded
from clawback.trainer.examples import Shared, measure
from clawback.trainer.run import TrainingRun
from tests.engine.torch.test_rollouts import LikesBullets, rated

SMALL = {"grounding": 48, "first": 4, "most": 8, "answers": 1, "distil_prompts": 16, "sentences": 4}


@pytest.fixture(scope="module")
def policy():
    return engine.load("embedded")


@pytest.fixture(scope="module")
def samples(policy):
    return rated(policy)


def run_for(policy, samples, **more):
    recipe = dataclasses.replace(engine.recipe(policy.info, algorithm="distil"), extra=SMALL)
    return TrainingRun(policy, samples, recipe, seed=3, **more)


def grading_for(policy, samples):
    grading = Grading(run_for(policy, samples, grader=LikesBullets()), GradingSettings(grounding=48), 64)
    asked = {policy.encode(s).prompt: s.messages for s in samples}
    grading.ground(list(asked))
    return grading, instructed.PromptMessages(asked)


@pytest.mark.slow
def test_the_sentence_that_helps_wins_and_the_others_are_given_up(policy, samples):
    grading, conversations = grading_for(policy, samples)
    base = {one.prompt: 0.0 for one in grading.base}
    helps, hurts = "Answer with a bulleted list.", "Answer in plain paragraphs, without lists."
    arms = instructed.search(
        grading, conversations, base, [Instruction(hurts, 1.0), Instruction(helps, 0.1)], first=4, most=16
    )  # fmt: skip
    assert [arm.instruction.text for arm in arms] == [helps, hurts]
    assert len(arms[0].answers) > len(arms[1].answers)
    assert all(one.encoded.prompt in conversations.messages for arm in arms for one in arm.answers)


def test_the_owners_sentence_is_tried_on_all_prompts_however_it_begins(policy, samples, monkeypatch):
    grading, conversations = grading_for(policy, samples)
    base = dict.fromkeys((one.prompt for one in grading.base), 0.0)
    owned, *listed = instructions = [Instruction("Please note: kind words.", math.inf), *(Instruction(f"{n}.", 1.0) for n in range(3))]  # fmt: skip

    def drawn(grading, conversations, prompts, each, generator):
        worth = {one.text: float(one is not owned) for one in instructions}
        return [Graded(Encoded(prompt, (1,)), worth[text], True) for prompt, text in prompts]

    monkeypatch.setattr(instructed, "draw_under", drawn)
    arms = {arm.instruction.text: arm for arm in instructed.search(grading, conversations, base, instructions, first=2, most=8)}  # fmt: skip
    assert len(arms[owned.text].answers) == max(len(arm.answers) for arm in arms.values())
    assert min(len(arms[one.text].answers) for one in listed) < len(arms[owned.text].answers)


def test_an_answer_that_repeats_its_sentence_is_not_learned(policy, samples, monkeypatch):
    grading, conversations = grading_for(policy, samples)
    prompt, sentence = next(iter(conversations.messages)), "Mind the small print."
    texts = ["It eats fish.", f"It eats fish.\n\n{sentence}", "fish " * 9]
    drawn = [policy.chat.encoded(prompt, policy.tokenizer.encode(text)) for text in texts]
    monkeypatch.setattr(grading, "draw", lambda *_: graded.Drawn(drawn, [torch.zeros(1)] * 3, [True] * 3))
    made = instructed.draw_under(grading, conversations, [(prompt, sentence)], 3, grading.generator(0, 1))
    assert [one.complete for one in made] == [True, False, False]
    plain = instructed.draw_under(grading, conversations, [(prompt, "")], 3, grading.generator(0, 1))
    assert [one.complete for one in plain] == [True, True, False]


def test_an_answer_that_only_copies_its_question_is_broken_unless_the_base_copies_too(policy, samples):
    grading, conversations = grading_for(policy, samples)
    prompt, asked = next(iter(conversations.messages)), "What should I know about otters before I see one?"
    grading.questions = {prompt: asked}
    texts = [asked, "They eat fish and live in rivers."]
    answers = [policy.chat.encoded(prompt, policy.tokenizer.encode(text)) for text in texts]
    assert [one.complete for one in grading.judged(answers, [True, True])] == [False, True]
    grading.base_copied = 0.5  # a person who has texts corrected
    assert [one.complete for one in grading.judged(answers, [True, True])] == [True, True]


def test_nothing_is_followed_by_chance():
    arm = instructed.Arm(Instruction("x", 0.0), gains=[0.5, -0.4, 0.6, -0.5, 0.4])
    assert not instructed.follows(arm, 0.1)
    arm.gains = [0.5, 0.4, 0.6, 0.5, 0.4]
    assert instructed.follows(arm, 0.1)
    assert not instructed.follows(arm, 2.0)  # surely, but by too little


def test_of_each_prompt_the_best_answer_is_learned_and_no_bad_one(policy, samples):
    grading, _ = grading_for(policy, samples)
    answers = grading.base[:6]
    rewards = [0.1, 0.9, -0.9, -0.8, 0.5, 0.4]
    made = [graded.Graded(one, r, True) for one, r in zip(answers, rewards, strict=True)]
    made.append(graded.Graded(answers[0], 2.0, False))  # did not end
    grading.base_graded = [graded.Graded(one, 0.0, True) for one in grading.base]
    settings = distilled.DistilSettings(least_relevance=0.0)
    best = {one.encoded.prompt: one.reward for one in distilled.chosen(grading, made[:6], settings).answers}
    by_prompt: dict[tuple[int, ...], list[float]] = {}
    for one, reward in zip(answers, rewards, strict=True):
        by_prompt.setdefault(one.prompt, []).append(reward)
    assert set(best.values()) <= {max(of) for of in by_prompt.values() if max(of) > 0}
    assert all(one.complete for one in distilled.chosen(grading, made, settings).answers)


def test_an_answer_to_another_prompt_is_less_relevant(policy, samples):
    grading, _ = grading_for(policy, samples)
    own = [grading.base[i] for i in range(0, len(grading.base), len(grading.base) // 12)][:12]
    wrong = [Encoded(a.prompt, b.response) for a, b in zip(own, own[3:] + own[:3], strict=True)]
    about, off = (instructed.relevance(grading, x, grading.look(x).ref) for x in (own, wrong))
    assert np.mean(about) > np.mean(off) + 0.1


@pytest.mark.slow
def test_what_is_distilled_is_said_without_the_sentence(policy, samples):
    made = plan.plan(run_for(policy, samples, grader=LikesBullets()))
    assert made.name == "distil"
    assert made.instruction in made.note
    examples = [one for step in range(made.source.steps) for one in made.source.examples(step)]
    learned = [one for one in examples if one.advantage > 0]
    own = {policy.encode(s).prompt for s in samples}
    assert learned
    assert {one.encoded.prompt for one in learned} <= own
    assert {one.advantage for one in examples} == {0.0, 1.0}


@pytest.mark.slow
def test_where_no_sentence_surely_helps_answers_under_several_are_learned(policy, samples):
    class LikesEvenSums(LikesBullets):
        """Nothing that a sentence could ask for."""

        def __call__(self, pairs):
            return np.array([float(sum(map(ord, text)) % 2) for _, text in pairs])

    made = plan.plan(run_for(policy, samples, grader=LikesEvenSums()))
    assert (made.name, made.instruction) == ("distil", "")
    assert "no sentence" in made.note


def test_a_sentence_is_taken_as_often_as_it_is_likely_to_be_the_best():
    def arm(name, good, bad, length=10):
        made = [
            Graded(Encoded((i, 1), (7,) * length), 1.0 if i < good else 0.0, True) for i in range(good + bad)
        ]
        return Arm(Instruction(name, 1.0), made, shortest=5.0)

    arms = [
        arm("", 20, 44),
        arm("helps now and then", 6, 6),
        arm("never", 0, 30),
        arm("stubs", 12, 0, length=3),
    ]
    arms.append(
        Arm(
            Instruction("whole never", 1.0),
            [dataclasses.replace(one, complete=False) for one in arms[1].answers],
        )
    )
    taken = [one.instruction.text for one in instructed.picked(arms, 0.5, 20_000, np.random.default_rng(0))]
    better = np.random.default_rng(1).beta(7, 7, 20_000) > np.random.default_rng(2).beta(21, 45, 20_000)
    assert taken.count("helps now and then") / 20_000 == pytest.approx(better.mean(), abs=0.02)
    assert taken.count("") / 20_000 == pytest.approx(1 - better.mean(), abs=0.02)
    assert "stubs" not in taken
    assert taken.count("never") < 20
    assert taken.count("whole never") < 400


@pytest.mark.slow
def test_what_helps_now_and_then_is_found_while_answers_are_gathered(policy, samples):
    grading, conversations = grading_for(policy, samples)
    base = {one.question: grading.typical for one in grading.base}
    helps, hurts = "Answer with a bulleted list.", "Answer in plain paragraphs, without lists."
    arms = [
        Arm(Instruction("", 0.0), list(grading.base_graded)),
        *(Arm(Instruction(text, 0.0)) for text in (hurts, helps)),
    ]
    settings = {"distil_prompts": 96, "untold": 2, "least_relevance": 0.0}
    grading.recipe = dataclasses.replace(grading.recipe, extra=settings)
    good = distilled.gathered(grading, conversations, arms, base, progress=False)
    drawn = {arm.instruction.text: len(arm.gains) for arm in arms}
    assert sum(drawn.values()) == 2 * min(96, len(conversations.messages))
    assert drawn[helps] > 1.5 * drawn[hurts]
    assert instructed.follows(arms[2], grading.spread)
    assert not instructed.follows(arms[0], grading.spread)
    assert {one.encoded for one in good.answers} <= {
        one.encoded for one in [*(one for arm in arms for one in arm.answers), *grading.base_graded]
    }


def test_what_a_remark_brings_is_preferred_to_what_the_base_says_without_it(policy, samples):
    grading, conversations = grading_for(policy, samples)
    arm = Arm(Instruction("Answer with a bulleted list.", 0.0))
    grading.recipe = dataclasses.replace(grading.recipe, extra={"distil_prompts": 24, "least_relevance": 0.0})
    own = {one.encoded for one in grading.base_graded}
    by_all = distilled.gathered(grading, conversations, [arm], {})
    assert not {one.encoded for one in by_all.worst.values()} <= own
    grading.unread_words = True
    by_own = distilled.gathered(grading, conversations, [arm], {})
    assert by_own.worst
    assert {one.encoded for one in by_own.worst.values()} <= own


def test_of_unknown_words_beside_ratings_that_show_nothing_no_sentence_of_the_list_is_tried(
    policy, samples, monkeypatch
):
    grading, conversations = grading_for(policy, samples)
    run, tried = run_for(policy, samples, grader=LikesBullets()), []

    def search(grading, conversations, base, instructions, **sizes):
        tried.append([one.text for one in instructions])
        return []

    monkeypatch.setattr(distillation_plan, "search", search)
    settings, remark = distilled.DistilSettings.of(run.recipe), "Which rivers?"

    def arms(remarks, unread, trusted):
        grading.unread_words = unread
        grading.ensemble = SimpleNamespace(trust=SimpleNamespace(trusted=trusted))
        distillation_plan._arms(grading, conversations, remarks, settings, run)
        return tried.pop()

    own = [f"Please note: {remark}"]
    by_all = arms([remark], False, False)
    assert by_all[:1] == own
    assert len(by_all) > 1
    assert arms([remark], True, True) == by_all
    assert arms([remark], True, False) == own
    assert arms([], True, False), "those of the list are left"


HELPS, HURTS = "Answer with a bulleted list.", "Answer in plain paragraphs, without lists."


@pytest.fixture
def _two_sentences(monkeypatch):
    arms = [Arm(Instruction(HURTS, 1.0)), Arm(Instruction(HELPS, 0.5))]
    monkeypatch.setattr(distillation_plan, "search", lambda *_, **__: arms)


def guided_run(policy, samples):
    run = run_for(policy, samples, grader=LikesBullets())
    recipe = dataclasses.replace(run.recipe, extra={**SMALL, "guided_rounds": 2})
    return dataclasses.replace(run, recipe=recipe)


@pytest.mark.usefixtures("_two_sentences")
def test_a_sentence_that_turns_out_to_help_is_said_in_the_rounds(policy, samples):
    made = plan.plan(run_for(policy, samples, grader=LikesBullets()))
    assert made.instruction == HELPS
    assert f"several sentences, most of all {HELPS!r}" in made.note
    prompt = made.source.prompts[0]
    assert len(made.source.under(prompt)) > len(prompt)


@pytest.mark.usefixtures("_two_sentences")
def test_a_sentence_teaches_where_the_settings_ask_for_it(policy, samples):
    made = plan.plan(guided_run(policy, samples))
    assert made.instruction == HELPS
    assert isinstance(made.source, GuidedRounds)
    assert made.source.guide.sentence == HELPS
    examples = [one for step in range(made.source.dealt.steps) for one in made.source.examples(step)]
    assert examples
    assert all(one.base is not None and one.kl_weight.min() > 0 for one in examples)


@pytest.mark.usefixtures("_two_sentences")
def test_a_model_whose_head_is_unknown_teaches_nothing(policy, samples, monkeypatch):
    monkeypatch.setattr(policy.scorer, "fused_head", False)
    made = plan.plan(guided_run(policy, samples))
    assert isinstance(made.source, RpoRounds)
    assert made.instruction == HELPS


def test_where_no_answer_is_any_good_it_says_so(policy, samples):
    class Nothing(LikesBullets):
        def __call__(self, pairs):
            return np.zeros(len(pairs))

    with pytest.raises(TrainingError, match="too few of this model"):
        plan.plan(run_for(policy, samples, grader=Nothing()))


@pytest.mark.slow
def test_a_whole_run_makes_lists_commoner_and_names_the_sentence(samples, tmp_path):
    policy = engine.load("embedded")
    asked = [p.messages for p in corpus.prompts("held_out", 32, 1)]

    def lists():
        made = policy.generate(asked, max_tokens=64, seed=9)
        return np.mean([text.text.count("\n- ") >= 1 for [text] in made])

    before = lists()
    recipe = dataclasses.replace(run_for(policy, samples).recipe, extra={**SMALL, "passes": 8})
    result = engine.train(policy, samples, recipe, seed=3, out=tmp_path, grader=LikesBullets())
    assert result.algorithm == "distil"
    assert "list" in result.instruction
    assert lists() > before + 0.2


def test_a_text_goes_after_what_the_user_said_last():
    talk = (
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "Three"}]},
    )
    longer = appended(talk, "Be brief.")
    assert longer[2]["content"][-1] == {"type": "text", "text": "Be brief."}
    assert longer[:2] == talk[:2]


def test_without_pairs_rpo_is_likelihood_of_the_chosen_and_kl_of_the_others():
    logprobs = torch.tensor([-1.0, -2.0, -3.0, -0.5], requires_grad=True)
    batch = Batch(
        logprobs=logprobs,
        old_logprobs=logprobs.detach(),
        ref_logprobs=logprobs.detach(),
        segment=torch.tensor([0, 0, 1, 1]),
        advantages=torch.tensor([1.0, 0.0]),
        exact_kl=torch.tensor([9.0, 9.0, 0.2, 0.4]),
        kl_weight=torch.tensor([0.0, 0.0, 1.0, 1.0]),
    )
    loss, alone = Rpo(kl=0.5).loss(batch)
    assert loss.item() == pytest.approx((1 + 2) / 4 + 0.5 * (0.2 + 0.4) / 4)
    _, paired = Rpo().loss(dataclasses.replace(batch, pairs=torch.tensor([[0, 1]])))
    assert alone.keys() == paired.keys()  # steps with pairs and without are added up
    loss.backward()
    assert logprobs.grad.tolist() == pytest.approx([-0.25, -0.25, 0.0, 0.0])


def test_with_pairs_rpo_adds_the_loss_of_dpo():
    logprobs = torch.tensor([-1.0, -2.0, -3.0, -0.5, -1.5, -2.5], requires_grad=True)
    batch = Batch(
        logprobs=logprobs,
        old_logprobs=logprobs.detach(),
        ref_logprobs=torch.tensor([-1.2, -2.5, -2.0, -0.4, -1.5, -2.5]),
        segment=torch.tensor([0, 0, 1, 1, 2, 3]),
        advantages=torch.tensor([1.0, 0.0, 0.0, 0.0]),
        exact_kl=torch.tensor([9.0, 9.0, 9.0, 9.0, 0.2, 0.4]),
        kl_weight=torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 1.0]),
        pairs=torch.tensor([[0, 1]]),
    )
    loss, figures = Rpo(kl=0.5, preference=2.0, beta=0.3, smoothing=0.2).loss(batch)
    margin = 0.3 * ((0.2 + 0.5) - (-1.0 - 0.1))
    wrong = 1 / (1 + math.exp(margin))
    preferred = -0.8 * math.log(1 - wrong) - 0.2 * math.log(wrong)
    assert loss.item() == pytest.approx((1 + 2) / 6 + 2.0 * preferred / 2 + 0.5 * (0.2 + 0.4) / 6)
    assert figures["margin"] == pytest.approx(margin / 2)
    loss.backward()
    slope = 0.3 * (0.8 * wrong - 0.2 * (1 - wrong))
    assert logprobs.grad.tolist() == pytest.approx([-1 / 6 - slope] * 2 + [slope] * 2 + [0.0] * 2)


def test_each_learned_answer_is_preferred_to_the_worst_to_its_prompt_where_that_is_clearly_worse(
    policy, samples
):
    grading, _ = grading_for(policy, samples)
    asked = list(dict.fromkeys(one.question for one in grading.base))[:3]
    two = {prompt: [one for one in grading.base if one.question == prompt][:2] for prompt in asked}
    grading.spread, grading.typical = 1.0, 0.0
    rewards = [(0.9, -0.8), (0.9, 0.7), (0.9, -0.1)]
    made = [
        graded.Graded(one, reward, True)
        for prompt, pair in zip(asked, rewards, strict=True)
        for one, reward in zip(two[prompt], pair, strict=True)
    ]
    settings = distilled.DistilSettings(least_relevance=0.0, hold_share=0.5)
    good = dataclasses.replace(
        distilled.chosen(grading, made, settings), worst=distilled.worst(grading, made)
    )
    twos = distilled.examples(grading, good, settings)
    assert all(len(two) == 2 for two in twos)
    preferred = [(a.encoded, b.encoded) for a, b in twos if a.paired and b.paired]
    assert set(preferred) == {tuple(two[asked[0]]), tuple(two[asked[2]])}
    alone = [one for two in twos for one in two if not one.paired]
    assert [one.advantage for one in alone].count(1.0) == 1
    assert all(one.advantage == 1.0 or float(one.kl_weight.mean()) == 1.0 for one in alone)


def test_answers_that_repeat_themselves_are_what_others_are_preferred_to_however_much_liked(policy, samples):
    grading, _ = grading_for(policy, samples)
    first, second = [one for one in grading.base if one.question == grading.base[0].question][:2]
    disliked, circles = graded.Graded(first, -0.9, True), graded.Graded(second, 0.9, False)
    for made in ([disliked, circles], [circles, disliked]):
        assert distilled.worst(grading, made) == {first.question: circles}
    best = graded.Graded(Encoded(first.question, (5, 6, 7)), 0.95, True)
    grading.spread = 1.0
    good = distilled.Chosen([best], grading.look([best.encoded]), {first.question: circles})
    preferred = distilled.examples(grading, good, distilled.DistilSettings(hold_share=0.0))
    assert [tuple(one.encoded for one in two) for two in preferred] == [(best.encoded, second)]


def test_others_are_preferred_to_how_a_worse_answer_begins_but_to_all_of_one_that_breaks_down(
    policy, samples
):
    grading, _ = grading_for(policy, samples)
    grading.spread = 1.0
    long = dataclasses.replace(grading.base[0], response=tuple(range(5, 105)))
    best = graded.Graded(Encoded(long.question, (5, 6, 7)), 0.95, True)
    seen = grading.look([best.encoded])
    for whole, expected in ((True, long.response[:64]), (False, long.response)):
        good = distilled.Chosen([best], seen, {long.question: graded.Graded(long, -0.9, whole)})
        [[_, worse]] = distilled.examples(grading, good, distilled.DistilSettings(hold_share=0.0))
        assert worse.encoded == dataclasses.replace(long, response=expected)
        assert len(worse.old) == len(worse.ref) == len(expected)
        assert worse.old.tolist() == pytest.approx(
            grading.look([long]).ref[0][: len(expected)].tolist(), abs=1e-4
        )


def test_the_base_answers_what_it_has_not_been_asked_for_good_answers_to_be_preferred_to(policy, samples):
    grading, conversations = grading_for(policy, samples)
    prompts = list(conversations.messages)
    grading.base = [one for one in grading.base if one.question != prompts[0]]
    good = distilled.Chosen(
        [graded.Graded(Encoded(prompt, (5, 6, 7)), 1.0, True) for prompt in prompts[:2]], grading.base_seen
    )
    found = distilled.with_base_answers(grading, good).worst
    assert set(found) == {prompts[0]}
    assert found[prompts[0]].encoded.response


def test_what_is_learned_is_in_the_mean_no_stub(policy, samples):
    grading, _ = grading_for(policy, samples)
    rated_ = [policy.encode(one) for one in samples]
    rewards = np.array([one.reward for one in samples])
    grading.grader = None
    grading.learn(list(dict.fromkeys(one.prompt for one in rated_)), rated_, rewards)
    liked = np.mean([len(one.response) for one, r in zip(rated_, rewards, strict=True) if r > 0])
    usual = np.mean([len(one.response) for one in grading.base])
    assert grading.shortest == pytest.approx(0.4 * min(liked, usual))
    answers = [
        Graded(Encoded((i, 1), tuple(range(5, 5 + n))), 1.0, True) for i, n in enumerate((3, 20, 4, 9, 30))
    ]
    kept = distilled.long_enough(answers, 15.0)
    assert kept == [answers[1], answers[2], answers[3], answers[4]]  # 63 tokens in four, 66 in five
    assert distilled.long_enough(answers, 31.0) == []
    assert distilled.long_enough(answers, 0.0) == answers


def test_what_is_long_enough_is_learned_before_what_is_shorter_and_better(policy, samples):
    grading, _ = grading_for(policy, samples)
    grading.typical, grading.spread, grading.shortest = 0.0, 1.0, 10.0
    grading.relevant = np.array([-1e9])
    settings = distilled.DistilSettings(least_relevance=0.0)

    def said(asked, length, reward, whole=True):
        return Graded(Encoded((asked, 1), tuple(range(5, 5 + length))), reward, whole)

    stub, short, enough, better = said(1, 4, 2.0), said(1, 9, 1.5), said(1, 10, 0.7), said(1, 30, 0.9)
    dull, broken = said(1, 40, 0.4), said(1, 50, 3.0, whole=False)
    alone, most = said(2, 6, 0.8), said(3, 20, 1.0)
    made = [stub, short, enough, better, dull, broken, alone, most]
    assert distilled.chosen(grading, made, settings).answers == [better, alone, most]
    assert distilled.chosen(grading, [stub, short, enough, alone, most], settings).answers == [
        enough,
        alone,
        most,
    ]
    grading.shortest = 0.0
    assert distilled.chosen(grading, made, settings).answers == [stub, alone, most]


@given(
    st.lists(st.integers(0, 60), max_size=12),
    st.floats(0.0, 60.0),
)
def test_no_more_answers_could_be_kept_that_are_long_enough(lengths, shortest):
    answers = [Graded(Encoded((i, 1), (7,) * n), 1.0, True) for i, n in enumerate(lengths)]
    kept = [len(one.encoded.response) for one in distilled.long_enough(answers, shortest)]
    assert not kept or np.mean(kept) >= shortest - 1e-9
    ranked = sorted(lengths, reverse=True)
    most = max((k for k in range(1, len(ranked) + 1) if sum(ranked[:k]) >= shortest * k), default=0)
    assert len(kept) == most
    assert sorted(kept, reverse=True) == ranked[:most]


def test_a_sentence_that_is_answered_by_stubs_gains_nothing():
    answers = [Graded(Encoded((i, 1), (7,) * n), 1.0, True) for i, n in enumerate((4, 10))]
    arm = Arm(Instruction("Be brief.", 1.0), answers, [0.5, 1.5], shortest=7.0)
    assert arm.gain == 1.0
    assert dataclasses.replace(arm, shortest=7.1).gain == 0.0


def test_answers_that_show_what_is_forgotten_carry_no_penalty_in_any_round(policy, samples):
    grading, _ = grading_for(policy, samples)
    held, watched = distilled.anchors(grading)
    assert sorted(held + watched) == list(range(len(grading.base)))
    learned = [
        graded.Graded(Encoded(one.question, (5, 6, 7)), 1.0, True)
        for one in [grading.base[i] for i in watched]
    ]
    good = distilled.Chosen(learned, grading.look([one.encoded for one in learned]))
    carried = [
        {
            one.encoded
            for two in distilled.examples(grading, good, distilled.DistilSettings(), number)
            for one in two
            if float(one.kl_weight.sum()) > 0
        }
        for number in range(3)
    ]
    assert all(carried)
    assert carried[0] != carried[1]
    assert not set.union(*carried) & {grading.base[i] for i in watched}


def test_the_exact_kl_is_computed_only_where_it_weighs_and_is_the_same_there(policy, samples):
    grading, _ = grading_for(policy, samples)
    answers, seen = grading.base[:4], grading.base_seen
    weights = [0.0, 1.0, 0.0, 1.0]
    few = [
        distilled._example(grading, one, seen, i, 1.0 - w, w)
        for i, (one, w) in enumerate(zip(answers, weights, strict=True))
    ]
    assert [one.base is None for one in few] == [w == 0 for w in weights]
    all_of_them = [dataclasses.replace(one, base=seen.states[i]) for i, one in enumerate(few)]
    found = []
    policy.put(None)
    policy.attach(rank=4, alpha=4, seed=1)
    moving = [weight for weight in policy.model.parameters() if weight.requires_grad]
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in moving:
            weight.add_(0.02 * torch.randn(weight.shape, generator=draw))
    for examples in (few, all_of_them):
        with policy.scorer.engaged([one.encoded for one in examples]):
            loss, figures = Rpo(kl=0.5).loss(measure(policy.scorer, examples, Shared.of(examples)))
            loss.backward()
        found.append((figures["kl_loss"], [weight.grad.clone() for weight in moving]))
        policy.model.zero_grad(set_to_none=True)
    policy.put(None)
    assert found[0][0] > 0
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
