"""What may train and draw in place of this process: the interfaces of the parts that ``plugins`` finds by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from clawback import plugins

if TYPE_CHECKING:
    from clawback.config import Config
    from clawback.environments.core import EnvironmentSet
    from clawback.environments.rollouts import Drawer, EpisodeSource
    from clawback.learning import Recipe, TrainingRun
    from clawback.models import TrainResult
    from clawback.paths import Home
    from clawback.policy import Policy, Sampler
    from clawback.progress import OnProgress
    from clawback.records import Episode, Run
    from clawback.sampling import Chance, Sampled


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster that this process is connected to."""

    ray: Any
    workers: int
    """0: one a machine."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What is played, and who hears of it."""

    policy: Policy
    worlds: EnvironmentSet
    wish: Any
    """A ``drawing.Wish``."""
    name: str
    """Of the folder for what a vLLM loads: a run's number."""
    tell: OnProgress
    seed: int = 0
    recipe: Recipe | None = None
    """None: nothing is learned from it."""
    keep: Callable[[Sequence[Episode]], None] = lambda _: None
    """Told of the episodes that are over."""


class Trainer(Protocol):
    """Runs whose weights are elsewhere."""

    def policy(self, settings: Config, base: str, system: str = "") -> Policy: ...

    def recipe(self, home: Home, settings: Config, draft: Recipe) -> Recipe: ...

    def present(self, home: Home, settings: Config, algorithm: str = "auto") -> None:
        """Raises where nothing answers, or the key is refused."""

    def train(self, home: Home, settings: Config, run: Run, inputs: TrainingRun) -> TrainResult:
        """``run``: as it is in the store."""
        ...


class ServedSampler(Protocol):
    """Draws the fresh answers of a run on ratings; a ``generate.Sampler`` with a name, and to be closed."""

    name: str

    def __call__(
        self, policy: Policy, prompts: Sequence[Sequence[int]], chance: Chance, merge: bool
    ) -> list[list[Sampled]]: ...

    def report_to(self, tell: OnProgress) -> None:
        """Who is told of what happens from here on."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class VllmDrawing(Protocol):
    """Drawing by vLLM servers."""

    def check(self, draw: str, settings: Config) -> None:
        """Raises where ``draw`` (an address, or ``vllm``) cannot draw."""

    def sampler(
        self, home: Home, settings: Config, policy: Policy, recipe: Recipe, draw: str, tell: OnProgress
    ) -> ServedSampler: ...

    def drawer(self, home: Home, settings: Config, rollout: Rollout) -> Drawer: ...


class ClusterDrawing(Protocol):
    """Drawing and playing by the workers of a cluster."""

    def check(self, ray: tuple[str, int]) -> None:
        """Raises ``UsageError`` where no cluster answers, ``MissingExtra`` without Ray."""

    def connected(self, ray: tuple[str, int]) -> AbstractContextManager[Cluster]: ...

    def players(self, cluster: Cluster, rollout: Rollout) -> AbstractContextManager[EpisodeSource]: ...

    def sampler(
        self, ray: tuple[str, int], recipe: Recipe, tell: OnProgress
    ) -> AbstractContextManager[Sampler]: ...

    def judging(
        self, judge: Any, ray: tuple[str, int], on_progress: OnProgress | None
    ) -> AbstractContextManager[int]:
        """``judge``: a ``judging.Local``."""
        ...


def is_hosted(recipe: Recipe) -> bool:
    """Whether the run of this recipe is trained elsewhere."""
    return bool(recipe.conditions.hosted)


def hosted() -> Trainer:
    """The trainer elsewhere that the settings name."""
    trainer: Trainer = plugins.load(plugins.TRAINERS, "hosted")
    return trainer


def vllm() -> VllmDrawing:
    """Drawing by vLLM."""
    drawing: VllmDrawing = plugins.load(plugins.SAMPLERS, "vllm")
    return drawing


def cluster() -> ClusterDrawing:
    """Drawing by a Ray cluster."""
    drawing: ClusterDrawing = plugins.load(plugins.SAMPLERS, "ray")
    return drawing


HERE, OWN_VLLM = "here", "vllm"
"""Beside the address of a vLLM, what ``--draw`` and ``[training] draw`` may say: this process, or a vLLM that the run starts."""


def chosen(draw: str, settings: Config) -> str:
    """What draws: ``vllm``, an address, or "" for this process. Raises ``UsageError``, and ``HostedError`` where nothing answers at the address."""
    draw = draw or settings.training.draw
    if draw in ("", HERE):
        return ""
    vllm().check(draw, settings)
    return draw
