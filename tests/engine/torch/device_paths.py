"""Everything that Clawback does with a model's tensors, once each: what ``test_devices.py`` runs on a pretended device."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from clawback import engine
from clawback.inference.batcher import Batcher
from clawback.models.types import Sampling
from clawback.records import Part, Sample
from clawback.sampling import prefix_tree, scheduler
from clawback.sampling.batched_sampler import DrawSettings, rows_of, stop_ids
from clawback.sampling.choose import SamplingRequest
from clawback.sampling.scheduler import Scheduler
from clawback.trainer import RunConditions, RunRules, TrainingRun
from tests.engine.test_train import make_samples, recipe


class Killed(Exception):
    """What ends a run in the middle."""


@dataclasses.dataclass
class Stage:
    """What a scenario runs on: ``policy(family)`` is a small model on the pretended device."""

    policy: Callable[..., Any]
    folder: Callable[[str], Path]
    out: Path
    device: torch.device
    monkeypatch: Any


SCENARIOS: dict[str, Callable[[Stage], None]] = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


def stirred(policy):
    """With an adapter that changes something, so that the log-probs of the start and of the base differ."""
    policy.attach(rank=4, alpha=4, seed=0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.add_(0.01)
    return policy


def killed_and_resumed(policy, samples, settings, out, at, prepare=lambda policy: None, **more):
    """A run that is killed after a step and before its checkpoint, and taken up again at the step before."""

    def kill(progress):
        if progress["phase"] == "train" and progress["step"] == at:
            raise Killed

    prepare(policy)
    try:
        engine.train(policy, samples, settings, seed=2, out=out, on_progress=kill, **more)
        raise AssertionError("the run ended before it was killed")
    except Killed:
        assert (out / "checkpoint.pt").is_file()
    policy.put(None)
    prepare(policy)
    steps = []

    def note(progress):
        if progress["phase"] == "train":
            steps.append(progress["step"])

    result = engine.train(policy, samples, settings, seed=2, out=out, on_progress=note, **more)
    assert steps[0] == at, "the run began again in place of going on"
    return result


# ------------------------------------------------------------------------------------- learning from feedback


def rated_and_remarked(policy):
    """Ratings, preferences and remarks; the first answer with recorded log-probs and a token that a tool wrote."""
    samples = [
        dataclasses.replace(
            s, hints=("Shorter, please.", "No lists."), parts=(Part(i // 2 + 1, "preference", s.reward, 1.0),)
        )
        for i, s in enumerate(make_samples(4))
    ]
    recorded = policy.encode(samples[0]).response
    samples[0] = dataclasses.replace(
        samples[0],
        response_ids=recorded,
        response_logprobs=(-1.0,) * len(recorded),
        response_mask=tuple(place != 1 for place in range(len(recorded))),
    )
    return samples


class LikesVowels:
    """A grader that reads text."""

    name = "likes vowels"

    def __call__(self, pairs):
        return [sum(letter in "aeiou" for letter in text) / (len(text) + 1) for _, text in pairs]


DISTIL = {
    "grounding": 8,
    "sentences": 2,
    "first": 2,
    "most": 2,
    "answers": 1,
    "untold": 1,
    "distil_prompts": 4,
    "distil_batch": 1,
    "least_steps": 3,
    "refine_rounds": 1,
    "refine_prompts": 3,
    "refine_samples": 3,
    "most_forgotten": 1e9,
    "least_relevance": 0.0,
    "cut_off": 0.0,
    "better": 0.0,
    "shortest": 0.0,
}


@scenario
def algorithms(stage):
    """Each on ratings, pairs and remarks, with what was recorded; those that have a state are killed and resumed."""
    from clawback.rl import algorithms

    policy = stage.policy()
    for name in algorithms.names():
        policy.put(None)
        samples = rated_and_remarked(policy)
        steps = 2 if name == "ppo" else 1  # one is killed between two
        settings = recipe(policy, name, steps=steps, batch=4, max_drift=1e9)
        if name == "opd":
            settings = dataclasses.replace(settings, extra={"top_k": 3})
        out = stage.out / name
        if name == "ppo":  # its value head is part of what is kept
            result = killed_and_resumed(policy, samples, settings, out, at=2, prepare=stirred)
        else:
            result = engine.train(stirred(policy), samples, settings, seed=2, out=out)
        assert all(
            math.isfinite(row[figure]) for row in result.history for figure in ("loss", "grad_norm", "drift")
        )
    # Nothing to compare, so the ratings themselves are learned, the clear ones first; and a guard puts the weights back.
    policy.put(None)
    liked = make_samples(4, good=lambda i: True)
    settings = recipe(policy, "auto", steps=2, max_drift=1e-9, curriculum="both")
    result = engine.train(stirred(policy), liked, settings, seed=2, out=stage.out / "alike")
    assert "drift" in result.stopped


ROUNDS = {
    "rounds": 2,
    "prompts": 2,
    "samples": 2,
    "round_steps": 2,
    "grounding": 8,
    "replay": 0.5,
    "cut_off": 0.0,
}


@scenario
def rounds_of_fresh_answers(stage):
    """What the default is for a small model: drawn, graded by what ratings say, learned in rounds; layers computed again, killed and resumed."""
    policy = stage.policy()
    settings = dataclasses.replace(
        recipe(policy, "rollouts", gradient_checkpointing=True, max_drift=1e9), extra=ROUNDS
    )
    assert killed_and_resumed(policy, make_samples(8), settings, stage.out, at=3).algorithm == "rollouts"


@scenario
def distilled(stage):
    """Sentences are tried, answers are drawn, filtered and learned, then rounds of the policy's own; killed and resumed."""
    policy = stage.policy()
    settings = dataclasses.replace(recipe(policy, "distil"), extra=DISTIL)
    result = killed_and_resumed(policy, make_samples(8), settings, stage.out, at=2, grader=LikesVowels())
    assert result.algorithm == "distil"


@scenario
def distilled_by_a_sentence_that_teaches(stage):
    """A sentence teaches along answers that are there and the policy's own, then edits are learned; killed and resumed in each of the two."""
    policy = stage.policy()
    settings = dataclasses.replace(recipe(policy, "distil"), extra={**DISTIL, "guided_rounds": 1})
    rejected = dataclasses.replace(make_samples(1)[0], reward=-0.5, parts=(Part(99, "edit", -0.5, 0.5),))
    parts = (Part(99, "edit", 1.0, 1.0),)
    edits = [
        rejected,
        dataclasses.replace(rejected, response="Otters!", reward=1.0, parts=parts, edited=True),
    ]
    samples = [*make_samples(8), *edits]
    more = {"grader": LikesVowels()}
    first = killed_and_resumed(policy, samples, settings, stage.out / "first", at=2, **more)
    assert "teaches at" in first.note
    policy.put(None)
    last = killed_and_resumed(policy, samples, settings, stage.out / "last", at=first.steps - 1, **more)
    assert last.steps == first.steps
    policy.put(None)
    alone = engine.train(policy, make_samples(8), settings, seed=2, out=stage.out / "alone", **more)
    assert alone.steps < first.steps


@scenario
def words_that_teach(stage):
    """The states of the base are moved by what words are liked, and the policy learns along its own answers."""
    from clawback.sources.distilled import DistilSettings
    from clawback.sources.graded import Grading, GradingSettings
    from clawback.sources.guided import GuidedRounds, strongest
    from clawback.sources.word_guide import WordGuide, state_shift

    policy = stage.policy()
    run = TrainingRun(policy, make_samples(8), recipe(policy, "distil"), seed=2)
    grading = Grading(run, GradingSettings(grounding=16), 8)
    grading.draw_base(list({policy.encode(one).prompt for one in run.samples}))
    head = policy.scorer.head
    likes = np.zeros(len(head.weight))
    likes[::7] = 1.0
    shift = state_shift(head, likes, np.arange(len(likes)) % 3)
    guide = strongest(WordGuide(1.0, shift, ()), grading, range(4), 9.0)
    policy.attach(rank=4, alpha=4, seed=0)
    settings = dataclasses.replace(DistilSettings(), word_rounds=1, refine_prompts=2, most_forgotten=9.0)
    rounds = GuidedRounds(grading, guide, grading.base, settings, [one.question for one in grading.base[:2]])
    assert rounds.examples(0)
    assert rounds.examples(rounds.dealt.steps)


@scenario
def distilled_without_a_sentence(stage):
    """No sentence surely helps: answers under several are learned, and the policy is taken back where it went too far."""
    policy = stage.policy()
    extra = {**DISTIL, "sentences": 1, "refine_rounds": 0, "most_forgotten": -1.0}
    settings = dataclasses.replace(recipe(policy, "distil"), extra=extra)
    chance = random.Random(0)

    class LikesAnything(LikesVowels):
        def __call__(self, pairs):
            return [chance.random() for _ in pairs]

    result = engine.train(policy, make_samples(8), settings, seed=2, out=stage.out, grader=LikesAnything())
    assert result.algorithm == "distil"


@scenario
def evidence_as_it_is(stage):
    """Edits are learned: beside fresh answers, beside answers of another model (killed and resumed), and by themselves where ratings say nothing."""
    policy = stage.policy()
    edit = Part(99, "edit", 1.0, 1.0)
    rejected = dataclasses.replace(make_samples(1)[0], reward=-0.5, parts=(Part(99, "edit", -0.5, 0.5),))
    edits = [
        rejected,
        dataclasses.replace(rejected, response="Otters!", reward=1.0, parts=(edit,), edited=True),
    ]
    alone = dataclasses.replace(edits[1], turn_id=90, messages=({"role": "user", "content": "And herons?"},), parts=(dataclasses.replace(edit, feedback_id=98),))  # fmt: skip
    settings = dataclasses.replace(recipe(policy, "rollouts", max_drift=1e9), extra=ROUNDS)
    samples = [*make_samples(8), *edits]
    engine.train(policy, samples, settings, seed=2, out=stage.out / "rounds", grader=LikesVowels())
    policy.put(None)
    captured = [dataclasses.replace(one, turn_id=50 + i, response="Aeiou, aeiou.", model="other") for i, one in enumerate(make_samples(4))]  # fmt: skip
    settings = dataclasses.replace(
        recipe(policy, "distil", learn_from=["other"]), extra={**DISTIL, "other_answers": 2}
    )
    more = {"grader": LikesVowels(), "captured": captured}
    result = killed_and_resumed(policy, samples, settings, stage.out / "others", at=2, **more)
    assert "answers of other models" in result.note
    policy.put(None)
    alike = [dataclasses.replace(one, reward=1.0) for one in [*make_samples(4), edits[1], alone]]
    settings = dataclasses.replace(recipe(policy, "auto"), extra=DISTIL)
    result = engine.train(policy, alike, settings, seed=2, out=stage.out / "alone")
    assert result.algorithm == "rpo"


@scenario
def by_rules(stage):
    """The ratings say nothing, and a remark and a rule in words grade answers; the gate allows no drift."""
    policy = stage.policy()
    rules = RunRules(("Mention otters.",), (("Mention otters.", ""),))
    conditions = RunConditions(rules=rules, drift=(0.0, 0.0))
    settings = dataclasses.replace(recipe(policy, "distil"), extra=DISTIL, conditions=conditions)
    samples = [
        dataclasses.replace(
            s, reward=1.0, hints=("Say what they weigh.",), parts=(Part(i + 1, "rating", 1.0, 1.0),)
        )
        for i, s in enumerate(make_samples(8))
    ]
    more = {"judge": lambda _, answers: np.array([[float("otter" in text)] for text in answers])}
    result = engine.train(policy, samples, settings, seed=2, out=stage.out, **more)
    assert "by what was said in words" in result.note
    assert "had drifted" in result.note


@scenario
def folded(stage):
    """A learned prompt goes into the adapter."""
    policy = stage.policy()
    settings = dataclasses.replace(
        recipe(policy, "distil"), extra=DISTIL, conditions=RunConditions(system="Be short.")
    )
    result = engine.train(policy, make_samples(8), settings, seed=2, out=stage.out, grader=LikesVowels())
    assert result.algorithm == "distil"


@scenario
def all_weights(stage):
    """Full weights, killed and resumed, drawn from, and folded into the base."""
    from clawback.models import delta

    policy = stage.policy()
    settings = recipe(policy, "reinforce", steps=3, full=True, max_drift=1e9)
    killed_and_resumed(policy, make_samples(4), settings, stage.out, at=2)
    assert policy.full
    policy.generate([make_samples(1)[0].messages], max_tokens=3)
    adapter = stage.out / "adapter"
    policy.put(None)
    policy.put(adapter)
    serve(policy, [None, adapter], [(5, 6, 7), (5, 6, 8)])
    policy.put(adapter)
    delta.fold(policy.model)
    policy.model(torch.tensor([[5, 6, 7]], device=stage.device))


@scenario
def by_other_families(stage):
    """Models that the lean decoder, the fused head or the packed attention do not know go their own way."""
    from transformers.integrations import moe

    stage.monkeypatch.setattr(moe, "_can_use_grouped_mm", lambda *_: False)  # asks the driver
    for family in ("gemma2", "granite", "gpt2", "qwen3_moe", "mamba"):
        policy = stage.policy(family)
        settings = recipe(policy, "reinforce", steps=1, max_drift=1e9)
        engine.train(policy, make_samples(2), settings, seed=2, out=stage.out / family)
        policy.generate([s.messages for s in make_samples(2)], samples=2, max_tokens=3)
        serve(policy, [None], [(5, 6, 7), (5, 6, 8, 9)], late=True)


# -------------------------------------------------------------------------------------------- pictures


@scenario
def pictures(stage):
    """Learned from, drawn after, compared by the gate and served."""
    from clawback.gate.fresh import VersionPair, draw
    from clawback.sampling.conversations import Conversations, TurnRequest
    from clawback.templates import vision
    from tests.engine.torch.test_vision import BLUE, RED, asked

    policy = stage.policy("llava")
    samples = [
        Sample(2 * i + j, asked(colour), word, 1.0 if i == j else -1.0, (Part(0, "rating", 1.0, 1.0),))
        for i, colour in enumerate((RED, BLUE))
        for j, word in enumerate(("red", "blue"))
    ]
    engine.train(policy, samples, recipe(policy, "dpo", steps=1), seed=1, out=stage.out)
    words = ({"role": "user", "content": "Which colour?"},)
    policy.generate([asked(RED), words], samples=2, max_tokens=3, seed=3)
    policy.features([asked(RED)], ["red"])
    pair = VersionPair(stage.out / "adapter", None)
    draw(policy, pair, samples[:1], [asked(RED), asked(BLUE)], {"max_tokens": 3})
    policy.put(None)
    ids, pixels = policy.chat.looked(asked(RED))
    assert vision.Pixels.of(pixels.plain()).pictures == pixels.pictures
    Conversations(policy, sampling=Sampling(1.0)).draw(
        [TurnRequest(0, ids, 1, 3, pixels), TurnRequest(1, [5, 6, 7], 2, 3)]
    )
    serve(policy, [None], [tuple(ids), (5, 6, 7)], [pixels, None])
    scheduler = Scheduler(rows_of(lambda: policy.model, False, expected=2, eyes=True))
    with torch.no_grad():
        scheduler.join([SamplingRequest(ids, 4, pixels=pixels), SamplingRequest([5, 6, 7], 4)])
    assert len(scheduler.drop()) == 2


# -------------------------------------------------------------------------------------------- episodes


@scenario
def episodes(stage):
    """Played and learned from by each algorithm that can, with ratings beside them, and killed and resumed."""
    from clawback.rollouts.concurrent import Play, Rollouts
    from clawback.rollouts.rounds import Collector, Dealing
    from tests.environments.worlds import Worlds

    small = {"rounds": 2, "round_steps": 2, "prompts": 2, "samples": 2, "grounding": 8, "cut_off": 0.0}
    for algorithm, estimator in (("grpo", "gae"), ("ppo", "step_wise")):
        policy = stage.policy()
        policy.sampling = Sampling(1.0)
        settings = dataclasses.replace(
            engine.episode_recipe(policy.info, **small, estimator=estimator), algorithm=algorithm
        )
        settings = dataclasses.replace(settings, max_drift=1e9)
        steps = []

        def tell(progress, steps=steps):
            if progress["phase"] == "train":
                steps.append(progress["step"])
                if steps == [1, 2, 3]:
                    raise Killed

        ratings = make_samples(8) if algorithm == "grpo" else ()
        run = TrainingRun(policy, ratings, settings, out=stage.out / algorithm, tell=tell)
        for _ in range(2):
            worlds = Worlds(turns=2)
            with Rollouts(policy, worlds, Play(together=4, max_turns=2, max_tokens=3)) as rollouts:
                collect = Collector(rollouts, Dealing(worlds.tasks("train"), 1, 2))
                try:
                    engine.train_episodes(run, collect, about={})
                except Killed:
                    policy.put(None)
        assert steps == [1, 2, 3, 3, 4], "the run began again in place of going on"
        assert (stage.out / algorithm / "result.json").is_file()


@scenario
def agent(stage):
    """The Gym agent, on a model that is there already."""
    from tests.environments.test_agent import SHORT, Numbers, Player, play

    policy = stage.policy()
    made = Player(policy.model, policy.tokenizer, None, SHORT, {"batch_size": 4})
    play(made, Numbers(), episodes=3)
    assert made.device == stage.device


@scenario
def first_policy(stage):
    """Values of two replies are fitted to random episodes, and the adapter to what they prefer."""
    from clawback.learning import episode_run, warm_starts
    from clawback.rollouts.action_form import answered_at_random

    stage.monkeypatch.setattr(warm_starts, "FEWEST_STEPS", 2)
    stage.monkeypatch.setattr(warm_starts, "PASSES", 0)
    policy, replies = stirred(stage.policy()), ("Sure", "No")
    assert policy.hold_to(replies)
    episodes = []
    for number in range(episode_run.exploration(256) // 4):
        question = [[{"role": "user", "content": f"What is {('rice', 'tea')[number % 2]}?"}]]
        episode = answered_at_random(policy, question, replies, number)
        [step] = episode.steps
        pays = float((episode.messages[-1]["content"] == "Sure") == (number % 2 == 0))
        episodes.append(dataclasses.replace(episode, steps=(dataclasses.replace(step, reward=pays),)))
    assert warm_starts.is_short(episodes)
    figures = warm_starts.improve(policy, episodes, gamma=1.0, learning_rate=0.003, seed=0)
    assert figures["steps"] == 2


@scenario
def held_to_actions(stage):
    """The form of replies is learned from examples, and replies are held to the actions that there are."""
    from clawback.learning import warm_starts
    from clawback.learning.episode_examples import sequences
    from clawback.rollouts.action_form import answered_at_random
    from clawback.rollouts.concurrent import Play, Rollouts
    from clawback.rollouts.rounds import Collector, Dealing
    from clawback.sampling.conversations import Conversations, TurnRequest
    from tests.environments.worlds import Worlds

    stage.monkeypatch.setattr(warm_starts, "MOST_STEPS", 2)
    stage.monkeypatch.setattr(warm_starts.Imitation, "steps", 2)
    policy, replies = stirred(stage.policy()), ("Sure", "No")
    turns = [[{"role": "user", "content": "What is rice?"}]]
    episodes = [answered_at_random(policy, turns, replies, seed) for seed in range(4)]
    assert math.isfinite(warm_starts.imitate(policy, episodes, 2, learning_rate=0.003, seed=0)["loss"])
    assert policy.hold_to(replies)
    [reply] = Conversations(policy, sampling=Sampling(1.0)).draw([TurnRequest(0, [5, 6, 7], 1, 8)])
    assert reply.finished
    policy.scorer([one.encoded for one in sequences(episodes, held=True)])
    worlds = Worlds(turns=2)
    small = {"rounds": 1, "round_steps": 2, "prompts": 2, "samples": 2}
    settings = dataclasses.replace(engine.episode_recipe(policy.info, **small), max_drift=1e9)
    with Rollouts(policy, worlds, Play(together=4, max_turns=2, max_tokens=8)) as rollouts:
        collect = Collector(rollouts, Dealing(worlds.tasks("train"), 1, 2))
        engine.train_episodes(TrainingRun(policy, (), settings, out=stage.out), collect, about={})


@scenario
def read_before_anything_is_drawn(stage):
    """Whether a run of a model above micro size would read anything."""
    from clawback.errors import NothingRead
    from clawback.learning.training import check_readable

    policy = stage.policy()
    stage.monkeypatch.setattr(type(policy.info), "bucket", "small")
    with contextlib.suppress(NothingRead):
        check_readable(policy, make_samples(8), recipe(policy, "auto"))


# ------------------------------------------------------------------------------- drawing, serving, reading


def serve(policy, folders, prompts, pixels=None, shelf=None, late=False, **more):
    """Each prompt twice, so that it is known the second time, by the batcher's own loop: on this thread, which alone knows the device."""
    batcher, asks, ends = Batcher(policy, stop_ids(policy.model, policy.chat.end_id), shelf), [], []

    def end(why):
        ends.append(why)
        if len(ends) == len(asks):
            batcher.submit(None)

    batcher.run(lambda: None)
    for _ in range(2):
        coming: list[SamplingRequest] = []

        def said(*_, coming=coming):
            """The first token of an answer: the others are asked for now."""
            while coming:
                batcher.submit(coming.pop())

        for i, prompt in enumerate(prompts):
            how = Sampling(temperature=(0.0, 1.0, 0.7)[i % 3], top_p=(1.0, 0.9)[i % 2])
            seen = pixels[i] if pixels else None
            folder = folders[i % len(folders)]
            asks.append(SamplingRequest(prompt, 4 + i, said, end, folder, how, pixels=seen, **more))
        first, *others = asks[-len(prompts) :]
        if late:
            coming += others
        for ask in [first] if late else [first, *others]:
            batcher.submit(ask)
        batcher._run()
    assert not any(why.startswith("error") for why in ends), ends
    assert len(ends) == len(asks)
    return asks


@scenario
def served(stage):
    """With and without adapters, under a grammar, with likeliest tokens, and with a shelf of adapters."""
    from clawback.extensions.people.shared_rows import shelf_of
    from clawback.inference.schema_grammar import Grammars

    stage.monkeypatch.setattr(prefix_tree, "LEAST", 4)
    stage.monkeypatch.setattr(scheduler, "LEAST", 4)
    policy = stage.policy()
    folders = []
    for number in range(2):
        folders.append(stage.out / str(number))
        folders[-1].mkdir()
        stirred(policy).save(folders[-1])
        policy.put(None)
    prompts = [tuple(policy.chat.prompt(s.messages)) for s in make_samples(5)]
    asks = serve(policy, [None, *folders], prompts, top=2)
    serve(policy, [None], prompts, late=True)
    assert any(ask.cached for ask in asks)
    policy.put(None)
    stop = stop_ids(policy.model, policy.chat.end_id)
    grammars = Grammars(policy.tokenizer, policy.info.vocabulary, stop)
    serve(policy, [None], prompts[:1], constraint=grammars.constraint({"enum": ["yes", "no"]}))
    shelf = shelf_of(policy, slots=2, memory=2**20)
    serve(policy, [None, *folders], prompts, shelf=shelf)


@scenario
def conversed(stage):
    """Turns of conversations, with what was read kept."""
    from clawback.sampling.conversations import Conversations, TurnRequest

    policy = stirred(stage.policy())
    for keep in (True, False):
        drawer = Conversations(policy, sampling=Sampling(1.0, 0.9), keep=keep)
        ids = [list(range(5, 9 + 2 * i)) for i in range(5)]
        for turn in range(3):
            asked = [
                TurnRequest(i, ids[i], 10 * turn + i, 3 + i) for i in range(5) if (i + turn) % 4 or not turn
            ]
            for one, answer in zip(asked, drawer.draw(asked), strict=True):
                ids[one.key] = [*ids[one.key], *answer.ids, 50 + turn]
        drawer.refresh()
        drawer.forget(0)


@scenario
def drawn_and_read(stage):
    """Answers by each way of drawing, log-probs, features and a vector of a text."""
    from clawback.config import GenerationSection
    from clawback.models.adapter import remove
    from clawback.policy.sampler import gap
    from clawback.scoring import pooling
    from clawback.templates.rendering import NextSpeaker

    policy = stirred(stage.policy())
    asked = [s.messages for s in make_samples(6)]
    for how in (Sampling(0.0), Sampling(1.0, 0.9), Sampling(0.7, top_k=5)):
        policy.generate(asked, samples=3, sampling=how, max_tokens=4)
    prompts = [policy.chat.prompt(messages) for messages in asked]
    [[one], *_] = policy.sample(prompts, DrawSettings(max_tokens=4, rows=2), merge=True)
    gap(policy, prompts[0], one.ids, policy.logprobs([asked[0]], [one.ids])[0].tolist(), "somebody")
    policy.features(asked[:2], ["Yes.", "No."])
    policy.embedding(prompts[0])
    policy.scorer.packed = False  # as where a model's attention cannot be packed
    policy.logprobs(asked[:2], ["Yes.", "No."])
    policy.chat.speaker = NextSpeaker(policy.tokenizer)
    policy.generate(asked[:2], max_tokens=4)
    policy.generate(asked[:2], samples=3, max_tokens=4)
    layers = pooling.read(policy.scorer, [policy.encode(sample) for sample in make_samples(2)])
    assert all(np.isfinite(table).all() for table in layers.values())
    policy.configure(GenerationSection(max_tokens=5))
    assert policy.max_tokens == 5
    assert policy.config["vocab_size"] == 384
    policy.model = remove(policy.model, "default")
    assert not policy.has_adapter


@scenario
def gated(stage):
    """A candidate's evidence against the live version and the base, by models whose states are read and others."""
    from clawback.gate import evidence, fresh

    policy = stage.policy()
    samples = make_samples(12)
    live, candidate = stage.out / "live", stage.out / "candidate"
    for folder in (live, candidate):
        folder.mkdir()
        stirred(policy).save(folder)
        policy.put(None)
    pair, ratings = fresh.VersionPair(candidate, live), evidence.GateRatings(samples, samples[:4])
    evidence.measure(policy, pair, ratings, [s.messages for s in samples], evidence.Drawing(4, 5, 4))


def measured_little(stage):
    """Speed is measured once by the smallest pieces: how fast a pretended device is says nothing."""
    from clawback.policy import throughput

    for name, value in {"_ROWS": (2,), "_STEPS": 2, "_REPEATS": 1, "_TEXTS": (1,), "_LONGEST": 16}.items():
        stage.monkeypatch.setattr(throughput, name, value)


@scenario
def placed(stage):
    """A small model on the device or on the CPU, whichever is faster."""
    from clawback.policy import load, torch_policy

    measured_little(stage)
    chosen = []

    def quickest(load_on, candidates, key, file):
        chosen.append(placement_quickest(load_on, candidates, key, stage.out / "speeds.json"))
        return chosen[-1]

    placement_quickest = torch_policy.quickest
    stage.monkeypatch.setattr(torch_policy, "quickest", quickest)
    for _ in range(2):
        load(str(stage.folder("llama")))
    assert chosen[0].device == chosen[1].device
    assert "tokens/s" in chosen[1].placement


@scenario
def proven(stage):
    """A model is tried before it is taken, and judges whether answers keep rules."""
    from clawback.admin import proof
    from clawback.jobs.base_judge import BaseJudge

    proved = proof.prove(str(stage.folder("llama")), None, {}, device=stage.device.type)
    assert "chat template" in proved.sentence()
    [[verdict]] = BaseJudge(stage.policy())([("How?", "So.")], ["Be short."])
    assert 0 <= verdict <= 1


@scenario
def measured(stage):
    """The estimate before a run."""
    from clawback.learning import run_budget

    measured_little(stage)
    policy = stage.policy()
    run_budget.fit(TrainingRun(policy, make_samples(4), engine.recipe(policy.info)), run_budget.Allowed(1e9))


# ----------------------------------------------------------------------------------- reward models, others


@scenario
def reward_model(stage):
    """``clawback lab reward train``: heads on the states of a model that is on the device, and an encoder there; saved and read."""
    from clawback.extensions.reward import encoder, members
    from clawback.learning.reading import BaseModelReader
    from tests.engine.torch.pretended import move
    from tests.reward.test_encoder import scored, small_bert

    rated = scored(24, 0)
    settings = dataclasses.replace(small_bert(stage.out / "bert", rated), members=1, epochs=1)
    reader = BaseModelReader("unused")
    reader.__dict__["policy"] = stage.policy()
    cross = members.cross

    def crossed(*args, **kwargs):
        member = cross(*args, **kwargs)
        move(member.model, stage.device)
        return member

    stage.monkeypatch.setattr(encoder, "cross", crossed)
    made = encoder.fit(rated, settings, look=reader)
    [member] = made.encoder.members
    folder = stage.out / "member"
    folder.mkdir()
    member.head.save(
        folder
    )  # transformers writes the encoder; pretended tensors have no storage that it could ask for
    assert np.isfinite(made.encoder.each([("question 1", "thanks river")])).all()
    members.states(folder)


@scenario
def beside_others(stage):
    """What goes to other processes and machines, and what comes from there."""
    from clawback.extensions.scale.adapters import named, published
    from clawback.trainer.run import adapter_hash

    policy = stirred(stage.policy())

    class Crew:
        def publish(self, name, weights, keep=()):
            assert named(weights) == name

    assert published(policy, Crew())
    adapter_hash(policy)


@scenario
def replies_told_apart(stage):
    """How far apart the model holds texts, by its embeddings."""
    from clawback.rollouts.action_form import TokenDistance

    policy = stage.policy()
    for written in (True, False):
        assert TokenDistance(policy, written=written).of_replies(["left", "right"]) >= 0


@scenario
def federated(stage):
    """What a round of a federation begins with: the agreed adapter, and what was changed of it."""
    from clawback.extensions.federated import federating
    from clawback.jobs import inputs

    like = stage.policy()
    terms = SimpleNamespace(
        base="base", base_revision=next(iter(like.info.names)), rank=4, alpha=4, seed=0, shapes={}
    )
    like.attach(rank=4, alpha=4, seed=0)
    terms.shapes = federating._shapes(like)
    changes = {name: np.ones(shape) for name, shape in terms.shapes.items() if "lora_B" in name}
    stage.monkeypatch.setattr(inputs, "policy", lambda settings, base: stage.policy())
    joined: Any = SimpleNamespace(terms=terms, folder="here")
    settings: Any = None
    state: Any = SimpleNamespace(arrays=changes)
    policy = federating._policy(settings, joined, state)
    assert all((value == 1).all() for value in federating._weights(policy, "lora_B").values())


@scenario
def formulas(stage):
    """What is there for programs of one's own, and no run of ours calls."""
    from clawback.rl import kl, turn_advantages
    from clawback.rl.algorithms.sac import Sac

    def on(*values):
        return torch.tensor(values, device=stage.device)

    for estimator in ("k1", "k2", "k3"):
        kl.per_token(on(-1.0, -2.0), on(-1.5, -1.0), estimator)
    values, turn = on(0.0, 0.1, 0.2, 0.3), on(0, 0, 1, 1)
    turn_advantages.gae(on(0.0, 1.0, 0.5, 0.0), values, turn, mask=on(True, False, True, True))
    turn_advantages.totals(on(0.0, 1.0, 2.0), on(0, 0, 1))
    sac, logits, q = Sac(), torch.randn(3, 2).to(stage.device), torch.randn(3, 2).to(stage.device)
    alpha = on(0.1)[0]
    target = sac.target(on(1.0, 0.0, 1.0), on(0.0, 0.0, 1.0), logits, q, q, alpha)
    sac.critic_loss(q, q, on(0, 1, 1), target)
    sac.actor_loss(logits, q, q, alpha)
    sac.temperature_loss(alpha.log(), logits)
    sac.follow([q.clone()], [logits])
