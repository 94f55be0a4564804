"""FrozenLake in words: from the top left square to the bottom right one, around the holes.

    python examples/agents/frozen_lake.py --episodes 1536      # a loop of one's own, on the embedded model
    clawback env train FrozenLake-v1 --agent frozen_lake:LakeAgent --episodes 1536 --batch 64 --max-tokens 8
    clawback env train FrozenLake-v1 --agent frozen_lake:IceAgent --episodes 8000 --batch 64 --max-tokens 8     # where a step slips aside two times in three

The best policy returns 1 (on slippery ice 0.73 within Gymnasium's hundred steps), random steps 0.015. Rows and columns are numbers
after a word: the embedded model knows these tokens, and can hardly tell bare letters or digits apart.
"""

from __future__ import annotations

import argparse
from typing import Any

from clawback import Agent

WAYS = ("left", "down", "right", "up")


class LakeAgent(Agent):
    env_options: dict[str, Any] = {"is_slippery": False}
    side = 4

    def get_system_prompt(self) -> str:
        return ""

    def format_observation(self, observation: Any) -> str:
        row, column = divmod(int(observation), self.side)
        return f"row {row + 1} column {column + 1}"

    def extract_action(self, response: str) -> int:
        return WAYS.index(response.split()[-1])

    def action_replies(self) -> tuple[str, ...]:
        return tuple(f"go {way}" for way in WAYS)


class IceAgent(LakeAgent):
    env_options = {"is_slippery": True}


class PondAgent(LakeAgent):
    """A pond of 3 × 3 with two holes."""

    env_options = {"is_slippery": False, "desc": ["SFH", "FFF", "HFG"]}
    side = 3


def main() -> None:
    import gymnasium as gym

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="embedded", help="a folder, a hub id, embedded or smollm2")
    parser.add_argument("--episodes", type=int, default=1536)
    parser.add_argument("--slippery", action="store_true", help="a step slips aside two times in three")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    def make_env() -> Any:
        return gym.make("FrozenLake-v1", is_slippery=options.slippery)

    agent = LakeAgent(
        options.model,
        generate_config_dict={"max_new_tokens": 8},
        ppo_config_dict={"batch_size": 64},
        seed=options.seed,
    )
    turns = 100 if options.slippery else 40
    agent.learn(make_env, episodes=options.episodes, together=64, max_turns=turns)
    figures = agent.evaluate(make_env, episodes=100, max_turns=turns)
    print(
        f"mean return {figures['mean']:.3f} ± {figures['error']:.3f} (random actions {figures['random']:.3f})"
    )


if __name__ == "__main__":
    main()
