"""The reward ensemble, and the last change of mind in the ratings that it is fitted on.

**A change of mind.** A person may come to want something else. Older ratings then speak for a taste that is gone, and a reward model that is fitted on all of them
predicts neither. For ratings ``r₁ … rₙ`` in the order in which they were given and a place ``c``, three models are compared:

    one taste            log P(r_a … r_b)
    two tastes           log P(r_a … r_c) + log P(r_c+1 … r_b)
    a taste turned round log P(r_a … r_c, −r_c+1 … −r_b)

``log P`` is the log marginal likelihood of a reward model with its parameters integrated out, so that two tastes pay for being two (the Occam
factor; Bayesian change-point analysis: Smith 1975, Biometrika 62; Barry & Hartigan 1993, JASA 88). Who found answers too short and now finds them too long
has one taste turned round, which pays once. A change is of either kind, as likely; it is rare beforehand, and each of K
places is as likely: the logarithm of the odds ``AGAINST · K`` is subtracted from the gain.

**The ensemble** has two kinds of models: Gaussian processes on several views of an answer (``rewards.kernel_ensemble``), and a posterior over rules about its features (``rewards.rule_posterior``).
The first find additive and unnamed preferences; the second finds conjunctions, and it understands remarks. Each is weighted by how well it
explains the ratings, its Bayes factor against noise; a permutation test of the same factor decides whether anything can be
learned from them at all (research/studies/2026-11-22-reading-real-answers.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Protocol

import numpy as np

from clawback.features.style_features import SAYS, SHARES, Floats, Wish, wishes
from clawback.rewards import kernel_ensemble, rule_evidence, rule_posterior
from clawback.rewards.kernel_ensemble import KernelEnsemble, Spectra
from clawback.rewards.reward_head import TRUSTED_BELOW, Trust, combined, correlation, permutation_test
from clawback.rewards.rule_evidence import evidence, explained
from clawback.rewards.rule_posterior import WRONG_REMARK, Ints, RulePosterior, Space
from clawback.rewards.views import MEANINGS, NAMED, Answers, Judge, Viewed, Views


class LogEvidence(Protocol):
    """Log marginal likelihoods of ratings in the order in which they were given."""

    def of_part(self, start: int, end: int) -> float:
        """Of the ratings ``start`` to ``end - 1``, by one taste."""
        ...

    def turned(self, start: int, change: int, end: int) -> float:
        """Of the same, by a taste whose opposite is wanted from ``change`` on."""
        ...


AGAINST = 20.0
"""Odds against a change of mind, before any rating is looked at: of people who stay as they are, at most one in so many is misread."""
FEWEST = 16
"""Ratings that each side of a change needs: of fewer nothing can be read."""
STEP = 8
"""Distance between the newest places that are tried. It doubles wherever as many ratings came after as ``REACH``, and half of that: of an older change it matters
less where exactly it was."""
REACH = 128
"""Ratings on each side that are compared: a change shows in those next to it, and the cost goes as the third power."""


def last_change(log_evidence: LogEvidence, count: int) -> int:
    """How many of ``count`` ratings were given before the last change of mind; 0 where there was none.

    Args:
        log_evidence: of any part of the ratings, the oldest first.
    """
    tried = places(count)
    best, found = 0.0, 0
    for place in tried:
        gain = _gain(log_evidence, count, place) - math.log(AGAINST * len(tried))
        if gain > best:
            best, found = gain, place
        elif found and found - place >= FEWEST:
            break  # past the newest peak: an earlier change does not matter any more
    return found


def places(count: int) -> list[int]:
    """Where a change is looked for, the newest place first."""
    made, later = [], FEWEST
    while count - later >= FEWEST:
        made.append(count - later)
        later += STEP * (1 if later < REACH // 2 else 2 if later < REACH else 4)
    return made


def _gain(log_evidence: LogEvidence, count: int, index: int) -> float:
    """By how much a change at ``index`` explains the ratings around it better than one taste."""
    start, end = max(0, index - REACH), min(count, index + REACH)
    two = log_evidence.of_part(start, index) + log_evidence.of_part(index, end)
    turned = log_evidence.turned(start, index, end)
    most = max(two, turned)
    either = (
        most + math.log((math.exp(two - most) + math.exp(turned - most)) / 2) if most > -math.inf else most
    )
    return either - log_evidence.of_part(start, end)


__all__ = ["Answers", "Contrast", "EvidenceOverTime", "RewardEnsemble", "fit", "learn"]

NORMAL = NormalDist()

RIDGE = 0.8
"""λ of the kernels, where an average answer has features of squared length 1."""
RULES = 0.2
"""A priori share of the rules in what is expected; the rest is the kernels'. With a half, wishes that no rule names are read worse (docs/decisions/0053)."""
RESEMBLES = 1e6
"""Odds by which a literal is likelier that a remark names word for word; a remark that is half as near has the root of them."""
SAID_IN_WORDS = 20.0
"""Odds by which the rules are likelier than the kernels where remarks were understood: what has a name is what rules are about."""
ABOUT_CONTENT = 20.0
"""Odds by which kernels on what the words mean are likelier: there are many views of form, and the evidence of some dozen ratings is weak."""
LIKELIER = {NAMED: math.log(SAID_IN_WORDS), MEANINGS: math.log(ABOUT_CONTENT)}
LEAST = 0.25
"""Share in a grade that each kind keeps, however well the other explains the ratings: neither is what the person really goes by, and of such models a mean predicts better
than the likelier one alone (Yao et al. 2018, arXiv:1704.02030)."""
MOST = 512
"""Ratings that are read, the newest: the cost of the kernels goes as the third power, and what is read from some hundreds hardly changes with more."""
LEAST_CORRELATION = 0.5
"""Correlation of ratings with what is read of each from the others, from which on grades of fresh answers are relied on. On SmolLM2 and Qwen2.5-Coder-0.5B it
is 0.53 to 0.99 of tastes that are read with an AUC of 0.85 or more, and 0.49 at most of quality and of sums (docs/decisions/0052)."""
PHRASES = 16
"""Quoted texts that are looked for, those most spoken of: with the hypotheses it goes as the third power of the signs."""

Remark = tuple[Sequence[int], str, str]
"""The ids and the text of an answer, and what was said about it."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """How much higher some answers are expected to be rated than others: mean and standard deviation of
    ``gain``, and the probability ``better`` that they are rated higher at all: the members' own, by weight.
    """

    gain: float
    sd: float
    better: float


@dataclass(frozen=True, slots=True)
class RewardEnsemble:
    """Both kinds of models, and the views that they use. ``recognised_remarks``: how many remarks were understood and matter
    here; ``rules_bayes``: log Bayes factor of the rules against noise, after the remarks; ``trust``: whether
    the ratings generalise.
    """

    views: Views
    kernels: KernelEnsemble
    conjunctions: RulePosterior
    recognised_remarks: int
    rules_bayes: float
    trust: Trust
    outdated: int = 0
    """Older ratings that were left out, because the person has changed their mind since."""

    @property
    def weakness(self) -> str:
        """Why its grades of fresh answers are not relied on, in a sentence; "" where they are."""
        r = self.trust.correlation
        return (
            ""
            if r >= LEAST_CORRELATION
            else f"they are read too weakly to grade answers by (correlation {r:.2f}; at least {LEAST_CORRELATION:g})"
        )

    def reward(self, answers: Answers, share: float, pessimism: float) -> Floats:
        """``[n]`` expected reward of the answers, in units of a rating.

        Args:
            share: prior weight of the rules; the rest is the kernels'.
            pessimism: standard deviations that each subtracts from its prediction.
        """
        return self.score(self.views.view(answers), share, pessimism)

    def score(self, seen: Viewed, share: float, pessimism: float) -> Floats:
        """The same for answers whose views have been computed."""
        share = self.blend(share)
        mean, sd = self.conjunctions.predict(seen.signs)
        rules = share * (mean - pessimism * sd)
        if share == 1.0:
            return rules
        mean, sd = self.kernels.predict(seen.views)
        return np.asarray(rules + (1 - share) * (mean - pessimism * sd), dtype=np.float64)

    def contrast(self, answers: Viewed, reference: Viewed, share: float, *, paired: bool = False) -> Contrast:
        """``answers`` against ``reference``, by all members; ``paired``: row by row they answer the same prompts."""
        share = self.share(share)
        parts = []
        if share > 0.0:
            parts.append((share, self.conjunctions.contrast(answers.signs, reference.signs, paired=paired)))
        if share < 1.0:
            parts.append((1 - share, self.kernels.contrast(answers.views, reference.views, paired=paired)))
        weights = np.concatenate([part * of[0] for part, of in parts])
        means, variances = (np.concatenate([of[i] for _, of in parts]) for i in (1, 2))
        gain = float(weights @ means)
        spread = np.sqrt(np.maximum(variances, 1e-18))
        return Contrast(
            gain,
            float(np.sqrt(max(weights @ (variances + means**2) - gain**2, 0.0))),
            float(weights @ np.array([NORMAL.cdf(z) for z in means / spread])),
        )

    def blend(self, prior: float) -> float:
        """The share of the rules in a grade: their posterior weight, but that each kind keeps ``LEAST``."""
        share = self.share(prior)
        return min(max(share, LEAST), 1 - LEAST) if 0.0 < share < 1.0 else share

    def share(self, prior: float) -> float:
        """The posterior weight of the rules."""
        if not len(self.conjunctions.space.literals):
            return 0.0
        if not 0.0 < prior < 1.0:
            return prior
        odds = np.log(prior / (1 - prior)) + self.rules_bayes - self.kernels.log_bayes
        odds += np.log(SAID_IN_WORDS) if self.recognised_remarks else 0.0
        return float(1 / (1 + np.exp(-np.clip(odds, -30.0, 30.0))))


@dataclass(frozen=True, slots=True)
class Ratings:
    """``values [n]`` of rated answers.

    ``order``: ``[n]`` numbers that grow with the time of each rating; without them the last is the newest. With them, ratings from before the last change
    of mind are left out. ``kinds``: ``[n]`` of ``rating_likelihood``: each has a share of wrong ones of its own. Without them all are ratings.
    """

    values: Floats
    order: Sequence[int] = ()
    kinds: Ints | None = None


@dataclass(frozen=True, slots=True)
class ReadingSettings:
    """How ratings are read. ``trusted_below``: p-value up to which they are trusted; ``shares``: of the three kernels (``Views.ground``)."""

    ridge: float = RIDGE
    shares: tuple[float, float, float] = SHARES
    seed: int = 0
    trusted_below: float = TRUSTED_BELOW


DEFAULTS = ReadingSettings()


def learn(
    base: Answers,
    rated: Answers,
    ratings: Ratings,
    remarks: Sequence[Remark] = (),
    settings: ReadingSettings = DEFAULTS,
    judge: Judge | None = None,
) -> RewardEnsemble:
    """From answers of the base, which show how answers vary, rated ones with their ratings, and what was said in words.

    Answers are looked at with their prompts and further states where ``base`` has them; then ``rated``, and whatever is graded, must have them too.
    ``judge`` says how surely an answer keeps each of some believed or proposed rules. It is asked about every answer that is read or graded.
    """
    rewards, order = ratings.values, ratings.order
    kinds = np.zeros(len(rewards), dtype=np.int64) if ratings.kinds is None else ratings.kinds
    wished, phrases, named = _wishes(remarks)
    base = base if judge is None else base.judged(judge)
    views = Views.ground(base, phrases, settings.shares, named, judge)
    odds, near = _resembled(views, remarks)
    space = Space.of(views.signs(base), views.layout).expecting(odds)
    seen = views.view(rated)
    newest = np.argsort(order, kind="stable")[-MOST:] if len(order) else np.arange(len(rewards))[-MOST:]
    outdated = 0
    if len(order):
        recent = Ratings(rewards[newest], kinds=kinds[newest])
        in_time = EvidenceOverTime(views, space, seen[newest], recent, settings.ridge)
        outdated = last_change(in_time, len(newest))
    current = np.sort(newest[outdated:])
    said, heard = _remark_likelihood(space, views, wished)
    standing = Ratings(rewards[current], kinds=kinds[current])
    ensemble = fit(views, space, seen[current], standing, (said, heard + near), settings)
    return replace(ensemble, outdated=outdated + len(rewards) - len(newest) if outdated else 0)


def _wishes(
    remarks: Sequence[Remark],
) -> tuple[list[tuple[tuple[int, ...], str, Wish]], tuple[str, ...], list[str]]:
    """The wishes of the remarks with the answers that they are about, the phrases that they quote most, and the names that they speak of."""
    if not remarks:
        return [], (), []
    from clawback.rewards.instructions import near_to

    wished = [
        (tuple(ids), text, wish | near_to(said)) for ids, text, said in remarks for wish in wishes(said)
    ]
    quoted = Counter(name.removeprefix(SAYS) for *_, wish in wished for name in wish if name.startswith(SAYS))
    phrases = tuple(sorted(phrase for phrase, _ in quoted.most_common(PHRASES)))
    spoken = {name for *_, wish in wished for name in wish} | {
        name for *_, said in remarks for name in near_to(said)
    }
    return wished, phrases, sorted(name for name in spoken if not name.startswith(SAYS))


def fit(
    views: Views,
    space: Space,
    rated: Viewed,
    ratings: Ratings,
    remarks: tuple[Floats | None, int] = (None, 0),
    settings: ReadingSettings = DEFAULTS,
) -> RewardEnsemble:
    """The same where it is known already how answers vary. ``remarks``: log-likelihoods ``[h]`` of the rules, and how many say something."""
    said, heard = remarks
    signs, rewards, kinds = rated.signs, ratings.values, ratings.kinds
    spectra = Spectra.of(views.kernels, rated.views, settings.ridge, LIKELIER)

    def generalises(dealt: Floats) -> Floats:
        rules, by_rules = explained(space, signs, dealt, kinds)
        kernels = np.logaddexp.reduce(spectra.evidence(dealt).reshape(-1, dealt.shape[1]))
        by_kernels = spectra.left_out(dealt)
        return combined([rules, kernels, *(correlation(by.T, dealt.T) for by in (by_rules, by_kernels))])

    ensemble = RewardEnsemble(
        views,
        spectra.fit(rewards),
        rule_posterior.fit(space, signs, rewards, said, kinds),
        heard,
        evidence(space, signs, rewards, said, kinds),
        permutation_test(rewards, generalises, settings.seed, settings.trusted_below, kinds),
    )
    share, column = ensemble.blend(RULES), rewards[:, None]
    left_out = share * explained(space, signs, column, kinds)[1] + (1 - share) * spectra.left_out(column)
    trust = replace(ensemble.trust, correlation=float(correlation(left_out.T, column.T)[0]))
    return replace(ensemble, trust=trust)


class EvidenceOverTime:
    """Log Bayes factors of both kinds of models together against noise, of parts of ratings that are in the order in which they were given."""

    def __init__(
        self,
        views: Views,
        space: Space,
        rated: Viewed,
        ratings: Ratings,
        ridge: float,
    ) -> None:
        self.rewards = rewards = ratings.values
        self.kernels = kernel_ensemble.KernelEvidenceOverTime(
            views.kernels, rated.views, rewards, ridge, LIKELIER
        )
        self.rules = rule_evidence.RuleEvidenceOverTime(space, rated.signs, rewards, kinds=ratings.kinds)
        self.seen: dict[tuple[int, int], float] = {}

    def of_part(self, start: int, end: int) -> float:
        """Of the ratings ``start`` to ``end - 1``; −∞ where all of them are equal, which no taste is read from."""
        if np.ptp(self.rewards[start:end]) == 0:
            return -np.inf
        if (start, end) not in self.seen:
            both = np.logaddexp(self.kernels.of_part(start, end), self.rules.of_part(start, end))
            self.seen[start, end] = float(both - np.log(2.0))
        return self.seen[start, end]

    def turned(self, start: int, change: int, end: int) -> float:
        """Of the same, by a taste whose opposite is wanted from ``change`` on."""
        if np.ptp(self.rewards[start:change]) == 0 or np.ptp(self.rewards[change:end]) == 0:
            return -np.inf
        both = np.logaddexp(self.kernels.turned(start, change, end), self.rules.turned(start, change, end))
        return float(both - np.log(2.0))


def _resembled(views: Views, remarks: Sequence[Remark]) -> tuple[dict[tuple[int, bool], float], int]:
    """What remarks that no pattern knows resemble: (column, whether it should be set) → log-odds that it is wanted; and how many are near enough to be heard.

    Who says the same about ten answers means the same ten times: that it is a wish becomes sure, what it means does not.
    """
    odds: dict[tuple[int, bool], float] = {}
    if not remarks:
        return odds, 0
    from clawback.rewards.instructions import NEAR, resembling

    said, heard = Counter(said for *_, said in remarks if not wishes(said)), 0
    for remark, times in said.items():
        near = {
            meant: similarity for meant, similarity in resembling(remark).items() if views.columns(meant[0])
        }
        heard += times if max(near.values(), default=0.0) >= NEAR else 0
        for (name, more), similarity in near.items():
            likelier = min(similarity * np.log(RESEMBLES), -times * np.log(WRONG_REMARK))
            for column in views.columns(name):
                odds[column, more] = max(odds.get((column, more), 0.0), likelier)
    return odds, heard


def _remark_likelihood(
    space: Space, views: Views, wished: Sequence[tuple[tuple[int, ...], str, Wish]]
) -> tuple[Floats, int]:
    """[h] log-likelihood of what was wished for, and how many wishes say anything here: the same about the same answer (by several
    votes of a judge, say) counts once, and what never varies in the base's answers, or never was said, not at all."""
    total, heard = np.zeros(len(space.literals)), 0
    different = {(ids, tuple(wish.items())): (ids, text, wish) for ids, text, wish in wished}
    for ids, text, wish in different.values():
        wanted: dict[int, bool] = {}
        signs = views.response_signs(ids, text)
        for name, more in wish.items():
            columns = views.columns(name)
            wanted |= dict.fromkeys(columns, more)
            # Of a number a remark tells the direction. How far it should go, the ratings say: where it lacks one cut, it lacks all.
            if (signs[columns] != more).any():
                signs[columns] = not more
        said = space.remarked(wanted, signs)
        total += said
        heard += bool(said.any())
    return total, heard
