"""``gym episodes``: learn from an environment, and look at what was played."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from clawback.errors import UsageError
from clawback.records import text_of
from clawback.terminal import (
    CommandGroup,
    as_record,
    columns,
    current_home,
    emit,
    fold,
    json_option,
    needs,
    open_store,
    ray_option,
    say,
    when,
)
from clawback.training_commands.episode_options import SHOTS

if TYPE_CHECKING:
    from clawback.episode_jobs.episode_runs import PlayOptions, Wish
    from clawback.episode_jobs.playing import PlayResult
    from clawback.records import Episode, JsonObject


@click.command()
@click.argument("task", default="")
@click.option("--agent", metavar="MODULE:CLASS", help="A clawback.Agent that puts a Gymnasium id into words.")
@click.option(
    "--episodes", default=1000, show_default=True, type=click.IntRange(1), help="To learn from, in all."
)
@click.option(
    "--batch",
    "groups",
    default=32,
    show_default=True,
    type=click.IntRange(1),
    help="Groups of episodes a round.",
)
@click.option(
    "--group",
    "size",
    default=1,
    show_default=True,
    type=click.IntRange(1),
    help="Tries at the same task that are held against each other.",
)
@click.option(
    "--staleness",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Updates that an episode may be behind when it is learned from.",
)
@click.option(
    "--held-out",
    default=64,
    show_default=True,
    type=click.IntRange(0),
    help="Held-out tasks, before and after.",
)
@click.option(
    "--together", default=32, show_default=True, type=click.IntRange(1), help="Episodes under way at once."
)
@click.option(
    "--max-turns", default=40, show_default=True, type=click.IntRange(1), help="Replies in an episode."
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    help="Tokens of a reply.  [default: by environment, 32 (Gymnasium) to 1024 (terminal)]",
)
@click.option(
    "--penalty",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0),
    help="What an unparsable reply costs.",
)
@click.option(
    "--ratings", is_flag=True, help="Learn from your ratings in the same run, and be judged by both."
)
@SHOTS
@click.option(
    "--harness",
    default="",
    metavar="AGENT|COMMAND",
    help="Train inside an agent program: claude-code, codex, opencode, or any command (docs/harness.md).",
)
@click.option(
    "--reward",
    default="",
    metavar="judge|rules|FILE.py:FUNCTION",
    help="Reward by a judge that compares the tries of a --group, by your rules, or by a function, not by the environment.",
)
@click.option(
    "--judge-steps",
    default=0.0,
    type=click.FloatRange(0),
    metavar="WEIGHT",
    help="Let the judge of [judge] vote on each reply in training, and add its votes times this.",
)
@click.option(
    "--draw",
    default="",
    metavar="vllm|URL|here",
    help="What draws the replies: a vLLM that the run starts, one at an address, or the run itself (docs/vllm.md).",
)
@ray_option("Let the machines of this Ray cluster play the episodes", "Workers that play.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    callback=lambda _context, _option, values: _values(values),
    metavar="NAME=VALUE",
    help="A recipe value: learning_rate, kl, gamma, estimator, …",
)
@click.option(
    "--num-samples",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Play N episodes to look at, learn nothing.",
)
@click.option(
    "--learn-form/--no-learn-form",
    default=True,
    help="Where most replies name no action, learn first what an action looks like.  [default: on]",
)
@click.option("--seed", type=int, help="The same seed plays and learns the same.")
@click.option("--live", is_flag=True, help="Put the version live if held-out tasks accept it.")
@click.option("--resume", type=int, metavar="RUN", help="Continue a run that was stopped or died.")
@json_option
@as_record("clawback.episode_jobs.episode_runs:Wish", "wish")
@as_record("clawback.episode_jobs.episode_runs:PlayOptions")
def gym(wish: Wish, options: PlayOptions, num_samples: int | None, as_json: bool) -> int:
    """Train in an environment. TASK is one of `clawback env list`, or with --agent a Gymnasium id.

    Held-out tasks are played before and after. Ctrl-C stops the run; the same command, or --resume, continues it, and no finished
    episode is lost. The new version stays a candidate unless --live is given.

    \b
    clawback env train FrozenLake-v1 --agent frozen_lake:LakeAgent --episodes 4000
    clawback env train tools:shop --group 8 --set estimator=group
    clawback env train my_tasks:Colours
    clawback env train bfcl:simple_python --shots 3 --group 8
    clawback env train tools:questions.toml --reward judge --group 4
    clawback env train tools:questions.toml --reward score.py:score
    clawback env train tools:shop --ratings
    clawback env train tools:shop --num-samples 10
    clawback env train tools:shop --draw vllm
    clawback env train repository --harness codex
    clawback env train terminal --harness "python3 agent.py {task}"
    clawback env train FrozenLake-v1 --agent frozen_lake:LakeAgent --ray auto
    clawback env train --resume 7
    """
    needs("torch")
    from clawback.episode_jobs import episode_runs
    from clawback.episode_jobs.episode_runs import check_options
    from clawback.terminal.progress_bar import progress_bar

    here = current_home()
    check_options(wish, options, looks=num_samples is not None)
    if num_samples is not None:
        with progress_bar(quiet=as_json) as follow:
            follow({"phase": "load"})
            sampled = episode_runs.samples(here, wish, num_samples, seed=options.seed, on_progress=follow)
        emit([asdict(episode) for episode in sampled], _samples(sampled), as_json)
        return 0
    try:
        with progress_bar(quiet=as_json) as follow:
            follow({"phase": "preparation"})
            from clawback.episode_jobs import playing

            played = playing.learn(here, wish, options, on_progress=follow)
    except KeyboardInterrupt:
        say(
            "Stopped. No finished episode is lost; `clawback env train --resume RUN` (see `clawback runs`) continues it.",
            err=True,
        )
        return 130
    emit(_data(played), fold(_text(played), "  "), as_json)
    return 0


def _samples(episodes: Sequence[Episode]) -> str:
    """The last words of each, what it was worth, and what they come to together."""
    lines = []
    for one in episodes:
        said = next(
            (text_of(m.get("content")) for m in reversed(one.messages) if m.get("role") == "assistant"), ""
        )
        if one.status == "failed":  # the world's fault, so there is nothing that the policy said
            said = one.stop_reason
        lines.append(columns(f"{one.total:+6.2f}  {len(one.steps):3d} turns  {one.status:<9}", said))
    played = [one for one in episodes if one.status != "failed"]
    failed = len(episodes) - len(played)
    mean = (
        f"{sum(one.total for one in played) / len(played):+.3f} on average"
        if played
        else "none played to its end"
    )
    odd = sum(step.unparsable for one in episodes for step in one.steps)
    broken = f" {failed} failed: their environments broke." if failed else ""
    lines.append(
        f"{len(episodes)} episodes, {mean}, {odd} replies that could not be read.{broken} Nothing was learned or stored."
    )
    return "\n".join(lines)


def _values(options: tuple[str, ...]) -> JsonObject:
    found: JsonObject = {}
    for one in options:
        name, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"Write --set {one} as NAME=VALUE.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _data(played: PlayResult) -> JsonObject:
    return {
        "run": asdict(played.run),
        "version": asdict(played.version),
        "verdict": played.verdict.to_dict(),
        "episodes": dict(played.counts),
        "live": played.live,
    }


def _text(played: PlayResult) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in sorted(played.counts.items()))
    number = played.version.number
    end = (
        f"Version {number} is live. `clawback versions rollback` goes back."
        if played.live
        else f"Version {number} is a candidate. `clawback versions rollback {number}` puts it live."
        if played.verdict.accepted
        else f"Version {number} does not go live."
    )
    return f"Version {number} (run {played.run.id}), {counts} episodes\n\n{played.verdict.text()}\n\n{end}"


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def episodes(context: click.Context) -> None:
    """List and show episodes that were played.

    \b
    clawback env episodes list --run 7 --status failed
    clawback env episodes show 120
    """
    if not context.invoked_subcommand:
        context.invoke(list_)


@episodes.command("list")
@click.option("--run", type=int, help="Of this run.")
@click.option("--environment", help="Of this environment.")
@click.option(
    "--status", type=click.Choice(["completed", "truncated", "failed", "aborted"]), help="That ended so."
)
@click.option("--split", type=click.Choice(["train", "test"]), help="To learn from, or held out.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 100_000), help="How many.")
@json_option
def list_(
    run: int | None = None,
    environment: str | None = None,
    status: str | None = None,
    split: str | None = None,
    limit: int = 20,
    as_json: bool = False,
) -> None:
    """List episodes, newest first.

    \b
    clawback env episodes list
    clawback env episodes list --status failed --json
    """
    with open_store() as store:
        found = store.episodes(limit, run=run, environment=environment, status=status, split=split)
    lines = [
        columns(f"{e.id:>6} {e.status:<9} {e.total:>7.2f} {len(e.steps):>3} turns", e.task, _why(e))
        for e in found
    ]
    emit(
        [_row(e) for e in found],
        "\n".join(lines) or "No episodes yet. `clawback env train TASK` plays some.",
        as_json,
    )


def _why(episode: Episode) -> str:
    unread = f"{episode.unparsable} unread, " if episode.unparsable else ""
    return f"{unread}{episode.split}, {episode.stop_reason}"


def _row(episode: Episode) -> JsonObject:
    """Without the tokens."""
    row = asdict(episode) | {"return": episode.total, "unparsable": episode.unparsable}
    del row["branches"], row["messages"]
    return row


@episodes.command()
@click.argument("episode", type=int)
@click.option("--tokens", is_flag=True, help="With the token ids, masks and log-probs (--json).")
@json_option
def show(episode: int, tokens: bool, as_json: bool) -> None:
    """Show one episode: its messages, and the reward of each step.

    \b
    clawback env episodes show 120
    clawback env episodes show 120 --json --tokens
    """
    with open_store() as store:
        found = store.episode(episode)
    data = asdict(found) | {"return": found.total, "unparsable": found.unparsable}
    if not tokens:
        del data["branches"]
    head = [
        f"Episode {found.id} · {found.status}: {found.stop_reason} · {when(found.created_at)}",
        f"{found.environment} · {found.task} · seed {found.seed} · {found.split}"
        + (f" · run {found.run_id}, number {found.number}" if found.run_id else ""),
        f"return {found.total:g} in {len(found.steps)} turns · {found.unparsable} unparsable · {len(found.branches)} branches",
        "",
    ]
    emit(data, fold("\n".join(head + _lines_of(found)), "  "), as_json)


def _lines_of(episode: Episode) -> list[str]:
    lines, steps = [], dict(zip(episode.replies, episode.steps, strict=False))
    for place, message in enumerate(episode.messages):
        role = str(message.get("role", ""))
        lines.append(f"{role}: {text_of(message.get('content')).strip()}")
        if (step := steps.get(place)) is None:
            continue
        paid = "–" if step.reward is None else f"{step.reward:g}"
        cost = f", unparsable {step.penalty:g}" if step.unparsable else ""
        lines.append(f"    reward {paid}{cost} · {step.end - step.start} tokens · update {step.update}")
    return lines
