"""The pictures of episodes, for the learner: what a policy saw is looked at again, from the messages that stand in the episode.

An episode keeps its pictures once, in its messages; its sequences name them by hash. The processor makes tokens and
inputs of them again, which must be the tokens that the policy read. Where they are not (a picture is gone or changed,
another model), nothing says what was seen, and the episode is left out with a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from clawback.models import Chat, Pixels
from clawback.records import Episode

log = logging.getLogger("clawback.engine")
Seen = dict[tuple[int, int], Pixels]
"""(Place of an episode, place of its branch) → what was seen there."""


def look_again(chat: Chat, episodes: Sequence[Episode]) -> tuple[list[Episode], Seen]:
    """The episodes that can be learned from, and what was seen in each of their sequences that has pictures."""
    whole: list[Episode] = []
    seen: Seen = {}
    alike: dict[tuple[tuple[int, ...], str], Pixels] = {}
    """What was seen in several sequences is kept once."""
    for episode in episodes:
        found = _looked(chat, episode) if any(one.pictures for one in episode.branches) else {}
        if found is None:
            log.warning(
                "Episode %d of %s is left out: its pictures are not those that the policy saw.",
                episode.number,
                episode.environment,
            )
            continue
        for place, pixels in found.items():
            start = next(step.start for step in episode.steps if step.branch == place)
            ids = episode.branches[place].ids[:start]
            seen[len(whole), place] = alike.setdefault((ids, pixels.digest), pixels)
        whole.append(episode)
    return whole, seen


def _looked(chat: Chat, episode: Episode) -> dict[int, Pixels] | None:
    """Place of a branch → what was seen in it; None where that cannot be found out."""
    found: dict[int, Pixels] = {}
    for place, branch in enumerate(episode.branches):
        steps = [i for i, step in enumerate(episode.steps) if step.branch == place]
        if not branch.pictures or not steps:
            continue
        begin = episode.steps[steps[0]].start
        # With room for what it was and no more, the conversation is cut where it was cut then.
        ids, pixels = chat.looked(episode.messages[: episode.replies[steps[0]]], begin)
        if pixels is None or pixels.pictures != branch.pictures or tuple(ids) != branch.ids[:begin]:
            return None
        found[place] = pixels
    return found
