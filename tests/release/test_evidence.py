"""What the gate compares: answers that ended or are longer than any that was rated, and no others."""

from __future__ import annotations

from pathlib import Path

from clawback import engine
from clawback.config import Gate
from clawback.engine.embedded import corpus
from clawback.engine.types import Completion
from clawback.records import Sample
from clawback.release.evidence import comparable, measure
from clawback.release.rule import decide


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
    prompts = [p.messages for p in corpus.prompts("rated", 12, 0)]
    made = [one for [one] in policy.generate(prompts, seed=1)]
    samples = [
        Sample(i, messages, one.text, 1.0 if len(one.ids) < 30 else -1.0)
        for i, (messages, one) in enumerate(zip(prompts, made, strict=True))
    ]
    evidence = measure(policy, candidate, None, samples, [], prompts, max_tokens=3, seed=0)
    assert evidence.candidate.finished == 0.0
    assert (evidence.gain, evidence.better) == (0.0, 0.5)
    assert not decide(evidence, Gate()).accepted


def test_the_longest_answer_goes_by_what_was_rated() -> None:
    policy = engine.load("embedded")
    assert policy.room([[0] * 100, [0] * 248]) == 496
    assert policy.room([[0] * 3]) == 64
    assert policy.room([[0] * 10**6]) == policy.max_response
