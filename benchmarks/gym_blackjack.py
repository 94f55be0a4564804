"""LlamaGym's Blackjack on the embedded model as it ships: what is played after ``Agent.learn`` is worth, exactly.

    python -m benchmarks gym_blackjack --hands 4096 --seeds 3

The class and its words are those of ``examples/agents/blackjack.py``. A policy is worth what its first prompts say: for each of the 280 situations
(sum, ace, dealer's card) the chance of taking a card, summed over all cards (``_blackjack.value``). Target: -0.0966, 0.05 below basic strategy.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from typing import Any

from benchmarks import _blackjack
from benchmarks.gym import RESULTS

SITUATIONS = [
    (total, soft, shown)
    for shown in range(1, 11)
    for soft in (False, True)
    for total in range(12 if soft else 4, 22)
]


def worth(agent: Any) -> dict[str, float]:
    """Of what an agent that is held to its two actions plays, and of the likelier action alone."""
    import torch

    from clawback.extensions.llamagym.agent_worlds import opening
    from clawback.templates import Encoded

    policy = agent.policy
    stand, hit = policy.choices.replies
    prompts = [
        tuple(policy.chat.prompt(opening(agent, (total, shown, int(soft))), 1000))
        for total, soft, shown in SITUATIONS
    ]
    with torch.no_grad():
        stands, hits = (
            torch.stack([s.sum() for s in policy.scorer([Encoded(p, reply, starts=(0,)) for p in prompts]).split()])
            for reply in (stand, hit)
        )  # fmt: skip
    chance = dict(zip(SITUATIONS, torch.sigmoid(hits - stands).tolist(), strict=True))
    return {
        "value": _blackjack.value(lambda *at: chance[at]),
        "greedy": _blackjack.value(lambda *at: float(chance[at] > 0.5)),
    }


def learn(hands: int, seed: int) -> dict[str, Any]:
    import gymnasium

    from examples.agents.blackjack import BlackjackAgent

    began = time.process_time()
    agent = BlackjackAgent(
        "embedded", generate_config_dict={"max_new_tokens": 8}, ppo_config_dict={"batch_size": 64}, seed=seed
    )
    first: dict[str, Any] = {}
    improve = agent.learner.improve

    def improve_and_look(episodes: Any) -> dict[str, float]:
        figures = improve(episodes)
        first.update(worth(agent), hands=len(episodes), cpu_seconds=time.process_time() - began, **figures)
        return figures

    agent.learner.improve = improve_and_look  # type: ignore[method-assign]
    make = functools.partial(gymnasium.make, "Blackjack-v1", **BlackjackAgent.env_options)
    agent.learn(make, episodes=hands, together=256, max_turns=12)
    return {"seed": seed, "first policy": first, **worth(agent), "cpu_seconds": time.process_time() - began}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gym_blackjack", description=__doc__)
    parser.add_argument("--hands", type=int, default=4096)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of the seeds")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    runs = []
    for seed in range(options.first, options.first + options.seeds):
        runs.append(learn(options.hands, seed))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "gym-blackjack.json").write_text(json.dumps(runs, indent=2))
    print("| seed | after the first policy | after all hands | greedy | CPU s to the first policy, in all |")
    print("|---|---|---|---|---|")
    for run in runs:
        first = run["first policy"] or {"value": math.nan, "cpu_seconds": math.nan}  # too few hands for one
        print(f"| {run['seed']} | {first['value']:.4f} | {run['value']:.4f} | {run['greedy']:.4f} | {first['cpu_seconds']:.0f}, {run['cpu_seconds']:.0f} |")  # fmt: skip
    return 0
