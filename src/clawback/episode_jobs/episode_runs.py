"""Runs on episodes: which episodes are played, who plays them and draws the replies, and what the store holds of such a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from clawback import config, plugins, release, store
from clawback.environments import registry
from clawback.environments.core import EnvironmentSet
from clawback.environments.registry import find
from clawback.environments.world_helpers import single_task_notice
from clawback.errors import Busy, UsageError
from clawback.jobs import seams
from clawback.jobs.seams import Cluster, Rollout, chosen
from clawback.paths import Home
from clawback.records import Episode, Run
from clawback.rollouts.concurrent import Play, Rollouts
from clawback.rollouts.program_dialogue import cut_notice
from clawback.rollouts.rounds import orders
from clawback.trainer import conditions_of, ignore

if TYPE_CHECKING:
    from clawback.models import ModelInfo
    from clawback.progress import OnProgress
    from clawback.rollouts.concurrent import Drawer, EpisodeSource
    from clawback.rollouts.group_judge import GroupJudge
    from clawback.store import Store
    from clawback.trainer import Recipe


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
        environments = find(self.task, self.agent, seed=seed, shots=self.shots)
        if self.harness:
            environments = plugins.load(plugins.WRAPPERS, "harness")(
                environments, self.harness, self.max_turns
            )
        if self.reward:
            from clawback.rollouts.own_reward import with_reward

            environments = with_reward(environments, self.reward)
        if not self.judge_steps:
            return environments
        from clawback.feedback.endpoint import configured_judge
        from clawback.rollouts.step_judge import StepJudged

        return StepJudged(environments, configured_judge(), self.judge_steps)

    def group_judge(self) -> GroupJudge | None:
        """Who compares the tries at one task; None where they are rewarded one by one. Raises ``UsageError``."""
        if self.reward != "judge":
            return None
        if self.size < 2:
            raise UsageError("--reward judge compares tries at the same task: add --group 4, or more.")
        from clawback.feedback.endpoint import configured_judge
        from clawback.rollouts.group_judge import GroupJudge

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


OF_RATINGS = frozenset({"grounding", "prompts", "samples", "exact_kl", "replay"})
"""Settings of how ratings beside episodes are graded."""


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """Options of one run on episodes. None: as the settings say."""

    seed: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Recipe values by hand, and those of ``EpisodeSettings``."""
    preset: str | None = None
    live: bool = False
    """Put it live if held-out tasks accept it."""
    resume: int | None = None
    """A run that was stopped, to go on with: its own wish counts."""
    ray: tuple[str, int] | None = None
    """Address and workers (0: one a machine) of a cluster that plays the episodes."""


DEFAULTS = PlayOptions()


def check_options(wish: Wish, options: PlayOptions, *, looks: bool) -> None:
    """Raises ``UsageError`` for options that do not go together. ``looks``: a few episodes are played and nothing is learned."""
    if not wish.task and options.resume is None:
        raise UsageError("Name what is to be played: `clawback env train TASK`, or a run with --resume.")
    ray = options.ray is not None
    if ray and looks:
        raise UsageError("A few episodes to look at are played here: leave --ray out.")
    if ray and wish.judge_steps:
        raise UsageError(
            "Single replies are judged here, not on a cluster: leave --ray or --judge-steps out."
        )
    if wish.harness and wish.reward not in ("", "judge"):
        raise UsageError(
            "The reward of a program is its task's check, or a judge's comparison (--reward judge)."
        )
    if wish.harness and (ray or wish.shots or wish.judge_steps or wish.agent):
        raise UsageError(
            "--harness is about one machine's programs: leave --ray, --shots, --judge-steps and --agent out."
        )
    if wish.reward and (ray or wish.judge_steps):
        raise UsageError("Another reward is given on this machine alone: leave --ray or --judge-steps out.")


def wish_of(run: Run) -> Wish | None:
    """What a run plays; None for one on feedback."""
    values = conditions_of(run.recipe).gym
    return Wish(**values) if values else None


def take_up(db: Store, number: int) -> Wish:
    """A stopped run, or one whose process died, as one that runs again. Raises ``UsageError``."""
    run = db.run(number)
    wish = wish_of(run)
    if wish is None or run.status not in ("stopped", "running"):
        why = "learns from feedback: `clawback runs resume`" if wish is None else f"is {run.status}"
        raise UsageError(f"Run {number} {why}, so there is nothing to resume.")
    set_running(db, number)
    return wish


def set_running(db: Store, number: int) -> None:
    """The run runs again, in this process."""
    db.update_run(number, status="running", finished_at=None, stop_at=None, pid=os.getpid())


def interrupted(db: Store, wish: Wish, seed: int) -> Run | None:
    """The run that a dead process left, or the newest, where it is this very one and was stopped. Raises ``Busy`` where it is one on feedback."""
    if (dead := db.active_run()) is not None:
        if wish_of(dead) is None:
            raise Busy(
                f"Run {dead.id} was interrupted. Finish it first (`clawback train`), or stop it (`clawback runs stop`)."
            )
        return dead
    last = next(iter(db.runs(limit=1)), None)
    if last is None or last.status != "stopped" or last.version is not None:
        return None
    return last if (wish_of(last), last.seed) == (wish, seed) else None


def recipe_of(info: ModelInfo, wish: Wish, preset: str, overrides: Mapping[str, object]) -> Recipe:
    """The recipe of a run that plays ``wish``. ``overrides``: values of the recipe, and of ``EpisodeSettings``."""
    from clawback import engine
    from clawback.learning import EpisodeSettings, exploration

    names = {f.name for f in fields(EpisodeSettings)} - {"rounds"} | OF_RATINGS
    settings = {name: value for name, value in overrides.items() if name in names}
    rest = {name: value for name, value in overrides.items() if name not in names}
    usual = {"rounds": wish.rounds, "explore": exploration(wish.episodes)}
    recipe = engine.episode_recipe(info, preset, rest, **{**usual, **settings})
    return replace(recipe, conditions=replace(recipe.conditions, gym=asdict(wish)))


def is_same(run: Run, wish: Wish, seed: int, recipe: Recipe) -> bool:
    """Whether a run that was begun is what would be begun now."""
    from clawback import engine

    recorded = engine.recipe_from(json.loads(json.dumps(asdict(recipe))))  # as the store gives it back
    return (wish_of(run), run.seed, engine.recipe_from(run.recipe)) == (wish, seed, recorded)
