"""Statistics of the raters, persons and judges: how much they rate, how consistently, and how far they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.feedback import calibrate
from clawback.feedback.calibrate import PRIOR_WEIGHT, agreed, centred, kappa_with, ratings, sign
from clawback.feedback.turn_reward import judges, reward
from clawback.records import Feedback

if TYPE_CHECKING:
    from clawback.store import Store

NEWEST = 2000
"""Ratings of a rater that are looked at: drift and contradictions compare each with each."""


@dataclass(frozen=True, slots=True)
class Rater:
    """One person who rates, wherever they do so, or one judge. ``source``: who it is (``owner``, ``rater:anna``, ``judge:MODEL``).

    ``kappa``: linear-weighted, of its likes and dislikes with every other rater's on the turns in common; None where there
    are none. ``outliers``: turns more than 2σ from what the others said. ``drift``: ``tau`` and ``p`` of ``calibrate.drift``.
    ``contradictions``: (liked, disliked) turns that say nearly the same. ``weight``: what a judge has earned, or how far a person
    agrees with other people: see calibrate.py.
    """

    source: str
    judge: bool
    count: int
    good: float
    kappa: float | None
    common: int
    outliers: tuple[int, ...]
    drift: calibrate.Drift
    contradictions: tuple[tuple[int, int], ...]
    weight: float


@dataclass(frozen=True, slots=True)
class Raters:
    """All of them, and Krippendorff's α (interval) of the persons among them."""

    raters: tuple[Rater, ...]
    alpha: float | None


def raters(store: Store) -> Raters:
    """Everyone who has rated, persons first, then by how much they said."""
    said: dict[tuple[bool, str], dict[int, Feedback]] = {}
    everything = centred(store.feedback())
    for given in [*ratings(everything, {}), *(f for f in everything if f.kind == "judge")]:
        said.setdefault((given.kind == "judge", given.author), {})[given.turn_id] = given
    values = {who: {t: f.value for t, f in turns.items()} for who, turns in said.items()}
    weights = {source: trusted.weight for source, trusted in judges(store).items()} | agreed(store.feedback())
    made = [_rater(store, who, list(said[who].values()), values, weights) for who in said]
    turns = sorted({t for (judge, _), of in values.items() if not judge for t in of})
    table = [[of.get(t) for t in turns] for (judge, _), of in values.items() if not judge]
    alpha = calibrate.krippendorff_alpha(table, "interval") if len(table) > 1 else None
    return Raters(tuple(sorted(made, key=lambda r: (r.judge, -r.count, r.source))), alpha)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A turn on which people disagree. ``ratings``: (person, value, weight). ``reward``: its reward in training."""

    turn_id: int
    prompt: str
    ratings: tuple[tuple[str, float, float], ...]
    apart: float
    reward: float


def disagreements(store: Store, weights: Mapping[str, float], most: int = 50) -> list[Disagreement]:
    """Turns that some like and others do not, largest differences first."""
    by_turn: dict[int, list[Feedback]] = {}
    usual = store.middles()
    for given in store.feedback():
        by_turn.setdefault(given.turn_id, []).append(given)
    found = []
    for turn, said in by_turn.items():
        newest = {f.author: f.value for f in ratings(said, usual) if f.turn_id == turn}
        signs = {sign(value) for value in newest.values()}
        if {1, -1} <= signs:
            marks = tuple((who, value, weights.get(who, 1.0)) for who, value in sorted(newest.items()))
            apart = max(newest.values()) - min(newest.values())
            found.append((apart, turn, marks, reward(turn, said, None, weights, usual)[0]))
    found.sort(key=lambda one: (-one[0], -one[1]))
    return [
        Disagreement(turn, store.turn(turn).prompt, marks, apart, value)
        for apart, turn, marks, value in found[:most]
    ]


def _rater(
    store: Store,
    who: tuple[bool, str],
    opinions: list[Feedback],
    values: dict[tuple[bool, str], dict[int, float]],
    weights: dict[str, float],
) -> Rater:
    judge, source = who
    newest = sorted(opinions, key=lambda f: (f.created_at, f.id))[-NEWEST:]
    # Judges are compared with people; people with each other, judges aside.
    others = [of for other, of in values.items() if other != who and not other[0]]
    shared = [f for f in opinions if any(f.turn_id in of for of in others)]
    expected = [_mean([of[f.turn_id] for of in others if f.turn_id in of]) for f in shared]
    kappa, common = kappa_with(values[who], others)
    odd = calibrate.outliers([f.value for f in shared], expected)
    turns = [store.turn(f.turn_id) for f in newest]
    rated = [
        calibrate.AttributedRating(t.id, t.prompt, t.response, f.value)
        for t, f in zip(turns, newest, strict=True)
    ]
    return Rater(
        source=source,
        judge=judge,
        count=len(opinions),
        good=sum(f.value > 0 for f in opinions) / len(opinions),
        kappa=kappa,
        common=common,
        outliers=tuple(shared[i].turn_id for i in odd),
        drift=calibrate.drift([f.value for f in newest]),
        contradictions=tuple(calibrate.contradictions(rated)),
        weight=weights.get(source, PRIOR_WEIGHT if judge else 1.0),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
