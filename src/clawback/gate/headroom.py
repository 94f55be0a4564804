"""What there is to gain for a run, before it starts: how much of what the owner likes the live version's answers have already.

Looked at are the newest rated answers of the live version. Many of them were chosen by the inbox, which asks about the doubtful ones, so their
share of good ones is not that of all answers. So the reader grades all recent answers, rated or not, and splits them at the quartiles; the
share of good ratings in each quarter counts by the answers in it (post-stratification; Holt and Smith 1979).

What could be gained is how much better the reader expects the best quarter to be rated than all of them: about what a run makes the usual
answer. Of an owner who is content with most answers, a run starts only if the reader is sure of a gain that is worth it. What is
rated bad now and then without a pattern is no reason for a run: the next version would be no better at it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback import feedback
from clawback.gate import guards
from clawback.gate.rule import SURE, WORTH_ASKING
from clawback.records import GATE, Sample

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.store import Store

LEAST_RATED = 16
"""Rated answers of the live version under which nothing is known."""
RECENT, LOOKED_AT = 64, 256
"""Newest ratings of the live version's answers, and newest turns, that are looked at."""
QUARTERS = 4
PRIOR = 2.0
"""Ratings that a quarter's share is drawn towards the mean by: some quarters have hardly any."""
CONTENT = 0.7
"""Share of good ratings under which nobody is taken to be content: with two taps in ten wrong, answers of which nine in ten are liked have 0.74."""
KEPT = 0.9
"""Share of answers that keep a rule of the owner, under which there is something to gain."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """What the live version's answers have, and could have."""

    rated: int
    liked: float
    """Estimated share of all its recent answers that would be rated good,"""
    error: float
    """and the standard error of that."""
    gain: float
    """How much higher the reader expects the best quarter to be rated than all, from -1 to 1,"""
    gain_sd: float
    broken: tuple[str, ...] = ()
    """Rules of the owner that its answers keep too seldom."""

    @property
    def nothing_to_gain(self) -> bool:
        sure = self.gain - SURE * self.gain_sd
        return self.liked >= CONTENT and sure < WORTH_ASKING and not self.broken

    def sentence(self) -> str:
        low, high = max(self.liked - 1.96 * self.error, 0.0), min(self.liked + 1.96 * self.error, 1.0)
        return (
            f"There is little to gain: by {self.rated} ratings of the live version about {self.liked:.0%} of its answers are liked "
            f"({low:.0%} to {high:.0%}), and what was rated bad has too little in common ({self.gain:+.2f} ± {self.gain_sd:.2f} to gain)"
        )


def estimate(store: Store, settings: Config) -> Headroom | None:
    """None where too few answers of the live version were rated, or of one sign, or numpy is not installed."""
    live = store.live()
    query = feedback.SampleQuery(newest=2 * LOOKED_AT)
    samples = feedback.evidence(feedback.samples(store, query=query, raters=settings.training.raters))
    authors = store.authors(s.turn_id for s in samples)
    edits = {s.turn_id for s in samples for part in s.parts if part.kind == "edit"}
    own = [s for s in samples if authors.get(s.turn_id) and authors[s.turn_id][1] == live.number and s.reward]
    own = sorted((s for s in own if authors[s.turn_id][0] != GATE), key=lambda s: s.newest)[-RECENT:]
    own = [
        s for s in own if s.turn_id not in edits or s.reward < 0
    ]  # what stands in its place is no answer of any version
    if len(own) < LEAST_RATED:
        return None
    turns = [
        t for t in store.turns(limit=LOOKED_AT, kind="main") if t.version == live.number and t.agent != GATE
    ]
    answered = {t.id: (t.prompt, t.response) for t in turns if t.response.strip()}
    return of(samples, own, answered, _broken(store, list(answered.values())))


def of(
    samples: Sequence[Sample],
    live_samples: Sequence[Sample],
    answered: dict[int, tuple[str, str]],
    broken: tuple[str, ...] = (),
) -> Headroom | None:
    """From all rated ``samples``, the live version's among them, and all its recent answers: turn → (question, answer)."""
    try:
        from clawback.release import text_reading
        from clawback.rewards.reward_ensemble import RULES
    except ImportError:
        return None
    import numpy as np

    rated = {s.turn_id: (text_reading.question(s), s.response) for s in live_samples}
    pairs = list((rated | answered).items())
    reader = text_reading.learn(samples[-LOOKED_AT:], [pair for _, pair in pairs])
    seen = reader.ensemble.views.view(text_reading.answers(reader.vocabulary, [pair for _, pair in pairs]))
    order = np.argsort(reader.ensemble.score(seen, RULES, 0.0), kind="stable")
    best = reader.ensemble.contrast(seen[order[-len(pairs) // QUARTERS :]], seen[order], RULES)
    quarter = {pairs[place][0]: rank * QUARTERS // len(pairs) for rank, place in enumerate(order)}
    good = {s.turn_id: s.reward > 0 for s in live_samples}
    mean = sum(good.values()) / len(good)
    shares, errors = [], []
    for number in range(QUARTERS):
        told = [good[turn] for turn in good if quarter[turn] == number]
        share = (sum(told) + PRIOR * mean) / (len(told) + PRIOR)
        shares.append(share)
        errors.append(share * (1 - share) / (len(told) + PRIOR))
    liked, error = sum(shares) / QUARTERS, math.sqrt(sum(errors)) / QUARTERS
    return Headroom(len(good), liked, error, best.gain, best.sd, broken)


def _broken(store: Store, answers: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    found = []
    for rule, check in guards.checked(store):
        kept, told = guards.obedience(check, answers)
        if told and kept / told < KEPT:
            found.append(rule.text)
    return tuple(found)
