"""A Ray cluster draws and plays in place of a run's own process: fresh answers, episodes, the votes of the local judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.errors import UsageError
from clawback.extensions.scale.ray_crew import connect
from clawback.jobs.seams import Cluster, Rollout

if TYPE_CHECKING:
    from clawback.jobs.judge_pass import SelfJudge
    from clawback.policy import Sampler
    from clawback.progress import OnProgress
    from clawback.rollouts.concurrent import EpisodeSource
    from clawback.trainer import Recipe


@contextmanager
def connected(ray: tuple[str, int]) -> Iterator[Cluster]:
    """The cluster at an address, for so many workers. Raises ``UsageError`` where none answers, ``MissingExtra`` without Ray."""
    cluster = connect(ray[0])
    try:
        yield Cluster(cluster, ray[1])
    finally:
        cluster.shutdown()


def check(ray: tuple[str, int]) -> None:
    """Raises ``UsageError`` where no cluster answers, ``MissingExtra`` without Ray: a run says so before it loads a model."""
    with connected(ray):
        pass


def players(cluster: Cluster, rollout: Rollout) -> AbstractContextManager[EpisodeSource]:
    """The cluster's workers play a run's episodes."""
    from clawback.extensions.scale.player import PlayingWorker, Scene
    from clawback.extensions.scale.process_group import description_of
    from clawback.extensions.scale.ray_crew import RayCrew
    from clawback.extensions.scale.ray_episodes import ClusterRollouts

    policy, wish, chat = rollout.policy, rollout.wish, rollout.policy.chat
    assert rollout.recipe is not None
    scene = Scene(
        wish.task,
        wish.agent,
        wish.shots,
        rollout.seed,
        wish.play,
        policy.sampling,
        chat.template_args,
        chat.system,
        policy.max_prompt,
        str(Path.cwd()),
    )
    about = [description_of(policy, rollout.recipe), scene]
    return ClusterRollouts(
        lambda: RayCrew(cluster.ray, PlayingWorker, about, cluster.workers),
        policy,
        rollout.worlds,
        scene,
        on_episodes=rollout.keep,
        tell=rollout.tell,
    )


def sampler(ray: tuple[str, int], recipe: Recipe, tell: OnProgress) -> AbstractContextManager[Sampler]:
    """The cluster's workers draw the fresh answers of a run on ratings."""
    from clawback.extensions.scale.ray_sampler import RaySampler

    return RaySampler(ray[0], recipe, ray[1], tell)


@contextmanager
def judging(judge: SelfJudge, ray: tuple[str, int], on_progress: OnProgress | None) -> Iterator[int]:
    """The judge's answers are drawn by a cluster meanwhile: how many may be asked for at once."""
    from clawback import engine
    from clawback.extensions.scale.asking import SharedDraw
    from clawback.extensions.scale.dispatch import AHEAD
    from clawback.extensions.scale.model_worker import DrawingWorker
    from clawback.extensions.scale.process_group import description_of
    from clawback.extensions.scale.ray_crew import RayCrew

    policy = judge.policy
    if policy.full:
        raise UsageError(
            "All weights of this version were trained, and workers are sent adapters alone: leave --ray out."
        )
    cluster = connect(ray[0])
    try:
        crew = RayCrew(cluster, DrawingWorker, [description_of(policy, engine.recipe(policy.info))], ray[1])
        with SharedDraw(crew, policy, on_progress or (lambda _: None)) as draw:
            judge.draw = draw
            yield AHEAD * crew.count
    finally:
        cluster.shutdown()
