"""A reward model on the text of answers alone, for models whose weights, hidden states and tokenizer are elsewhere.

The same two models as for local weights (``rewards.reward_ensemble``), on style, words and layout. Words take
the place of tokens, the length that of hidden states. The fit is closed form and takes milliseconds; torch is
not needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.records import BETTER, Sample, Turn

if TYPE_CHECKING:
    from clawback.features.style_features import Floats
    from clawback.rewards.reward_ensemble import RewardEnsemble
    from clawback.rewards.views import Answers

_WORD = re.compile(r"\w+|[^\w\s]")
LONGEST = 20_000
"""Characters of an answer that are looked at."""


class Vocabulary:
    """Words and marks in lower case, numbered as they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> tuple[int, ...]:
        return tuple(self.numbers.setdefault(w, len(self.numbers)) for w in _WORD.findall(text[:LONGEST].lower()))  # fmt: skip


def lengths(ids: Sequence[Sequence[int]]) -> Floats:
    """``[n, 1]``: what stands in the place of hidden states."""
    import numpy as np

    return np.log1p(np.array([[len(one)] for one in ids], dtype=np.float64).reshape(len(ids), 1))


def question(sample: Sample) -> str:
    return Turn("", sample.messages, "").prompt


@dataclass(frozen=True)
class TextReward:
    """What is expected of an answer, by ratings and remarks. ``trusted``: whether these say anything that can be read."""

    ensemble: RewardEnsemble
    vocabulary: Vocabulary
    usual: float
    scale: float
    """Of the rated answers: mean and spread of what is expected, by which scores are put on [0, 1]."""

    @property
    def trusted(self) -> bool:
        return self.ensemble.trust.trusted or self.ensemble.recognised_remarks > 0

    @property
    def why(self) -> str:
        return self.ensemble.trust.reason

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """(question, answer) → in [0, 1]; ½ is what is usual."""
        import numpy as np

        from clawback.rewards import overoptimization
        from clawback.rewards.reward_ensemble import RULES

        if not pairs:
            return []
        raw = self.ensemble.reward(answers(self.vocabulary, pairs), RULES, 0.0)
        scores = 0.5 + 0.5 * np.tanh((raw - self.usual) / (2 * self.scale))
        return [
            0.0 if not text.strip() or overoptimization.repeats(text) else float(s)
            for (_, text), s in zip(pairs, scores, strict=True)
        ]


def answers(vocabulary: Vocabulary, pairs: Sequence[tuple[str, str]]) -> Answers:
    from clawback.rewards.views import Answers

    ids = [vocabulary(text) for _, text in pairs]
    return Answers(ids, [text for _, text in pairs], lengths(ids))


def learn(samples: Sequence[Sample], seen: Sequence[tuple[str, str]] = (), seed: int = 0) -> TextReward:
    """From rated samples and what was said of them.

    Args:
        seen: (question, answer) of further answers, rated or not: they show how answers vary.
    """
    from clawback.rewards.rating_likelihood import feedback_kinds, reader_values
    from clawback.rewards.reward_ensemble import RULES, Ratings, ReadingSettings
    from clawback.rewards.reward_ensemble import learn as fit

    vocabulary = Vocabulary()
    rated = [s for s in samples if s.rated]
    pairs = [(question(s), s.response) for s in rated]
    ground = answers(vocabulary, [*dict.fromkeys([*pairs, *seen])])
    remarks = [
        (vocabulary(s.response), s.response, hint)
        for s in samples
        for hint in s.hints
        if not hint.startswith(BETTER)
    ]
    made = fit(
        ground,
        answers(vocabulary, pairs),
        Ratings(reader_values(rated), [s.newest for s in rated], feedback_kinds(rated)),
        remarks,
        ReadingSettings(seed=seed),
    )
    raw = made.reward(ground, RULES, 0.0)
    return TextReward(made, vocabulary, float(raw.mean()), max(float(raw.std()), 0.05))
