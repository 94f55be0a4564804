"""``clawback.Agent``: a policy that learns from any environment, by your own loop and three methods that you write.

The interface is LlamaGym's: a class with ``get_system_prompt``, ``format_observation`` and
``extract_action``; a loop of ``act``, ``env.step`` and ``assign_reward``; ``terminate_episode`` at its end.
docs/coming-from/llamagym.md explains what differs underneath.
"""

from __future__ import annotations

import json
import math
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.environments.core import Observation, Task
from clawback.environments.episode_loop import Ending, Order
from clawback.environments.world_helpers import mixed
from clawback.errors import UsageError
from clawback.extensions.llamagym import agent_learner
from clawback.extensions.llamagym.agent_form import FormCheck
from clawback.extensions.llamagym.agent_settings import settings_of
from clawback.extensions.llamagym.agent_worlds import ActionReader, AgentWorlds, baseline, opening, shown
from clawback.records import Episode, Message
from clawback.rollouts.action_form import EPISODES as FORM_EPISODES
from clawback.rollouts.action_form import (
    action_replies,
    quoted,
    random_episodes,
    unread_notice,
    unread_share,
)
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.token_record import TokenRecord
from clawback.trainer import summary

LOOKED_AT = 8
"""Episodes of ``learn`` that show whether replies name actions."""

if TYPE_CHECKING:
    import torch


class Agent(ABC):
    """Subclass it with three methods, and play::

    agent = MyAgent("embedded")
    for episode in range(500):
        observation, info = env.reset(seed=episode)
        done = False
        while not done:
            observation, reward, terminated, truncated, info = env.step(agent.act(observation))
            agent.assign_reward(reward)
            done = terminated or truncated
        stats = agent.terminate_episode()
    """

    retries: int = 1
    """How often a reply that cannot be read is asked for again, with ``hint``, before ``fallback_action`` is taken."""

    def __init__(
        self,
        model: object,
        tokenizer: object = None,
        device: object = None,
        generate_config_dict: Mapping[str, object] | None = None,
        ppo_config_dict: Mapping[str, object] | None = None,
        *,
        seed: int | None = None,
        unparsable_penalty: float = 0.5,
        log: str | Path | None = None,
        quiet: bool = False,
        grammar: bool | None = None,
    ) -> None:
        """
        Args:
            model: what ``clawback.load`` takes (``"embedded"``, a folder, a hub id), a policy that it gave, or a transformers model.
            tokenizer: of a transformers model.
            device: where a transformers model is to be; None leaves it.
            generate_config_dict: ``max_new_tokens``, ``temperature``, ``top_p``, ``top_k``, ``do_sample``; keys may be written ``generate/top_p``.
                By default 32 tokens from the whole distribution: what is trained is what answers.
            ppo_config_dict: ``batch_size`` in turns, ``mini_batch_size``, ``learning_rate``, ``gamma``, ``lam``, ``ppo_epochs``, ``init_kl_coef``,
                ``cliprange``, ``estimator`` (gae, returns, group, step_wise), ``seed``.
            seed: everything that is drawn follows from it.
            unparsable_penalty: what a reply costs that ``extract_action`` cannot read.
            log: a file that every finished episode is appended to, as JSON lines.
            quiet: no line on stderr after each batch.
            grammar: whether replies are held to those that name an action (``action_replies``), from the first on or never. By default they are where
                most replies of the first batch name none.
        """
        self.settings, named = settings_of(generate_config_dict, ppo_config_dict)
        self.seed = seed if seed is not None else named if named is not None else 0
        self.unparsable_penalty = abs(unparsable_penalty)
        self.learner = agent_learner.AgentLearner(model, tokenizer, device, self.settings, self.seed)
        self.policy = self.learner.policy
        self.model, self.tokenizer, self.device = self.policy.model, self.policy.tokenizer, self.policy.device
        self.log = Path(log) if log is not None else None
        self.episodes = 0
        """Episodes that are over."""
        self.batch: list[Episode] = []
        """Episodes that wait to be learned from."""
        self.seen_actions: list[Any] = []
        self._form_check = FormCheck(self, self.learner, grammar, quiet)
        self._record: TokenRecord | None = None
        """Of the episode under way."""
        self._rewards: list[float] = []
        self._turns: list[list[Message]] = []
        """What the policy read at each ``act`` of the episode."""

    @classmethod
    def speaker(cls, seed: int = 0) -> Agent:
        """One without a model, that only puts worlds into words (``clawback env train``). ``__init__`` is not called: what its three methods need
        are class attributes."""
        made = cls.__new__(cls)
        made.seed, made.episodes, made.seen_actions, made._record = seed, 0, [], None
        return made

    # ------------------------------------------------------------------------------------------- yours to write

    @abstractmethod
    def get_system_prompt(self) -> str:
        """What the model is told at the beginning of each episode; "" for nothing."""

    @abstractmethod
    def format_observation(self, observation: object) -> str:
        """An observation in words."""

    @abstractmethod
    def extract_action(self, response: str) -> Any:
        """The action of a reply. Raise, or return None, where there is none in it."""

    def hint(self, response: str) -> str:  # noqa: ARG002
        """What is said to a reply that could not be read."""
        return "I could not read an action in that. Reply with the action alone, in the form you were told."

    def action_replies(self) -> Sequence[str]:
        """Replies that each name one action, word for word: by default those that ``get_system_prompt`` quotes and ``extract_action``
        reads. A model that never writes an action is taught this form first."""
        return quoted(self.get_system_prompt())

    def fallback_action(self, observation: object) -> Any:
        """What is done when replies cannot be read: an action of earlier replies, at random; with none yet, 0, or ``look`` where
        observations are texts. Override it where that is no action of your environment."""
        if self.seen_actions:
            return random.Random(mixed(self.seed, self.episodes, self._replies)).choice(self.seen_actions)
        return "look" if isinstance(observation, str) else 0

    # ------------------------------------------------------------------------------------------------ the loop

    @property
    def current_episode_messages(self) -> list[Message]:
        return self._record.messages if self._record else []

    @property
    def current_episode_rewards(self) -> list[float]:
        """As they were assigned."""
        return self._rewards

    @property
    def held_to(self) -> tuple[str, ...]:
        """Replies that it is held to; none: it writes what it likes."""
        return self._form_check.held_to

    @property
    def _replies(self) -> int:
        """Of the episode under way."""
        return len(self._record.steps) if self._record else 0

    def llm(self, messages: Sequence[Message]) -> str:
        """The model's reply to a conversation. Of the episode under way it is kept, token by token, to be learned from."""
        if self._record is not None and messages is self._record.messages:
            return self.learner.reply(self._record, mixed(self.seed, self.episodes, self._replies))
        return self.learner.answer(messages, mixed(self.seed, self.episodes, "aside"))

    def act(self, observation: object) -> Any:
        """What to do. Never None: a reply that cannot be read costs something, is asked for again, and in the end ``fallback_action`` decides."""
        reader = ActionReader(self, self._form_check.find())
        if self._record is None:
            self._turns = [opening(self, observation)]
            self._record = TokenRecord(self.policy, self.settings.max_tokens, self.unparsable_penalty)
            self._record.open(Observation(tuple(self._turns[0])))
        else:
            self._turns.append([shown(self, observation)])
            self._record.show(self._turns[-1])
        while True:
            before = self._replies
            reply = self.llm(self._record.messages)
            if self._replies == before:
                raise UsageError(
                    "llm was overridden and the model did not write the reply, so there is nothing to learn from. "
                    "Call super().llm(messages) in it."
                )
            reading = reader.read(reply, observation)
            if not reading.named:
                self._record.note(None, True)
            if not reading.again:
                if not reading.guessed:
                    self._note(reading.action)
                return reading.action
            self._record.show([{"role": "user", "content": self.hint(reply)}])

    def _note(self, action: object) -> None:
        """Keep an action that was read, for ``fallback_action``."""
        plain = action.item() if hasattr(action, "item") and getattr(action, "size", 1) == 1 else action
        if (
            isinstance(plain, (int, float, str))
            and plain not in self.seen_actions
            and len(self.seen_actions) < 64
        ):
            self.seen_actions.append(plain)

    def assign_reward(self, reward: float) -> None:
        """What the environment gave for the last ``act``. Given twice, both count. Raises ``UsageError`` before the first ``act`` of an episode."""
        value = float(reward)
        if not math.isfinite(value):
            raise UsageError(
                f"Episode {self.episodes}, turn {self._replies}: a reward of {value} cannot be learned from."
            )
        if self._record is None or not self._record.steps:
            raise UsageError(
                f"Episode {self.episodes}: a reward of {value:g} was assigned before anything was done. Call act first."
            )
        self._rewards.append(value)
        last = self._record.steps[-1]
        self._record.steps[-1] = replace(last, reward=(last.reward or 0.0) + value)

    def terminate_episode(self, train: bool = True) -> dict[str, Any]:
        """End the episode, and learn where as many turns as ``batch_size`` have come together. Figures of that; {} where nothing was learned."""
        record, self._record, self._rewards = self._record, None, []
        if record is None or not record.steps:
            return {}
        self.learner.forget()
        number, split = self.episodes, "train" if train else "test"
        order = Order(number, Task("own loop", {}), self.seed, self.seed, number, split)  # type: ignore[arg-type]
        episode = record.episode(type(self).__name__, order, Ending("completed", ""))
        self.finished(episode)
        if not train:
            return {}
        self.batch.append(episode)
        self._form_check.watch(self._turns)
        turns = sum(len(e.steps) for e in self.batch)
        return self.train_batch() if turns >= self.settings.batch else {}

    def finished(self, episode: Episode) -> None:
        """Count an episode, and write it to the log."""
        self.episodes += 1
        if self.log is None:
            return
        row = {
            "episode": episode.number,
            "split": episode.split,
            "return": episode.total,
            "turns": len(episode.steps),
            "unparsable": episode.unparsable,
            "status": episode.status,
            "rewards": [s.reward for s in episode.steps],
            "messages": [dict(m) for m in episode.messages],
        }
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

    # ------------------------------------------------------------------------------------------------ learning

    def train_batch(self) -> dict[str, Any]:
        """Learn from all that waits, now. {} where nothing does."""
        batch, self.batch = self.batch, []
        if not batch:
            return {}
        figures = self._form_check.learn(batch) or self.learner.learn(batch)
        self._show(batch, figures)
        return figures

    def _show(self, batch: Sequence[Episode], figures: Mapping[str, object]) -> None:
        """The line of a batch."""
        count = len(batch)
        won, turns = sum(e.total > 0 for e in batch) / count, sum(len(e.steps) for e in batch) / count
        self._form_check.say(
            f"{self.episodes:5d} episodes  return {sum(e.total for e in batch) / count:+.3f}  success {won:4.0%}  "
            f"{turns:.1f} replies an episode  {unread_share(batch):.0%} unread"
            + (f"  form learned in {figures['form_steps']:.0f} steps" if figures.get("form_steps") else "")
        )

    def close(self) -> dict[str, Any]:
        """Learn from what is left."""
        return self.train_batch()

    def format_episode_for_ppo(
        self, episode: Episode
    ) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """Queries, responses and rewards of an episode's turns: the ids that were read and sampled, and what each step brought, float32."""
        import torch

        queries, responses, rewards = [], [], []
        for step in episode.steps:
            ids = episode.branches[step.branch].ids
            queries.append(torch.tensor(ids[: step.start]))
            responses.append(torch.tensor(ids[step.start : step.end]))
            rewards.append(torch.tensor((step.reward or 0.0) + step.penalty))
        return queries, responses, rewards

    def learn(
        self,
        make_env: Callable[[], Any],
        *,
        episodes: int,
        together: int = 32,
        max_turns: int = 100,
        tell: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> list[dict[str, Any]]:
        """Play ``episodes`` in environments that ``make_env`` makes, many at once, and learn after each ``batch_size`` turns or ``together`` episodes,
        whichever is more. Figures of each update. What is learned is what your own loop would learn; it is faster. As its end is known,
        the pull towards the base falls over it, and where the return has fallen by the end, the weights of its best time are taken."""
        told: list[dict[str, Any]] = []
        with self._rollouts(make_env, together, max_turns) as rollouts:
            left = episodes
            replies = action_replies(rollouts.worlds, self.policy)
            self.learner.trainer.watch_best()
            if self._form_check.grammar and not self.held_to:
                self._form_check.hold(replies)
            while left > 0:
                few = min(together, left) if self._form_check.checked else min(together, left, LOOKED_AT)
                orders = self._orders(few, 0)
                left -= len(orders)
                rollouts.refreshed(self.learner.trainer.update)
                played = rollouts.play(orders)
                notice = "" if self._form_check.checked else unread_notice(played, "of the first batch")
                if notice and replies:
                    numbered = self._orders(FORM_EPISODES, 0)
                    examples = partial(random_episodes, self.policy, rollouts.worlds, rollouts.how, numbered)
                    figures = self._form_check.take(replies, examples, played, notice)
                    told.append({"episodes": self.episodes, **figures})
                    left += len(orders)  # nothing was learned from these
                    explored, figures = self._explore(rollouts, left)
                    left -= explored
                    told += [{"episodes": self.episodes, **figures}] if explored else []
                    continue
                self._form_check.checked = self._form_check.checked or not notice
                for episode in played:
                    self.finished(episode)
                    if episode.steps:
                        self.batch.append(episode)
                self.learner.trainer.pace(left / max(1, episodes))
                turns = sum(len(e.steps) for e in self.batch)
                if left == 0 or (turns >= self.settings.batch and len(self.batch) >= together):
                    told.append({"episodes": self.episodes, **self.train_batch()})
                    tell(told[-1])
        self.learner.trainer.pace(None)
        if notice := self.learner.restore_best():
            self._form_check.say(notice)
        return told

    def _explore(self, rollouts: Rollouts, left: int) -> tuple[int, dict[str, float]]:
        """A first policy from random episodes, where they are short: how many of those that are ``left`` were played, and figures."""

        def play(count: int) -> Sequence[Episode]:
            return random_episodes(self.policy, rollouts.worlds, rollouts.how, self._orders(count, 0))

        episodes, figures = self._form_check.explore(play, left)
        for episode in episodes:
            self.finished(episode)
        return len(episodes), figures

    def evaluate(
        self, make_env: Callable[[], Any], *, episodes: int = 100, seed: int = 1_000_000, together: int = 32, max_turns: int = 100
    ) -> dict[str, float]:  # fmt: skip
        """The mean return on held-out seeds, with its standard error, and beside it that of random actions and of ``fallback_action``.
        Nothing is learned."""
        with self._rollouts(make_env, together, max_turns) as rollouts:
            rollouts.update = self.learner.trainer.update
            played = rollouts.play(self._orders(episodes, seed))
        figures = {
            **summary([e.total for e in played]),
            "unparsable": sum(e.unparsable for e in played) / max(1, sum(len(e.steps) for e in played)),
        }
        for name in ("random", "fallback"):
            seeds = range(seed, seed + episodes)
            found = summary(baseline(self, make_env, seeds, max_turns, at_random=name == "random"))
            figures |= {name: found["mean"], f"{name}_error": found["error"]}
        return figures

    def _rollouts(self, make_env: Callable[[], Any], together: int, max_turns: int) -> Rollouts:
        how = Play(together=together, max_turns=max_turns, max_tokens=self.settings.max_tokens, penalty=self.unparsable_penalty)  # fmt: skip
        worlds = AgentWorlds(type(self).__name__, self, make_env)
        return Rollouts(self.policy, worlds, how, sampling=self.settings.sampling)

    def _orders(self, count: int, first: int) -> list[Order]:
        """Held-out episodes have the seeds from ``first`` on, others their number."""
        base = first or self.episodes
        numbers = range(base, base + count)
        split = "test" if first else "train"
        return [Order(n, Task(f"seed {n}", {"seed": n}), n, self.seed, n, split) for n in numbers]  # type: ignore[arg-type]

    # --------------------------------------------------------------------------------------------- checkpoints

    def save(self, folder: str | Path) -> None:
        """The adapter (a PEFT folder), the optimizer, and how far it is: between episodes. ``load`` goes on with the same numbers."""
        if self._replies:
            raise UsageError("An episode is under way: call terminate_episode before save.")
        state = {
            "episodes": self.episodes,
            "form_checked": self._form_check.checked,
            "held_to": list(self.held_to),
            "seen_actions": [a for a in self.seen_actions if isinstance(a, (int, float, str))],
            "batch": [asdict(e) for e in self.batch],
        }
        self.learner.save(Path(folder), state)

    def load(self, folder: str | Path) -> None:
        """Go on from what ``save`` wrote. Raises ``ModelError`` where it is of another base, or not whole."""
        state = self.learner.load(Path(folder))
        self.episodes, self.seen_actions = state["episodes"], list(state["seen_actions"])
        self._form_check.checked = bool(state.get("form_checked", self.episodes > 0))
        if state.get("held_to"):
            self._form_check.hold(state["held_to"])
        self.batch = [Episode.of(row) for row in state["batch"]]
