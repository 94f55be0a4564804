"""The base model as a judge of rules: how much likelier it finds "Yes" than "No" when it is asked whether an answer keeps a rule.

Nothing is drawn. Of each answer all rules are asked after it, so that the model reads question and answer once where common beginnings
are shared (``logprobs.Scorer.shares``). The verdict is

    p = σ( log π(Yes | question, answer, rule) − log π(No | question, answer, rule) ).

at the temperature that the model answers with. Small models cannot do this. Whether one can, its exam says (``rules.exam``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from clawback.errors import JudgeError
from clawback.templates import Encoded

if TYPE_CHECKING:
    from clawback.policy import Policy

PREFIX = "base:"
"""How the names of such judges begin."""
QUESTION, ANSWER = 1500, 3000
"""Characters that are read of each."""
TASK = """Below are a question and the answer of an assistant, and then a rule. Say whether the answer keeps the rule.

Question: {question}

Answer: {answer}

Rule: {rule}
Does the answer keep the rule? Reply with Yes or No."""


def judge_name(policy: Policy) -> str:
    """By which weights they are: other weights of the same name sit an exam of their own."""
    return f"{PREFIX}{policy.info.base}@{policy.info.revision[:12]}"


class BaseJudge:
    """A judge in the sense of ``rules.rule_judge.RuleJudge``: pairs are (question, answer). The policy's adapter takes no part."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name = policy, judge_name(policy)
        encode = policy.tokenizer.encode
        self.words = [tuple(encode(word, add_special_tokens=False)) for word in ("Yes", "No")]
        if self.words[0] == self.words[1] or not all(self.words):
            raise JudgeError(f"{policy.info.base} cannot tell Yes from No: its tokenizer writes both alike.")

    def __call__(self, pairs: Sequence[tuple[str, str]], rules: Sequence[str]) -> list[list[float | None]]:
        return [self._verdicts(pair, rules) for pair in pairs]

    @torch.no_grad()
    def _verdicts(self, pair: tuple[str, str], rules: Sequence[str]) -> list[float | None]:
        prompts = [self._prompt(pair, rule) for rule in rules]
        choices = [Encoded(prompt, word) for prompt in prompts for word in self.words]
        with self.policy.base():
            totals = [float(part.sum()) for part in self.policy.scorer(choices).split()]
        odds = [yes - no for yes, no in zip(totals[::2], totals[1::2], strict=True)]
        return [1 / (1 + math.exp(-max(min(value, 50.0), -50.0))) for value in odds]

    def _prompt(self, pair: tuple[str, str], rule: str) -> tuple[int, ...]:
        question, answer = pair
        text = TASK.format(question=question[:QUESTION], answer=answer[:ANSWER], rule=rule)
        chat, most = self.policy.chat, self.policy.info.context - max(map(len, self.words))
        return tuple(chat.prompt([{"role": "user", "content": text}], most))
