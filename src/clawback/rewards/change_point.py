"""Finds the last change of mind in a series of ratings, by their evidence.

A person may come to want something else. Older ratings then speak for a taste that is gone, and a reward model that is fitted on all of them
predicts neither. For ratings ``r₁ … rₙ`` in the order in which they were given and a place ``c``, three models are compared:

    one taste            log P(r_a … r_b)
    two tastes           log P(r_a … r_c) + log P(r_c+1 … r_b)
    a taste turned round log P(r_a … r_c, −r_c+1 … −r_b)

``log P`` is the log marginal likelihood of a reward model with its parameters integrated out, so that two tastes pay for being two (the Occam
factor; Bayesian change-point analysis: Smith 1975, Biometrika 62; Barry & Hartigan 1993, JASA 88). Who found answers too short and now finds them too long
has one taste turned round, which pays once. A change is of either kind, as likely; it is rare beforehand, and each of K
places is as likely: the logarithm of the odds ``AGAINST · K`` is subtracted from the gain.
"""

from __future__ import annotations

import math
from typing import Protocol


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
