"""FrozenLake in words: from the top left square to the bottom right one, around the holes.

    python examples/agents/frozen_lake.py --episodes 3000      # a loop of one's own, on the embedded model
    clawback env train FrozenLake-v1 --agent frozen_lake:LakeAgent --episodes 4000 --max-tokens 8
    clawback env train FrozenLake-v1 --agent frozen_lake:IceAgent --episodes 8000 --max-tokens 8     # where a step slips aside two times in three

Squares have names, as in chess: a1 is where it begins, d4 is where it ends. The best policy returns 1 (on slippery ice 0.73 within Gymnasium's hundred steps), random steps 0.015.
"""

from __future__ import annotations

import argparse
from typing import Any

from clawback import Agent

WAYS = ("left", "down", "right", "up")


class LakeAgent(Agent):
    env_options = {"is_slippery": False}
    side = 4

    def get_system_prompt(self) -> str:
        return ""

    def format_observation(self, observation: Any) -> str:
        row, column = divmod(int(observation), self.side)
        return f"{'abcdefgh'[row]}{column + 1}"

    def extract_action(self, response: str) -> int:
        return WAYS.index(response.split()[-1])

    def action_replies(self) -> tuple[str, ...]:
        return WAYS


class IceAgent(LakeAgent):
    env_options = {"is_slippery": True}


class PondAgent(LakeAgent):
    """A pond of 3 × 3 with two holes."""

    env_options = {"is_slippery": False, "desc": ["SFH", "FFF", "HFG"]}
    side = 3


class NumberAgent(LakeAgent):
    """Row and column in, the number of a direction out: what the embedded model, which knows few words, can tell apart."""

    def format_observation(self, observation: Any) -> str:
        row, column = divmod(int(observation), self.side)
        return f"{row} {column}"

    def extract_action(self, response: str) -> int:
        return self.action_replies().index(response.strip())

    def action_replies(self) -> tuple[str, ...]:
        return ("0", "1", "2", "3")


def main() -> None:
    import gymnasium as gym

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="embedded", help="a folder, a hub id, embedded or smollm2")
    parser.add_argument("--episodes", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    def make_env() -> Any:
        return gym.make("FrozenLake-v1", is_slippery=False)

    agent = NumberAgent(
        options.model,
        generate_config_dict={"max_new_tokens": 8},
        ppo_config_dict={"batch_size": 64},
        seed=options.seed,
    )
    agent.learn(make_env, episodes=options.episodes, together=64, max_turns=40)
    figures = agent.evaluate(make_env, episodes=64, max_turns=40)
    print(
        f"mean return {figures['mean']:.3f} ± {figures['error']:.3f} (random actions {figures['random']:.3f})"
    )


if __name__ == "__main__":
    main()
