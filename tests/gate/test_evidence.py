"""What the gate compares: answers that ended or are longer than any that was rated, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from clawback import engine
from clawback.config import GateSection
from clawback.extensions.demo import corpus
from clawback.gate import fresh
from clawback.gate.evidence import (
    Drawing,
    GateRatings,
    comparable,
    graded,
    measure,
    read,
    sampled,
)
from clawback.gate.fresh import VersionPair
from clawback.gate.rule import decide
from clawback.models.types import Completion
from clawback.records import GUARDED_ANSWERS, Part, Sample


def said(finished: bool) -> Completion:
    return Completion("Fine.", (5, 1), (-0.1, -0.1), finished)


def test_pairs_in_which_one_was_cut_off_before_its_time_are_left_out() -> None:
    ours, before = [said(True), said(True), said(False)], [said(True), said(False), said(False)]
    assert comparable(3, ours, before) == [0]
    assert comparable(3, ours) == [0, 1]
    assert comparable(2, ours, before) == [0, 1, 2], "as long as the longest that was rated"


def test_answers_that_were_all_cut_off_tell_nothing(tmp_path: Path) -> None:
    policy = engine.load("embedded")
    policy.attach(rank=2, alpha=2, seed=0)
    candidate = tmp_path / "candidate"
    candidate.mkdir()
    policy.save(candidate)
    policy.put(None)
    prompts = [p.messages for p in corpus.prompts("rated", 6, 0)]
    made = [one for [one] in policy.generate(prompts, seed=1, max_tokens=32)]
    samples = [
        Sample(i, messages, one.text, 1.0 if len(one.ids) < 30 else -1.0)
        for i, (messages, one) in enumerate(zip(prompts, made, strict=True))
    ]
    pair, ratings = VersionPair(candidate, None), GateRatings(samples, [])
    evidence, _ = measure(policy, pair, ratings, prompts, Drawing(3, 0))
    assert evidence.candidate.finished == 0.0
    assert (evidence.gain, evidence.better) == (0.0, 0.5)
    assert not decide(evidence, GateSection()).accepted


def test_what_the_base_answered_it_has_scored_already_and_of_a_version_the_base_scores_it() -> None:
    policy = engine.load("embedded")
    asked = [p.messages for p in corpus.prompts("rated", 6, 0)]
    limits = {"max_tokens": 24, "seed": 3}
    policy.put(None)
    own = fresh.answers(policy, asked, limits)
    assert own.kl == 0.0
    assert own.base == pytest.approx(fresh.totals(policy, asked, own.completions), abs=1e-2)
    policy.attach(rank=2, alpha=2, seed=0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 1.0, generator=torch.Generator().manual_seed(0))
    ours = fresh.answers(policy, asked, limits)
    assert ours.kl > 0.05
    policy.put(None)
    assert ours.base == pytest.approx(fresh.totals(policy, asked, ours.completions), abs=1e-2)


def test_the_longest_answer_goes_by_what_was_rated() -> None:
    policy = engine.load("embedded")
    assert policy.room([[0] * 100, [0] * 248]) == 496
    assert policy.room([[0] * 3]) == 64
    assert policy.room([[0] * 10**6]) == policy.max_response


@pytest.mark.slow
def test_a_prompt_over_the_same_weights_and_one_that_was_folded_into_them() -> None:
    policy = engine.load("embedded")
    prompts = [p.messages for p in corpus.prompts("rated", 12, 0)]
    asked = "Answer with a bulleted list."
    policy.put(None)
    policy.chat.system = asked
    listed = [one.text for [one] in policy.generate(prompts, seed=1)]
    policy.chat.system = ""
    plain = [one.text for [one] in policy.generate(prompts, seed=1)]
    samples = [
        Sample(i, messages, text, 1.0 if "\n-" in text or text.startswith("-") else -1.0)
        for i, (messages, text) in enumerate(zip(prompts * 2, listed + plain, strict=True))
    ]
    policy.chat.system = asked
    ratings, drawing = GateRatings(samples, []), Drawing(None, 0, 24)
    made, _ = measure(policy, VersionPair(None, None, asked), ratings, prompts, drawing)
    assert made.kl == pytest.approx(0, abs=1e-4), "the weights are the same"
    assert made.perplexity_ratio == pytest.approx(1)
    assert made.base == made.live, "compared with answers without it"
    assert made.gain > 0.2
    assert policy.chat.system == asked, "as it was"

    policy.chat.system = ""
    folded = VersionPair(None, None, live_prompt=asked, folded=True)
    lost, _ = measure(policy, folded, ratings, prompts, drawing)
    assert lost.prompt_kl > 1.0, "the prompt takes its answers away from what it says by itself"
    assert lost.gain < -0.2, "the base without it has kept nothing of it"
    assert lost.folded
    against_all, _ = measure(policy, VersionPair(None, None, live_prompt=asked), ratings, prompts, drawing)
    assert against_all.gain < lost.gain, "half of the way is less to ask for"


def test_guards_look_at_the_first_answers_and_no_further(tmp_path: Path) -> None:
    policy = engine.load("embedded")
    policy.attach(rank=2, alpha=2, seed=0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(0))
    (tmp_path / "candidate").mkdir()
    policy.save(tmp_path / "candidate")
    prompts = [p.messages for p in corpus.prompts("rated", 6, 0)]
    rounds = [prompts[i % 6] for i in range(GUARDED_ANSWERS + 12)]
    found = fresh.draw(
        policy, VersionPair(tmp_path / "candidate", None), (), rounds, {"max_tokens": 12, "seed": 1}
    )
    assert [len(found.base.base), len(found.candidate.completions)] == [len(rounds)] * 2
    assert len(found.neutral) == GUARDED_ANSWERS
    for side in (found.candidate, found.live):
        others = fresh.swapped(rounds[:GUARDED_ANSWERS])
        assert others is not None
        assert side.elsewhere is not None
        policy.put(None)
        expected = fresh.totals(policy, others, side.completions[:GUARDED_ANSWERS])
        assert side.elsewhere == pytest.approx(expected, abs=1e-2)
        counts = sampled(rounds, side.completions, side.base, side.elsewhere)
        tokens = sum(len(one.ids) for one in side.completions[:GUARDED_ANSWERS])
        apart = sum(side.base[:GUARDED_ANSWERS]) - sum(expected)
        assert counts.relevance == pytest.approx(apart / tokens, abs=1e-3)


def test_the_reader_of_the_gate_looks_at_the_verdicts_that_the_run_looked_at() -> None:
    """What is liked shows in the verdicts alone: the texts are numbers, and their ratings have no pattern."""
    import numpy as np

    from clawback.rewards.views import Answers

    chance = np.random.default_rng(0)
    liked = chance.random(96) < 0.5
    texts = [f"Number {n}." for n in chance.permutation(9_000)[:96]]
    verdicts = dict(zip(texts, liked.astype(float), strict=True))

    def answers(places: slice) -> Answers:
        ids = [(3, 4, 5)] * len(texts[places])
        return Answers(ids, texts[places], np.zeros((len(ids), 0)), ["How many?"] * len(ids))

    def judge(_: Sequence[str], said: Sequence[str]) -> np.ndarray:
        return np.array([[verdicts[text]] for text in said])

    samples = [
        Sample(i, (), text, 1.0 if good else -1.0, parts=(Part(i, "rating", 1.0 if good else -1.0, 1.0),))
        for i, (text, good) in enumerate(zip(texts[:32], liked[:32], strict=True))
    ]
    made = read(answers(slice(32, 64)), answers(slice(0, 32)), samples, judge=judge)
    grades = np.array(graded(made, answers(slice(64, 96))))
    assert made.trust.trusted
    assert grades[liked[64:]].min() > grades[~liked[64:]].max()
