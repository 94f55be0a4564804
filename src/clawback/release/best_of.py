"""Something at once: the live version answers with the best of several draws, as the ratings so far read, before any run has learned from them.

It is a trial. One command starts it, one ends it, and it ends by itself when another version goes live. The reader is that of the text alone
(``text_reading``), so nothing is drawn and no model is loaded to begin. Where it cannot read the ratings, there is nothing to choose by, and no trial.

An answer that was chosen is no sample of the version's: its turn names no version and no log-probs, and says in its model's name how it came about.
What people say of it is evidence about answers, and none about how good the version is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from clawback import feedback
from clawback.errors import ClawbackError, UsageError
from clawback.release import text_reading, trial

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.store import Store

KEY = "best_of"
READ = 512
"""Newest pieces of feedback that are read."""
REFIT = 16
"""The reader is fitted again when there is a sixteenth more, or less, to read."""


@dataclass(frozen=True, slots=True)
class BestOfTrial:
    """``count`` answers are drawn from version ``live``, and the best is given; ``began`` in seconds since 1970."""

    count: int
    live: int
    began: float


def begin(store: Store, settings: Config, count: int, now: float) -> BestOfTrial:
    """Raises ``UsageError`` where the ratings do not say what is best, or the best of so many is too far from what the version says."""
    check_distance(settings, count)
    if trial.running(store):
        raise UsageError(
            "A version is on trial, and both would be judged by the same ratings. `clawback versions trial --stop` ends that trial."
        )
    if why := AnswerReading(settings).unread(store):
        raise UsageError(f"There is nothing to choose answers by yet: {why}. Rate some more (`clawback good`, `clawback bad`).")  # fmt: skip
    entry = BestOfTrial(count, store.live().number, now)
    store.set(KEY, asdict(entry))
    return entry


def running(store: Store) -> BestOfTrial | None:
    """The trial that is on; None where there is none, another version has gone live since, or a version is on trial."""
    entry = store.get(KEY)
    current = BestOfTrial(**entry) if entry else None
    if current is None or current.live != store.live().number or trial.running(store):
        return None
    return current


def stop(store: Store) -> None:
    store.set(KEY, None)


def model_name(version: int, count: int) -> str:
    """The name of the model in the turn of such an answer."""
    return f"clawback/v{version}-best-of-{count}"


def check_distance(settings: Config, count: int) -> None:
    """Raises ``UsageError`` where the best of so many moves further from the version than the gate allows a version to move from the base."""
    from clawback.rewards import overoptimization

    budget = settings.gate.max_kl
    if overoptimization.best_of_kl(count) > budget:
        raise UsageError(
            f"The best of {count} is {overoptimization.best_of_kl(count):.1f} nats from what the version says, and [gate] max_kl allows {budget:g}: "
            f"take --best-of {overoptimization.best_of_within(budget)} at most."
        )


class AnswerReading:
    """What the ratings say of answers, fitted again as they grow."""

    def __init__(self, settings: Config) -> None:
        self.raters = settings.training.raters
        self._reader: text_reading.TextReward | None = None
        self._fitted = -1
        """Pieces of feedback when it was fitted last."""
        self._why = ""

    def unread(self, store: Store) -> str:
        """Why the ratings cannot be read, without a full stop; "" where they can."""
        count = store.count_feedback()
        if self._fitted < 0 or abs(count - self._fitted) >= max(1, self._fitted // REFIT):
            self._fit(store)
            self._fitted = count
        return self._why

    def notice(self, store: Store) -> str:
        """What the person should know while such a trial is on and the ratings cannot be read any more; else ""."""
        current = running(store)
        if current is None or not (why := self.unread(store)):
            return ""
        return f"This is one draw and not the best of {current.count}: {why}."

    def _fit(self, store: Store) -> None:
        every = feedback.samples(
            store, query=feedback.SampleQuery(words=True, newest=READ), raters=self.raters
        )
        samples = [sample for sample in feedback.evidence(every) if sample.rated]
        remarks = [sample for sample in every if not sample.rated]
        self._reader = None
        good = sum(sample.reward > 0 for sample in samples)
        if not good or good == len(samples):
            self._why = f"{good} of {len(samples)} rated answers are good, and some of each kind are needed"
            return
        try:
            reader = text_reading.learn([*samples, *remarks])
        except ImportError:
            self._why = "numpy is not installed"
            return
        self._why = "" if reader.trusted else reader.why.rstrip(".")
        self._reader = reader if reader.trusted else None

    def best(self, question: str, texts: Sequence[str], ended: Sequence[bool]) -> int:
        """Place of the best answer to the question. One that was cut is given only where all were."""
        if self._reader is None:
            raise ClawbackError("The ratings were not read.")
        scores = self._reader([(question, text) for text in texts])
        return max(range(len(texts)), key=lambda place: (ended[place], scores[place]))
