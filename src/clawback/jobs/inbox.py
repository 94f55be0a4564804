"""Which turns are worth a rating, and what becomes of those that nobody rates."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import config, feedback, store
from clawback.feedback import ask
from clawback.paths import Home
from clawback.records import Turn

if TYPE_CHECKING:
    from clawback.rewards.deck import Deck

DAY = 86_400.0
LOOKED_AT = 400
"""Newest unrated turns that are considered, and newest ratings that say which of them."""
FEWEST = 4
"""Ratings under which nothing is known that could tell turns apart."""
NEAR = 4
"""Of many answers to one prompt, each is paired with the few that came just before it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn that is worth a rating. ``gain``: variance of all expected ratings that it would take away; 0: nobody can say."""

    turn: Turn
    gain: float
    why: str


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to the same prompt. ``bits``: what one would learn from hearing which is better; 0: nobody can say."""

    first: Turn
    second: Turn
    bits: float


class Inbox:
    """The unrated turns that there are now and have not faded. Which of them to ask about follows from the ratings so far: after each, anew.

    Without numpy, which a light install does not have, the newest come first.
    """

    def __init__(self, home: Home, *, now: float | None = None) -> None:
        self.home = home
        since = (now or time.time()) - config.load(home.config).capture.fade_days * DAY
        with store.connect(home.database) as db:
            turns = db.turns(limit=LOOKED_AT, rated=False, kind="main")
        self.turns = [turn for turn in turns if turn.created_at >= since]
        keys = [(turn.id, turn.response) for turn in self.turns]
        self._place = {key: place for place, key in enumerate(dict.fromkeys([*keys, *self._said()]))}
        self._deck = _deck([text for _, text in self._place])
        self._compared = self._ratings().keys()
        """Among others, turns of which is known only that another was better."""

    def next(self, limit: int = 1, but: Set[int] = frozenset()) -> list[Waiting]:
        """The turns to ask about now, most informative first; those numbered ``but`` are left out."""
        ratings = self._ratings()
        rated = ratings.keys() - self._compared
        left = [i for i, turn in enumerate(self.turns) if turn.id not in but and i not in rated]
        if self._deck is None or len(ratings) < FEWEST:
            new = ask.newest([self.turns[i] for i in left])
            return [Waiting(turn, 0.0, "the newest that nobody has rated") for turn in new[:limit]]
        best = self._deck.next(ratings, left, limit)
        return [Waiting(self.turns[place], gain, "tells most about the others") for place, gain in best]

    def pairs(self, limit: int = 1) -> list[Pair]:
        """Two unrated answers to the same prompt, those first whose comparison tells most."""
        ratings = self._ratings()
        asked: dict[str, list[int]] = {}
        for place, turn in enumerate(self.turns):
            if place not in ratings:
                asked.setdefault(turn.prompt, []).append(place)
        found = [
            (places[j], places[i])  # the older one first
            for places in asked.values()
            for i in range(len(places))
            for j in range(i + 1, min(len(places), i + NEAR))
            if self.turns[places[i]].response != self.turns[places[j]].response
        ]
        best = [(i, 0.0) for i in range(len(found))][:limit]
        if self._deck is not None:
            best = self._deck.pairs(ratings, found[:LOOKED_AT], limit)
        return [Pair(self.turns[found[i][0]], self.turns[found[i][1]], bits) for i, bits in best]

    def _ratings(self) -> dict[int, float]:
        """Place of a text → what was said of it."""
        return {self._place[key]: reward for key, reward in self._said().items() if key in self._place}

    def _said(self) -> dict[tuple[int, str], float]:
        with store.connect(self.home.database) as db:
            raters = config.load(self.home.config).training.raters
            said = feedback.evidence(feedback.samples(db, raters=raters))
        return {(one.turn_id, one.response): one.reward for one in said[-LOOKED_AT:] if one.reward}


def _deck(texts: Sequence[str]) -> Deck | None:
    if importlib.util.find_spec("numpy") is None:
        return None
    from clawback.rewards.deck import Deck

    return Deck(texts)


def waiting(home: Home, limit: int) -> list[Waiting]:
    """Unrated turns that have not faded, most informative first."""
    return Inbox(home).next(limit)


def fade(home: Home, now: float | None = None) -> int:
    """Let go of what nobody rated, where the settings say so; how many turns. Never counts as a rating."""
    capture = config.load(home.config).capture
    if capture.unrated == "keep":
        return 0
    with store.connect(home.database) as db:
        return db.drop_unrated((now or time.time()) - capture.fade_days * DAY)
