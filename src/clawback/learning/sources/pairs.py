"""Finds preference pairs among samples: from explicit comparisons and edits, and from ratings of answers to one prompt."""

from __future__ import annotations

from collections.abc import Sequence

from clawback.models import Encoded
from clawback.records import Sample


def find(samples: Sequence[Sample], encoded: Sequence[Encoded]) -> list[tuple[int, int]]:
    """Places of (better, worse), in the order of the samples.

    Two samples are a pair when one piece of feedback speaks for the one and against the other: a preference of its two turns, an edit of
    what was said and what should have been. Besides, each answer that was liked is paired with each one to the same prompt
    that was disliked.
    """
    found: dict[tuple[int, int], None] = {}
    spoken: dict[int, list[tuple[float, int]]] = {}
    for place, sample in enumerate(samples):
        for part in sample.parts:
            spoken.setdefault(part.feedback_id, []).append((part.value, place))
    for said in spoken.values():
        (best, better), (worst, worse) = max(said), min(said)
        if best > 0 > worst:  # the extremes: a share of it may have gone on to turns before
            found[better, worse] = None

    prompts: dict[tuple[int, ...], list[int]] = {}
    for place, one in enumerate(encoded):
        prompts.setdefault(one.prompt, []).append(place)
    for places in prompts.values():
        liked = [p for p in places if samples[p].rated and samples[p].reward > 0]
        disliked = [p for p in places if samples[p].rated and samples[p].reward < 0]
        for better in liked:
            for worse in disliked:
                if (worse, better) not in found:
                    found[better, worse] = None
    return sorted(found)
