"""The critic: predicts a person's rating from (prompt, question, answer), and learns from ratings as they arrive.

The models are those of Clawback's reward ensemble (``rewards.kernel_ensemble``: Gaussian processes on several
views, weighted by their evidence) on views that need no language model: style, text statistics, the relation
of answer to question, and the rules of the prompt. So scoring an answer takes well under a millisecond, and
thousands are scored without anybody rating them.

Its accuracy is measured, not assumed. Each rating is first predicted, then learned; ``agreement`` says how
often the prediction was on the person's side. Scores are calibrated by leave-one-out predictions of the
ratings (``online.calibration``): past predictions would be of models that knew less than the one that scores
now.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clawback.extensions.rlprompt.calibration import AS_IT_STANDS, calibrated
from clawback.features.style_features import manner
from clawback.features.text_statistics import text_statistics
from clawback.prompts.prompt import Prompt, rules
from clawback.rewards.kernel_ensemble import Kernel, KernelEnsemble, Spectra
from clawback.rewards.views import Standard, relation

if TYPE_CHECKING:
    from clawback.records import JsonObject

Floats = NDArray[np.float64]
Row = tuple[str, str, str]
"""(prompt, question, answer)."""

LEAST = 6
"""Ratings below which every score is the mean."""
MOST = 240
"""Newest ratings that are learned from: the models go as the third power of them."""
_BUCKETS = 64
_EDGE = 0.02
"""No score is nearer to 0 or 1 where all ratings are the same."""
_NEUTRAL = 1e-9


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the critic was on the person's side, on ratings that it had not seen.

    ``low``, ``high``: 95 % interval (Wilson 1927); ``always``: what saying the commonest verdict every time would have got; ``brier``: mean squared error of
    the scores that it gave.
    """

    share: float
    count: int
    low: float
    high: float
    always: float
    brier: float

    def to_dict(self) -> JsonObject:
        return asdict(self)

    def __str__(self) -> str:
        if not self.count:
            return "nothing is known yet of how often it agrees with you"
        return f"agrees with you in {self.share:.0%} of {self.count} (95 %: {self.low:.0%} to {self.high:.0%}; always the same verdict: {self.always:.0%})"  # fmt: skip


class Critic:
    """Learns every ``every`` ratings. Ratings are in [-1, 1], scores in [0, 1]."""

    def __init__(self, every: int = 10) -> None:
        self.every = every
        self.rows: list[Row] = []
        self.ratings: list[float] = []
        self.told: list[tuple[float, float]] = []  # (score before it was learned, rating)
        self._fitted: tuple[dict[str, Standard], KernelEnsemble] | None = None
        self._calibration = AS_IT_STANDS
        self._mean = 0.0
        self._learned = (0, 0)  # ratings and predictions that the last fit knew

    def score(self, system_prompt: str, query: str, response: str) -> float:
        """How much the person will like it, 0 to 1: calibrated, so that of answers with 0.7 about seven in ten are liked."""
        return float(self.scores([(system_prompt, query, response)])[0])

    def scores(self, rows: Sequence[Row]) -> Floats:
        """``[n]`` of many at once."""
        if self._fitted is None:
            return np.full(len(rows), min(max((self._mean + 1) / 2, _EDGE), 1 - _EDGE))
        standards, model = self._fitted
        seen = {name: standards[name](values) for name, values in _views(rows).items()}
        return self._calibration(model.predict(seen)[0])

    def update(self, system_prompt: str, query: str, response: str, rating: float) -> None:
        """One rating: predicted first, so that agreement is measured on what was not known; learned with the next batch."""
        row = (system_prompt, query, response)
        if self._fitted is not None:
            self.told.append((float(self.scores([row])[0]), rating))
        self.rows.append(row)
        self.ratings.append(float(rating))
        if len(self.rows) % self.every == 0:
            self.fit()

    def fit(self) -> None:
        """Learn from the newest ratings, and calibrate by what would be said of each if it were not known."""
        rows, y = self.rows[-MOST:], np.array(self.ratings[-MOST:])
        self._learned = (len(self.rows), len(self.told))
        self._mean = float(y.mean()) if len(y) else 0.0
        if len(y) < LEAST or y.std() < _NEUTRAL:
            self._fitted = None
            return
        raw = _views(rows)
        standards = {name: Standard.of(values) for name, values in raw.items()}
        seen = {name: standards[name](values) for name, values in raw.items()}
        model = Spectra.of(_kernels(seen), seen).fit(y)
        self._fitted = (standards, model)
        self._calibration = calibrated(model.left_out(y), y)

    def agreement(self, last: int = MOST) -> Agreement:
        """Over the newest ``last`` ratings that were predicted before they were learned; neutral ones do not count."""
        told = [(score, rating) for score, rating in self.told[-last:] if abs(rating) > _NEUTRAL]
        if not told:
            return Agreement(0.0, 0, 0.0, 1.0, 0.0, 0.0)
        score, said = np.array(told).T
        right, n = int(((score > 0.5) == (said > 0)).sum()), len(told)
        low, high = _wilson(right, n)
        always = max((said > 0).mean(), (said < 0).mean())
        return Agreement(
            right / n, n, low, high, float(always), float(np.mean((score - (said + 1) / 2) ** 2))
        )

    def to_dict(self) -> JsonObject:
        kept = {"every": self.every, "rows": self.rows, "ratings": self.ratings, "told": self.told}
        return {**kept, "learned": list(self._learned)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """As it was: what it had learned is learned again from the same ratings."""
        self.every = int(state["every"])
        rows = [(str(a), str(b), str(c)) for a, b, c in state["rows"]]
        ratings, told = [float(r) for r in state["ratings"]], [(float(a), float(b)) for a, b in state["told"]]
        rated, predicted = state["learned"]
        self.rows, self.ratings, self.told = rows[:rated], ratings[:rated], told[:predicted]
        self.fit()
        self.rows, self.ratings, self.told = rows, ratings, told


class ConstantCritic:
    """Says the same of everything: what a critic has to beat."""

    def __init__(self, default_score: float = 0.5) -> None:
        self.default_score = default_score

    def score(self, system_prompt: str, query: str, response: str) -> float:  # noqa: ARG002
        return self.default_score

    def update(self, system_prompt: str, query: str, response: str, rating: float) -> None:
        """It learns nothing."""

    def to_dict(self) -> JsonObject:
        return {"default_score": self.default_score}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.default_score = float(state["default_score"])


MockCritic = ConstantCritic
"""Its name in RLPrompt."""


def _views(rows: Sequence[Row]) -> dict[str, Floats]:
    """View → ``[n, d]``."""
    prompts, queries, answers = ([row[i] for row in rows] for i in range(3))
    return {
        "style": manner(answers),
        "statistics": text_statistics(answers),
        "relation": relation(queries, answers),
        "question": manner(queries),
        "rules": np.array([_rules(prompt) for prompt in prompts]),
    }


def _rules(prompt: str) -> Floats:
    """``[64]`` which rules a prompt has, hashed."""
    made = np.zeros(_BUCKETS)
    for _, line in rules(Prompt(prompt)):
        made[zlib.crc32(line.lower().encode()) % _BUCKETS] = 1.0
    return made


def _kernels(seen: Mapping[str, Floats]) -> list[Kernel]:
    size = {name: float(np.mean(np.sum(x * x, 1))) for name, x in seen.items()}
    made = [Kernel("linear", (name,), size[name]) for name in seen if name != "question" and size[name] > 0]
    x = seen["style"]
    apart = np.sum(x * x, 1)[:, None] + np.sum(x * x, 1) - 2 * x @ x.T
    if (median := float(np.median(apart))) > _NEUTRAL:
        made.append(Kernel("rbf", ("style",), median))
    both = float(np.mean(np.sum(seen["question"] ** 2, 1) * np.sum(x * x, 1)))
    if both > 0:
        made.append(Kernel("product", ("question", "style"), both))
    return made or [Kernel("linear", ("style",), 1.0)]


def _wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    share = right / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return max(0.0, middle - half), min(1.0, middle + half)
