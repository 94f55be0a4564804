"""The base as a judge of rules: its log-odds of Yes, read without its adapter; believed only after the exam."""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("peft")

from clawback import config, engine, store
from clawback.errors import JudgeError
from clawback.jobs import rule_learning, rule_reading
from clawback.jobs.base_judge import BaseJudge, judge_name
from clawback.records import Rule, Turn
from clawback.rules.exam import ASKED, ExamResult, exam_items, examine, least_right
from clawback.rules.rule_judge import RuledTurn
from clawback.scoring.logprobs import Scored
from tests.rules.test_exam import TRUTH, recorded

RULES = ["Use a list.", "Give an example."]


class Scripted:
    """A policy of letters that knows the truth about the exam's answers, and says Yes by it."""

    def __init__(self, truth: dict[tuple[str, str], bool]) -> None:
        self.truth, self.read = truth, 0
        self.info = SimpleNamespace(base="scripted", revision="1", context=100_000)
        self.tokenizer = SimpleNamespace(encode=lambda word, add_special_tokens: [ord(c) for c in word])
        self.chat = SimpleNamespace(prompt=lambda messages, most: [ord(c) for c in messages[0]["content"]])
        self.scorer, self.base = self.score, nullcontext

    def score(self, encoded: Any) -> Scored:
        values = []
        for one in encoded:
            self.read += 1
            text, word = ("".join(map(chr, ids)) for ids in (one.prompt, one.response))
            answer = text.split("\n\nAnswer: ", 1)[1].rsplit("\n\nRule: ", 1)[0]
            rule = text.rsplit("\n\nRule: ", 1)[1].split("\n")[0]
            likely = (word == "Yes") == self.truth.get((rule, answer), False)
            values += [-0.1 if likely else -2.0] + [0.0] * (len(word) - 1)
        return Scored(torch.tensor(values), tuple(len(one.response) for one in encoded))


def test_a_base_that_knows_passes_the_exam() -> None:
    policy: Any = Scripted(TRUTH)
    result = examine(BaseJudge(policy), recorded())
    assert result.believed
    assert result.kinds == {"form": (ASKED, ASKED), "content": (ASKED, ASKED)}
    odds = 1.9
    [[kept, broken]] = BaseJudge(policy)(
        [RuledTurn("Q?", "A.")], ["Nobody knows this rule.", "Nor this one."]
    )
    assert kept == broken == pytest.approx(1 / (1 + math.exp(odds)), abs=1e-6)


def test_a_base_of_random_weights_fails_it_and_is_not_asked_to_the_end(folders) -> None:
    result = examine(BaseJudge(engine.load(str(folders("llama")))), recorded())
    assert not result.believed
    assert sum(total - right for right, total in result.kinds.values()) >= ASKED - least_right(ASKED) + 1
    assert sum(total for _, total in result.kinds.values()) < 2 * ASKED


def test_its_verdict_is_the_odds_of_yes_without_the_adapter(folders) -> None:
    policy = engine.load(str(folders("llama")))
    judge = BaseJudge(policy)
    pair = RuledTurn("What is an otter?", "- an animal")
    [before] = judge([pair], RULES)
    policy.attach(rank=2, alpha=2, seed=0)
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if "lora_" in name:
                parameter.add_(torch.randn_like(parameter))
    [after] = judge([pair], RULES)
    assert after == pytest.approx(before, abs=1e-6)
    for rule, verdict in zip(RULES, before, strict=True):
        odds = []
        for word in judge.words:
            ids = torch.tensor([[*judge._prompt(pair, rule), *word]])
            with torch.no_grad(), policy.base():
                logits = policy.model(input_ids=ids).logits / policy.scorer.temperature
            likely = logits.log_softmax(-1)[0]
            places = range(ids.shape[1] - len(word) - 1, ids.shape[1] - 1)
            odds.append(sum(float(likely[i, token]) for i, token in zip(places, word, strict=True)))
        assert verdict == pytest.approx(1 / (1 + math.exp(odds[1] - odds[0])), abs=1e-5)


def test_words_that_read_alike_are_no_judge() -> None:
    policy: Any = Scripted({})
    policy.tokenizer.encode = lambda word, add_special_tokens: [1]
    with pytest.raises(JudgeError, match="cannot tell Yes from No"):
        BaseJudge(policy)


# -------------------------------------------------------------------------------------------------------- in use


def filled(home, policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clawback.jobs.inputs.policy", lambda *_: policy)
    with store.connect(home.database) as db:
        for number, (question, answer) in enumerate(recorded()):
            db.add_turn(Turn(f"s{number}", ({"role": "user", "content": question},), answer))
        db.add_rule(Rule("Be kind."))


@pytest.mark.parametrize("knows", [True, False])
def test_a_run_uses_it_only_after_it_has_passed(home, monkeypatch, knows: bool) -> None:
    # The newest answers are asked about first.
    truth = {(item.rule, item.pair.answer): item.truth for item in exam_items(recorded()[::-1])}
    policy: Any = Scripted(truth if knows else {})
    filled(home, policy, monkeypatch)
    local = config.load(home.config).judge
    with store.connect(home.database) as db:
        assert rule_reading.judge_of(home, local, db, policy) is None, "a run holds no exam"
    outcome = rule_learning.learn_once(home, by_base=True)
    assert outcome.exam is not None
    assert outcome.exam.believed == knows
    with store.connect(home.database) as db:
        judge = rule_reading.judge_of(home, local, db, policy)
        assert (judge is not None) == knows
        assert rule_reading.judge_of(home, local, db) is None
        entry = rule_reading.entry(db, judge)
        assert entry.features == ((("Be kind.", ""),) if knows else ())
        assert entry.judge == (judge_name(policy) if knows else "")
        old = ExamResult(judge_name(policy), 1.0, {"form": (32, 32), "content": (32, 32)})
        db.set(f"rule-judge:{judge_name(policy)}", old.to_dict())
        assert rule_reading.judge_of(home, local, db, policy) is None, (
            "what it showed long ago counts no more"
        )
