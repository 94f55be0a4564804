"""What a run does where most replies name no action: it holds replies to the actions, teaches their form first, or names the cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.environments.action_form import (
    CURE,
    EPISODES,
    action_replies,
    form_notice,
    form_sentence,
    observation_notice,
    random_episodes,
    unread_notice,
)
from clawback.environments.core import EnvironmentSet
from clawback.environments.evaluating import orders
from clawback.jobs.drawing import Wish
from clawback.records import Episode

if TYPE_CHECKING:
    from clawback.engine.episodes import Form
    from clawback.engine.torch.models.policy import Policy

NUMBERS = 3_000_000_000
"""Where the numbers of the episodes begin that show the form of actions; they are not stored."""


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
        numbered = orders(environments.tasks("train"), EPISODES, seed, NUMBERS)
        return lambda: (random_episodes(policy, environments, wish.play, numbered), len(self.replies))


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
    alike = observation_notice(policy, episodes)
    if not notice:
        return ReplyPlan(alike)
    replies = action_replies(environments, policy) if wish.learn_form else ()
    if not replies:
        return ReplyPlan(f"{notice} {CURE}")
    held = drawn_here and policy.hold_to(replies)
    sentences = (notice, form_sentence(replies, held), form_notice(policy, replies), alike)
    return ReplyPlan(" ".join(filter(None, sentences)), replies, held)
