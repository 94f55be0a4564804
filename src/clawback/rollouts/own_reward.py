"""Rewards that no environment gives: ``--reward judge``, ``rules``, or a function of yours (``file.py:function``).

What the environment itself rewards is left out, in training and on held-out tasks alike. A function and your rules score each
episode as it ends. A judge compares tries at one task (``rollouts/group_judge.py``), so these wait for their reward until the
group is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from clawback import store
from clawback.environments import world_helpers
from clawback.environments.core import (
    Environment,
    EnvironmentFailure,
    EnvironmentSet,
    Observation,
    Split,
    Step,
    Task,
)
from clawback.environments.play import let_go
from clawback.environments.tools import calls
from clawback.environments.tools.task_rewards import Finished, Own, TaskReward
from clawback.environments.tools.toolbox import JointToolbox
from clawback.errors import UsageError
from clawback.paths import home
from clawback.records import Message, Rule, text_of
from clawback.rules.checks import check_of, keeps

JUDGE, RULES = "judge", "rules"


class OwnReward:
    """An environment set whose episodes are rewarded by ``reward``; None: later, by whoever compares them."""

    def __init__(self, of: EnvironmentSet, reward: TaskReward | None) -> None:
        self.of, self.reward, self.name = of, reward, of.name

    def tasks(self, split: Split) -> Sequence[Task]:
        return self.of.tasks(split)

    def make(self) -> Environment:
        return _Episode(self.reward, self.of.make())

    async def aclose(self) -> None:
        await let_go(self.of)


class _Episode:
    """One episode with a reward from elsewhere."""

    def __init__(self, reward: TaskReward | None, world: Environment) -> None:
        self.reward, self.world = reward, world
        self.task, self.seed = Task(""), 0
        self.messages: list[Message] = []

    async def reset(self, task: Task, seed: int) -> Observation:
        opened = await self.world.reset(task, seed)
        self.task, self.seed, self.messages = task, seed, list(opened.messages)
        return opened

    async def step(self, message: Message) -> Step:
        step = await self.world.step(message)
        self.messages += [message, *step.messages]
        if not step.done or self.reward is None:
            return replace(step, reward=None)
        return replace(step, reward=await self.reward(self._finished(message, step.info)))

    def _finished(self, last: Message, info: Mapping[str, object]) -> Finished:
        replies = [m for m in self.messages if m.get("role") == "assistant"]
        return Finished(
            task=self.task,
            messages=tuple(self.messages),
            calls=tuple(call for reply in replies for call in calls.read(reply).calls),
            answer=text_of(last.get("content")),
            state=None,
            seed=self.seed,
            fresh=JointToolbox,
            info=dict(info),
        )

    async def close(self) -> None:
        await self.world.close()


@dataclass(frozen=True, slots=True)
class RulesKept:
    """The share of your rules that the last reply keeps, of those that apply to it."""

    rules: tuple[Rule, ...]

    async def __call__(self, episode: Finished) -> float:
        question = next(
            (text_of(m.get("content")) for m in reversed(episode.messages) if m.get("role") == "user"), ""
        )
        verdicts = [keeps(rule, question, episode.answer) for rule in self.rules]
        known = [verdict for verdict in verdicts if verdict is not None]
        if not known and episode.answer.strip():
            raise EnvironmentFailure(
                "none of your rules applies to the reply, so nothing can be learned from it"
            )
        return sum(known) / len(known) if known else 0.0


def with_reward(of: EnvironmentSet, name: str) -> OwnReward:
    """The same tasks under another reward. Raises ``UsageError``, ``NotFound``."""
    if name == JUDGE:
        return OwnReward(of, None)
    if name == RULES:
        return OwnReward(of, RulesKept(_checked_rules()))
    if ":" not in name:
        raise UsageError(
            f"There is no reward `{name}`. Choose judge, rules, or a function of yours (file.py:function)."
        )
    function = world_helpers.load_object(name)
    if not callable(function):
        raise UsageError(f"The reward `{name}` is no function.")
    if problem := Own(function).mismatch():
        raise UsageError(f"The reward `{name}` {problem}.")
    return OwnReward(of, Own(function))


def _checked_rules() -> tuple[Rule, ...]:
    with store.connect(home().database) as db:
        rules = tuple(rule for rule in db.rules("believed") if check_of(rule))
    if not rules:
        raise UsageError(
            "No rule of yours that ratings or you speak for has a check by code, so there is nothing to reward. "
            "`clawback rules` shows them; `clawback rules add` adds one."
        )
    return rules
