"""Which turns are worth a rating, and what happens to those that nobody rates."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from clawback import config, feedback, store
from clawback.admin.pair_questions import PairQuestions
from clawback.capture import conversation_threads
from clawback.errors import UsageError
from clawback.feedback import information
from clawback.gate.report import open_questions
from clawback.paths import Home
from clawback.records import GATE, UNLEARNED, Turn

if TYPE_CHECKING:
    from clawback.rewards.acquisition import Acquisition
    from clawback.store import Store

DAY = 86_400.0
LOOKED_AT = 400
"""Newest unrated turns that are considered, and newest ratings that say which of them."""
HEARD = 2 * LOOKED_AT
"""Newest pieces of feedback that these ratings are made of: several may be about one turn."""
FEWEST = 4
"""Ratings under which nothing is known that could tell turns apart."""
FOR_THE_GATE = "the gate asks, to decide about a new version"


@dataclass(frozen=True, slots=True)
class RatingCandidate:
    """A turn that is worth a rating. ``gain``: how much it would reduce the variance of all expected ratings; 0: unknown."""

    turn: Turn
    gain: float
    why: str
    steps: tuple[Turn, ...] = ()
    """Tool calls that led to the answer, oldest first. They are no answers: a rating of the answer is about them as well."""


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers to the same prompt. ``bits``: the expected information from hearing which is better; 0: unknown."""

    first: Turn
    second: Turn
    bits: float
    why: str = ""
    """``FOR_THE_GATE``, or "" for any two."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What is known of a turn's answer: by turn and text, for an edit is a second answer of the same turn."""

    key: tuple[int, str]
    reward: float
    held_out: bool
    """For the gate."""


class Inbox:
    """The unrated turns that have not faded. Which of them to ask about follows from the ratings so far, and is
    computed anew after each. Turns held out for the gate do not take part: chosen with their help, a rating
    would no longer be independent evidence.

    Without numpy, which a light install does not have, the newest come first.
    """

    def __init__(self, home: Home, *, now: float | None = None) -> None:
        self.home = home
        since = (now or time.time()) - config.load(home.config).capture.fade_days * DAY
        self._heard: tuple[object, list[_Said]] | None = None
        with store.connect(home.database) as db:
            turns = db.turns(limit=LOOKED_AT, rated=False, kind="main")
        # What a gate put there is asked about in pairs, as long as it is undecided.
        groups = answers([turn for turn in turns if turn.created_at >= since and turn.agent != GATE])
        self.turns = [turn for turn, _ in groups]
        self.steps = {turn.id: steps for turn, steps in groups}
        keys = [(turn.id, turn.response) for turn in self.turns]
        self._place = {
            key: place
            for place, key in enumerate(dict.fromkeys([*keys, *(one.key for one in self._known_rewards())]))
        }
        self._pair_questions = PairQuestions()
        self._compared = self._places(self._known_rewards())
        """Among others, turns of which is known only that another was better."""

    @cached_property
    def _deck(self) -> Acquisition | None:
        """The answers as single ratings are chosen among; None without numpy."""
        if importlib.util.find_spec("numpy") is None:
            return None
        from clawback.rewards.acquisition import Acquisition

        return Acquisition([text for _, text in self._place])

    def next(self, limit: int = 1, but: Set[int] = frozenset()) -> list[RatingCandidate]:
        """The turns to ask about now, the most informative first; those numbered ``but`` are left out."""
        said = self._known_rewards()
        rated = self._places(said) - self._compared
        ratings = self._ratings(said)
        left = [i for i, turn in enumerate(self.turns) if turn.id not in but and i not in rated]
        return self._informative(ratings, left, limit)

    def _informative(self, ratings: dict[int, float], left: list[int], limit: int) -> list[RatingCandidate]:
        if limit <= 0:
            return []
        if self._deck is None or len(ratings) < FEWEST:
            new = information.newest([self.turns[i] for i in left])
            best, why = [(turn, 0.0) for turn in new[:limit]], "the newest that nobody has rated"
        else:
            found = self._deck.next(ratings, left, limit)
            best, why = [(self.turns[place], gain) for place, gain in found], "tells most about the others"
        return [RatingCandidate(turn, gain, why, self.steps[turn.id]) for turn, gain in best]

    def questions(self) -> list[AnswerPair]:
        """What the gate asks, to decide about a new version: in its order, and only what it still needs."""
        with store.connect(self.home.database) as db:
            found = open_questions(db, config.load(self.home.config).gate)
        return [AnswerPair(first, second, 0.0, FOR_THE_GATE) for first, second in found]

    def pairs(self, limit: int = 1) -> list[AnswerPair]:
        """Two answers to the same prompt that nobody has compared: what the gate asks, then the most informative comparisons."""
        asked = self.questions()[:limit]
        return asked + self._any_pairs(limit - len(asked))

    def _any_pairs(self, limit: int) -> list[AnswerPair]:
        if limit <= 0:
            return []
        kept = {one.key[0] for one in self._known_rewards() if one.held_out}
        with store.connect(self.home.database) as db:
            best = self._pair_questions.next(db, self.turns, kept, limit)
        return [AnswerPair(first, second, bits) for first, second, bits in best]

    def _places(self, opinions: Sequence[_Said]) -> Set[int]:
        """Places of the texts that something was said of."""
        return {self._place[one.key] for one in opinions if one.key in self._place}

    def _ratings(self, opinions: Sequence[_Said]) -> dict[int, float]:
        """Place of a text → what was said of it; without what is kept for the gate."""
        return {self._place[o.key]: o.reward for o in opinions if o.key in self._place and not o.held_out}

    def _known_rewards(self) -> list[_Said]:
        """Read anew only where something was written since."""
        now = _written(self.home)
        if self._heard is None or self._heard[0] != now:
            self._heard = now, self._hear()
        return self._heard[1]

    def _hear(self) -> list[_Said]:
        settings = config.load(self.home.config)
        with store.connect(self.home.database) as db:
            found = feedback.samples(
                db, raters=settings.training.raters, query=feedback.SampleQuery(newest=HEARD)
            )
            said = feedback.evidence(found)
            before = db.splits(s.turn_id for s in said)
            kept = feedback.kept_out(said, settings.gate.held_out, splits=before)
        return [
            _Said((one.turn_id, one.response), one.reward, one.turn_id in kept)
            for one in said[-LOOKED_AT:]
            if one.reward
        ]


def answers(turns: Sequence[Turn]) -> list[tuple[Turn, tuple[Turn, ...]]]:
    """The turns that a person can judge, in their order, each with the steps that led to it (oldest first).

    A step is a turn that only calls tools, or one after which the agent went on by itself. Steps whose answer never came are left
    out, and so is what says nothing at all.
    """
    waiting: dict[tuple[str, str], list[Turn]] = {}
    steps: dict[int, tuple[Turn, ...]] = {}
    for turn in sorted(turns, key=lambda turn: turn.id):
        request = (turn.session, turn.prompt)
        if is_step(turn):
            waiting.setdefault(request, []).append(turn)
        elif turn.response.strip() and turn.ending not in UNLEARNED:
            steps[turn.id] = tuple(waiting.pop(request, ()))
    return [(turn, steps[turn.id]) for turn in turns if turn.id in steps]


def is_step(turn: Turn) -> bool:
    """Whether a turn is a step towards an answer: it calls tools and says nothing, or only its tools replied to it."""
    if not turn.calls:
        return False
    return not turn.response.strip() or bool(
        turn.next_state and not conversation_threads.human(turn.next_state)
    )


def _written(home: Home) -> list[tuple[int, int]]:
    """What tells that something was written to the database, or to the settings: when each file last was, and its size."""
    log = home.database.with_name(f"{home.database.name}-wal")
    seen = [path.stat() for path in (home.database, log, home.config) if path.exists()]
    return [(one.st_mtime_ns, one.st_size) for one in seen]


def waiting(home: Home, limit: int) -> list[RatingCandidate]:
    """Unrated turns that have not faded, most informative first."""
    return Inbox(home).next(limit)


def fade(home: Home, now: float | None = None) -> int:
    """Delete turns that nobody rated, if the settings say so; returns how many. Never counts as a rating."""
    capture = config.load(home.config).capture
    if capture.unrated == "keep":
        return 0
    with store.connect(home.database) as db:
        period = capture.fade_days * DAY
        return db.drop_unrated(db.deletion_time(period, now) - period)


def unassigned(db: Store, count: int, assigned: dict[int, list[str]]) -> list[int]:
    """Newest answers that nobody is asked about yet and nobody has rated, oldest of them first."""
    found = answers(db.turns(limit=count * 4 + 400, rated=False, kind="main"))
    new = [turn.id for turn, _ in found if turn.id not in assigned][:count]
    if not new:
        raise UsageError("Every unrated answer is assigned already. Name turns with --turn.")
    return new[::-1]
