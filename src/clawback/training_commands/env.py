"""``env``: which environments there are, whether one is sound, and what a policy is worth in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, get_args

import click

from clawback.environments.core import EnvironmentSet, Selective, Split, Task
from clawback.environments.world_helpers import single_task_notice
from clawback.errors import ClawbackError, NotFound
from clawback.terminal import (
    CommandGroup,
    as_record,
    current_home,
    emit,
    fold,
    json_option,
    named_version,
    open_store,
    say,
    width,
)
from clawback.training_commands import episode_output
from clawback.training_commands.episode_options import (
    ANSWER_SECONDS,
    SEED,
    SPLIT,
    EpisodeOptions,
    PlayerOptions,
    episode_options,
)

if TYPE_CHECKING:
    from clawback.environments.play import PlayedEpisode, Player
    from clawback.environments.validate import TaskCheck
    from clawback.policy import Policy
    from clawback.records import JsonObject


@click.group(
    cls=CommandGroup,
    members={
        "train": "clawback.training_commands.gym:gym",
        "episodes": "clawback.training_commands.gym:episodes",
    },
)
def env() -> None:
    """Environments: list them, check one, let a policy play one.

    \b
    clawback env list
    clawback env validate tools:shop
    clawback env run gymnasium:FrozenLake-v1
    clawback env eval tools:shop --policy http://127.0.0.1:8742
    """


@env.command("list")
@click.argument("kind", required=False)
@json_option
def list_(kind: str | None, as_json: bool) -> None:
    """List the kinds of environments and the plugins; with KIND, what is in it.

    \b
    clawback env list
    clawback env list gymnasium
    """
    from clawback.environments import registry

    if kind:
        found = registry.members(kind)
        emit(found, "\n".join(f"{kind}:{name}" for name in found) or kind, as_json)
        return
    kinds = [
        {"name": name, "title": k.title, "example": k.example, "installed": k.installed, "package": k.package}
        for name, k in registry.KINDS.items()
    ]
    plugins = [{"name": name, "from": where} for name, where in registry.plugins().items()]
    lines = [f"  {k['example']:<33} {k['title'] if k['installed'] else _missing(k)}" for k in kinds]
    lines += ["", "Plugins:", *(f"  {p['name']:<33} {p['from']}" for p in plugins)] if plugins else []
    lines += ["", "Your own: module:Name or file.py:Name. Settings: NAME?key=value&key=value."]
    emit({"kinds": kinds, "plugins": plugins}, "\n".join(shorten_right(line) for line in lines), as_json)


def shorten_right(line: str) -> str:
    return line if len(line) <= width() else line[: width() - 1] + "…"


def _missing(kind: JsonObject) -> str:
    return f"(needs {kind['package'].replace('_', '-')})"


@env.command()
@click.argument("name")
@SPLIT
@click.option(
    "--tasks", "count", default=20, show_default=True, type=click.IntRange(1), help="How many tasks."
)
@SEED
@ANSWER_SECONDS
@json_option
def validate(name: str, split: Split, count: int, seed: int, seconds: float | None, as_json: bool) -> None:
    """Check an environment without a model.

    Known solutions must score 1, both times, and an empty reply must not. Tasks without a known solution are opened, stepped and closed, and
    must be the same under one seed.

    \b
    clawback env validate tools:shop
    clawback env validate bfcl:multiple?data=bfcl_eval/data --tasks 200
    """
    from clawback.environments import registry
    from clawback.environments import validate as validating
    from clawback.terminal.progress_bar import progress_bar

    environments = registry.find(name)
    tasks = _tasks(environments, split, count)
    with progress_bar(quiet=as_json) as follow:

        def report(_: TaskCheck, step: int, steps: int) -> None:
            follow({"phase": "validate", "step": step, "steps": steps})

        checks = asyncio.run(
            validating.validate(environments, tasks, seed=seed, seconds=seconds, on_check=report)
        )
    bad = [check for check in checks if check.problem]
    solved = sum(check.solved is True and not check.problem for check in checks)
    opened = sum(check.solved is None and not check.problem for check in checks)
    said = [f"{environments.name}: {len(checks) - len(bad)} of {len(checks)} tasks are sound."]
    said += [f"{solved} by their known solution, which scores 1."] if solved else []
    said += [f"{opened} have no known solution: opened, stepped and closed twice alike."] if opened else []
    said += [f"  {check.task}: {check.problem}" for check in bad[:10]]
    said += [f"  … and {len(bad) - 10} more"] if len(bad) > 10 else []
    refused = _refused(environments)
    said += [f"{len(refused)} tasks (of any split) cannot be run here and are left out:"] if refused else []
    said += [f"  {task}: {why}" for task, why in list(refused.items())[:10]]
    said += [f"  … and {len(refused) - 10} more"] if len(refused) > 10 else []
    emit(
        {
            "name": environments.name,
            "sound": not bad,
            "checks": [asdict(c) for c in checks],
            "refused": refused,
        },
        fold("\n".join(said), "    "),
        as_json,
    )
    if bad:
        raise ClawbackError(f"{len(bad)} of {len(checks)} tasks of {environments.name} failed the check.")


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How many episodes, and where they are written."""

    episodes: int
    each: int
    together: int
    output: str | None


@env.command()
@click.argument("name")
@click.option("--task", "which", help="The task's id (its end is enough); else the first of the split.")
@episode_options
@json_option
def run(name: str, which: str | None, player: PlayerOptions, options: EpisodeOptions, as_json: bool) -> None:
    """Play one episode and show it. Nothing is learned from it.

    \b
    clawback env run gymnasium:FrozenLake-v1?is_slippery=false --policy reference
    clawback env run tools:shop --task test/buy/1 --policy live
    """
    from clawback.environments import play
    from clawback.environments.registry import find

    environments = find(name, shots=options.shots)
    task = _task(environments, options.split, which)
    policy_player = _player(player, environments)

    async def once() -> PlayedEpisode:
        try:
            return await play.episode(
                environments, task, policy_player, options.seed, options.turns, options.seconds
            )
        finally:
            await play.let_go(environments)

    played = asyncio.run(once())
    emit(
        episode_output.data(played) | {"messages": list(played.messages)},
        episode_output.transcript(played),
        as_json,
    )
    if played.reward is None:
        raise ClawbackError(f"The environment failed: {played.error}")


@env.command("eval")
@click.argument("name")
@episode_options
@click.option(
    "--episodes",
    default=50,
    show_default=True,
    type=click.IntRange(1),
    help="How many tasks, one try at each.",
)
@click.option("--each", default=1, show_default=True, type=click.IntRange(1), help="Tries at each task.")
@click.option(
    "--together", default=8, show_default=True, type=click.IntRange(1, 1024), help="Episodes at once."
)
@click.option(
    "--output", type=click.Path(dir_okay=False, writable=True), help="Write the episodes here (JSON lines)."
)
@json_option
@as_record(EvaluationOptions, "evaluation")
def eval_(
    name: str,
    player: PlayerOptions,
    options: EpisodeOptions,
    evaluation: EvaluationOptions,
    as_json: bool,
) -> None:
    """Evaluate a policy on tasks. Nothing is learned.

    \b
    clawback env eval tools:shop --policy base --episodes 100
    clawback env eval gymnasium:Blackjack-v1 --policy my_bot.py:act
    """
    from clawback.environments import play
    from clawback.environments.registry import find
    from clawback.terminal.progress_bar import progress_bar

    environments = find(name, shots=options.shots)
    tasks = _tasks(environments, options.split, evaluation.episodes)
    with progress_bar(quiet=as_json) as follow:

        def report(_: PlayedEpisode, step: int, steps: int) -> None:
            follow({"phase": "play", "step": step, "steps": steps})

        played = asyncio.run(
            play.play(
                environments,
                tasks,
                _player(player, environments),
                play.PlaySettings(
                    options.seed, evaluation.each, evaluation.together, options.turns, options.seconds
                ),
                report,
            )
        )
    figures = {
        "name": environments.name,
        "policy": player.who,
        "split": options.split,
        "seed": options.seed,
        **play.summary(played),
    }
    if evaluation.output:
        episode_output.write(evaluation.output, played)
    emit(figures, fold("\n".join(episode_output.summary(figures, evaluation.each)), "  "), as_json)
    if figures["failed"] == figures["episodes"]:
        raise ClawbackError(
            f"The environment failed in every episode, the last time with: {played[-1].error}"
        )


def _tasks(environments: EnvironmentSet, split: Split, count: int) -> Sequence[Task]:
    tasks = environments.tasks(split)[:count]
    if not tasks:
        for task, why in _refused(environments).items():
            raise NotFound(
                f"{environments.name} has no task in the split `{split}` that can be run here. {task} is left out: {why}."
            )
        raise NotFound(
            f"{environments.name} has no tasks in the split `{split}`. Try --split {'train' if split == 'test' else 'test'}."
        )
    tell_of_a_single_task(environments)
    return tasks


def tell_of_a_single_task(environments: EnvironmentSet) -> None:
    """Say so where the only task is in both splits."""
    if notice := single_task_notice(environments):
        say(notice, err=True)


def _refused(environments: EnvironmentSet) -> dict[str, str]:
    return dict(environments.refused()) if isinstance(environments, Selective) else {}


def _task(environments: EnvironmentSet, split: Split, which: str | None) -> Task:
    if which is None:
        return _tasks(environments, split, 1)[0]
    every = [task for side in get_args(Split) for task in environments.tasks(side)]
    found = [task for task in every if task.id == which] or [
        task for task in every if task.id.endswith(f"/{which}")
    ]
    if not found:
        raise NotFound(
            f"{environments.name} has no task `{which}`. Its ids are like `{every[0].id if every else '—'}`."
        )
    return found[0]


def _player(player: PlayerOptions, environments: EnvironmentSet) -> Player:
    from clawback.environments import policies

    def load(which: str) -> Policy:
        from clawback import release

        with open_store() as store:
            version = named_version(store, which)
        policy = release.load(current_home(), version)
        if replies := release.held_replies(version, environments.name):
            policy.hold_to(replies)
        return policy

    key = os.environ.get(player.key_env, "") or _own_key(player.who)
    options = policies.AnswerOptions(player.model, key, player.temperature, player.max_tokens)
    return policies.player(player.who, environments, options, load)


def _own_key(address: str) -> str:
    """The token of this home, for the server of this home alone: other programs listen on this machine as well."""
    from urllib.parse import urlsplit

    from clawback import config

    here = current_home()
    parts = urlsplit(address)
    own = (
        parts.hostname in ("127.0.0.1", "localhost", "::1")
        and parts.port == config.load(here.config).serve.port
    )
    token = here.root / "token"
    return token.read_text("utf-8").strip() if own and token.is_file() else ""
