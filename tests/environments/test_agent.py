"""``clawback.Agent``: LlamaGym's loop, and each of its faults as a test (research/2026-11-27-llamagym-feature-by-feature.md names them)."""

from __future__ import annotations

import json
import random

import pytest
import torch

import clawback
from clawback import engine
from clawback.errors import ModelError, UsageError
from clawback.extensions.llamagym.agent import Agent
from clawback.extensions.llamagym.agent_settings import settings_of

SHORT = {"max_new_tokens": 4}


class Numbers:
    """Gymnasium's contract: some turns, each of which pays 1 for the action that was shown."""

    def __init__(self, turns=2):
        self.turns = turns

    def reset(self, seed=None, options=None):
        self.rng, self.turn = random.Random(seed), 0
        self.shown = self.rng.randrange(2)
        return self.shown, {}

    def step(self, action):
        assert action in (0, 1), f"not an action: {action!r}"
        reward, self.turn = float(action == self.shown), self.turn + 1
        self.shown = self.rng.randrange(2)
        return self.shown, reward, self.turn >= self.turns, False, {}


class Player(Agent):
    readable = True

    def get_system_prompt(self):
        return "Play."

    def format_observation(self, observation):
        return f"\x1b[31mShown: {observation}\x1b[0m"

    def extract_action(self, response):
        if not self.readable:
            raise ValueError("no action")
        return len(response) % 2


def play(agent, env, episodes=1, train=True, first=0):
    told = []
    for number in range(first, first + episodes):
        observation, _ = env.reset(seed=number)
        done = False
        while not done:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            agent.assign_reward(reward)
            done = terminated or truncated
        told.append(agent.terminate_episode(train))
    return told


def agent_of(kind=Player, **options):
    return kind("embedded", None, None, SHORT, {"batch_size": 6}, **options)


def weights(agent):
    return {n: p.detach().clone() for n, p in agent.policy.model.named_parameters() if "lora_" in n}


def same(a, b):
    return all(torch.equal(a[n], b[n]) for n in a)


def test_the_loop_learns_once_a_batch_of_turns_is_there_and_hands_figures_back():
    agent = agent_of()
    before = weights(agent)
    told = play(agent, Numbers(), episodes=3)
    assert told[0] == told[1] == {}  # 2 and 4 turns of 6
    assert told[2]["turns_trained"] == 6
    assert {"loss", "return", "entropy", "unparsable", "objective/kl", "gap"} <= told[2].keys()
    assert told[2]["gap"] < 1e-4
    play(agent, Numbers(), episodes=3, first=3)
    assert not same(before, weights(agent))


def test_episodes_that_do_not_count_teach_nothing():
    agent = agent_of()
    before = weights(agent)
    assert play(agent, Numbers(), episodes=6, train=False) == [{}] * 6
    assert agent.batch == []
    assert same(before, weights(agent))


def test_ids_that_are_trained_are_ids_that_were_sampled_in_every_turn(monkeypatch):
    agent, drawn = agent_of(), []
    draw = agent.learner.conversations.draw
    monkeypatch.setattr(
        agent.learner.conversations,
        "draw",
        lambda turns: [drawn.append((tuple(turns[0].ids), r)) or r for r in draw(turns)],
    )
    play(agent, Numbers(turns=5), episodes=1)
    [episode] = agent.batch
    queries, responses, rewards = agent.format_episode_for_ppo(episode)
    assert [tuple(q.tolist()) for q in queries] == [ids for ids, _ in drawn]
    assert [tuple(r.tolist()) for r in responses] == [one.ids for _, one in drawn]
    assert len(drawn) == 5
    assert {r.dtype for r in rewards} == {torch.float32}


def test_an_unparsable_reply_is_asked_for_again_costs_and_never_becomes_none():
    class Mute(Player):
        readable = False

    agent, env = agent_of(Mute), Numbers()
    observation, _ = env.reset(seed=0)
    for _ in range(2):
        action = agent.act(observation)
        assert action == 0  # nothing has been read yet
        observation, reward, *_ = env.step(action)
        agent.assign_reward(reward)
    roles = [m["role"] for m in agent.current_episode_messages]
    assert roles == ["system", *["user", "assistant"] * 4]  # two replies a turn: the hint is between them
    agent.terminate_episode()
    [episode] = agent.batch
    assert episode.unparsable == 4
    assert [s.penalty for s in episode.steps] == [-0.5] * 4
    agent.seen_actions = [1]
    assert agent.act(observation) == 1  # of those that were read before


def test_rewards_are_paired_with_their_turn_and_none_is_lost():
    agent, env = agent_of(), Numbers()
    with pytest.raises(UsageError, match="Episode 0: a reward of 1 was assigned before anything was done"):
        agent.assign_reward(1)
    observation, _ = env.reset(seed=0)
    agent.act(observation)
    agent.act(observation)  # the first turn brought nothing that was told
    agent.assign_reward(1.0)
    agent.assign_reward(0.5)
    assert agent.current_episode_rewards == [1.0, 0.5]
    agent.terminate_episode()
    [episode] = agent.batch
    assert [s.reward for s in episode.steps] == [None, 1.5]
    assert episode.total == 1.5
    agent.act(observation)
    with pytest.raises(UsageError, match="a reward of nan"):
        agent.assign_reward(float("nan"))


def test_an_episode_without_a_step_is_no_error():
    assert agent_of().terminate_episode() == {}


def test_what_is_left_is_learned_from_at_the_end():
    agent = agent_of()
    play(agent, Numbers(), episodes=2)
    assert agent.close()["turns_trained"] == 4
    assert agent.close() == {}


def test_saved_and_loaded_it_goes_on_with_the_same_numbers(tmp_path):
    first = agent_of(seed=3)
    play(first, Numbers(), episodes=4)
    first.save(tmp_path / "kept")
    assert (tmp_path / "kept" / "adapter_model.safetensors").is_file()
    second = agent_of(seed=3)
    second.load(tmp_path / "kept")
    told = [play(agent, Numbers(), episodes=3, first=4) for agent in (first, second)]
    plain = [{k: v for k, v in t[-1].items() if "second" not in k} for t in told]
    assert plain[0] == plain[1]
    assert same(weights(first), weights(second))
    with pytest.raises(ModelError, match="holds no agent"):
        second.load(tmp_path / "nothing")


@pytest.mark.slow
def test_many_at_once_are_the_episodes_of_the_loop(tmp_path):
    slow, quick = (agent_of(seed=5, log=tmp_path / name) for name in ("slow", "quick"))
    play(slow, Numbers(), episodes=3)
    told = quick.learn(Numbers, episodes=3, together=3)
    assert told[-1]["turns_trained"] == 6
    said = [
        [
            {k: v for k, v in json.loads(line).items() if k != "split"}
            for line in (tmp_path / name).read_text().splitlines()
        ]
        for name in ("slow", "quick")
    ]
    assert said[0] == said[1]


def test_evaluation_stands_beside_its_baselines_and_teaches_nothing():
    agent = agent_of()
    before = weights(agent)
    found = agent.evaluate(Numbers, episodes=20)
    assert 0 <= found["mean"] <= 2
    assert found["error"] > 0
    assert {"random", "fallback", "unparsable", "random_error"} <= found.keys()
    assert same(before, weights(agent))


def test_the_log_is_json_lines_for_its_owner_alone(tmp_path):
    agent = agent_of(log=tmp_path / "episodes.jsonl")
    play(agent, Numbers(), episodes=2)
    rows = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert [row["episode"] for row in rows] == [0, 1]
    assert rows[0]["return"] == sum(rows[0]["rewards"])
    assert "\x1b" not in json.dumps(rows)
    assert (tmp_path / "episodes.jsonl").stat().st_mode & 0o077 == 0


def test_a_transformers_model_and_its_tokenizer_will_do(folders):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = folders("llama")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    agent = Player(model, tokenizer, "cpu", {"generate/max_new_tokens": 4, "generate/top_p": 0.6, "generate/temperature": 0.9}, {"batch_size": 4})  # fmt: skip
    told = play(agent, Numbers(), episodes=2)
    assert told[-1]["turns_trained"] == 4
    assert told[-1]["gap"] < 1e-3  # drawn from the nucleus, recorded under the whole tempered policy
    with pytest.raises(UsageError, match="needs its tokenizer"):
        Player(model)


def test_the_old_gym_and_text_worlds_four_values_and_no_seed():
    class Old:
        def reset(self):
            self.turn = 0
            return "a room", {}

        def step(self, command):
            assert isinstance(command, str)
            self.turn += 1
            return "a corridor", 1.0, self.turn >= 2, {}

    class Reader(Player):
        def extract_action(self, response):
            return None

    agent = agent_of(Reader)
    assert agent.act("a room") == "look"
    agent = agent_of(Reader)
    assert agent.learn(Old, episodes=2, together=2)[-1]["return"] == 2.0


def test_settings_that_would_be_ignored_are_refused():
    settings, seed = settings_of(
        {"generate/temperature": 0.5},
        {"batch_size": 8, "ppo_epochs": 4, "init_kl_coef": 0.1, "seed": 9, "vf_coef": 0.1},
    )
    assert (settings.sampling.temperature, settings.batch, settings.passes, settings.kl, seed) == (
        0.5,
        8,
        4,
        0.1,
        9,
    )
    assert settings_of(None, None)[0].sampling.top_p == 1.0
    assert settings_of({"do_sample": False}, None)[0].sampling.temperature == 0.0
    with pytest.raises(UsageError, match="repetition_penalty"):
        settings_of({"repetition_penalty": 1.1}, None)
    with pytest.raises(UsageError, match="no setting 'batchsize'"):
        settings_of(None, {"batchsize": 8})
    with pytest.raises(UsageError, match="estimator"):
        Player("embedded", None, None, SHORT, {"estimator": "hope"})


def test_it_is_what_the_package_gives():
    assert clawback.Agent is Agent
    assert engine is not None


def test_many_episodes_at_once_are_learned_in_as_many_steps_as_a_round_of_a_run():
    """``learn`` plays more turns at once than ``batch_size``: they are shared out over mini-batches, and updates stay countable."""
    from tests.environments.test_action_form import Light, agent_of

    agent, steps = agent_of(grammar=True, quiet=True), []
    # Batches of 16 turns: one step in a loop of one's own.
    advance = agent.learner.trainer.loop.advance
    agent.learner.trainer.loop.advance = lambda: (steps.append(agent.learner.trainer.update), advance())[1]
    agent.learn(Light, episodes=64, together=32)
    assert steps == [0, 0, 0, 0, 1, 1, 1, 1]
    assert agent.learner.trainer.update == 2
    assert (
        agent.learner.trainer.source.settings.steps_a_round == 1
    )  # what is saved is counted in the settings' own
