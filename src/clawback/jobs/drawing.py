"""Which episodes to play, who plays them and draws the replies, and a preview of a few episodes before training on any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clawback import config, plugins, release, store
from clawback.environments import registry
from clawback.environments.core import EnvironmentSet
from clawback.environments.evaluating import orders
from clawback.environments.find import find
from clawback.environments.program_dialogue import cut_notice
from clawback.environments.rollouts import Play, Rollouts
from clawback.environments.world_helpers import single_task_notice
from clawback.errors import UsageError
from clawback.jobs import seams
from clawback.jobs.seams import Cluster, Rollout, chosen
from clawback.learning import ignore
from clawback.paths import Home
from clawback.records import Episode

if TYPE_CHECKING:
    from clawback.environments.group_judge import GroupJudge
    from clawback.environments.rollouts import Drawer, EpisodeSource
    from clawback.progress import OnProgress


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be played, and how. It is stored with the run."""

    task: str
    agent: str | None = None
    episodes: int = 1000
    groups: int = 32
    """Groups a round."""
    size: int = 1
    """Episodes of a group: the same task and seed."""
    staleness: int = 0
    held_out: int = 64
    """Held-out tasks before and after."""
    together: int = 32
    max_turns: int = 40
    max_tokens: int | None = None
    """Tokens of a reply; None: as its kind of environment needs."""
    penalty: float = 0.5
    draw: str = ""
    """What draws the replies: ``vllm`` (one that the run starts), the address of one, ``here`` (this process); "": as the settings say."""
    ratings: bool = False
    """Learn from the person's ratings in the same steps, and be judged by them too."""
    shots: str = ""
    """Worked examples before each task: how many, or a file of them."""
    judge_steps: float = 0.0
    """What a judge's vote on a single reply weighs beside the environment's rewards; 0: nobody is asked."""

    learn_form: bool = True
    """Learn the form of an action first, where most replies name none and the actions are known."""

    reward: str = ""
    """In place of what the environment rewards: ``judge``, ``rules``, or a function of one's own (``own_reward.py``); "": its own."""

    harness: str = ""
    """The agent program that works on the tasks in their boxes: a preset's name, or a command; "": the policy itself replies."""

    def worlds(self, seed: int) -> EnvironmentSet:
        found = find(self.task, self.agent, seed=seed, shots=self.shots)
        if self.harness:
            found = plugins.load(plugins.WRAPPERS, "harness")(found, self.harness, self.max_turns)
        if self.reward:
            from clawback.environments.own_reward import with_reward

            found = with_reward(found, self.reward)
        if not self.judge_steps:
            return found
        from clawback.environments.step_judge import StepJudged
        from clawback.feedback.endpoint import configured_judge

        return StepJudged(found, configured_judge(), self.judge_steps)

    def group_judge(self) -> GroupJudge | None:
        """Who compares the tries at one task; None where they are rewarded one by one. Raises ``UsageError``."""
        if self.reward != "judge":
            return None
        if self.size < 2:
            raise UsageError("--reward judge compares tries at the same task: add --group 4, or more.")
        from clawback.environments.group_judge import GroupJudge
        from clawback.feedback.endpoint import configured_judge

        return GroupJudge(configured_judge())

    @property
    def play(self) -> Play:
        return Play(self.together, self.max_turns, self.reply_tokens, self.penalty)

    @property
    def reply_tokens(self) -> int:
        if self.max_tokens is not None:
            return self.max_tokens
        return registry.reply_tokens("gymnasium" if self.agent else self.task)

    @property
    def rounds(self) -> int:
        return max(1, -(-self.episodes // (self.groups * self.size)))


@contextmanager
def connected(ray: tuple[str, int] | None) -> Iterator[Cluster | None]:
    """The cluster at an address, for so many workers. Raises ``UsageError`` where none answers, ``MissingExtra`` without Ray."""
    if ray is None:
        yield None
        return
    with seams.cluster().connected(ray) as cluster:
        yield cluster


def players(home: Home, rollout: Rollout, cluster: Cluster | None) -> AbstractContextManager[EpisodeSource]:
    """Who plays a run's episodes: this process, or a cluster's workers."""
    if cluster is not None:
        return seams.cluster().players(cluster, rollout)
    drawer = drawer_of(home, config.load(home.config), rollout)
    return Rollouts(
        rollout.policy, rollout.worlds, rollout.wish.play, on_episodes=rollout.keep, drawer=drawer
    )


def drawer_of(home: Home, settings: config.Config, rollout: Rollout) -> Drawer | None:
    """The vLLM that the wish names; None: this process draws."""
    return seams.vllm().drawer(home, settings, rollout) if rollout.wish.draw else None


def samples(
    home: Home, wish: Wish, count: int, *, seed: int | None = None, on_progress: OnProgress | None = None
) -> list[Episode]:
    """Play so many training tasks with the live version, to see whether tasks, tools and rewards are as they should be. Nothing is kept."""
    home.create()
    settings = config.load(home.config)
    seed = settings.training.seed if seed is None else seed
    wish = replace(wish, draw=chosen(wish.draw, settings))
    worlds = wish.worlds(seed)
    if not worlds.tasks("train"):
        raise UsageError(
            f"{worlds.name} has no tasks to learn from, so there is nothing to play: give at least one the split `train`."
        )
    if on_progress and (notice := single_task_notice(worlds)):
        on_progress({"phase": "alert", "text": notice})
    with store.connect(home.database) as db:
        policy = release.load(home, db.live(), settings)
    policy.sampling = replace(policy.sampling, top_p=1.0, top_k=0)
    tasks = worlds.tasks("train")
    rollout = Rollout(policy, worlds, wish, "samples", on_progress or ignore)
    drawer = drawer_of(home, settings, rollout)
    with Rollouts(policy, worlds, wish.play, drawer=drawer) as rollouts:
        episodes = rollouts.play(orders(tasks, count, seed, 0))
    if on_progress and (notice := cut_notice(policy, episodes)):
        on_progress({"phase": "alert", "text": notice})
    return episodes
