"""The teacher of on-policy distillation: the same model with the person's later feedback in its context."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clawback.errors import TrainingError
from clawback.records import Message, Sample
from clawback.scoring import Scorer, overlap, token_logprobs, top
from clawback.templates import Encoded
from clawback.trainer.examples import TrainingExample

if TYPE_CHECKING:
    from clawback.policy import Policy

HEADING = "Please note:"
"""In the user's own voice. A marker in brackets says the same to a large model, and puts a small one out: the embedded one
then forgets the question, and its teacher pulls towards nonsense."""
OVERLAP = 16
"""Likeliest tokens at each position that a teacher is compared with the student by."""


@dataclass(frozen=True)
class _Reading:
    """What a model makes of one response."""

    logprobs: Tensor
    """[T]"""
    ids: Tensor | None = None
    """[T, k]"""
    likely: Tensor | None = None
    """[T, k]"""


def hinted(messages: Sequence[Message], hint: str) -> tuple[Message, ...]:
    """The conversation with the hint at the end of the last thing that the user said, under a heading that marks it as theirs."""
    return appended(messages, f"{HEADING}\n{hint.strip()}")


def appended(messages: Sequence[Message], text: str) -> tuple[Message, ...]:
    """The conversation with a text at the end of the last thing that the user said."""
    for index in range(len(messages) - 1, -1, -1):
        message: Mapping[str, Any] = messages[index]
        if message.get("role") != "user":
            continue
        content = message.get("content")
        longer: object = (
            [*content, {"type": "text", "text": text}]
            if isinstance(content, (list, tuple))
            else f"{content or ''}\n\n{text}".strip()
        )
        return (*messages[:index], {**message, "content": longer}, *messages[index + 1 :])
    return (*messages, {"role": "user", "content": text})


@torch.no_grad()
def taught(
    policy: Policy,
    examples: Sequence[TrainingExample],
    samples: Sequence[Sample],
    top_k: int,
) -> list[TrainingExample]:
    """The examples with what a teacher says of each of their tokens, where its sample has a hint.

    Args:
        examples, samples: S of each, in the same order.
        top_k: how many of the teacher's likeliest tokens to keep; 0 for none.

    Raises:
        TrainingError: ``top_k`` with a model whose LM head is not known.
    """
    scorer = policy.scorer
    if top_k and not scorer.fused_head:
        raise TrainingError(
            "The LM head of this model is of an unknown kind, so its likeliest tokens cannot be learned from. Use top_k = 0."
        )
    places = [(i, hint) for i, sample in enumerate(samples) for hint in sample.hints if hint.strip()]
    read = [policy.chat.looked(hinted(samples[i].messages, hint), policy.max_prompt) for i, hint in places]
    asked = [
        Encoded(tuple(prompt), examples[i].encoded.response, pixels=pixels)
        for (prompt, pixels), (i, _) in zip(read, places, strict=True)
    ]
    several = len({i for i, _ in places}) < len(places)
    wanted = max(top_k, OVERLAP if several else 0) if scorer.fused_head else 0
    readings = _read(scorer, asked, wanted)
    chosen = _nearest(scorer, examples, places, readings)

    result = list(examples)
    for index, reading in chosen.items():
        likely = None
        if top_k and reading.ids is not None and reading.likely is not None:
            likely = (reading.ids[:, :top_k], reading.likely[:, :top_k])
        result[index] = dataclasses.replace(result[index], teacher=reading.logprobs, teacher_top=likely)
    return result


def _nearest(
    scorer: Scorer,
    examples: Sequence[TrainingExample],
    places: Sequence[tuple[int, str]],
    readings: Sequence[_Reading],
) -> dict[int, _Reading]:
    """For each example the reading of one hint: that whose likeliest tokens are most often among the student's.

    Of equals the longest hint, and where no likeliest tokens are known the longest as well.
    """
    by_example: dict[int, list[tuple[str, _Reading]]] = {}
    for (index, hint), reading in zip(places, readings, strict=True):
        by_example.setdefault(index, []).append((hint, reading))
    chosen = {}
    contested = [i for i, found in by_example.items() if len(found) > 1 and found[0][1].ids is not None]
    students = dict(
        zip(contested, _read(scorer, [examples[i].encoded for i in contested], OVERLAP), strict=True)
    )
    for index, found in by_example.items():
        student = students.get(index)
        chosen[index] = max(found, key=lambda one: (_near(one[1], student), len(one[0]), one[0]))[1]
    return chosen


def _near(teacher: _Reading, student: _Reading | None) -> float:
    if student is None or student.ids is None or teacher.ids is None:
        return 0.0
    return overlap(teacher.ids[:, :OVERLAP], student.ids)


def _read(scorer: Scorer, encoded: Sequence[Encoded], k: int) -> list[_Reading]:
    """Log-probs of the responses and, where k > 0, the likeliest tokens at each of their positions."""
    if k == 0:
        return [_Reading(values) for values in scorer(encoded).split()] if encoded else []
    readings: list[_Reading | None] = [None] * len(encoded)
    for piece in scorer.pieces(encoded):
        some = [encoded[i] for i in piece]
        states = scorer.states(some)
        targets = torch.tensor([t for one in some for t in one.response], device=scorer.device)
        values, _ = token_logprobs(scorer.head, states, targets)
        ids, likely = top(scorer.head, states, min(k, scorer.head.weight.shape[0]))
        lengths = [len(one.response) for one in some]
        parts = zip(values.split(lengths), ids.split(lengths), likely.split(lengths), strict=True)
        for index, (v, i, p) in zip(piece, parts, strict=True):
            readings[index] = _Reading(v, i, p)
    return [reading for reading in readings if reading is not None]
