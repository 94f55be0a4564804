"""LlamaGym's Blackjack example with Clawback: the class as its users write it, the import and the model line changed.

    python examples/agents/blackjack.py --episodes 200

Hands are short, and a policy that begins by tossing coins soon finds that standing pays: "it went up" proves nothing here. Basic strategy returns -0.05,
always standing -0.18, coin tosses -0.40 (docs/gym.md). `BlackjackAgent("embedded").learn(make_env, episodes=4096, together=256)` tries both actions at
random first and comes to -0.08 (`python -m benchmarks gym_blackjack`).
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from clawback import Agent


class BlackjackAgent(Agent):
    env_options = {"natural": False, "sab": False}

    def get_system_prompt(self) -> str:
        return (
            "You play blackjack. Each turn you see your sum, the dealer's card and whether you hold a usable ace. "
            'Write "Action: 0" to stand or "Action: 1" to take a card.'
        )

    def format_observation(self, observation: Any) -> str:
        total, dealer, ace = observation
        return f"You: {total}. Dealer: {dealer}. You have {'an' if ace else 'no'} ace."

    def extract_action(self, response: str) -> int:
        found = re.search(r"Action: ([01])\b", response)
        if found is None:
            raise ValueError("no action in it")
        return int(found.group(1))


def main() -> None:
    import gymnasium as gym

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="embedded", help="a folder, a hub id, embedded or smollm2")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()

    agent = BlackjackAgent(
        options.model,
        generate_config_dict={"generate/max_new_tokens": 16},
        ppo_config_dict={"batch_size": 32},
        seed=options.seed,
    )
    env = gym.make("Blackjack-v1", natural=False, sab=False)
    total = 0.0
    for episode in range(options.episodes):
        observation, _ = env.reset(seed=options.seed + episode)
        done = False
        while not done:
            action = agent.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            agent.assign_reward(float(reward))
            done = terminated or truncated
        total += sum(agent.current_episode_rewards)
        stats = agent.terminate_episode()
        if stats:
            print(
                f"{episode + 1} episodes, mean return {total / (episode + 1):+.3f}, unread replies {stats['unparsable']:.0%}, "
                f"KL {stats['objective/kl']:.3f}"
            )
    agent.close()


if __name__ == "__main__":
    main()
