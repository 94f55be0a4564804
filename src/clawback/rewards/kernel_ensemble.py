"""An ensemble of Gaussian processes on several views of an answer, each weighted by how well it explains this person's ratings.

A view is a kernel: how alike two answers are in style, in their statistics, in the words they use, in a model's hidden states, in how they stand to
their question. Which of them a taste is about is not known beforehand. So every view alone, every two together and all of them are models of
the ratings, Gaussian processes with ``y ~ N(μ, s (K + λ I))``, and each counts by its marginal likelihood (Bayesian model
averaging: Hoeting et al. 1999; kernels: Rasmussen & Williams 2006, ch. 2 and 5). With centred ratings ``y [n]`` and ``C K C = U diag(e) Uᵀ``:

    scale      ŝ = (1/n) Σ (uᵢᵀy)² / (eᵢ + λ)                             maximum likelihood, so no unit of K has to be known
    evidence   −(n−1)/2 · log(ŝ λ) − ½ Σ log((eᵢ + λ)/λ)                   less that of K = 0: the Bayes factor against noise alone
    mean       k(x)ᵀ α + ȳ,   α = U (e + λ)⁻¹ Uᵀ y

One eigendecomposition per model serves every λ and every permutation of the ratings.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

RIDGE = 1.0
"""λ: noise beside a kernel whose mean diagonal is 1. """
RIDGES = np.array([0.25, 1.0, 4.0])
"""λ of the models, in units of the one that is given."""
PAIRS_UP_TO = 160
"""Ratings up to which every two views together are models: they go as the third power of the ratings, and are needed least where there are many."""
_KEPT = 1e-3


@dataclass(frozen=True, slots=True)
class Kernel:
    """How alike answers are: ``linear`` or ``rbf`` on one view, or the ``product`` of the linear kernels of two.

    ``scale``: mean squared length of a view (linear), median squared distance (rbf), over answers of the base.
    """

    kind: str
    views: tuple[str, ...]
    scale: float = 1.0

    def __call__(self, a: Mapping[str, Floats], b: Mapping[str, Floats]) -> Floats:
        """``[n, m]`` between answers seen as ``a`` (view → ``[n, d]``) and as ``b`` (``[m, d]``)."""
        x, y = a[self.views[0]], b[self.views[0]]
        if self.kind == "rbf":
            apart = np.sum(x * x, 1)[:, None] + np.sum(y * y, 1) - 2 * x @ y.T
            return np.asarray(np.exp(-np.maximum(apart, 0.0) / (2 * self.scale)))
        made = x @ y.T
        for view in self.views[1:]:
            made = made * (a[view] @ b[view].T)
        return np.asarray(made / self.scale)


@dataclass(frozen=True, slots=True)
class KernelEnsemble:
    """Models by weight, and the answers that they were fitted on. ``log_bayes``: against noise alone."""

    kernels: tuple[Kernel, ...]
    mixes: Floats  # [models, kernels] share of each kernel in each model
    weights: Floats  # [models, λ] posterior of each, sum 1
    alphas: Floats  # [models, λ, n]
    inverses: Floats  # [models, λ, n, n] U diag(1 / (e + λ)) Uᵀ of those that count, else 0
    scales: Floats  # [models, λ] ŝ
    rated: Mapping[str, Floats]
    ratings: Floats  # [n]
    log_bayes: float

    @property
    def mean(self) -> float:
        """Of the ratings."""
        return float(self.ratings.mean())

    def predict(self, views: Mapping[str, Floats]) -> tuple[Floats, Floats]:
        """Mean ``[m]`` and standard deviation ``[m]`` of the expected rating of answers given as ``views``."""
        between = np.array([k(views, self.rated) for k in self.kernels])  # [kernels, m, n]
        among = np.array([k(self.rated, self.rated) for k in self.kernels])
        own = np.array([_diagonal(k, views) for k in self.kernels])  # [kernels, m]
        count = between.shape[1]
        first, second = np.zeros(count), np.zeros(count)
        for model, mix in enumerate(self.mixes):
            if self.weights[model].max() <= _KEPT:
                continue
            k, g, diagonal = np.tensordot(mix, between, 1), np.tensordot(mix, among, 1), mix @ own
            centred = (
                k - k.mean(1, keepdims=True) - g.mean(0) + g.mean()
            )  # [m, n] as the ratings were centred
            prior = diagonal - 2 * k.mean(1) + g.mean()
            for i, weight in enumerate(self.weights[model]):
                if weight <= _KEPT:
                    continue
                mean = centred @ self.alphas[model, i] + self.mean
                left = prior - np.einsum("mn,nk,mk->m", centred, self.inverses[model, i], centred)
                first += weight * mean
                second += weight * (mean**2 + self.scales[model, i] * np.maximum(left, 0.0))
        total = float(self.weights[self.weights > _KEPT].sum())
        first, second = first / total, second / total
        return first, np.sqrt(np.maximum(second - first**2, 0.0))

    def left_out(self, ratings: ArrayLike) -> Floats:
        """``[n]`` what would be expected of each rated answer, had its own rating not been known. ``ratings``: those that it was fitted on.

        Exact, without fitting n times (Sundararajan & Keerthi 2001): with P the precision of the ratings once their mean is taken out, the error of model
        m at i is (P y)ᵢ / Pᵢᵢ. Its weight is that of its evidence without rating i, which takes −½ log Pᵢᵢ and (P y)ᵢ² / Pᵢᵢ from the sum of squares.
        """
        y = np.asarray(ratings, dtype=np.float64)
        n, means, logs = len(y), [], []
        for model, i in np.argwhere(self.weights > _KEPT):
            own = self.inverses[model, i].diagonal()
            # The constant is an eigenvector of the centred kernel (value 0), and 1ᵀ P 1 = 0: λ⁻¹ / n is taken off the diagonal.
            ridge = 1.0 / self.inverses[model, i].sum(1).mean()
            precision = np.maximum(own - 1.0 / (ridge * n), 1e-12)
            error = self.alphas[model, i] / precision
            squares = n * self.scales[model, i]
            left = np.maximum(squares - error**2 * precision, 1e-12)
            means.append(y - error)
            logs.append(
                np.log(self.weights[model, i]) + 0.5 * ((n - 1) * np.log(max(squares, 1e-12)) - (n - 2) * np.log(left) - np.log(precision))
            )  # fmt: skip
        weights = np.exp(np.array(logs) - np.max(logs, 0))  # [models, n]
        return np.asarray((weights * means).sum(0) / weights.sum(0))

    def contrast(
        self, answers: Mapping[str, Floats], reference: Mapping[str, Floats], *, paired: bool = False
    ) -> tuple[Floats, Floats, Floats]:
        """By how much the mean of what is expected of ``answers`` exceeds that of ``reference``, model by model: weights (sum 1), means, variances.

        A variance is that of the function along the difference of both means, plus that of having drawn so many answers; ``paired``: they answer the
        same prompts in the same order, and what a prompt does to both answers to it is no noise.
        """
        sides = [
            np.array([k(side, self.rated) for k in self.kernels]) for side in (answers, reference)
        ]  # [kernels, m, n]
        apart = sides[0].mean(1) - sides[1].mean(1)  # [kernels, n]
        own = np.array(
            [
                k(answers, answers).mean() - 2 * k(answers, reference).mean() + k(reference, reference).mean()
                for k in self.kernels
            ]
        )
        rows = []
        for model, i in np.argwhere(self.weights > _KEPT):
            mix, alpha = self.mixes[model], self.alphas[model, i]
            cross = mix @ apart
            cross = cross - cross.mean()
            left = max(float(mix @ own - cross @ self.inverses[model, i] @ cross), 0.0)
            made = [np.tensordot(mix, side, 1) @ alpha for side in sides]
            drawn = sum(
                float(np.var(x, ddof=1)) / len(x)
                for x in ([made[0] - made[1]] if paired else made)
                if len(x) > 1
            )
            rows.append((self.weights[model, i], cross @ alpha, self.scales[model, i] * left + drawn))
        weights, means, variances = np.array(rows, dtype=np.float64).T
        return weights / weights.sum(), means, variances

    def shares(self) -> dict[str, float]:
        """The weight of each kernel, largest first: what this person's ratings seem to depend on."""
        shares = self.weights.sum(1) @ self.mixes
        named = {" × ".join(k.views) + (" (rbf)" if k.kind == "rbf" else ""): float(s) for k, s in zip(self.kernels, shares, strict=True)}  # fmt: skip
        return dict(sorted(named.items(), key=lambda one: -one[1]))


@dataclass(frozen=True, slots=True)
class Spectra:
    """The models' eigendecompositions on some rated answers, independent of the ratings."""

    kernels: tuple[Kernel, ...]
    mixes: Floats
    ridges: Floats  # [λ]
    prior: Floats  # [models] log-odds of each against the others
    values: Floats  # [models, n] eigenvalues of the centred kernels
    vectors: Floats  # [models, n, n]
    rated: Mapping[str, Floats]

    @classmethod
    def of(
        cls,
        kernels: Sequence[Kernel],
        rated: Mapping[str, Floats],
        ridge: float = RIDGE,
        likelier: Mapping[str, float] = MappingProxyType({}),
    ) -> Spectra:
        """``likelier``: view → log-odds by which models that look at it are likelier beforehand. Raises ``ValueError`` without kernels."""
        if not kernels:
            raise ValueError("answers have to be seen somehow")
        count = len(next(iter(rated.values())))
        mixes = _mixes(len(kernels), pairs=count <= PAIRS_UP_TO)
        grams = np.array([k(rated, rated) for k in kernels])
        centre = np.eye(count) - 1.0 / count
        values, vectors = np.linalg.eigh([centre @ np.tensordot(mix, grams, 1) @ centre for mix in mixes])
        prior = _prior(kernels, mixes, likelier)
        return cls(
            tuple(kernels), mixes, ridge * RIDGES, prior, np.maximum(values, 0.0), vectors, rated
        )  # fmt: skip

    def evidence(self, ratings: ArrayLike) -> Floats:
        """``[models, λ, b]`` log Bayes factors against noise alone of ``ratings [n, b]``, each column a rating of all answers."""
        y = np.asarray(ratings, dtype=np.float64)
        y = y - y.mean(0)
        n = len(y)
        along = np.square(np.swapaxes(self.vectors, 1, 2) @ y)  # [models, n, b]
        null = -0.5 * (n - 1) * np.log(np.maximum((y * y).sum(0), 1e-12) / n)
        parts = []
        for ridge in self.ridges:
            d = self.values + ridge  # [models, n]
            size = np.maximum(np.einsum("knb,kn->kb", along, ridge / d), 1e-12) / n
            occam = 0.5 * np.log(d / ridge).sum(1)[:, None]
            parts.append(-0.5 * (n - 1) * np.log(size) - occam - null + self.prior[:, None])
        return np.stack(parts, 1)

    def left_out(self, ratings: ArrayLike) -> Floats:
        """``[n, b]`` what is expected of each answer from the other ones' ``ratings [n, b]``: ``KernelEnsemble.left_out`` of many ratings at once."""
        y = np.asarray(ratings, dtype=np.float64)
        n, evidence = len(y), self.evidence(y).astype(np.float32)
        centred = (y - y.mean(0)).astype(np.float32)
        total, errors = np.zeros_like(centred), np.zeros_like(centred)
        most = np.full_like(centred, -np.inf)
        for model, i in np.ndindex(*evidence.shape[:2]):
            u, d = self.vectors[model], self.values[model] + self.ridges[i]
            alpha = ((u / d) @ u.T).astype(np.float32) @ centred
            precision = np.maximum(np.square(u) @ (1 / d) - 1.0 / (self.ridges[i] * n), 1e-12)[:, None]
            error = alpha / precision.astype(np.float32)
            # Share of the sum of squares that rating i alone takes away.
            squares = np.maximum((alpha * centred).sum(0), 1e-9)
            less = np.clip(error * alpha / squares, 0.0, 1 - 1e-6)
            log = evidence[model, i] + 0.5 * (np.log(squares) - (n - 2) * np.log1p(-less) - np.log(precision))
            log = log.astype(np.float32)
            larger = np.maximum(most, log)
            shrink, weight = np.exp(most - larger), np.exp(log - larger)
            total, errors = total * shrink + weight, errors * shrink + weight * error
            most = larger
        return np.asarray(y - errors / total, dtype=np.float64)

    def fit(self, ratings: ArrayLike) -> KernelEnsemble:
        """Fit the ensemble to ``ratings [n]`` in [-1, 1]."""
        y = np.asarray(ratings, dtype=np.float64)
        log = self.evidence(y[:, None])[..., 0]  # [models, λ]
        weights = np.exp(log - log.max())
        log_bayes = float(log.max() + np.log(weights.mean()))
        weights /= weights.sum()
        n, centred = len(y), y - y.mean()
        inverses = np.zeros((*log.shape, n, n))
        for model, i in np.argwhere(weights > _KEPT):
            u, d = self.vectors[model], self.values[model] + self.ridges[i]
            inverses[model, i] = (u / d) @ u.T
        alphas = inverses @ centred
        scales = np.einsum("kln,n->kl", alphas, centred) / n
        return KernelEnsemble(
            self.kernels, self.mixes, weights, alphas, inverses, scales, self.rated, y, log_bayes
        )  # fmt: skip


class KernelEvidenceOverTime:
    """Log Bayes factors against noise of parts of ratings that are in the order in which they were given; by each kernel alone and all together.

    Those of ``Spectra.evidence``, by one Cholesky factor for each λ in place of eigenvectors: with ``A = C K C + λ I``, the factor of ``[[A, y], [yᵀ, c]]``
    ends on ``√(c − yᵀ A⁻¹ y)``.
    """

    def __init__(
        self,
        kernels: Sequence[Kernel],
        rated: Mapping[str, Floats],
        ratings: Floats,
        ridge: float = RIDGE,
        likelier: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        every = np.array([k(rated, rated) for k in kernels])
        mixes = _mixes(len(kernels), pairs=False)
        self.grams = np.array([np.tensordot(mix, every, 1) for mix in mixes])
        self.prior, self.ridges, self.ratings = _prior(kernels, mixes, likelier), ridge * RIDGES, ratings

    def of_part(self, start: int, end: int) -> float:
        """Of the ratings ``start`` to ``end - 1``."""
        return self._of(_centred(self.ratings[start:end]), start)

    def turned(self, start: int, change: int, end: int) -> float:
        """Of the same, where from ``change`` on the opposite is wanted; each side about its own mean."""
        first, second = _centred(self.ratings[start:change]), _centred(self.ratings[change:end])
        return self._of(np.concatenate([first, -second]), start)

    def _of(self, y: Floats, start: int) -> float:
        n, squares = len(y), float(y @ y)
        some = self.grams[:, start : start + n, start : start + n]
        some = some - some.mean(1, keepdims=True)
        some = some - some.mean(2, keepdims=True)
        logs = []
        for each in self.ridges:
            bordered = np.empty((len(some), n + 1, n + 1))
            bordered[:, :n, :n] = some + each * np.eye(n)
            bordered[:, n, :n] = bordered[:, :n, n] = y
            bordered[:, n, n] = corner = squares / each + 1.0  # A ≥ λ I, so that this is more than yᵀ A⁻¹ y
            diagonal = np.linalg.cholesky(bordered)[:, np.arange(n + 1), np.arange(n + 1)]
            explained = np.maximum(each * (corner - diagonal[:, n] ** 2), 1e-12)
            occam = np.log(diagonal[:, :n]).sum(1) - 0.5 * n * np.log(each)
            logs.append(-0.5 * (n - 1) * np.log(explained / max(squares, 1e-12)) - occam + self.prior)
        return float(np.logaddexp.reduce(np.concatenate(logs)) - np.log(len(logs) * len(self.prior)))


def ridge(seen: Floats, ratings: Floats) -> tuple[Floats, Floats]:
    """Ridge regression of ``ratings [n]`` on what is ``seen [n, d]``, with the noise as large as an answer's mean squared length: weights of the
    answers ``[n]`` (those of the dimensions are ``seenᵀ`` times these), and what each rating is expected to be from the others ``[n]``."""
    centred, values = seen - seen.mean(0), _centred(ratings)
    gram = centred @ centred.T
    precision = np.linalg.inv(gram + max(float(np.trace(gram)) / len(gram), 1e-12) * np.eye(len(gram)))
    weights = precision @ values
    return weights, values - weights / np.diag(precision)


def _centred(values: Floats) -> Floats:
    return np.asarray(values - values.mean())


def _prior(kernels: Sequence[Kernel], mixes: Floats, likelier: Mapping[str, float]) -> Floats:
    """``[models]`` log-odds of each against the others, of mean 1."""
    odds = np.array([max(likelier.get(view, 0.0) for view in k.views) for k in kernels])
    prior = np.where(mixes > 0, odds, 0.0).max(1)
    return np.asarray(prior - (np.logaddexp.reduce(prior) - np.log(len(prior))))


def _mixes(count: int, pairs: bool) -> Floats:
    """``[models, count]``: each alone, every two, all."""
    rows = [np.eye(count)]
    if pairs and count > 2:
        rows.append(np.array([np.eye(count)[[a, b]].mean(0) for a, b in itertools.combinations(range(count), 2)]))  # fmt: skip
    if count > 1:
        rows.append(np.full((1, count), 1.0 / count))
    return np.vstack(rows)


def _diagonal(kernel: Kernel, views: Mapping[str, Floats]) -> Floats:
    squared = [np.sum(views[view] ** 2, 1) for view in kernel.views]
    if kernel.kind == "rbf":
        return np.ones(len(squared[0]))
    return np.asarray(np.prod(squared, axis=0) / kernel.scale)
