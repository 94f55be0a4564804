"""LlamaGym's TextWorld example with Clawback: a text adventure behind the old Gym's four values.

python examples/agents/text_world.py --game my_game.z8     # a TextWorld game (pip install textworld), or
python examples/agents/text_world.py                       # a house of four rooms of our own, nothing to install
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from clawback import Agent

ROOMS = {
    "hall": ("A hall. A door leads east.", {"go east": "kitchen"}),
    "kitchen": ("A kitchen. Doors lead west and north.", {"go west": "hall", "go north": "garden"}),
    "garden": ("A garden with a gate to the east.", {"go south": "kitchen", "go east": "street"}),
    "street": ("The street. You are out.", {}),
}


class House:
    """``reset`` and ``step`` as TextWorld has them: no seed, four values, commands as text."""

    def reset(self) -> tuple[str, dict[str, Any]]:
        self.room, self.turn = "hall", 0
        return ROOMS[self.room][0], {}

    def step(self, command: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.turn += 1
        self.room = ROOMS[self.room][1].get(command.strip(), self.room)
        out = self.room == "street"
        return ROOMS[self.room][0], float(out), out or self.turn >= 8, {}

    def close(self) -> None:
        pass


class TextWorldAgent(Agent):
    make_env = staticmethod(House)

    def get_system_prompt(self) -> str:
        return 'You are in a text adventure. Reply with one command, such as "command: go east".'

    def format_observation(self, observation: str) -> str:
        return observation.split("$$$$$$$ \n")[-1].strip()

    def extract_action(self, response: str) -> str | None:
        found = re.search(r"command: (.+)", response, re.IGNORECASE)
        return found.group(1).strip() if found else None

    def fallback_action(self, observation: Any) -> str:  # noqa: ARG002
        return "look"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--game", help="a TextWorld game file")
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    env: Any = House()
    if options.game:
        import textworld.gym

        env = textworld.gym.make(textworld.gym.register_game(options.game, max_episode_steps=50))
    agent = TextWorldAgent(
        options.model, generate_config_dict={"max_new_tokens": 16}, ppo_config_dict={"batch_size": 16}
    )
    for episode in range(options.episodes):
        observation, _ = env.reset()
        done = False
        while not done:
            observation, reward, done, _ = env.step(agent.act(observation))
            agent.assign_reward(reward)
        total = sum(agent.current_episode_rewards)
        stats = agent.terminate_episode()
        print(f"episode {episode + 1}: return {total:g}" + (f", loss {stats['loss']:.3f}" if stats else ""))
    agent.close()


if __name__ == "__main__":
    main()
