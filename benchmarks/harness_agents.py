"""Real Codex and Claude Code inside training: repository tasks, what the model does in them before and after, and every token of it.

    python -m benchmarks harness_agents codex                                  # with the program in PATH; the embedded model, held to a few replies
    python -m benchmarks harness_agents claude-code --replies scripted         # the right repair, then "Done.": does the whole path work?
    python -m benchmarks harness_agents codex --model smollm2 --replies free   # what a small model writes by itself
    python -m benchmarks harness_agents codex --model MODEL.gguf --replies free --rounds 0 --max-prompt 16384    # play alone, on requests read as a whole

A small model cannot write a tool call by itself, so by default its replies are held to a few: a call of the program's own shell tool for each of three
repairs, and "Done.". The program runs what the reply says, the task's hidden tests are the reward. Held-out episodes are played before and after;
every sampled token is in one step, and its log-prob is compared with the learner's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Hashable, Sequence
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


def distance(policy: Any, episodes: Sequence[Any]) -> dict[str, float]:
    """How far the recorded log-probs of all sampled tokens of these episodes are from the learner's, in nats."""
    import torch

    from clawback.learning.episode_examples import sequences

    parts = sequences([e for e in episodes if e.steps], held=policy.choices is not None)
    with torch.no_grad():
        scored = policy.scorer([part.encoded for part in parts]).split()
    apart = torch.cat([(s.cpu() - p.old)[p.mask].abs() for s, p in zip(scored, parts, strict=True)])
    return {"mean": float(apart.mean()), "largest": float(apart.max()), "tokens": apart.numel()}


def summary(episodes: Sequence[Any]) -> dict[str, Any]:
    count = len(episodes)
    replies = [str(m.get("content")) for e in episodes for m in e.messages if m.get("role") == "assistant"]
    return {
        "episodes": count,
        "success": sum(e.total for e in episodes) / count,
        "replies": sum(len(e.steps) for e in episodes) / count,
        "most common replies": Counter(reply[-60:] for reply in replies).most_common(4),
        "branches": sum(len(e.branches) for e in episodes) / count,
        "longest prompt": max((s.start for e in episodes for s in e.steps), default=0),
        "tokens read": sum(len(b.ids) - sum(b.mask) for e in episodes for b in e.branches),
        "tokens": sum(s.end - s.start for e in episodes for s in e.steps),
        "unaccounted": unaccounted(episodes),
        "failed": sum(e.status == "failed" for e in episodes),
    }


class ScriptedReplies:
    """In place of a policy: the right repair for what the prompt says is wrong, then "Done."."""

    def __init__(self, policy: Any, texts: Sequence[str]) -> None:
        encode, end = policy.tokenizer.encode, policy.chat.end_id
        self.decode = policy.tokenizer.decode
        self.ids = [(*map(int, encode(text, add_special_tokens=False)), end) for text in texts]
        self.answered: set[Hashable] = set()

    def draw(self, turns: Sequence[Any]) -> list[Any]:
        from clawback.sampling import Sampled

        chosen = [self.ids[self._place(turn)] for turn in turns]
        self.answered.update(turn.key for turn in turns)
        return [Sampled(ids, (0.0,) * len(ids), True) for ids in chosen]

    def _place(self, turn: Any) -> int:
        prompt = self.decode(turn.ids)
        wrong = [place for place, what in enumerate(_gym_tasks.REPAIRS) if f"The {what} is wrong" in prompt]
        return wrong[0] if wrong and turn.key not in self.answered else -1

    def refresh(self) -> None: ...

    def forget(self, key: Hashable) -> None:
        self.answered.discard(key)


def prepared(options: argparse.Namespace, folder: Path) -> tuple[Any, list[str], Any, list[Any]]:
    """The policy, the replies that it is held to, the environments with their program, and their tasks."""
    from clawback import engine
    from clawback.environments.registry import find
    from clawback.extensions.harness.program import wrap
    from clawback.models.types import Sampling
    from clawback.sampling import decoder_choice

    if options.dtype == "float32":
        decoder_choice._has_bfloat16 = lambda: False
    policy, texts = engine.load(options.model, dtype=options.dtype), replies(options.program)
    policy.sampling = Sampling(1.0)
    policy.max_prompt = options.max_prompt or policy.max_prompt
    assert options.replies == "free" or policy.hold_to(texts)
    root = _gym_tasks.repository(folder / "tasks")
    found = find(f"repository:{root}/rows.jsonl?repositories={root}/clones")
    environments = wrap(found, options.program, options.turns)
    tasks = [*environments.tasks("train"), *environments.tasks("test")][: options.tasks]
    return policy, texts, environments, tasks


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from clawback import engine
    from clawback.rollouts.action_form import RandomReplies
    from clawback.rollouts.concurrent import Play, Rollouts
    from clawback.rollouts.rounds import Collector, Dealing, evaluate, orders
    from clawback.trainer import TrainingRun

    policy, texts, environments, tasks = prepared(options, folder)
    play = Play(together=options.together, max_turns=options.turns, max_tokens=options.tokens)
    result: dict[str, Any] = {"program": options.program, "model": options.model, "replies": options.replies}
    if options.replies == "scripted":
        with Rollouts(policy, environments, play, drawer=ScriptedReplies(policy, texts)) as rollouts:
            played = evaluate(rollouts, orders(tasks, options.held_out, options.seed, 2 * 10**9))
        return result | {"scripted": summary(played)}
    each = options.steps * options.passes
    held, progress = options.replies == "held", list[dict[str, Any]]()
    recipe = engine.episode_recipe(
        policy.info, rounds=options.rounds, round_steps=options.steps, passes=options.passes
    )

    def measured(name: str, episodes: Sequence[Any], sampled: bool) -> list[Any]:
        result[name] = summary(episodes) | (
            {"log-probs apart": distance(policy, episodes)} if sampled else {}
        )
        print(json.dumps({name: result[name]}), file=sys.stderr, flush=True)
        return list(episodes)

    with Rollouts(policy, environments, play) as rollouts:
        first, form = orders(tasks, options.held_out, options.seed, 10**9), None
        if held:  # as `clawback env train` begins: from no preference among the replies
            with Rollouts(policy, environments, play, drawer=RandomReplies(policy, texts)) as at_random:
                examples = measured("at random", evaluate(at_random, first), sampled=False)
            form = lambda _: (examples, len(texts))  # noqa: E731
        else:
            measured("before", evaluate(rollouts, first), sampled=True)
        if not options.rounds:
            return result
        collector = Collector(rollouts, Dealing(tasks, options.seed, options.groups))
        job = TrainingRun(
            policy, (), recipe, seed=options.seed, out=folder / "run",
            tell=lambda p: progress.append(dict(p)) if p.get("phase") == "train" and "return" in p else None,
        )  # fmt: skip
        trained = engine.train_episodes(job, collector, about={"environment": environments.name}, form=form)
        rollouts.refreshed(options.rounds)
        last = orders(tasks, options.held_out, options.seed, 2 * 10**9)
        measured("after", evaluate(rollouts, last), sampled=True)
    rounds = [step for step in progress if step["step"] % each == 1 % each]
    return result | {
        "returns": [step["return"] for step in rounds],
        "largest gap": max((step["gap"] for step in progress if "gap" in step), default=None),
        "steps": trained.steps,
    }


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks harness_agents", description=__doc__)
    parser.add_argument("program", choices=sorted(TOOLS))
    parser.add_argument("--model", default="embedded", help="embedded, smollm2 or a folder")
    parser.add_argument("--replies", choices=("held", "scripted", "free"), default="held")
    parser.add_argument(
        "--dtype", choices=("auto", "float32"), default="auto", help="float32: replies are drawn in it, too"
    )
    parser.add_argument(
        "--max-prompt", type=int, default=0, help="tokens of a conversation (default: as everywhere)"
    )
    for name, default in (
        ("tasks", 10), ("turns", 4), ("tokens", 200), ("rounds", 2), ("steps", 4), ("passes", 1), ("groups", 10), ("held_out", 10), ("together", 2), ("seed", 0),
    ):  # fmt: skip
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parsed(argv)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = run(options, Path(folder))
    result |= {"seconds": time.monotonic() - began, "cpu_seconds": sum(os.times()[:4])}
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
