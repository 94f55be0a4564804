"""Answers whose results agree: whether the person likes them is tested on the ratings, and then they are learned."""

import random

import numpy as np
import pytest
import torch

pytest.importorskip("peft")

from clawback.errors import NothingRead
from clawback.sources import agreement, graded, plan
from clawback.sources.agreement import Agreement, comparable
from clawback.sources.graded import Drawn, Grading, GradingSettings
from clawback.templates import Encoded
from clawback.trainer.run import TrainingRun
from tests.engine.torch.test_first_reading import base, policy, run_of  # noqa: F401
from tests.engine.torch.test_targets import tapped

WORDS = ["We add them.", "We count both.", "One by one.", "It takes two steps.", "Look at each."]


def says(number, rng):
    """A solution that comes to a number."""
    return f"{' '.join(rng.sample(WORDS, 2))} So it is {number}."


def taps(count, liked, seed=0):
    """Solutions, right in every second case, rated as ``liked`` says of (is right, a random number)."""
    rng = random.Random(seed)
    return [
        tapped(
            i, says(i if i % 2 else i + 100, rng), 1.0 if liked(i % 2 == 1, rng.random()) else -1.0, version=0
        )
        for i in range(count)
    ]


@pytest.fixture
def drawn(monkeypatch):
    """Draws that come to the right result in three of four cases, and to any other one else."""

    def draw(grading, prompts, each, generator):
        rng = random.Random(int(torch.randint(1 << 30, (1,), generator=generator)))
        answers = []
        for prompt in prompts:
            right = int(grading.questions[prompt].split()[-1].rstrip("."))
            for _ in range(each):
                text = says(right if rng.random() < 0.75 else rng.randrange(200, 999), rng)
                ids = grading.policy.tokenizer(text)["input_ids"]
                answers.append(Encoded(prompt, (*ids, grading.policy.tokenizer.eos_token_id)))
        with torch.no_grad():
            logprobs = [part.cpu() for part in grading.policy.scorer(answers).split()]
        return Drawn(answers, logprobs, [True] * len(answers))

    monkeypatch.setattr(graded.Grading, "draw", draw)


def test_right_and_wrong_is_learned_from_answers_that_agree(policy, drawn):  # noqa: F811
    run = run_of(policy, taps(24, lambda right, _: right))
    plan.check(run)
    made = plan.plan(run)
    assert made.name == "distil"
    assert "answers whose results agree" in made.note
    assert "how many other answers come to the same result: 24 ratings show a pattern" in made.note
    source = made.source
    texts = source.grading.texts([one.encoded for one in source.round.answers])
    right = [
        text.endswith(f" {source.grading.questions[one.encoded.question].split()[-1]}")
        for one, text in zip(source.round.answers, texts, strict=True)
    ]
    assert len(right) >= 12
    assert all(right)
    worse = source.grading.texts([one.encoded for one in source.round.worst.values()])
    assert sum("So it is " in text and int(text.split()[-1].rstrip(".")) >= 200 for text in worse) >= 12


def test_taps_by_chance_end_the_run(policy, drawn):  # noqa: F811
    ended = 0
    for seed in range(4):
        try:
            plan.plan(run_of(policy, taps(24, lambda _, chance: chance < 0.5, seed)))
        except NothingRead:
            ended += 1
    assert ended >= 3  # at most 8 in 100 pass by chance, once by the reader and once by agreement


def test_answers_without_results_are_not_compared():
    assert comparable(["So it is 7."] * 5 + ["Otters swim."] * 5)
    assert not comparable(["So it is 7."] * 4 + ["Otters swim."] * 6)
    assert not comparable(["So it is 7."] * (agreement.FEWEST - 1))


def test_shares_leave_an_answer_itself_out_and_take_the_persons_word(policy):  # noqa: F811
    grading = Grading(TrainingRun(policy, [], run_of(policy, []).recipe), GradingSettings(), 24)

    def answer(prompt, text):
        return Encoded((prompt,), tuple(policy.tokenizer(text)["input_ids"]))

    base_answers = [
        answer(5, f"{way} It is {n}.") for way, n in (("Add.", 7), ("Count.", 7), ("Look.", 7), ("So.", 9))
    ]
    grading.base = base_answers
    made = Agreement.of(grading, run_inputs([], []))
    assert not made.trust.trusted
    assert made.shares(base_answers).tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 0])
    fresh = [
        answer(5, "Maybe 9."),
        answer(5, "I think 7."),
        answer(5, "Nobody knows."),
        answer(6, "It is 7."),
    ]
    # Four of the base, and the two others among the fresh ones; one of six is too few.
    assert made.shares(fresh).tolist() == pytest.approx([0, 3 / 6, 0, 0])
    made = Agreement.of(grading, run_inputs([answer(5, "Or 9."), answer(5, "Or 7.")], [1.0, -1.0]))
    assert made.shares(base_answers).tolist() == [0, 0, 0, 1]


def run_inputs(rated, rewards):
    """Feedback on answers that are encoded."""
    from clawback.sources.first_reading import Inputs
    from clawback.sources.targets import DirectEvidence

    samples = [tapped(i, "x", value) for i, value in enumerate(rewards)]
    return Inputs(samples, samples, rated, np.array(rewards), (), (), (), DirectEvidence())
