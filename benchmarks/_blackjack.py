"""What a way of playing Gymnasium's Blackjack is worth, to the last digit: by summing over all cards instead of playing.

Played hands are ±1: two thousand of them leave ±0.02 of chance, as much as separates good policies from each other. A policy that looks at no more than
the sum of its hand (and the dealer's card) is worth a number that can be worked out: cards come from an endless deck, the dealer draws to
17, a natural pays no more than another win.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


def of_model(policy: Any) -> float:
    """The mean return of a policy that reads ``hard 16`` and replies ``hard 16 hit`` or ``hard 16 stand``, by how likely it makes the two at the
    beginning of a conversation. Other replies are left out: they are hints, not hands."""
    hands = [(total, soft) for soft in (False, True) for total in range(12 if soft else 4, 22)]
    seen = [f"{'soft' if soft else 'hard'} {total}" for total, soft in hands]
    asked = [[{"role": "user", "content": text}] for text in seen for _ in range(2)]
    said = policy.logprobs(asked, [f"{text} {word}" for text in seen for word in ("stand", "hit")])
    sums = [float(one.sum()) for one in said]
    hit = {
        hand: 1 / (1 + math.exp(stand - hits))
        for hand, stand, hits in zip(hands, sums[::2], sums[1::2], strict=True)
    }
    return value(lambda total, soft, _: hit[total, soft])
