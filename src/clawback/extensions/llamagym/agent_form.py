"""Whether an agent's replies name actions, and what is done where they do not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from clawback.environments.world_helpers import mixed
from clawback.episode_jobs.reply_form import form_notice, observation_notice
from clawback.errors import UsageError
from clawback.extensions.llamagym.agent_learner import AgentLearner
from clawback.extensions.llamagym.agent_worlds import ReplyForm, Speaks, equal_forms, reply_form
from clawback.learning import exploration, is_short
from clawback.records import Episode, Message
from clawback.rollouts.action_form import (
    CURE,
    answered_at_random,
    clear_form,
    form_sentence,
    unread_notice,
    unread_share,
)
from clawback.trainer import summary


class FormCheck:
    """The first batch of an agent's own loop shows whether replies name actions. Where most do not and the actions are known, replies
    are held to them by grammar, or their form is learned."""

    def __init__(self, agent: Speaks, learner: AgentLearner, grammar: bool | None, quiet: bool) -> None:
        """``grammar``: hold replies to actions from the first on, or never; None: where the first batch names none."""
        self.agent, self.learner, self.grammar, self.quiet = agent, learner, grammar, quiet
        self.checked = grammar is False
        """Whether nothing is left to look at."""
        self.held_to: tuple[str, ...] = ()
        """Replies that the agent is held to; none: it writes what it likes."""
        self.form: ReplyForm | None = None
        self.short = False
        """Whether replies are held and random episodes are short: a first policy is fitted to such episodes."""
        self._turns: list[Sequence[Sequence[Message]]] = []

    def find(self) -> ReplyForm:
        """The form of replies, in words whose tokens the model tells apart; found once."""
        if self.form is None:
            policy, form = self.learner.policy, reply_form(self.agent)
            clear = clear_form(policy, equal_forms(self.agent, form.replies)) if form.replies else ()
            self.form = replace(form, replies=tuple(clear))
            if self.grammar:
                self.hold(self.form.replies)
        return self.form

    def watch(self, turns: Sequence[Sequence[Message]]) -> None:
        """What the policy read in an episode of the first batch."""
        if not self.checked:
            self._turns.append(turns)

    def learn(self, batch: Sequence[Episode]) -> dict[str, Any]:
        """In place of the first batch, where most of its replies name no action: figures of that. {} where there is nothing to learn, or
        nobody knows how."""
        if self.checked:
            return {}
        self.checked, turns, self._turns = True, self._turns, []
        notice = unread_notice(batch, "of the first batch")
        if not notice:
            return {}
        replies = self.form.replies if self.form else ()
        if len(replies) < 2 or not turns:
            self.say(f"{notice} {CURE}")
            return {}
        policy, seed = self.learner.policy, self.learner.seed

        def examples() -> list[Episode]:
            return [answered_at_random(policy, one, replies, mixed(seed, i)) for i, one in enumerate(turns)]

        return self.take(replies, examples, batch, notice)

    def hold(self, replies: Sequence[str]) -> bool:
        """Raises ``UsageError`` where no replies are known. False where this model cannot be held to any."""
        if len(replies) < 2:
            raise UsageError(
                f"No replies are known that {type(self.agent).__name__} could be held to: name one for each action in `action_replies`."
            )
        if not self.learner.hold_to(replies):
            return False
        self.checked, self.held_to = True, tuple(replies)
        return True

    def take(
        self,
        replies: Sequence[str],
        examples: Callable[[], Sequence[Episode]],
        batch: Sequence[Episode],
        notice: str,
    ) -> dict[str, Any]:
        """Replies name actions from now on: by grammar where this model can be held to one, and as learned from episodes of these replies at
        random, so that none is preferred to begin with."""
        self.checked = True
        held = self.hold(replies)
        policy = self.learner.policy
        self.say(f"{notice} {form_sentence(replies, held)}")
        for sentence in filter(None, (form_notice(policy, replies), observation_notice(policy, batch))):
            self.say(sentence)
        shown = examples()
        self.short = held and is_short(shown)
        learned = self.learner.imitate(shown, len(replies))
        return {f"form_{name}": value for name, value in learned.items()} | {
            "unparsable": unread_share(batch), "return": summary([e.total for e in batch])["mean"],
            "loss": learned["loss"], "entropy": 0.0, "episodes_trained": 0, "turns_trained": 0, "objective/kl": 0.0,
            "objective/entropy": 0.0, "ppo/mean_scores": 0.0, "ppo/loss/total": learned["loss"],
        }  # fmt: skip

    def explore(
        self, play: Callable[[int], Sequence[Episode]], left: int
    ) -> tuple[Sequence[Episode], dict[str, float]]:
        """Play half of what is ``left`` at random, and learn a first policy from it, where that is worth it: the episodes, and figures."""
        count = exploration(left) if self.short else 0
        if not count:
            return (), {}
        self.short = False
        episodes = play(count)
        figures = self.learner.improve(episodes)
        mean = summary([e.total for e in episodes])["mean"]
        self.say(
            f"{count} episodes with replies at random: return {mean:+.3f}. A first policy was fitted to them in {figures['steps']:.0f} steps."
        )
        return episodes, {f"explored_{name}": value for name, value in figures.items()} | {"return": mean}

    def say(self, text: str) -> None:
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)
