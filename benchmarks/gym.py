"""Learning by doing: text games from chance to the best policy over seeds, and episodes a second, many at once against one.

``openings`` is for the embedded model as it ships. The model of the others is a tiny one made here, which has been taught to say what it sees, then any action, and nothing about the games (``_gym_model.py``); those of the terminal and of the repository know a little (``SKILL``). Each seed starts from it
anew. Held-out tasks are played before and after; ``optimum`` is what the best policy returns there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import _blackjack, _gym_button, _gym_names, _gym_sights, _gym_tasks

AGENTS = Path(__file__).parents[1] / "examples" / "agents"
sys.path.insert(0, str(AGENTS))
RESULTS = Path("bench-results")

SQUARES = tuple(f"{row}{column}" for row in "abcd" for column in range(1, 5))
WAYS = ("left", "down", "right", "up")
HANDS = tuple(f"{kind} {total}" for kind in ("hard", "soft") for total in range(4, 22))

SKILL = 0.4
"""Share of the parts of a reply (which command, which file) that the models of the tasks with tools get right by more than chance, before they learn by doing: of
all pairs, those that are held out from learning by doing among them."""

GAMES: dict[str, dict[str, Any]] = {
    "openings": {
        "env": "openings", "agent": "openings:OpeningsAgent", "optimum": 1.0,
        "rounds": 24, "groups": 64, "turns": 1, "tokens": 3,
    },
    "colours": {
        "env": "colours", "agent": "colours:ColoursAgent", "optimum": 1.0,
        "seen": ("red", "green", "blue", "black", "white", "grey", "pink", "brown"), "acts": tuple("0123"),
        "rounds": 20, "groups": 64, "turns": 1, "tokens": 3,
    },
    "lake": {
        "env": "FrozenLake-v1", "agent": "benchmarks._gym_lake:SquareAgent", "optimum": 1.0, "seen": SQUARES, "acts": WAYS,
        "rounds": 24, "groups": 64, "turns": 40, "tokens": 3,
    },
    "ice": {
        "env": "FrozenLake-v1", "agent": "benchmarks._gym_lake:IceAgent", "optimum": 0.74, "seen": SQUARES, "acts": WAYS,
        "rounds": 80, "groups": 64, "turns": 100, "tokens": 3,
    },
    "hands": {
        "env": "Blackjack-v1", "agent": "hands:HandsAgent", "optimum": _blackjack.best(), "seen": HANDS, "acts": ("stand", "hit"),
        "rounds": 60, "groups": 512, "turns": 12, "tokens": 4, "held_out": 2000, "worth": _blackjack.of_model,
    },
    "terminal": {
        "env": "terminal:{folder}?turns=1", "folder": _gym_tasks.terminal, "optimum": 1.0, "seen": _gym_tasks.terminal_seen,
        "acts": _gym_tasks.terminal_actions, "sights": _gym_tasks.terminal_sight, "rounds": 16, "groups": 32, "turns": 1, "tokens": 8, "held_out": 32,
        "settings": {"passes": 2},
    },
    "repository": {
        "env": "repository:{folder}/rows.jsonl?repositories={folder}/clones&turns=1", "folder": _gym_tasks.repository, "optimum": 1.0,
        "seen": _gym_tasks.repository_seen, "acts": _gym_tasks.repository_actions, "sights": _gym_tasks.repository_sight,
        "rounds": 12, "groups": 24, "turns": 1, "tokens": 8, "held_out": 24,
        "settings": {"passes": 2},
    },
    "browser": {
        "env": "benchmarks._gym_names:Names", "optimum": 1.0, "seen": _gym_names.seen, "acts": _gym_names.actions, "sights": _gym_names.sight,
        "rounds": 12, "groups": 32, "turns": _gym_names.TURNS, "tokens": 8, "held_out": 48, "together": 8, "skill": 0.65, "taught": 1000,
        "settings": {"passes": 2},
    },
    "squares": {
        "env": "benchmarks._gym_sights:Squares", "made": _gym_sights.of_squares, "optimum": 1.0,
        "rounds": 16, "groups": 32, "turns": 1, "tokens": 3, "held_out": 36,
        "settings": {"passes": 2},
    },
    "button": {
        "env": "benchmarks._gym_button:Button", "made": _gym_button.of_button, "optimum": 1.0,
        "rounds": 12, "groups": 32, "turns": 1, "tokens": 4, "held_out": 24, "together": 8,
        "settings": {"passes": 2},
    },
    "house": {
        "env": "tools:{folder}/house.toml", "lessons": "tools:{folder}/lessons.toml", "folder": _gym_tasks.house, "base": "smollm2", "shots": "5", "optimum": 1.0,
        "rounds": 8, "groups": 16, "size": 8, "turns": 1, "tokens": 40, "held_out": 100,
        "settings": {"micro_tokens": 2048},
    },
    "lamps": {
        "env": "tools:{folder}/house.toml", "lessons": "tools:{folder}/lessons.toml", "folder": _gym_tasks.lamps, "base": "smollm2", "shots": "2", "optimum": 1.0,
        "rounds": 5, "groups": 12, "size": 8, "turns": 1, "tokens": 40, "held_out": 60,
        "settings": {"micro_tokens": 2048},
    },
    "commands": {
        "env": "terminal:{folder}?turns=1", "folder": _gym_tasks.commands, "base": "smollm2", "shots": "{folder}/shots.jsonl", "optimum": 1.0,
        "rounds": 5, "groups": 12, "size": 8, "turns": 1, "tokens": 32, "held_out": 64,
        "settings": {"micro_tokens": 2048},
    },
    "repairs": {
        "env": "repository:{folder}/rows.jsonl?repositories={folder}/clones&turns=1", "folder": _gym_tasks.repairs, "base": "smollm2",
        "shots": "{folder}/shots.jsonl", "optimum": 1.0,
        "rounds": 4, "groups": 9, "size": 8, "turns": 1, "tokens": 48, "held_out": 36,
        "settings": {"micro_tokens": 2048},
    },
    "functions": {
        "env": "bfcl:simple_python", "base": "smollm2", "shots": "3", "optimum": 1.0,
        "rounds": 10, "groups": 16, "size": 8, "turns": 1, "tokens": 64, "held_out": 80,
    },
    "cards": {
        "env": "Blackjack-v1", "agent": "hands:HandsAgent", "base": "smollm2", "shots": str(AGENTS / "hands.jsonl"), "optimum": _blackjack.best(),
        "rounds": 5, "groups": 128, "turns": 12, "tokens": 3, "held_out": 600,
    },
    "secretary": {
        "env": "textarena:Secretary-v0", "base": "smollm2", "shots": str(AGENTS / "secretary.jsonl"), "optimum": 0.639,
        "rounds": 10, "groups": 16, "size": 8, "turns": 8, "tokens": 8, "held_out": 200,
    },
    "pair": {
        "env": "textarena:Secretary-v0?N=2", "base": "smollm2", "shots": str(AGENTS / "secretary_of_two.jsonl"), "optimum": 0.75,
        "rounds": 4, "groups": 24, "size": 4, "turns": 3, "tokens": 6, "held_out": 100,
    },
    "fields": {
        "env": "miniwob:focus-text-2?turns=1", "base": "smollm2", "shots": str(AGENTS / "clicks.jsonl"), "optimum": 1.0,
        "rounds": 10, "groups": 16, "size": 8, "turns": 1, "tokens": 12, "held_out": 100,
    },
    "widgets": {
        "env": "miniwob:click-widget?turns=1", "base": "smollm2", "shots": str(AGENTS / "clicks.jsonl"), "optimum": 1.0,
        "rounds": 10, "groups": 16, "size": 8, "turns": 1, "tokens": 12, "held_out": 100,
    },
    "buttons": {
        "env": "miniwob:click-button?turns=1", "base": "smollm2", "shots": str(AGENTS / "clicks.jsonl"), "optimum": 1.0,
        "rounds": 10, "groups": 16, "size": 8, "turns": 1, "tokens": 12, "held_out": 100,
    },
}  # fmt: skip
"""``seen``, ``acts``: the words of a tiny model of the game's own; without them it is the embedded model as it ships. ``folder``: writes the game's
tasks there; ``base``: a real model, and ``shots``: the worked examples that it is shown; ``lessons``: what is learned from, where it is rewarded otherwise than what is held out; ``size``: tries at a task, held against each other; what stands at the same place of ``seen`` and ``acts`` belongs together. ``settings``: of the recipe, where they are not the defaults. ``worth``: what a policy is worth without chance."""


def environment(name: str, key: str = "env") -> str:
    """The name of the world that a game is played in; where it has tasks of its own, they are written."""
    game = GAMES[name]
    said = str(game[key])
    if "folder" not in game:
        return said
    RESULTS.mkdir(exist_ok=True)
    return said.format(folder=game["folder"](RESULTS.resolve() / f"gym-tasks-{name}"))


def shots(name: str) -> str:
    """The worked examples of a game: a count, or a file, which may be beside the game's tasks."""
    return str(GAMES[name].get("shots", "")).format(folder=RESULTS.resolve() / f"gym-tasks-{name}")


def model(name: str) -> str:
    """What a game is played with."""
    from benchmarks import _gym_model

    game = GAMES[name]
    if "made" in game:
        RESULTS.mkdir(exist_ok=True)
        return str(game["made"](RESULTS / f"gym-model-{name}"))
    if "seen" not in game:
        return str(game.get("base", "embedded"))
    RESULTS.mkdir(exist_ok=True)
    skill, taught = game.get("skill", SKILL), game.get("taught", 300)
    folder = RESULTS / (f"gym-model-{name}-{skill}-{taught}" if "taught" in game else f"gym-model-{name}")
    seen, acts = (words() if callable(words) else words for words in (game["seen"], game["acts"]))
    if "sights" not in game:
        return str(_gym_model.make(folder, seen, acts))
    return str(
        _gym_model.make(
            folder,
            seen,
            acts,
            sights=game["sights"],
            before=opening(environment(name)),
            skill=skill,
            steps=taught,
            turns=game["turns"],
        )
    )


def opening(name: str) -> str:
    """The system message of a world, with its tools in words: the same in all of its tasks."""
    from clawback.environments.play import let_go
    from clawback.environments.registry import find
    from clawback.environments.tools.calls import in_words
    from clawback.records import text_of

    async def first() -> str:
        worlds = find(name)
        world = worlds.make()
        said = await world.reset(worlds.tasks("test")[0], 0)
        await world.close()
        await let_go(worlds)
        return text_of(in_words(said.messages, said.tools)[0]["content"])

    return asyncio.run(first())


def learn(
    name: str,
    seed: int,
    rounds: int | None,
    overrides: dict[str, Any],
    temperature: float | None = None,
    base: str = "",
) -> dict[str, Any]:
    """One game from one seed. ``temperature``: of a real model, in place of that of its answers; ``base``: another real model's folder."""
    from clawback import engine
    from clawback.environments.registry import find
    from clawback.learning.episode_examples import EpisodeSettings
    from clawback.models.types import Sampling
    from clawback.records import Episode
    from clawback.rollouts.concurrent import Play, Rollouts
    from clawback.rollouts.rounds import Collector, Dealing, evaluate, orders
    from clawback.trainer import TrainingRun

    game = GAMES[name]
    policy = engine.load(base if base and "base" in game else model(name))
    # A real model plays as ``clawback env train`` has it play: at the temperature that it answers with. One made here has none of its own.
    policy.sampling = Sampling((temperature or policy.sampling.temperature) if "base" in game else 1.0)
    made_with: dict[str, Any] = {"agent": game.get("agent"), "seed": seed, "shots": shots(name)}
    worlds = find(environment(name), **made_with)
    lessons = find(environment(name, "lessons"), **made_with) if "lessons" in game else worlds
    play = Play(together=game.get("together", 64), max_turns=game["turns"], max_tokens=game["tokens"])
    size = game.get("size", 1)
    overrides = {"estimator": "group" if size > 1 else "gae"} | game.get("settings", {}) | overrides
    made = {k: v for k, v in overrides.items() if k in ("learning_rate", "kl", "micro_tokens")}
    rest = {k: v for k, v in overrides.items() if k not in made}
    recipe = engine.episode_recipe(policy.info, "balanced", made, rounds=rounds or game["rounds"], **rest)
    curve: list[float] = []
    each = EpisodeSettings.of(recipe).steps_a_round
    held, begun = game.get("held_out", 100), _cpu()

    def held_out(stretch: int) -> list[Episode]:
        with Rollouts(policy, worlds, play) as rollouts:
            return evaluate(rollouts, orders(worlds.tasks("test"), held, seed, stretch))

    def follow(told: Any) -> None:
        if told.get("phase") == "train" and "return" in told and told["step"] % each == 0:
            curve.append(told["return"])
            print(f"{name} {seed} round {len(curve)}: {told['return']:.3f} drift {told['drift']:.2f} entropy {told['entropy']:.2f} unread {told['unparsable']:.3f} {_cpu() - begun:.0f} s", file=sys.stderr, flush=True)  # fmt: skip
        if told.get("phase") == "alert":
            print(told["text"], file=sys.stderr)

    before = held_out(10**9)
    worth = [game["worth"](policy)] if "worth" in game else []
    with Rollouts(policy, lessons, play) as rollouts, tempfile.TemporaryDirectory() as folder:
        collector = Collector(rollouts, Dealing(lessons.tasks("train"), seed, game["groups"], size))
        run = TrainingRun(policy, (), recipe, seed=seed, out=Path(folder), tell=follow)
        engine.train_episodes(run, collector, about={})
    after = held_out(2 * 10**9)
    worth += [game["worth"](policy)] if worth else []
    return {
        "game": name,
        "seed": seed,
        "worth": worth,
        "before": _mean(before),
        "after": _mean(after),
        "held_out": held,
        "p": _paired(before, after),
        "unparsable": sum(e.unparsable for e in after),
        "curve": curve,
        "episodes": len(curve) * game["groups"] * size,
        "cpu_seconds": _cpu() - begun,
    }


def throughput() -> list[dict[str, Any]]:
    """CPU milliseconds an episode of the pond, by how many are played at once, with the cache kept between turns and without."""
    from clawback import engine
    from clawback.environments.episode_loop import Order
    from clawback.environments.registry import find
    from clawback.models.types import Sampling
    from clawback.rollouts.concurrent import Play, Rollouts

    rows = []
    # The tiny model says what it sees and a way, so that its replies are steps of the game; the embedded one's are not, and every other turn is a hint.
    for title, base, tokens in (("tiny, 0.1 M", model("lake"), 3), ("embedded, 2.2 M", "embedded", 8)):
        policy = engine.load(base)
        policy.sampling = Sampling(1.0)
        worlds = find("FrozenLake-v1", "benchmarks._gym_lake:PondAgent")
        tasks = worlds.tasks("train")
        for together, keep, count in ((1, True, 24), (8, True, 64), (32, True, 192), (32, False, 192)):
            play = Play(together=together, max_turns=4, max_tokens=tokens, keep_cache=keep)
            asked = [Order(i, tasks[i], 0, 7) for i in range(count)]
            with Rollouts(policy, worlds, play) as rollouts:
                rollouts.play(
                    asked[: min(together, 8)]
                )  # what is compiled and cached at first is not what is measured
                began, turns = time.process_time(), 0
                for episode in rollouts.play(asked):
                    turns += len(episode.steps)
                cpu = time.process_time() - began
            rows.append({"model": title, "together": together, "cache": keep, "ms": 1000 * cpu / count, "turns": turns / count})  # fmt: skip
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def _cpu() -> float:
    """CPU seconds of this process and of what it started that has ended: what runs in a sandbox, a browser."""
    return sum(os.times()[:4])


def _mean(episodes: Any) -> float:
    return sum(e.total for e in episodes) / len(episodes)


def table(runs: list[dict[str, Any]], speed: list[dict[str, Any]]) -> str:
    lines = []
    if runs:
        lines += [
            "| game | seeds | episodes | before | after, mean ± standard deviation | each seed | of the optimum | p (paired t, seeds) | p of each seed, over its tasks | unread replies | CPU s a seed |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ]
    for name in dict.fromkeys(run["game"] for run in runs):
        some = [run for run in runs if run["game"] == name]
        after, gains = [r["after"] for r in some], [r["after"] - r["before"] for r in some]
        spread = statistics.stdev(after) if len(after) > 1 else 0.0
        best = GAMES[name]["optimum"]
        share = f"{statistics.mean(after) / best:.0%}" if best > 0 else "–"  # a loss has no share to reach
        lines.append(
            f"| {name} | {len(some)} | {some[0]['episodes']} | {statistics.mean(r['before'] for r in some):.3f} | {statistics.mean(after):.3f} ± {spread:.3f} "
            f"| {' '.join(f'{a:.2f}' for a in after)} | {share} | {_p(gains)} "
            f"| {' '.join(format(r['p'], '.1g') for r in some)} | {sum(r['unparsable'] for r in some)} | {statistics.mean(r['cpu_seconds'] for r in some):.0f} |"
        )
    for name in dict.fromkeys(run["game"] for run in runs if run["worth"]):
        worth = [run["worth"] for run in runs if run["game"] == name]
        after = [one[1] for one in worth]
        spread = statistics.stdev(after) if len(after) > 1 else 0.0
        lines.append(f"\n{name}, exact value: {worth[0][0]:.3f} before, {statistics.mean(after):.4f} ± {spread:.4f} after ({' '.join(f'{a:.4f}' for a in after)})")  # fmt: skip
    if speed:
        lines += [
            "",
            "| model | at once | cache kept | CPU ms an episode | times one at a time |",
            "|---|---|---|---|---|",
        ]
    for row in speed:
        one = next(r["ms"] for r in speed if r["model"] == row["model"] and r["together"] == 1)
        lines.append(f"| {row['model']} | {row['together']} | {'yes' if row['cache'] else 'no'} | {row['ms']:.1f} | {one / row['ms']:.1f} |")  # fmt: skip
    return "\n".join(lines)


def _paired(before: Any, after: Any) -> float:
    """The signed-rank test over the held-out tasks of one seed."""
    by_task = [{e.number % 10**9: e.total for e in episodes} for episodes in (before, after)]
    gains = [by_task[1][i] - by_task[0][i] for i in by_task[0].keys() & by_task[1].keys()]
    return signed_rank(gains)


def signed_rank(gains: Sequence[float]) -> float:
    """One-sided signed-rank test (Wilcoxon) of paired differences."""
    from scipy import stats

    return float(stats.wilcoxon(gains, alternative="greater").pvalue) if any(gains) else 1.0


def _p(gains: list[float]) -> str:
    """One-sided paired t-test over seeds."""
    if len(gains) < 2 or statistics.stdev(gains) == 0:
        return "–"
    from scipy import stats

    return f"{stats.ttest_1samp(gains, 0, alternative='greater').pvalue:.1g}"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gym", description=__doc__)
    parser.add_argument("--games", nargs="*", default=["openings"], choices=[*GAMES], metavar="GAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of the seeds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--base",
        default="",
        metavar="MODEL",
        help="a real model in place of SmolLM2, where a game is played by that",
    )
    parser.add_argument("--temperature", type=float, help="of a real model, in place of that of its answers")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--no-throughput", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    overrides = {name: json.loads(value) for name, value in (one.split("=") for one in options.set)}
    runs = []
    for game in options.games:
        for seed in range(options.first, options.first + options.seeds):
            runs.append(learn(game, seed, options.rounds, overrides, options.temperature, options.base))
            row = {name: value for name, value in runs[-1].items() if name != "curve"}
            print(json.dumps(row), file=sys.stderr, flush=True)
    speed = [] if options.no_throughput else throughput()
    found = {"runs": runs, "throughput": speed}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gym.json").write_text(json.dumps(found, indent=2))
    print(json.dumps(found) if options.json else table(runs, speed))
    return 0
