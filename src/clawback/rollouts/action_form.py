"""The form of an action in a reply: which replies name an action, how many do not, and a warm start on the form.

A model that never writes an action is never rewarded for one, so it never learns to. Where the actions are known (a
Gymnasium space, or what an agent's own words quote), episodes are played with replies drawn at random from those that
name one. The policy imitates these (``learning/warm_starts.py``): it learns the form, and no preference. Where
the engine of this process draws, replies are held to these texts as well (``scoring/choices.py``).

The distance of two texts is that of the embeddings of the tokens in which they differ, in units of the upper quartile of the distances between any two
tokens. Tokens that a model hardly ever read stay close to each other: it reads them nearly alike, and a small adapter cannot change that.
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from clawback.environments.core import EnvironmentSet
from clawback.environments.episode_loop import Order
from clawback.environments.world_helpers import MOST_REPLIES, mixed
from clawback.records import Episode, EpisodeStep, Message, text_of
from clawback.rollouts.concurrent import Play, Rollouts

if TYPE_CHECKING:
    from torch import Tensor

    from clawback.policy import Policy
    from clawback.sampling import Sampled, TurnRequest


CLEAR = 0.25
"""Distance from which on two texts count as told apart."""


class TokenDistance:
    """Distances under the output embedding (``written``) or the input embedding. A model without such a table holds all texts apart."""

    def __init__(self, policy: Policy, *, written: bool) -> None:
        table = getattr(policy.model, "get_output_embeddings" if written else "get_input_embeddings")()
        weight = getattr(table, "weight", None)
        self.rows: Tensor | None = None
        self.policy, self.unit = policy, 1.0
        if weight is not None and weight.is_floating_point():
            self.rows = weight.detach()
            import torch

            some = torch.randperm(len(weight), generator=torch.Generator().manual_seed(0))[:256]
            pairs = torch.pdist(weight.detach()[some.to(weight.device)].float().cpu())
            self.unit = float(pairs.quantile(0.75)) or 1.0

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.policy.tokenizer.encode(text, add_special_tokens=False))

    def between(self, first: int, second: int) -> float:
        """Of two tokens."""
        if self.rows is None:
            return float(first != second)
        return float((self.rows[first].float() - self.rows[second].float()).norm()) / self.unit

    def of_replies(self, replies: Sequence[str]) -> float:
        """The smallest distance of two replies: of the tokens at the first place where they differ."""
        encoded = [(*self.encode(text), self.policy.chat.end_id) for text in replies]
        different = [
            next((pair for pair in zip(a, b, strict=False) if pair[0] != pair[1]), None)
            for a, b in combinations(encoded, 2)
        ]
        return min((self.between(*pair) if pair else 0.0 for pair in different), default=1.0)


MOST_UNREAD = 0.2
"""Share of replies that name no action from which on the form is worth learning first."""
EPISODES = 64
"""Episodes that are played with replies at random."""
MOST_TURNS = 12
"""Of each of these."""
CURE = (
    "Show worked examples (--shots N, or a file of them), say in the system prompt what a reply looks like word for word, "
    "name the replies (`?replies=A|B` after the environment's name, or `action_replies` of the agent), or take a larger base."
)
COMMAND_CURE = "Show worked examples (--shots N, or a file of them), or take a larger base."
"""Where a reply holds a command or a call with arguments of its own: no list of replies could name them."""
_QUOTED = re.compile(r"\"([^\"\n]{1,60})\"|'([^'\n]{1,60})'|`([^`\n]{1,60})`|“([^”\n]{1,60})”")


@runtime_checkable
class Acting(Protocol):
    """An environment set whose actions are known."""

    def action_replies(self) -> Sequence[str]:
        """A reply for each action, word for word; none where there are too many, or they are not known."""
        ...


def action_replies(environments: EnvironmentSet, policy: Policy | None = None) -> tuple[str, ...]:
    """The replies that name an action, of a set or of the one that it wraps (``of``); none where they are not known. ``policy``: of
    several forms that the set reads (``action_forms``), the one whose replies this model tells apart."""
    at: Any = environments
    while at is not None and not isinstance(at, Acting):
        at = getattr(at, "of", None)
    if at is None:
        return ()
    several = getattr(at, "action_forms", None)
    forms = several() if policy is not None and callable(several) else [at.action_replies()]
    replies = tuple(dict.fromkeys(clear_form(policy, forms) if policy is not None else forms[0]))
    return replies if 1 < len(replies) <= MOST_REPLIES else ()


def clear_form(policy: Policy, forms: Sequence[Sequence[str]]) -> Sequence[str]:
    """The first form whose replies the model tells apart; the one with the largest distances where it tells those of none apart."""
    if len(forms) == 1:
        return forms[0]

    distance = TokenDistance(policy, written=True)
    apart = [distance.of_replies(form) for form in forms]
    clear = (form for form, value in zip(forms, apart, strict=True) if value >= CLEAR)
    return next(clear, forms[apart.index(max(apart))])


def quoted(text: str) -> list[str]:
    """What a text quotes: ``Write "Action: 0" or "Action: 1".`` quotes two replies."""
    return list(dict.fromkeys(next(filter(None, found.groups())) for found in _QUOTED.finditer(text)))


def unread_share(episodes: Sequence[Episode]) -> float:
    """Share of the replies that name no action."""
    return sum(e.unparsable for e in episodes) / max(1, sum(len(e.steps) for e in episodes))


def unread_notice(episodes: Sequence[Episode], when: str) -> str:
    """A sentence with the cure where few replies name an action, and one of those that do not; "" elsewhere."""
    share = unread_share(episodes)
    if share <= MOST_UNREAD:
        return ""
    example = next(
        (
            text_of(episode.messages[place].get("content"))
            for episode in episodes
            for place, step in zip(episode.replies, episode.steps, strict=False)
            if step.unparsable
        ),
        "",
    )
    sample = f" (such as {example.strip()[:60]!r})" if example.strip() else ""
    return f"{share:.0%} of the replies {when} name no action{sample}."


def cure(environments: EnvironmentSet) -> str:
    """What helps where few replies name an action. Sets whose actions are commands or calls have ``free_replies = True``, or wrap one that has (``of``)."""
    at: Any = environments
    while at is not None:
        if getattr(at, "free_replies", False):
            return COMMAND_CURE
        at = getattr(at, "of", None)
    return CURE


def form_sentence(replies: Sequence[str], held: bool) -> str:
    """What is done where most replies name no action."""
    if held:
        return f"From now on each reply is one of {len(replies)}, such as {replies[0]!r}."
    return f"The form is learned first, from {len(replies)} replies such as {replies[0]!r}."


class RandomReplies:
    """In place of a policy: one of the replies at random, as its own tokens."""

    def __init__(self, policy: Policy, replies: Sequence[str]) -> None:
        encode, end = policy.tokenizer.encode, policy.chat.end_id
        self.ids = [(*map(int, encode(text, add_special_tokens=False)), end) for text in replies]

    def draw(self, turns: Sequence[TurnRequest]) -> list[Sampled]:
        from clawback.sampling import Sampled

        chosen = [random.Random(turn.seed).choice(self.ids) for turn in turns]
        return [Sampled(ids, (0.0,) * len(ids), True) for ids in chosen]

    def refresh(self) -> None: ...

    def forget(self, key: Hashable) -> None: ...


def random_episodes(
    policy: Policy, environments: EnvironmentSet, how: Play, orders: Sequence[Order]
) -> list[Episode]:
    """These episodes, played with replies at random. Raises ``EnvironmentFailure`` where most worlds break."""
    replies = action_replies(environments, policy)
    longest = max(len(ids) for ids in RandomReplies(policy, replies).ids)
    how = replace(how, max_turns=min(how.max_turns, MOST_TURNS), max_tokens=max(how.max_tokens, longest))
    rollouts = Rollouts(policy, environments, how, drawer=RandomReplies(policy, replies))
    try:
        return [e for e in rollouts.play(orders) if e.steps and e.status != "failed"]
    finally:
        rollouts.close(shared=False)


def answered_at_random(
    policy: Policy, turns: Sequence[Sequence[Message]], replies: Sequence[str], seed: int
) -> Episode:
    """An episode in which each of these turns (what the policy read there) is answered with one of the replies at random."""
    from clawback.rollouts.token_record import Dialogue
    from clawback.sampling import TurnRequest

    drawer = RandomReplies(policy, replies)
    dialogue = Dialogue(policy.chat, turns[0], max_prompt=policy.max_prompt)
    steps: list[EpisodeStep] = []
    for number, messages in enumerate(turns):
        if number:
            dialogue.observe(messages)
        [drawn] = drawer.draw([TurnRequest(0, dialogue.prompt(), mixed(seed, number), 1)])
        start, end, _ = dialogue.wrote(drawn.ids, drawn.logprobs, True)
        steps.append(EpisodeStep(dialogue.branch, start, end))
    return Episode("", "", seed, tuple(dialogue.messages), dialogue.branches, tuple(steps), "completed")
