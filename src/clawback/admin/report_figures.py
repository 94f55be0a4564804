"""The figures of ``clawback runs report`` beyond ratings: use of answers, A/B, win rates, surveys, the reward model's quality."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.jobs.winning import KEY as WIN_RATES
from clawback.release.data_card import wilson
from clawback.rewards import HELD_OUT

if TYPE_CHECKING:
    from clawback.records import JsonObject
    from clawback.release.trial import Trial
    from clawback.store import Store
    from clawback.store.version_tables import Engagement


@dataclass(frozen=True, slots=True)
class Share:
    """Of ``count`` things, with its 95 % interval (Wilson)."""

    count: int
    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Use:
    """How one version's answers were used. ``clicked``: answers of which a link was opened, or that were copied or taken over (click-through);
    ``again``: after which the same was asked again; ``went_on``: conversations of more than one turn. ``turns`` and ``minutes``: of a conversation, mean and
    median."""

    version: int
    sessions: int
    turns: float
    minutes: float
    clicked: Share
    again: Share
    went_on: Share


@dataclass(frozen=True, slots=True)
class Difference:
    """Candidate less live, with its 95 % interval."""

    name: str
    candidate: float
    live: float
    low: float
    high: float

    @property
    def differs(self) -> bool:
        return not self.low <= 0 <= self.high


def use(engagements: Sequence[Engagement]) -> list[Use]:
    """By version."""
    made = []
    for version in sorted({one.version for one in engagements}):
        of = [one for one in engagements if one.version == version]
        turns = sum(one.turns for one in of)
        made.append(
            Use(
                version=version,
                sessions=len(of),
                turns=turns / len(of),
                minutes=statistics.median(one.seconds for one in of) / 60,
                clicked=share(sum(one.used for one in of), turns),
                again=share(sum(one.again for one in of), turns),
                went_on=share(sum(one.turns > 1 for one in of), len(of)),
            )
        )
    return made


def share(part: int, count: int) -> Share:
    return Share(count, part / count if count else 0.0, *wilson(part, count))


def ab(store: Store, trial: Trial) -> list[Difference]:
    """Candidate and live version beside each other, over the conversations that began with the trial. A conversation counts once in each figure, so that a long one
    is no crowd; the interval is Welch's by the normal distribution. No figure here ends the trial: people's ratings do."""
    found = store.engagement(trial.began)
    ours = [one for one in found if one.version == trial.candidate]
    theirs = [one for one in found if one.version == trial.live]
    if len(ours) < 2 or len(theirs) < 2:
        return []
    measures: dict[str, Callable[[Engagement], float]] = {
        "click-through (share of answers used)": lambda e: e.used / e.turns,
        "asked again (share of answers)": lambda e: e.again / e.turns,
        "turns a conversation": lambda e: float(e.turns),
        "minutes a conversation": lambda e: e.seconds / 60,
    }
    return [
        difference(name, [of(one) for one in ours], [of(one) for one in theirs])
        for name, of in measures.items()
    ]


def difference(name: str, first: Sequence[float], second: Sequence[float]) -> Difference:
    a, b = statistics.fmean(first), statistics.fmean(second)
    error = math.sqrt(statistics.variance(first) / len(first) + statistics.variance(second) / len(second))
    return Difference(name, a, b, a - b - 1.959964 * error, a - b + 1.959964 * error)


def win_rates(store: Store) -> list[JsonObject]:
    """What judges said, newest first."""
    found: list[JsonObject] = store.get(WIN_RATES, [])
    return found[::-1]


def held_out(store: Store) -> JsonObject | None:
    """Spearman's ρ of the reward model on prompts that it had not seen, and the baselines; None where nothing was held out."""
    found: JsonObject | None = store.get(HELD_OUT)
    return found


@dataclass(frozen=True, slots=True)
class Month:
    """Surveys of thirty days: the mean of 1 to 5 with its interval by the normal distribution."""

    start: float
    count: int
    mean: float
    low: float
    high: float


def surveys(answers: Sequence[tuple[float, int, int]]) -> list[Month]:
    by_month: dict[int, list[int]] = {}
    for at, _, score in answers:
        by_month.setdefault(int(at // MONTH), []).append(score)
    made = []
    for month, scores in sorted(by_month.items()):
        mean = statistics.fmean(scores)
        half = 1.959964 * math.sqrt(statistics.variance(scores) / len(scores)) if len(scores) > 1 else 4.0
        made.append(Month(month * MONTH, len(scores), mean, max(1.0, mean - half), min(5.0, mean + half)))
    return made


MONTH = 30 * 86_400.0
