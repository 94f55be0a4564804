"""Gymnasium's worlds in words: what is seen, which replies are actions, and what is the same under one seed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

pytest.importorskip("gymnasium")

import gymnasium
import numpy

from clawback.environments import play, policies, registry, world_helpers
from clawback.environments.core import EnvironmentFailure
from clawback.environments.validate import validate
from clawback.errors import MissingExtra, NotFound, UsageError
from clawback.extensions.worlds import toy_text
from clawback.rollouts.action_form import action_replies
from tests.environments.playing import walk

LAKE = "gymnasium:FrozenLake-v1?is_slippery=false"


def test_the_lake_is_shown_and_walked_to_its_end() -> None:
    lake = registry.find(LAKE)
    opened, steps = asyncio.run(
        walk(lake, lake.tasks("train")[0], ["Action: down", "I think: right", "nothing"])
    )
    assert "[S] F  F  F" in opened.messages[-1]["content"]
    assert "left, down, right, up" in opened.messages[0]["content"]
    assert "row 1, column 0" in steps[0].messages[0]["content"]
    assert (steps[1].reward, steps[1].done) == (0.0, True)  # right of it is a hole
    assert steps[1].messages == ()


def test_known_solutions_score_one_and_the_map_has_one() -> None:
    lake = registry.find(f"{LAKE}&map_name=8x8&tasks=3")
    checks = asyncio.run(validate(lake, lake.tasks("train")))
    assert [(c.solved, c.problem) for c in checks] == [(True, "")] * 3
    assert (
        toy_text.way(gymnasium.make("FrozenLake-v1").unwrapped.P, 0, 4) is None
    )  # it is slippery: no fixed way


def test_replies_that_name_no_action_are_told_so_and_end_the_episode_when_they_go_on() -> None:
    cards = registry.find("gymnasium:Blackjack-v1")
    _, steps = asyncio.run(walk(cards, cards.tasks("train")[0], ["hmm", "stick or hit?", "pass"]))
    assert [step.info.get("unparsable") for step in steps] == [True, True, True]
    assert [step.done for step in steps] == [False, False, True]
    assert [step.reward for step in steps] == [None, None, 0.0]
    _, steps = asyncio.run(walk(cards, cards.tasks("train")[0], ["hmm", "hit", "hmm", "hmm", "stick"]))
    assert steps[-1].done  # a good reply in between begins the count anew
    assert not steps[-1].info.get("unparsable")


def test_one_task_begins_alike_and_the_episodes_seed_is_its_luck() -> None:
    cards = registry.find("gymnasium:Blackjack-v1")
    task = cards.tasks("train")[3]

    def hits(seed: int) -> list[str]:
        opened, steps = asyncio.run(walk(cards, task, ["hit"] * 3, seed))
        return [
            opened.messages[-1]["content"],
            *(s.messages[0]["content"] if s.messages else str(s.reward) for s in steps),
        ]

    assert hits(1) == hits(1)
    assert len({hits(seed)[0] for seed in range(8)}) == 1
    assert len({hits(seed)[1] for seed in range(8)}) > 1


def test_splits_share_no_task_and_identity_knows_nothing_of_their_number() -> None:
    few, many = registry.find("gymnasium:Taxi-v4?tasks=5"), registry.find("gymnasium:Taxi-v4?tasks=50")
    assert [t.id for t in few.tasks("train")] == [t.id for t in many.tasks("train")][:5]
    assert not {t.id for t in many.tasks("train")} & {t.id for t in many.tasks("test")}
    slippery = registry.find("gymnasium:FrozenLake-v1").tasks("train")[0]
    assert slippery.id != registry.find(LAKE).tasks("train")[0].id


@pytest.mark.parametrize(
    "name",
    ["Taxi-v4", "CliffWalking-v1", "CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCarContinuous-v0"],
)
def test_worlds_open_alike_and_answer(name: str) -> None:
    found = registry.find(f"gymnasium:{name}")
    assert [c.problem for c in asyncio.run(validate(found, found.tasks("test")[:2]))] == ["", ""]


def test_many_at_once_are_as_one_after_the_other() -> None:
    taxi = registry.find("gymnasium:Taxi-v4")
    words = toy_text.ACTIONS["Taxi"]

    def drive(messages: Any, tools: Any) -> str:
        return words[(len(messages) + len(messages[-1]["content"])) % 4]

    async def played(together: int) -> list[Any]:
        return await play.play(
            taxi,
            taxi.tasks("train")[:12],
            policies.Script(drive),
            play.PlaySettings(together=together, turns=15),
        )

    a, b = asyncio.run(played(12)), asyncio.run(played(1))
    assert [x.messages for x in a] == [x.messages for x in b]
    assert {x.stop for x in a} == {"turns"}


class Odd(gymnasium.Env[Any, Any]):
    """A world with every kind of space, which breaks when it is told to."""

    def __init__(self) -> None:
        spaces = gymnasium.spaces
        self.observation_space = spaces.Dict(
            {"where": spaces.Box(-1, 1, (2,)), "word": spaces.Text(8), "n": spaces.Discrete(3)}
        )
        self.action_space = spaces.Dict(
            {
                "move": spaces.Box(-1, 1, (2,)),
                "kind": spaces.Discrete(3),
                "pair": spaces.Tuple((spaces.Discrete(2),)),
            }
        )
        self.seen: dict[str, Any] = {
            "where": numpy.array([0.25, -1 / 3], dtype="float32"),
            "word": "hello",
            "n": numpy.int64(2),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return dict(self.seen), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action["kind"] == 2:
            raise RuntimeError("out of order")
        return dict(self.seen), float(action["move"].sum()), False, False, {}


@pytest.fixture
def odd() -> Any:
    gymnasium.register("Odd-v0", entry_point=Odd, disable_env_checker=True)
    yield registry.find("gymnasium:Odd-v0?turns=4")
    gymnasium.registry.pop("Odd-v0")


def test_structured_spaces_are_json_both_ways(odd: Any) -> None:
    good = 'I move.\nAction: {"move": [0.5, 0.25], "kind": 1, "pair": [0]}'
    bad = [
        'Action: {"move": [9, 9], "kind": 1, "pair": [0]}',
        "Action: {",
        'Action: {"move": [0.5], "kind": 1, "pair": [0]}',
    ]
    opened, steps = asyncio.run(walk(odd, odd.tasks("train")[0], [good, bad[0], good, bad[1], bad[2]]))
    assert opened.messages[-1]["content"] == "where: [0.25, -0.3333]\nword: hello\nn: 2"
    assert [s.reward for s in steps] == [0.75, None, 0.75, 0.0]
    assert steps[-1].info == {"unparsable": True}  # the fourth turn is the last that was allowed
    assert steps[-1].done


def test_a_world_that_breaks_is_no_fault_of_the_policy(odd: Any) -> None:
    with pytest.raises(EnvironmentFailure, match="out of order"):
        asyncio.run(walk(odd, odd.tasks("train")[0], ['Action: {"move": [0, 0], "kind": 2, "pair": [0]}']))


def test_pictures_are_refused_in_words() -> None:
    class Camera(Odd):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(0, 255, (64, 64, 3), dtype="uint8")

    gymnasium.register("Camera-v0", entry_point=Camera)
    try:
        with pytest.raises(UsageError, match="12288 numbers a step"):
            registry.find("gymnasium:Camera-v0")
    finally:
        gymnasium.registry.pop("Camera-v0")
    with pytest.raises(UsageError, match="Gymnasium cannot make"):
        registry.find("gymnasium:FrozenLake-v1?depth=3")


@pytest.mark.parametrize(
    ("reply", "means"),
    [
        ("left", 0),
        ("Action: 1", 1),
        ("<action>Down</action>", 1),
        ("Not left. Action: down, then left", 1),
        ("left or down", None),
        ("leftover", None),
        ("", None),
        ("action: fly", None),
        ("1.", 1),
        ("1.5", None),
        ("the action is left", 0),
    ],
)
def test_an_action_is_read_where_one_is_named(reply: str, means: int | None) -> None:
    assert world_helpers.choose(reply, {"left": 0, "down": 1, "0": 0, "1": 1}) == means


OWN_WORLD = """
import gymnasium as gym
from gymnasium import spaces


class Guess(gym.Env):
    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Discrete(3)

    def __init__(self, right=1):
        self.right = right

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(action == self.right), True, False, {}

    def told(self):
        return "two lamps"


gym.register("OwnGuess-v0", entry_point=Guess)
"""


@pytest.mark.parametrize(
    "name",
    [
        "guess_world.py:Guess",
        "guess_world:OwnGuess-v0",
        "gymnasium:guess_world:Guess",
        "gymnasium:guess_world.py:OwnGuess-v0",
    ],
)
def test_a_class_or_an_id_of_any_package_is_an_environment(name, tmp_path, monkeypatch):
    (tmp_path / "guess_world.py").write_text(OWN_WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    environments = registry.find(f"{name}?right=2&names=left,right")

    async def play():
        world = environments.make()
        opened = await world.reset(environments.tasks("train")[0], 0)
        step = await world.step({"role": "assistant", "content": "Action: 2"})
        await world.close()
        return opened.messages[-1]["content"], step

    text, step = asyncio.run(play())
    assert [line.partition(":")[0] for line in text.splitlines()] == ["left", "right"]
    assert (step.reward, step.done) == (1.0, True)
    assert environments.action_replies() == [f"Action: {n}" for n in range(3)]


def test_a_method_may_say_what_is_seen_and_numbers_have_names(tmp_path, monkeypatch):
    (tmp_path / "guess_text.py").write_text(OWN_WORLD.replace("OwnGuess-v0", "OwnText-v0"))
    monkeypatch.chdir(tmp_path)

    def opening(name):
        environments = registry.find(name)
        return asyncio.run(environments.make().reset(environments.tasks("train")[0], 0)).messages[-1][
            "content"
        ]

    assert opening("guess_text.py:Guess?text=told") == "two lamps"
    assert "pole angle" in opening("gymnasium:CartPole-v1")
    with pytest.raises(UsageError, match="no method 'mute'"):
        registry.find("guess_text.py:Guess?text=mute")
    with pytest.raises(NotFound, match="gymnasium:PACKAGE:Nowhere-v0"):
        registry.find("gymnasium:Nowhere-v0")


PACKAGE = """
import gymnasium
from gymnasium import spaces


class Two(gymnasium.Env):
    observation_space = spaces.Discrete(3)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 1, {}

    def step(self, action):
        return 2, __import__("numpy").array([float(action), 10.0]), True, False, {}
"""


def test_a_reward_of_several_parts_is_weighed_as_it_is_said(tmp_path):
    (tmp_path / "two.py").write_text(PACKAGE)
    reply = policies.Script(lambda *_: "Action: 1")

    def reward(settings):
        found = registry.find(f"gymnasium:{tmp_path}/two.py:Two{settings}")
        return asyncio.run(play.episode(found, found.tasks("train")[0], reply))

    assert reward("?weights=2,0.1").reward == pytest.approx(3.0)
    assert "has 2 parts: say what each weighs (?weights=1,1)" in reward("").error


def test_an_id_may_be_registered_by_the_packages_envs(tmp_path, monkeypatch):
    folder = tmp_path / "lazy_worlds"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    register = 'gymnasium.register("lazy_worlds/Two", entry_point="lazy_worlds.envs:Two")\n'
    (folder / "envs.py").write_text(PACKAGE + register)
    monkeypatch.syspath_prepend(tmp_path)
    found = registry.find("gymnasium:lazy_worlds:lazy_worlds/Two?weights=1,0")
    assert action_replies(found) == ("Action: 0", "Action: 1")


NEWCOMER = """
import enum, random
import gymnasium
import numpy
from gymnasium import spaces


class Move(enum.Enum):
    STAY = 0
    GO = 1


class MoveAction:
    STAY = 0
    GO = 1


class Walk(gymnasium.Env):
    \'\'\'
    Walk
    ====

    Walk to the end of the board,
    and no further.

    The board is a matrix.
    \'\'\'

    observation_space = spaces.Box(0, 9, (2, 3), dtype=int)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return numpy.array([[random.randrange(9), 0, 1], [1, 1, int(numpy.random.randint(9))]]), {}

    def step(self, action):
        return numpy.array([[random.randrange(10**6), 0, 0], [0, 0, 0]]), 0.0, False, False, {}


class Parts(Walk):
    action_space = spaces.Dict({"hand": spaces.Discrete(2), "row": spaces.Discrete(3, start=1)})


class Letters(Walk):
    observation_space = spaces.Text(1)

    def reset(self, *, seed=None, options=None):
        return "C", {}

    def step(self, action):
        return random.choice("ABCDEFGHIJKLMNOP"), 0.0, False, False, {}

    def close(self):
        self.window.close()


def register():
    gymnasium.register("LateWalk-v0", entry_point="late_walks:Walk")
"""


@pytest.fixture
def newcomer(tmp_path, monkeypatch):
    """A package as its authors wrote it: nothing in it knows of language models."""
    (tmp_path / "late_walks.py").write_text(NEWCOMER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late_walks", raising=False)
    yield
    gymnasium.registry.pop("LateWalk-v0", None)


def test_an_environment_is_told_in_its_own_words(newcomer):
    found = registry.find("gymnasium:late_walks:LateWalk-v0")  # registered by a function of the package
    opening, [step] = asyncio.run(walk(found, found.tasks("train")[0], ["Action: go"]))
    system, seen = (message["content"] for message in opening.messages)
    assert system.startswith("Walk to the end of the board, and no further.\n")
    assert "stay, go" in system
    assert [len(row.split()) for row in seen.splitlines()] == [3, 3]  # a board, row by row
    assert action_replies(found) == ("Action: stay", "Action: go")
    assert found.action_forms()[1] == ["Action: 0", "Action: 1"]  # read as well, and other tokens
    assert not step.info.get("unparsable")


def test_where_a_minigrid_agent_stands_is_said_below_its_drawing():
    pytest.importorskip("minigrid")
    found = registry.find("gymnasium:minigrid:MiniGrid-Empty-5x5-v0")
    opening, [step] = asyncio.run(walk(found, found.tasks("train")[0], ["Action: forward"]))
    assert opening.messages[-1]["content"].endswith("You are at row 1 column 1 and face right.")
    assert step.messages[0]["content"].endswith("You are at row 1 column 2 and face right.")


def test_an_id_that_a_package_has_not_is_answered_with_those_that_it_has(newcomer):
    with pytest.raises(NotFound, match=r"no Walk-v7 in late_walks. It registers: LateWalk-v0"):
        registry.find("gymnasium:late_walks:Walk-v7")


def test_a_letter_stands_after_a_word_and_a_close_that_fails_fails_no_episode(newcomer):
    found = registry.find("gymnasium:late_walks:Letters")
    opening, _ = asyncio.run(walk(found, found.tasks("train")[0], []))
    assert opening.messages[-1]["content"] == "Observation: C"


def test_actions_of_several_parts_are_listed_and_read(newcomer):
    found = registry.find("gymnasium:late_walks:Parts")
    replies = action_replies(found)
    assert len(replies) == 6
    assert replies[0] == 'Action: {"hand": 0, "row": 1}'
    _, steps = asyncio.run(walk(found, found.tasks("train")[0], replies))
    assert [bool(step.info.get("unparsable")) for step in steps] == [False] * 6


def test_shared_generators_are_an_episodes_own(newcomer):
    """A package that draws from Python's and NumPy's shared generators: one seed is one episode, also among others, and the process's are left as they were."""
    import random

    import numpy

    found = registry.find("gymnasium:late_walks:LateWalk-v0")
    random.seed(1)
    numpy.random.seed(1)
    before = random.getstate(), numpy.random.get_state()[1].tolist()
    task, other = found.tasks("train")[:2]
    assert [check.problem for check in asyncio.run(validate(found, [task, other]))] == ["", ""]

    async def among_others():
        return await asyncio.gather(*(walk(found, one, ["Action: go"] * 5) for one in (task, other, task)))

    first, second, third = asyncio.run(among_others())
    assert first == third
    later = registry.find("gymnasium:late_walks:Letters")  # draws in its steps alone
    assert [check.problem for check in asyncio.run(validate(later, later.tasks("train")[:2]))] == ["", ""]
    assert first != second
    assert (random.getstate(), numpy.random.get_state()[1].tolist()) == before


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import no_such_package_here.part", "needs no_such_package_here, which is not installed: .*install"),
        (
            "raise ImportError('install the online part')",
            "cannot be imported here: ImportError: install the online",
        ),
        ("raise RuntimeError('no display')", "cannot be imported here: RuntimeError: no display"),
    ],
)
def test_a_package_that_does_not_open_says_why_in_a_sentence(tmp_path, monkeypatch, text, why):
    name = f"broken_worlds_{abs(hash(text)) % 10**6}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra, match=why):
        registry.find(f"gymnasium:{name}:Some-v0")
    with pytest.raises(MissingExtra, match=why):
        world_helpers.needed(name, "Some package")
