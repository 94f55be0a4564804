"""What a person likes, as two experts read it out of their ratings and remarks.

A Bayesian ridge on all that an answer looks like (``rewards.head``), and Bayes over conjunctions of what is seen in it
(``rewards.conjunctions``). The first finds what adds up and what has no name; the second what has to come together, and it understands
remarks. Their mean is better than either (docs/studies/0002-more-from-the-same-taps.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from clawback.rewards import Head, conjunctions, fit
from clawback.rewards.conjunctions import Conjunctions, Space
from clawback.rewards.lens import Floats, Lens
from clawback.rewards.remarks import SAYS, Wish, wishes


@dataclass(frozen=True, slots=True)
class Answers:
    """``n`` answers as the experts look at them: token ids, what they say, and the base's ``features [n, h]`` of them."""

    ids: Sequence[Sequence[int]]
    texts: Sequence[str]
    hidden: Floats


PHRASES = 16
"""Quoted texts that are looked for, those most spoken of: with the hypotheses it goes as the third power of the signs."""

Remark = tuple[Sequence[int], str, str]
"""The ids and the text of an answer, and what was said about it."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Both, and the lens that they look through. ``heard``: how many remarks were understood and say something here."""

    lens: Lens
    ridge: Head
    conjunctions: Conjunctions
    heard: int

    def reward(self, answers: Answers, share: float, pessimism: float) -> Floats:
        """``[n]`` what is expected of the answers, in units of a rating.

        Args:
            share: of the conjunctions; the rest is the ridge's.
            pessimism: standard deviations that each takes off its prediction.
        """
        looks = self.lens(answers.ids, answers.hidden, answers.texts)
        mean, sd = self.conjunctions.predict(self.lens.signs(answers.ids, answers.texts))
        return (1 - share) * self.ridge.reward(looks, pessimism) + share * (mean - pessimism * sd)


def learn(
    base: Answers,
    rated: Answers,
    rewards: Floats,
    remarks: Sequence[Remark] = (),
    *,
    ridge: float,
    shares: tuple[float, float, float],
    seed: int = 0,
) -> Experts:
    """From answers of the base, which show how answers vary, rated ones with their ``rewards [n]``, and what was said in words."""
    wished = [(tuple(ids), text, wish) for ids, text, said in remarks for wish in wishes(said)]
    quoted = Counter(name.removeprefix(SAYS) for *_, wish in wished for name in wish if name.startswith(SAYS))
    phrases = tuple(sorted(phrase for phrase, _ in quoted.most_common(PHRASES)))
    lens = replace(Lens.ground(base.ids, base.hidden, base.texts), phrases=phrases, shares=shares)
    looks = lens(rated.ids, rated.hidden, rated.texts)
    space = Space.of(lens.signs(base.ids, base.texts), lens.manners)
    said, heard = _said(space, lens, wished)
    signs = lens.signs(rated.ids, rated.texts)
    return Experts(
        lens,
        fit(looks, rewards, ridge=ridge, spread=1.0, seed=seed),
        conjunctions.fit(space, signs, rewards, said),
        heard,
    )


def _said(
    space: Space, lens: Lens, wished: Sequence[tuple[tuple[int, ...], str, Wish]]
) -> tuple[Floats, int]:
    """[h] log-likelihood of what was wished for, and how many wishes say anything here: the same about the same answer (by several
    votes of a judge, say) counts once, and what never varies in the base's answers, or never was said, not at all."""
    total, heard = np.zeros(len(space.literals)), 0
    different = {(ids, tuple(wish.items())): (ids, text, wish) for ids, text, wish in wished}
    for ids, text, wish in different.values():
        wanted = {column: more for name, more in wish.items() for column in lens.columns(name)}
        said = space.remarked(wanted, lens.signs([ids], [text])[0])
        total += said
        heard += bool(said.any())
    return total, heard
