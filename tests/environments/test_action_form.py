"""The form of actions: which replies name one, who says that few do, and what teaches a model to write them."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest
import torch

from clawback import release, store
from clawback.environments.registry import find
from clawback.episode_jobs import playing
from clawback.episode_jobs.episode_runs import Wish
from clawback.episode_jobs.reply_form import form_notice, observation_notice, picture_notice, plan_replies
from clawback.errors import UsageError
from clawback.extensions.llamagym.agent import Agent
from clawback.extensions.llamagym.agent_worlds import (
    UNREAD,
    AgentWorlds,
    ReplyForm,
    equal_forms,
    is_possible,
    reply_form,
)
from clawback.learning import warm_starts
from clawback.learning.episode_examples import sequences
from clawback.learning.episode_run import episode_recipe, exploration
from clawback.learning.warm_starts import imitate, improve, is_short
from clawback.policy.policy import Policy
from clawback.records import Episode, EpisodeStep
from clawback.rollouts.action_form import (
    CLEAR,
    TokenDistance,
    action_replies,
    answered_at_random,
    clear_form,
    cure,
    quoted,
    unread_notice,
    unread_share,
)
from clawback.scoring.choices import Choices, choice_logprobs
from clawback.scoring.lm_head import Head
from clawback.templates.chat_tokens import Encoded
from clawback.trainer.examples import Shared, TrainingExample, measure
from clawback.trainer.run import attach_weights

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
"""One pixel."""


class Discrete:
    start = 0

    def __init__(self, n):
        self.n = n

    def seed(self, number):
        self.random = random.Random(number)

    def sample(self):
        return self.random.randrange(self.n)


class Light:
    """Two turns; it pays to press what is shown."""

    action_space = Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng, self.turn = random.Random(seed), 0
        self.lamp = self.rng.randrange(2)
        return self.lamp, {}

    def step(self, action):
        assert action in (0, 1)
        reward, self.turn = float(action == self.lamp), self.turn + 1
        self.lamp = self.rng.randrange(2)
        return self.lamp, reward, self.turn >= 2, False, {}


class Presser(Agent):
    """As LlamaGym's users write one: the prompt quotes the actions, and what is no action counts as 0."""

    default = 0

    def get_system_prompt(self):
        return 'Write "Action: 0" or "Action: 1".'

    def format_observation(self, observation):
        return f"Lamp {observation}"

    def extract_action(self, response):
        found = re.search(r"Action: (\d)", response)
        if found is None and self.default is None:
            raise ValueError
        return int(found[1]) if found else self.default


class Strict(Presser):
    default = None


def agent_of(kind=Presser, **options):
    return kind("embedded", None, None, {"max_new_tokens": 8}, {"batch_size": 16}, seed=1, **options)


def test_what_a_prompt_quotes_and_the_agent_reads_are_its_replies():
    assert quoted('Say "a b", `c` or \'d\'; "a b" again') == ["a b", "c", "d"]
    form = reply_form(Strict.speaker())
    assert form == ReplyForm(("Action: 0", "Action: 1"), UNREAD)
    assert reply_form(Presser.speaker()).default == 0
    assert action_replies(AgentWorlds("x", Strict.speaker(), Light)) == ("Action: 0", "Action: 1")


def test_one_quoted_reply_stands_for_all_actions_of_the_space():
    class Four(Strict):
        def get_system_prompt(self):
            return "A move is written `Action: 2`, and nothing else."

    class Room(Light):
        action_space = Discrete(4)

    form = reply_form(Four.speaker(), Room())
    assert form.replies == ("Action: 0", "Action: 1", "Action: 2", "Action: 3")

    class Silent(Strict):
        def get_system_prompt(self):
            return ""

        def extract_action(self, response):
            return ["l", "r"].index(response)

    assert reply_form(Silent.speaker(), Room()).replies == ()


def test_a_reply_that_names_nothing_is_seen_even_where_the_agent_takes_a_default():
    form = reply_form(Presser.speaker(), Light())
    assert not form.names("I like foxes.", 0)
    assert form.names("well, action: 0", 0)
    assert form.names("I take 1", 1)  # not the default: somebody read it
    assert ReplyForm((), 0).names("anything", 0)


def test_gymnasium_actions_are_known_through_wrappers(tmp_path):
    pytest.importorskip("gymnasium")
    shots = tmp_path / "shots.jsonl"
    shots.write_text(
        '{"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "Action: up"}]}\n'
    )
    for environments in (find("gymnasium:FrozenLake-v1"), find("gymnasium:FrozenLake-v1", shots=str(shots))):
        assert action_replies(environments) == tuple(
            f"Action: {way}" for way in ("left", "down", "right", "up")
        )
    assert action_replies(find("gymnasium:Pendulum-v1")) == ()
    assert action_replies(find("tools:shop")) == ()


def test_who_reads_few_replies_is_told_with_an_example():
    message = {"role": "assistant", "content": "I like foxes."}
    steps = tuple(EpisodeStep(0, 0, 1, unparsable=n < 3) for n in range(4))
    episode = Episode("e", "t", 0, (message,), (), steps, "completed")
    assert unread_share([episode]) == 0.75
    assert unread_notice([episode], "of the first batch").startswith(
        "75% of the replies of the first batch name no action (such as 'I like foxes.')"
    )
    assert unread_notice([Episode("e", "t", 0, (message,), (), steps[3:], "completed")], "") == ""


def test_a_worked_example_is_not_shown_as_a_reply_that_cannot_be_read():
    example = {"role": "assistant", "content": "click('3')"}
    reply = {"role": "assistant", "content": "I like foxes."}
    episode = Episode(
        "e", "t", 0, (example, reply), (), (EpisodeStep(0, 0, 1, unparsable=True),), "completed"
    )
    assert episode.replies == (1,)
    assert "such as 'I like foxes.'" in unread_notice([episode], "")


# ------------------------------------------------------------------------------------------ actions by grammar


def test_choices_lead_to_one_of_the_replies_and_nowhere_else():
    choices = Choices([(1, 2, 9), (1, 3, 9), (4, 9)])
    assert choices.allowed(()) == [1, 4]
    assert choices.allowed((1,)) == [2, 3]
    assert choices.allowed((4,)) == [9]
    assert choices.allowed((5,)) == []
    masked = choices.masked(torch.zeros(2, 10), [(), (1,)])
    assert [row.isfinite().nonzero()[:, 0].tolist() for row in masked] == [[1, 4], [2, 3]]
    table, uniform = choices.table([Encoded((0,), (1, 3, 9, 7, 4, 9), starts=(0, 4))])
    assert table.tolist() == [[1, 4], [2, 3], [9, -1], [7, -1], [1, 4], [9, -1]]
    assert uniform[:2].exp().flatten().tolist() == pytest.approx([2 / 3, 1 / 3, 1 / 2, 1 / 2])


def test_without_a_preference_each_reply_is_as_likely_as_any_other():
    replies = [(1, 2, 9), (1, 3, 9), (1, 3, 8, 9), (4, 9)]
    choices = Choices(replies)
    values = choices.uniform(
        [Encoded((0,), (*reply, 7, 4, 9), starts=(0, len(reply) + 1)) for reply in replies]
    )
    for reply, value in zip(replies, values, strict=True):
        size = len(reply)
        assert value[:size].sum().exp().item() == pytest.approx(1 / 4)
        assert value[size] == 0.0  # no part of a reply
        assert value[size + 1 :].sum().exp().item() == pytest.approx(1 / 4)


@pytest.mark.parametrize("cap", [0.0, 5.0])
def test_choice_logprobs_are_those_of_the_renormalised_softmax_with_its_gradient(cap):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 8, generator=generator, requires_grad=True)
    head = Head(torch.randn(12, 8, generator=generator), torch.randn(12, generator=generator), 0.7, cap)
    table = torch.tensor([[1, 4, 7], [2, 3, -1], [9, -1, -1], [0, 11, 5], [6, 8, -1]])
    targets = torch.tensor([4, 2, 9, 5, 8])
    uniform = torch.where(table < 0, 0.0, -(table >= 0).sum(-1, keepdim=True).log())
    values, entropy, divergence = choice_logprobs(head, hidden, targets, table, uniform)
    logits = (hidden @ head.weight.T + head.bias) * head.scale
    logits = cap * torch.tanh(logits / cap) if cap else logits
    for row in range(5):
        allowed = [int(t) for t in table[row] if t >= 0]
        expected = logits[row, allowed].log_softmax(0)
        assert values[row].item() == pytest.approx(
            expected[allowed.index(int(targets[row]))].item(), abs=1e-5
        )
        assert divergence[row].item() == pytest.approx(
            (expected.exp() * (expected + math.log(len(allowed)))).sum().item(), abs=1e-5
        )
        assert entropy[row].item() == pytest.approx(-(expected.exp() * expected).sum().item(), abs=1e-5)
    assert values[2] == 0.0
    [gradient] = torch.autograd.grad(values.sum(), hidden, retain_graph=True)
    [reference] = torch.autograd.grad(
        sum(logits[r, [int(t) for t in table[r] if t >= 0]].log_softmax(0)[
            [int(t) for t in table[r] if t >= 0].index(int(targets[r]))] for r in range(5)),
        hidden,
    )  # fmt: skip
    assert torch.allclose(gradient, reference, atol=1e-5)


def test_the_exact_divergence_of_held_replies_reaches_the_loss(policy):
    attach_weights(policy, episode_recipe(policy.info), 0)
    replies = ("Sure", "No", "Yes")
    assert policy.hold_to(replies)
    turns = [[{"role": "user", "content": "What is rice?"}]]
    episodes = [answered_at_random(policy, turns, replies, n) for n in range(3)]
    encoded = [part.encoded for part in sequences(episodes, held=True)]
    examples = [
        TrainingExample(one, 0.0, torch.zeros(len(one.response)), torch.zeros(len(one.response)))
        for one in encoded
    ]
    batch = measure(policy.scorer, examples, Shared.of(examples))
    table, uniform = policy.choices.table(encoded)
    targets = torch.tensor([token for one in encoded for token in one.response])
    expected = choice_logprobs(policy.scorer.head, policy.scorer.states(encoded), targets, table, uniform)
    assert torch.allclose(batch.exact_kl, expected[2], atol=1e-5)
    assert torch.allclose(batch.logprobs, expected[0], atol=1e-5)
    assert float(batch.exact_kl.detach().max()) <= math.log(3) + 1e-5


def test_where_no_reply_is_an_action_the_first_batch_says_so_and_replies_are_held_to_actions(capsys):
    agent = agent_of()
    told = agent.learn(Light, episodes=48, together=16)
    lines = capsys.readouterr().err.splitlines()
    assert "of the replies of the first batch name no action" in lines[0]
    assert "each reply is one of 2, such as 'Action: 0'" in lines[0]
    assert len([line for line in lines if "return" in line and "success" in line]) == 3
    assert all(line.endswith("0% unread") for line in lines[1:])
    assert agent.held_to == ("Action: 0", "Action: 1")
    assert told[0]["unparsable"] > 0.5
    assert [figures["unparsable"] for figures in told[1:]] == [0.0] * 3
    assert all(figures["gap"] < 1e-4 for figures in told[1:])  # what is drawn is what is learned
    assert agent.evaluate(Light, episodes=8)["unparsable"] == 0.0


def test_in_a_loop_of_ones_own_the_same_and_saved_with_the_agent(tmp_path, capsys):
    agent = agent_of(Strict, grammar=True)
    env = Light()
    for number in range(2):
        observation, _ = env.reset(seed=number)
        done = False
        while not done:
            observation, reward, done, *_ = env.step(agent.act(observation))
            agent.assign_reward(reward)
        agent.terminate_episode()
    replies = [m["content"] for e in agent.batch for m in e.messages if m["role"] == "assistant"]
    assert set(replies) <= {"Action: 0", "Action: 1"}
    agent.save(tmp_path / "saved")
    other = agent_of(Strict, quiet=True)
    other.load(tmp_path / "saved")
    assert other.held_to == agent.held_to
    assert agent.train_batch()["gap"] < 1e-4
    assert "return" in capsys.readouterr().err


def test_a_grammar_without_known_actions_is_refused():
    class Silent(Strict):
        def get_system_prompt(self):
            return ""

    with pytest.raises(UsageError, match="action_replies"):
        agent_of(Silent, grammar=True).act(0)


# ----------------------------------------------------------------------------------------------- a warm start


def test_imitation_ends_where_the_form_is_learned_and_no_preference(policy):
    replies = ("Sure", "No")  # words that the model knows
    attach_weights(policy, episode_recipe(policy.info), 0)
    turns = [[{"role": "user", "content": f"What is {name}?"}] for name in ("Paris", "rice", "Rome", "bread")]
    shown = [answered_at_random(policy, turns[n % 4 :], replies, n) for n in range(16)]
    assert {m["content"] for e in shown for m in e.messages if m["role"] == "assistant"} == set(replies)
    figures = imitate(policy, shown, len(replies), learning_rate=0.003, seed=0)
    assert figures["loss"] < math.log(2) + 0.2
    assert figures["steps"] < 100
    with torch.no_grad():
        [scores] = policy.scorer([sequences(shown[:1])[0].encoded]).split()
    assert scores[0].exp() == pytest.approx(0.5, abs=0.3)


def test_imitation_of_held_replies_ends_without_a_preference_after_a_few_steps(policy):
    replies = ("go left", "go down", "go right", "go up")
    attach_weights(policy, episode_recipe(policy.info), 0)
    policy.hold_to(replies)
    turns = [[{"role": "user", "content": f"row {n % 4 + 1} column 2"}] for n in range(4)]
    shown = [answered_at_random(policy, turns[n:], replies, n) for n in (0, 1, 2, 3)]
    figures = imitate(policy, shown, len(replies), learning_rate=0.003, seed=0)
    assert figures["loss"] == pytest.approx(math.log(4), abs=0.06)
    assert figures["steps"] < 40


def rewarded(policy, replies, number):
    """One turn: left always pays 0.6, right pays 1 in the first two rows and nothing in the others."""
    row = number % 4
    asked = [[{"role": "user", "content": f"row {row + 1} column 2"}]]
    episode = answered_at_random(policy, asked, replies, number)
    gains = {replies[0]: 0.6, replies[1]: float(row < 2)}
    [step] = episode.steps
    return replace(episode, steps=(replace(step, reward=gains[episode.messages[-1]["content"]]),))


@pytest.mark.slow
def test_random_episodes_give_a_first_policy_that_tells_situations_apart(policy, monkeypatch):
    """On average left pays more: a policy that knew no more than this would never turn right."""
    replies = ("go left", "go right")
    attach_weights(policy, episode_recipe(policy.info), 0)
    policy.hold_to(replies)
    episodes = [rewarded(policy, replies, n) for n in range(160)]
    monkeypatch.setattr(warm_starts, "FEWEST_STEPS", 50)
    figures = improve(policy, episodes, gamma=1.0, learning_rate=0.003, seed=0)
    assert figures["explained"] > 0.5
    parts = sequences(episodes[:12], held=True)
    with torch.no_grad():
        chances = [float(scores.sum().exp()) for scores in policy.scorer([p.encoded for p in parts]).split()]
    for number, (episode, chance) in enumerate(zip(episodes, chances, strict=False)):
        is_right = episode.messages[-1]["content"] == replies[1]
        assert chance > 0.8 if is_right == (number % 4 < 2) else chance < 0.2


def test_exploration_is_for_short_episodes_and_for_runs_that_can_afford_it(policy):
    short = [rewarded(policy, ("go left", "go right"), n) for n in range(2)]
    assert is_short(short)
    assert not is_short([replace(short[0], steps=short[0].steps * 4)])
    assert (exploration(100), exploration(1024), exploration(10**6)) == (0, 512, 2048)


def test_the_form_is_one_whose_replies_the_model_tells_apart(policy):
    distance = TokenDistance(policy, written=True)
    bare, named = (
        ["left", "down", "right", "up"],
        [f"Action: {way}" for way in ("left", "down", "right", "up")],
    )
    assert distance.of_replies(bare) < CLEAR < distance.of_replies(named)
    assert distance.of_replies(["a", "a"]) == 0.0
    assert clear_form(policy, [bare, named]) == named
    assert clear_form(policy, [named, bare]) == named
    assert clear_form(policy, [bare]) == bare
    assert "hardly tells replies such as 'left' and 'down' apart" in form_notice(policy, bare)
    assert form_notice(policy, named) == ""

    class Walker(Strict):
        def get_system_prompt(self):
            return ""

        def extract_action(self, response):
            return bare.index(response.split()[-1])

        def action_replies(self):
            return bare

    agent = Walker.speaker()
    assert equal_forms(agent, bare) == [bare, named]
    assert equal_forms(Strict.speaker(), ["Action: 0", "Action: 1"]) == [["Action: 0", "Action: 1"]]

    class Room(Light):
        action_space = Discrete(4)

    environments = AgentWorlds("x", agent, Room)
    assert action_replies(environments) == tuple(bare)
    assert action_replies(environments, policy) == tuple(named)


def test_observations_that_the_model_reads_alike_are_named(policy):
    def episode(*texts):
        return Episode(
            "e", "t", 0, tuple({"role": "user", "content": text} for text in texts), (), (), "completed"
        )

    squares = [f"{row}{column}" for row in "abcd" for column in range(1, 5)]
    words = [f"row {row} column {column}" for row in range(1, 5) for column in range(1, 5)]
    assert "such as 'a1' and 'a2'" in observation_notice(policy, [episode(*squares)])
    assert observation_notice(policy, [episode(*words)]) == ""
    assert observation_notice(policy, [episode(words[0])]) == ""
    environments = AgentWorlds("light", Presser.speaker(), Light)
    for wish, said in ((Wish("light"), "'a1' and 'a2'"), (Wish("light", harness="codex"), "")):
        plan = plan_replies(policy, environments, wish, [episode(*squares)], drawn_here=True)
        assert (said in plan.notice, bool(plan.notice)) == (True, bool(said))


def test_pictures_that_the_model_does_not_see_are_named(policy):
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    parts = [{"type": "text", "text": "Click."}, picture]
    shown, told = (
        Episode("e", "t", 0, ({"role": "user", "content": content},), (), (), "completed")
        for content in (parts, "Click.")
    )
    assert "sees no pictures" in picture_notice(policy, [told, shown])
    assert picture_notice(policy, [told]) == ""


def test_a_number_that_is_no_action_of_the_space_is_a_reply_that_could_not_be_read():
    import asyncio

    environments = AgentWorlds("light", Presser.speaker(), Light)
    world = environments.make()
    asyncio.run(world.reset(environments.tasks("train")[0], 0))
    step = asyncio.run(world.step({"role": "assistant", "content": "Action: 7"}))
    assert step.info == {"unparsable": True}
    assert is_possible(object(), 7)


class Choosing:
    """One turn: "Sure" pays."""

    name = "choosing"

    def tasks(self, split):
        from clawback.environments.core import Task

        return [Task(f"{split}-{n}", {}, split) for n in range(4)]

    def make(self):
        return ChoosingOnce()

    def action_replies(self):
        return ("Sure", "No")


class ChoosingOnce:
    async def reset(self, task, seed):
        from clawback.environments.core import Observation

        return Observation(({"role": "user", "content": "What is rice?"},))

    async def step(self, message):
        from clawback.environments.core import Step

        known = message["content"] in ("Sure", "No")
        return Step((), float(message["content"] == "Sure"), True, {"unparsable": not known})

    async def close(self):
        pass


def test_a_run_holds_replies_to_the_actions_before_and_after(home):
    home.config.write_text("[training]\nbackground = false\n")
    told = []
    wish = playing.Wish("choosing", episodes=16, groups=16, held_out=4, max_tokens=3)
    made = playing.learn(home, wish, seed=1, worlds=Choosing(), on_progress=told.append)
    [alert] = [one["text"] for one in told if one["phase"] == "alert"]
    assert "of the replies of held-out tasks name no action" in alert
    assert "From now on each reply is one of 2, such as 'Sure'" in alert
    assert (made.verdict.unparsable_before, made.verdict.unparsable_after) == (0.0, 0.0)
    assert release.held_replies(made.version, "choosing") == ("Sure", "No")
    assert release.held_replies(made.version, "another") == ()
    with store.connect(home.database) as db:
        steps = db.steps(made.run.id)
        replies = [m["content"] for e in db.episodes(100) if e.number < playing.BEFORE or e.number >= playing.HELD
                   for m in e.messages if m["role"] == "assistant"]  # fmt: skip
    assert set(replies) == {"Sure", "No"}
    assert steps[0]["entropy"] == pytest.approx(
        math.log(2) / 2, abs=0.05
    )  # no preference; the end token has no alternative
    assert max(step["gap"] for step in steps) < 1e-4


def test_a_run_that_cannot_hold_replies_learns_the_form_first_and_says_so(home, monkeypatch):
    monkeypatch.setattr(Policy, "hold_to", lambda *_: False)
    home.config.write_text("[training]\nbackground = false\n")
    told = []
    wish = playing.Wish("choosing", episodes=16, groups=16, held_out=4, max_tokens=3)
    made = playing.learn(home, wish, seed=1, worlds=Choosing(), on_progress=told.append)
    alerts = [one["text"] for one in told if one["phase"] == "alert"]
    assert "of the replies of held-out tasks name no action" in alerts[0]
    assert "The form is learned first, from 2 replies such as 'Sure'" in alerts[0]
    assert made.verdict.unparsable_before > 0.5
    assert made.verdict.unparsable_after <= 0.25
    assert any(one["phase"] == "form" for one in told)


def test_where_the_actions_are_not_known_the_cure_is_said(home):
    class Unknown(Choosing):
        def action_replies(self):
            return ()

    home.config.write_text("[training]\nbackground = false\n")
    told = []
    wish = playing.Wish("choosing", episodes=4, groups=4, held_out=4, max_tokens=3)
    playing.learn(home, wish, seed=1, worlds=Unknown(), on_progress=told.append)
    [text] = [one["text"] for one in told if one["phase"] == "alert"]
    assert "Show worked examples (--shots N" in text


@pytest.mark.slow
def test_the_command_and_the_agents_own_loop_learn_the_same_game(home):
    """From replies that name no action to the best ones: a lamp is seen, and its number is pressed."""
    home.config.write_text("[training]\nbackground = false\n")
    wish = playing.Wish("light", episodes=512, groups=64, held_out=32, max_tokens=8)
    made = playing.learn(home, wish, seed=1, worlds=AgentWorlds("light", Presser.speaker(), Light))
    assert made.verdict.mean_before == pytest.approx(1.0, abs=0.4)
    assert made.verdict.mean_after > 1.6
    agent = agent_of(quiet=True)
    agent.learn(Light, episodes=512, together=64)
    assert agent.evaluate(Light, episodes=32)["mean"] > 1.6


@pytest.mark.parametrize("name", ["terminal", "repository", "tools:shop"])
def test_no_list_of_replies_is_suggested_for_tasks_of_commands_or_calls(name):
    assert "?replies=A|B" in cure(Choosing())
    assert "replies" not in cure(find(name, shots="1"))
