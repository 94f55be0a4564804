"""What a way of playing Gymnasium's Blackjack is worth, to the last digit: by summing over all cards instead of playing.

Played hands are ±1: two thousand of them leave ±0.02 of chance, as much as separates good policies from each other. A policy that looks at no more than
the sum of its hand (and the dealer's card) is worth a number that can be worked out: cards come from an endless deck, the dealer draws to
17, a natural pays no more than another win.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

CARDS = dict.fromkeys(range(1, 10), 1 / 13) | {10: 4 / 13}
Hand = tuple[int, bool]
"""The sum, and whether an ace counts as 11 in it."""
Policy = Callable[[int, bool, int], float]
"""(sum, ace, dealer's card) → the probability of hitting."""


def drawn(hand: Hand, card: int) -> Hand:
    total, soft = hand
    if card == 1 and total + 11 <= 21:
        return total + 11, True
    total += card
    return (total - 10, False) if total > 21 and soft else (total, soft)


@cache
def dealer(hand: Hand) -> tuple[tuple[int, float], ...]:
    """What the dealer ends with, from a hand on: (sum, or 0 for bust) and its probability."""
    if hand[0] > 21:
        return ((0, 1.0),)
    if hand[0] >= 17:
        return ((hand[0], 1.0),)
    ends: dict[int, float] = {}
    for card, chance in CARDS.items():
        for total, more in dealer(drawn(hand, card)):
            ends[total] = ends.get(total, 0.0) + chance * more
    return tuple(ends.items())


@cache
def standing(total: int, shown: int) -> float:
    """The mean return of standing on a sum while the dealer shows a card."""
    return sum(chance * ((total > end) - (total < end)) for end, chance in dealer(drawn((0, False), shown)))


def hitting(hand: Hand, shown: int, after: Callable[[Hand, int], float]) -> float:
    new = [(drawn(hand, card), chance) for card, chance in CARDS.items()]
    return sum(chance * (-1.0 if to[0] > 21 else after(to, shown)) for to, chance in new)


def value(policy: Policy) -> float:
    """The mean return of a hand."""

    @cache
    def of(hand: Hand, shown: int) -> float:
        hit = policy(*hand, shown)
        gain = (1 - hit) * standing(hand[0], shown) if hit < 1 else 0.0
        return gain + (hit * hitting(hand, shown, of) if hit > 0 else 0.0)

    return _dealt(of)


def best() -> float:
    """The mean return of the best policy: what basic strategy is for these rules."""

    @cache
    def of(hand: Hand, shown: int) -> float:
        return max(standing(hand[0], shown), hitting(hand, shown, of))

    return _dealt(of)


def _dealt(of: Callable[[Hand, int], float]) -> float:
    return sum(
        first * second * third * of(drawn(drawn((0, False), a), b), shown)
        for a, first in CARDS.items()
        for b, second in CARDS.items()
        for shown, third in CARDS.items()
    )


RARE = 1e-4
"""Conversations that come up less often are left out of ``of_model``; what is left is counted as if it were all there is."""
NAMES = {(total, soft): f"{'soft' if soft else 'hard'} {total}" for soft in (False, True) for total in range(12 if soft else 4, 22)}  # fmt: skip


@dataclass(frozen=True)
class _Held:
    """A hand under way: what was seen and said before, and the hand as it is."""

    said: tuple[str, ...]
    hand: Hand

    @property
    def messages(self) -> list[dict[str, str]]:
        roles = ("user", "assistant")
        return [
            {"role": roles[i % 2], "content": text} for i, text in enumerate((*self.said, NAMES[self.hand]))
        ]


def of_model(policy: Any) -> float:
    """The mean return of a policy that reads ``hard 16`` and replies with a hand, its own or another, and ``hit`` or ``stand``: summed over all replies
    in all conversations that hands can be. Replies of another form are left out: they are hints, not hands."""
    gain, over = 0.0, 0.0
    under_way = _first()
    while under_way:
        further: dict[_Held, float] = {}
        for (held, chance), replies in zip(under_way.items(), _replies(policy, list(under_way)), strict=True):
            for reply, likely in replies.items():
                if reply.endswith("stand"):
                    gain += chance * likely * sum(p * standing(held.hand[0], d) for d, p in CARDS.items())
                    over += chance * likely
                    continue
                said = (*held.said, NAMES[held.hand], reply)
                for card, p in CARDS.items():
                    to, drew = drawn(held.hand, card), chance * likely * p
                    if to[0] > 21:
                        gain, over = gain - drew, over + drew
                    elif drew > RARE:
                        one = _Held(said, to)
                        further[one] = further.get(one, 0.0) + drew
        under_way = further
    return gain / over


def _first() -> dict[_Held, float]:
    """The hands that are dealt."""
    dealt: dict[_Held, float] = {}
    for a, first in CARDS.items():
        for b, second in CARDS.items():
            held = _Held((), drawn(drawn((0, False), a), b))
            dealt[held] = dealt.get(held, 0.0) + first * second
    return dealt


def _replies(policy: Any, held: list[_Held]) -> list[dict[str, float]]:
    """How likely each reply is, among all that name a hand and an action."""
    texts = [f"{name} {word}" for name in NAMES.values() for word in ("stand", "hit")]
    said = policy.logprobs([one.messages for one in held for _ in texts], texts * len(held))
    sums = [math.exp(float(one.sum())) for one in said]
    rows = [sums[i : i + len(texts)] for i in range(0, len(sums), len(texts))]
    return [{text: one / sum(row) for text, one in zip(texts, row, strict=True)} for row in rows]
