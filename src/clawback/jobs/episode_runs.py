"""Runs on episodes in the store: their options, their recipe, and which interrupted one is continued."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from clawback.errors import Busy, UsageError
from clawback.jobs.drawing import Wish
from clawback.learning import conditions_of
from clawback.records import Run

if TYPE_CHECKING:
    from clawback.learning import Recipe
    from clawback.models import ModelInfo
    from clawback.store import Store

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


def recipe_of(info: ModelInfo, wish: Wish, preset: str, overrides: Mapping[str, Any]) -> Recipe:
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
