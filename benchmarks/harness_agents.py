"""Real Codex and Claude Code inside training: repository tasks, the embedded model, and what it learns to do in them.

    python -m benchmarks harness_agents codex            # with the program in PATH

The embedded model cannot write a tool call by itself, so its replies are held to a few: a call of the program's own shell tool for each of three
repairs, and "Done.". The program runs what the reply says, the task's hidden tests are the reward. Held-out episodes are played before and after;
every sampled token is in one step, and its log-prob is compared with the learner's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import _gym_tasks

TOOLS = {"codex": ("exec_command", "cmd"), "claude-code": ("Bash", "command")}
"""A program → its shell tool and that tool's argument."""


def replies(program: str) -> list[str]:
    name, argument = TOOLS[program]
    commands = [
        f"sed -i 's/return {wrong}$/return {right}/' kit/*.py" for wrong, right in _gym_tasks.REPAIRS.values()
    ]
    calls = [json.dumps({"name": name, "arguments": {argument: command}}) for command in commands]
    return [*(f"<tool_call>{call}</tool_call>" for call in calls), "Done."]


def unaccounted(episodes: Sequence[Any]) -> int:
    """Sampled tokens that are in no step, or in several."""
    wrong = 0
    for episode in episodes:
        written = [
            (b, i)
            for b, branch in enumerate(episode.branches)
            for i, wrote in enumerate(branch.mask)
            if wrote
        ]
        stepped = [(step.branch, i) for step in episode.steps for i in range(step.start, step.end)]
        wrong += len(set(written) ^ set(stepped)) + len(stepped) - len(set(stepped))
    return wrong


def summary(episodes: Sequence[Any]) -> dict[str, float]:
    count = len(episodes)
    done = [m.get("content") == "Done." for e in episodes for m in e.messages if m.get("role") == "assistant"]
    return {
        "episodes": count,
        "success": sum(e.total for e in episodes) / count,
        "replies": sum(len(e.steps) for e in episodes) / count,
        "done": sum(done) / max(1, len(done)),
        "branches": sum(len(e.branches) for e in episodes) / count,
        "tokens": sum(s.end - s.start for e in episodes for s in e.steps),
        "unaccounted": unaccounted(episodes),
        "failed": sum(e.status == "failed" for e in episodes),
    }


def run(program: str, options: argparse.Namespace) -> dict[str, Any]:
    from clawback import engine
    from clawback.environments.action_form import RandomReplies
    from clawback.environments.collecting import Collector, Dealing
    from clawback.environments.evaluating import evaluate, orders
    from clawback.environments.find import find
    from clawback.environments.rollouts import Play, Rollouts
    from clawback.extensions.harness.program import wrap
    from clawback.learning import TrainingRun
    from clawback.models.types import Sampling
    from clawback.policy.policy import Policy

    policy: Policy = engine.load("embedded")
    policy.sampling = Sampling(1.0)
    texts = replies(program)
    assert policy.hold_to(texts)
    steps: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = _gym_tasks.repository(Path(folder) / "tasks")
        environments = wrap(
            find(f"repository:{root}/rows.jsonl?repositories={root}/clones"), program, options.turns
        )
        tasks = [*environments.tasks("train"), *environments.tasks("test")][: options.tasks]
        play = Play(together=options.together, max_turns=options.turns, max_tokens=200)
        recipe = engine.episode_recipe(policy.info, rounds=options.rounds, round_steps=options.steps)
        with Rollouts(policy, environments, play) as rollouts:
            # As `clawback env train` begins: from no preference among the replies.
            with Rollouts(policy, environments, play, drawer=RandomReplies(policy, texts)) as random_play:
                examples = evaluate(random_play, orders(tasks, options.examples, options.seed, 3 * 10**9))
            collector = Collector(rollouts, Dealing(tasks, options.seed, options.groups))
            result: dict[str, Any] = {"program": program, "at random": summary(examples)}
            run = TrainingRun(
                policy, (), recipe, seed=options.seed, out=Path(folder) / "run",
                tell=lambda p: steps.append(dict(p)) if p.get("phase") == "train" else None,
            )  # fmt: skip
            about = {"environment": environments.name}
            trained = engine.train_episodes(
                run, collector, about=about, form=lambda _: (examples, len(texts))
            )
            rollouts.refreshed(options.rounds)
            after = evaluate(rollouts, orders(tasks, options.held_out, options.seed, 2 * 10**9))
            result["after"] = summary(after)
        curve = [
            step for step in steps if "return" in step and step["step"] % options.steps == 1 % options.steps
        ]
        result |= {
            "rounds": [{"return": step["return"], "gap": step.get("gap")} for step in curve],
            "largest gap": max((step["gap"] for step in steps if "gap" in step), default=None),
            "steps": trained.steps,
        }
    return result


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks harness_agents", description=__doc__)
    parser.add_argument("program", choices=sorted(TOOLS))
    for name, default in (
        ("tasks", 10), ("turns", 4), ("rounds", 2), ("steps", 4), ("groups", 10), ("held_out", 10), ("examples", 10), ("together", 2), ("seed", 0),
    ):  # fmt: skip
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    options = parser.parse_args(argv)
    print(json.dumps(run(options.program, options), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
