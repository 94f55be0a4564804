"""Combines many clients' updates into one, by pure functions on arrays.

An ``Update`` is, for each adapted layer, B [out, rank] and A [rank, in] with the scale s: ΔW = s·B·A.

    mean      Σ pᵢ Bᵢ                                      exact where all A are the same; of Aᵢ, where all B are
    median    coordinate-wise (Yin et al. 2018)            up to half of the clients may lie; weights are not looked at
    trimmed   coordinate-wise, a number cut off at each end (same paper)
    krum      the update nearest to its n − f − 2 nearest  (Blanchard et al. 2017); f < (n − 2) / 2
    stack     A = [A₁; …; A_k], B = [p₁s₁B₁, …, p_k s_k B_k]     exact for any A and any ranks (FLoRA; Wang et al. 2024), at rank Σ rᵢ
    apart     Σ pᵢ Aᵢ and Σ pᵢ Bᵢ                          what FedAvg on adapters does; inexact, for comparison alone
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clawback.errors import UsageError

Array = NDArray[np.float64]
Arrays = Mapping[str, Array]
Rule = Literal["mean", "median", "trimmed", "krum", "stack", "apart"]
RULES: tuple[Rule, ...] = ("mean", "median", "trimmed", "krum", "stack", "apart")
TRIMMED = 0.2
LONGEST = 1.0
"""Of a round, in norms of one person's update. Chosen on seeds 0 and 10 to 12 of ``benchmarks federated``."""


@dataclass(frozen=True, slots=True)
class Update:
    """``a`` and ``b`` have the same names. Every update of a round has the same layers."""

    a: Arrays
    b: Arrays
    scale: float = 1.0

    def product(self, name: str) -> Array:
        """ΔW of a layer, [out, in]."""
        made: Array = self.scale * self.b[name] @ self.a[name]
        return made


def aggregate(
    updates: Sequence[Update], weights: Sequence[float], rule: Rule = "mean", *, trimmed: float = TRIMMED, liars: int | None = None
) -> Update:  # fmt: skip
    """One update of many. ``weights``: shares, of any sum. ``liars``: how many malicious updates ``krum`` reckons with (by default as many as
    it bears), and how many ``trimmed`` cuts off at each end (by default the share ``trimmed``).

    Raises ``UsageError`` for updates that do not fit each other, are not finite, or are too few for the rule.
    """
    shares = _checked(updates, weights)
    if rule == "stack":
        return _stacked(updates, shares)
    if rule == "apart":
        return Update(
            _mean([u.a for u in updates], shares), _mean([u.b for u in updates], shares), updates[0].scale
        )
    _same_a(updates)
    if rule == "mean":
        b = _mean([u.b for u in updates], shares)
    elif rule == "median":
        b = {name: np.median([u.b[name] for u in updates], axis=0) for name in updates[0].b}
    elif rule == "trimmed":
        cut = int(trimmed * len(updates)) if liars is None else liars
        b = {name: _trimmed(np.stack([u.b[name] for u in updates]), cut) for name in updates[0].b}
    elif rule == "krum":
        b = dict(updates[krum([vector(u.b) for u in updates], liars)].b)
    else:
        raise UsageError(f"There is no rule {rule!r}. Choose one of: {', '.join(RULES)}.")
    return Update(updates[0].a, b, updates[0].scale)


def step_for(people: int, rule: str) -> float:
    """The default step size of a round: updates that have little in common have a mean that is shorter by the
    root of their number. Krum's result is one person's change, which no averaging has shortened.
    """
    return 1.0 if rule == "krum" else math.sqrt(people)


def followed(change: Arrays, step: float, usual: float) -> dict[str, Array]:
    """``step`` times the combined update, but no longer than ``LONGEST`` times the ``usual`` norm of one
    person's update (their median; the clip where norms are private): the rules' results differ in length, and
    neither a rule nor a malicious client may make a round overshoot.
    """
    norm = float(np.linalg.norm(vector(change)))
    factor = min(step, LONGEST * usual / norm) if norm else step
    return {name: factor * value for name, value in change.items()}


def vector(arrays: Arrays) -> Array:
    """All of an update as one vector, names in order."""
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


def krum(vectors: Sequence[Array], liars: int | None = None) -> int:
    """Index of the vector whose n − f − 2 nearest others are nearest. Raises ``UsageError`` where f is too large for so few."""
    count = len(vectors)
    most = max(0, (count - 3) // 2)
    reckoned = most if liars is None else liars
    if count < 3 or reckoned > most:
        raise UsageError(
            f"Krum with {reckoned} liars needs at least {2 * reckoned + 3} updates; there are {count}."
        )
    distances = np.array([[float(np.square(one - other).sum()) for other in vectors] for one in vectors])
    nearest = np.sort(distances + np.diag([np.inf] * count), axis=1)[:, : count - reckoned - 2]
    return int(nearest.sum(axis=1).argmin())


def _checked(updates: Sequence[Update], weights: Sequence[float]) -> Array:
    if not updates or len(updates) != len(weights):
        raise UsageError(
            f"There are {len(updates)} updates and {len(weights)} weights: as many of each are needed, and one at least."
        )
    shares = np.array(weights, dtype=np.float64)
    if not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise UsageError("Weights are numbers of at least 0, and not all of them 0.")
    for number, update in enumerate(updates):
        if set(update.a) != set(update.b) or set(update.b) != set(updates[0].b):
            raise UsageError(
                f"Update {number} has other layers than the first: all clients need the same base and targets."
            )
        for name in update.b:
            a, b, first = update.a[name], update.b[name], updates[0]
            if b.ndim != 2 or a.ndim != 2 or a.shape[0] != b.shape[1]:
                raise UsageError(
                    f"Update {number}: A and B of {name} do not fit each other ({a.shape}, {b.shape})."
                )
            if (b.shape[0], a.shape[1]) != (first.b[name].shape[0], first.a[name].shape[1]):
                raise UsageError(f"Update {number}: {name} is of another shape than the first client's.")
            if not (np.isfinite(a).all() and np.isfinite(b).all()):
                raise UsageError(f"Update {number}: {name} holds numbers that are not finite.")
    shares /= shares.sum()
    return shares


def _same_a(updates: Sequence[Update]) -> None:
    first = updates[0]
    for number, update in enumerate(updates[1:], 1):
        same = update.scale == first.scale and all(
            update.a[name].shape == first.a[name].shape and np.array_equal(update.a[name], first.a[name])
            for name in first.a
        )
        if not same:
            raise UsageError(
                f"Update {number} has another A, rank or scale than the first: this rule is for a shared, frozen A. `stack` takes any."
            )


def _mean(many: Sequence[Arrays], shares: Array) -> dict[str, Array]:
    shapes = {name: {arrays[name].shape for arrays in many} for name in many[0]}
    if odd := next((name for name, found in shapes.items() if len(found) > 1), None):
        raise UsageError(f"{odd} has several ranks: `stack` puts such updates together.")
    return {name: sum(p * arrays[name] for p, arrays in zip(shares, many, strict=True)) for name in many[0]}


def _trimmed(values: Array, cut: int) -> Array:
    """The mean without the ``cut`` smallest and largest of each coordinate."""
    if not 0 <= cut < len(values) / 2:
        raise UsageError(f"{cut} cut off at each end leaves nothing of {len(values)} updates.")
    made: Array = np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)
    return made


def _stacked(updates: Sequence[Update], shares: Array) -> Update:
    names = updates[0].b
    a = {name: np.vstack([u.a[name] for u in updates]) for name in names}
    b = {
        name: np.hstack([p * u.scale * u.b[name] for p, u in zip(shares, updates, strict=True)])
        for name in names
    }
    return Update(a, b, 1.0)


def error(update: Update, updates: Sequence[Update], weights: Sequence[float]) -> float:
    """Relative Frobenius distance of ΔW from the weighted mean of the clients' ΔW, over all layers."""
    shares = np.array(weights, dtype=np.float64) / sum(weights)
    true = {n: sum(p * u.product(n) for p, u in zip(shares, updates, strict=True)) for n in updates[0].b}
    off = sum(float(np.square(update.product(n) - true[n]).sum()) for n in true)
    return float(np.sqrt(off / sum(float(np.square(t).sum()) for t in true.values())))


Combine = Callable[[Sequence[Update], Sequence[float]], Update]
