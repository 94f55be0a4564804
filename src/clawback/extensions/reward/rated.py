"""Loads scored answers for a reward model, and splits them so that no prompt is on both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clawback import plugins
from clawback.errors import UsageError
from clawback.records import Message, Sample, Turn
from clawback.rewards.composite import SIGNED, UNIT, scale

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RatedAnswer:
    """One answer and what was said of it. ``value`` is in [0, 1]; ``version`` is that of the policy that answered, if known."""

    prompt: str
    response: str
    value: float
    version: int | None = None

    @property
    def pair(self) -> tuple[str, str]:
        return self.prompt, self.response


def read(path: Path, how: str = "auto") -> list[RatedAnswer]:
    """Every line of a JSONL file in the import format that has a rating or a score.

    ``how`` says what a score means: ``1-10``, ``0-1``, or ``auto``. Raises ``NotFound`` without a file,
    ``UsageError`` for a line that cannot be read: skipping it would train on part of the file without notice.
    """
    found = []
    for number, messages, response, reward in scored_lines(path, how):
        if reward is None:
            raise UsageError(f"Line {number} of {path}: neither `rating` nor `score` is there.")
        prompt = Turn("", messages, response).prompt
        found.append(RatedAnswer(prompt, response, scale(reward, SIGNED, UNIT)))
    return found


def scored_lines(
    path: Path, how: str = "auto"
) -> Iterator[tuple[int, tuple[Message, ...], str, float | None]]:
    """(line number, messages, response, rating in [-1, 1] or None) of every line, as ``clawback import`` reads it.

    Raises ``NotFound`` without a file or without importers, ``UsageError`` for a line that cannot be read.
    """
    lines: Iterator[tuple[int, tuple[Message, ...], str, float | None]]
    lines = plugins.load(plugins.IMPORTERS, "files").scored_lines(path, how)
    return lines


def of_samples(samples: Iterable[Sample], versions: dict[int, int | None] | None = None) -> list[RatedAnswer]:
    """Rated turns. ``versions``: turn → the version that answered."""
    return [
        RatedAnswer(
            Turn("", s.messages, s.response).prompt,
            s.response,
            scale(s.reward, SIGNED, UNIT),
            (versions or {}).get(s.turn_id),
        )
        for s in samples
    ]


def mark(prompt: str) -> str:
    """A short hash that identifies a prompt without revealing it."""
    return hashlib.sha256(" ".join(prompt.split()).lower().encode()).hexdigest()[:16]


def folds(prompts: Sequence[str], count: int = 5, seed: int = 0) -> list[tuple[Rows, Rows]]:
    """``(train, test)`` row numbers ``count`` times: each row is tested once, and no prompt is on both sides of a fold.

    Raises ``UsageError`` where there are fewer prompts than folds.
    """
    marks = [mark(p) for p in prompts]
    names = sorted(set(marks))
    if len(names) < count or count < 2:
        raise UsageError(
            f"{count} folds need at least {max(count, 2)} different prompts: there are {len(names)}."
        )
    order = np.random.default_rng(seed).permutation(len(names))
    fold_of = {names[int(n)]: place % count for place, n in enumerate(order)}
    own = np.array([fold_of[m] for m in marks])
    return [(np.flatnonzero(own != k), np.flatnonzero(own == k)) for k in range(count)]


def hold_out(prompts: Sequence[str], share: float, seed: int = 0) -> tuple[Rows, Rows]:
    """``(train, held)`` row numbers: about ``share`` of the prompts are held, at least one of each where there are two."""
    marks = [mark(p) for p in prompts]
    names = sorted(set(marks))
    order = np.random.default_rng(seed).permutation(len(names))
    many = min(max(round(share * len(names)), 1), len(names) - 1) if share > 0 and len(names) > 1 else 0
    held = {names[int(n)] for n in order[:many]}
    inside = np.array([m in held for m in marks], dtype=bool)
    return np.flatnonzero(~inside), np.flatnonzero(inside)
