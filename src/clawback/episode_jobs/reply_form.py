"""What a run does where most replies name no action: it holds replies to the actions, teaches their form first, or names the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import TYPE_CHECKING

from clawback.environments.core import EnvironmentSet
from clawback.episode_jobs.episode_runs import Wish
from clawback.pictures import pictures
from clawback.records import Episode, text_of
from clawback.rollouts.action_form import (
    action_replies,
    cure,
    form_sentence,
    random_episodes,
    unread_notice,
)
from clawback.rollouts.program_dialogue import cut_notice
from clawback.rollouts.rounds import orders

if TYPE_CHECKING:
    from clawback.learning import Form
    from clawback.policy import Policy

NUMBERS = 3_000_000_000
"""Where the numbers of the episodes begin that show the form of actions; they are not stored."""

MOST_TEXTS = 64
"""Observations that are compared."""
MOST_ALIKE = 0.1
"""Share of pairs of observations that a model reads alike from which on that is said."""


@dataclass(frozen=True, slots=True)
class ReplyPlan:
    """``replies``: those that name an action, where the form is to be learned; ``held``: each reply is one of them from now on."""

    notice: str = ""
    """A sentence for the user; "" where nothing is to be done."""
    replies: tuple[str, ...] = ()
    held: bool = False

    def form(self, policy: Policy, environments: EnvironmentSet, wish: Wish, seed: int) -> Form | None:
        """Episodes to learn the form from; None where that is not needed, or not possible."""
        if not self.replies:
            return None
        tasks = environments.tasks("train")

        def random_play(count: int) -> tuple[list[Episode], int]:
            numbered = orders(tasks, count, seed, NUMBERS)
            return random_episodes(policy, environments, wish.play, numbered), len(self.replies)

        return random_play


def plan_replies(
    policy: Policy,
    environments: EnvironmentSet,
    wish: Wish,
    episodes: Sequence[Episode],
    *,
    drawn_here: bool,
) -> ReplyPlan:
    """By the replies of held-out episodes. ``drawn_here``: the engine of this process draws, so that replies can be held to actions."""
    notice = unread_notice(episodes, "of held-out tasks")
    # A program's requests are its own words: nobody could say them otherwise.
    alike = "" if wish.harness else observation_notice(policy, episodes)
    unseen = _joined(picture_notice(policy, episodes), cut_notice(policy, episodes))
    if not notice:
        return ReplyPlan(_joined(unseen, alike))
    replies = action_replies(environments, policy) if wish.learn_form else ()
    if not replies:
        return ReplyPlan(_joined(unseen, notice, cure(environments)))
    held = drawn_here and policy.hold_to(replies)
    sentences = (unseen, notice, form_sentence(replies, held), form_notice(policy, replies), alike)
    return ReplyPlan(_joined(*sentences), replies, held)


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def form_notice(policy: Policy, replies: Sequence[str]) -> str:
    """A sentence where the model hardly tells two replies apart; "" elsewhere."""
    from clawback.rollouts.action_form import CLEAR, TokenDistance

    if TokenDistance(policy, written=True).of_replies(replies) >= CLEAR:
        return ""
    return (
        f"{policy.info.base} hardly tells replies such as {replies[0]!r} and {replies[1]!r} apart, so it learns slowly which is right: "
        "use words that it knows, after a space (`Action: left`), or take a larger base."
    )


def picture_notice(policy: Policy, episodes: Sequence[Episode]) -> str:
    """A sentence where these episodes show pictures to a model that sees none; "" elsewhere."""
    if policy.chat.eyes is not None or not any(pictures(m.get("content")) for e in episodes for m in e.messages):  # fmt: skip
        return ""
    return f"{policy.info.base} sees no pictures, and reads the text beside them alone. Take a base that sees, or observations in text."


def observation_notice(policy: Policy, episodes: Sequence[Episode]) -> str:
    """A sentence where the model reads many of the observations of these episodes nearly alike; "" elsewhere."""
    from clawback.rollouts.action_form import CLEAR, TokenDistance

    users = (m for e in episodes for m in e.messages if m.get("role") == "user")
    texts = list(islice(dict.fromkeys(text_of(m.get("content")) for m in users), MOST_TEXTS))
    distance = TokenDistance(policy, written=False)
    distinct = {distance.encode(text): text for text in texts}
    pairs = list(combinations(distinct, 2))
    alike = [
        (a, b)
        for a, b in pairs
        if len(a) == len(b) and all(distance.between(*pair) < CLEAR for pair in zip(a, b, strict=True))
    ]
    share = len(alike) / max(1, len(pairs))
    if share <= MOST_ALIKE:
        return ""
    first, second = (distinct[ids].strip()[-60:] for ids in alike[0])
    return (
        f"{policy.info.base} reads {share:.0%} of the pairs of observations nearly alike, such as {first!r} and {second!r}: they differ in "
        "characters that it hardly knows. Describe them in words (`row 2 column 3`), or take a larger base."
    )
