"""Evaluates a prompt on an example: the model answers under it, and a judge scores the answer."""

from __future__ import annotations

import re
from collections.abc import Callable

from clawback.prompts.backends import BackendError, Complete, Usage, as_backend
from clawback.prompts.prompt import Prompt
from clawback.prompts.search_types import Evaluate, Example, Outcome

Judge = Callable[[Example, str], "Outcome | float"]
"""What an answer is worth: a score, or an ``Outcome`` with the reason in words."""


def evaluator(
    model: Complete, judge: Judge, *, max_tokens: int = 1024, temperature: float | None = None
) -> Evaluate:
    """Answers by ``model``, scored by ``judge``. An answer that fails scores 0, with the error as its feedback."""
    backend = as_backend(model)

    def evaluate(prompt: Prompt, example: Example) -> Outcome:
        try:
            made = backend.complete(
                prompt.messages(example.messages), max_tokens=max_tokens, temperature=temperature
            )
        except BackendError:
            raise  # every further call would fail as well
        except Exception as error:
            return Outcome(0.0, f"The model failed: {error}")
        usage = Usage(1, made.sent, made.received, backend.price.of(made.sent, made.received))
        judged = judge(example, made.text)
        if not isinstance(judged, Outcome):
            return Outcome(float(judged), "", made.text, usage=usage)
        spent = usage + Usage(0, judged.usage.sent, judged.usage.received, judged.usage.money)
        return Outcome(judged.score, judged.feedback, made.text, judged.terms, spent)

    return evaluate


def exact_match(example: Example, answer: str) -> Outcome:
    """1 where the answer is the reference, but for case, spaces and marks. An empty answer never is."""
    said, wanted = _normal(answer), _normal(example.reference)
    return Outcome(1.0) if said and said == wanted else Outcome(0.0, _wrong(answer))


def contains(example: Example, answer: str) -> Outcome:
    """1 where the answer holds the reference as whole words."""
    wanted = _normal(example.reference)
    return (
        Outcome(1.0) if wanted and f" {wanted} " in f" {_normal(answer)} " else Outcome(0.0, _wrong(answer))
    )


def _wrong(answer: str) -> str:
    return "The answer is not the one that was wanted." if answer.strip() else "There is no answer."


def _normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
