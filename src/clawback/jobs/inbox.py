"""Which turns are worth a rating, and what becomes of those that nobody rates."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import config, feedback, release, store
from clawback.errors import ModelError
from clawback.feedback.ask import LOOKED_AT, Belief
from clawback.paths import Home
from clawback.records import Turn

if TYPE_CHECKING:
    from clawback.store import Store

DAY = 86_400.0
FEWEST = 8
"""Ratings, of both signs, under which nothing is known that could tell turns apart."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A turn that is worth a rating. ``gain``: variance of all expected ratings that it would take away; 0: nobody looked."""

    turn: Turn
    gain: float
    why: str


def waiting(home: Home, limit: int, *, deep: bool | None = None, now: float | None = None) -> list[Waiting]:
    """Unrated turns that have not faded, most informative first.

    ``deep`` asks the model what it could learn from each, for which it is loaded; None: where that takes a second or two (the embedded
    model). Where too little is rated to say, the newest come first, spread over conversations.
    """
    settings = config.load(home.config)
    deep = settings.model.base == config.EMBEDDED if deep is None else deep
    since = (now or time.time()) - settings.capture.fade_days * DAY
    with store.connect(home.database) as db:
        found = _belief(home, db, settings) if deep else None
        belief, places = found or (None, None)
        questions = feedback.most_informative(db, LOOKED_AT, belief=belief, places=places)
        turns = [(db.turn(q.turn_id), q) for q in questions]
    fresh = [Waiting(turn, q.gain, q.why) for turn, q in turns if turn.created_at >= since]
    return fresh[:limit]


def _belief(home: Home, db: Store, settings: config.Config) -> tuple[Belief, Mapping[int, int]] | None:
    """What the ratings there are let one expect of each unrated turn (``rewards.conjunctions``). None: too few, or no engine here."""
    import importlib.util

    rated = [s for s in feedback.evidence(feedback.samples(db, raters=settings.training.raters)) if s.reward]
    kinds = {s.reward > 0 for s in rated}
    turns = db.turns(limit=LOOKED_AT, rated=False, kind="main")
    if len(rated) < FEWEST or len(kinds) < 2 or not turns or importlib.util.find_spec("torch") is None:
        return None
    try:
        policy = release.load(home, db.version(0), settings)
    except ModelError:
        return None
    import numpy as np

    from clawback.engine.torch.features import Lens
    from clawback.rewards import conjunctions

    texts = [s.response for s in rated] + [t.response for t in turns]
    ids = [policy.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    # What the turns themselves are like shows how answers vary; hidden states have no part in it.
    lens = Lens.ground(ids, np.zeros((len(ids), 1)), texts)
    signs, count = lens.signs(ids, texts), len(rated)
    taste = conjunctions.fit(
        conjunctions.Space.of(signs, lens.manners), signs[:count], [s.reward for s in rated]
    )
    mean, covariance = taste.joint(signs[count:])
    return Belief(mean, covariance, conjunctions.NOISE), {turn.id: row for row, turn in enumerate(turns)}


def fade(home: Home, now: float | None = None) -> int:
    """Let go of what nobody rated, where the settings say so; how many turns. Never counts as a rating."""
    capture = config.load(home.config).capture
    if capture.unrated == "keep":
        return 0
    with store.connect(home.database) as db:
        return db.drop_unrated((now or time.time()) - capture.fade_days * DAY)
