"""The tool-call agent's world: calls, limits, unreadable replies, and what they are worth. The shop, GSM8K, a file of one's own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clawback.environments import play, policies, registry
from clawback.environments.core import EnvironmentFailure, Task
from clawback.environments.tools.calls import Call, message
from clawback.environments.tools.environment import EpisodeRules, ToolSet
from clawback.environments.tools.task_rewards import AnswerReward
from clawback.environments.tools.toolbox import Functions, ToolError
from clawback.environments.validate import validate
from clawback.errors import NotFound, UsageError
from clawback.extensions.tools import shop
from clawback.extensions.worlds.gsm8k import calculate
from tests.environments.playing import walk

SUM = Task("t/1", {"prompt": "What is 17 * 3?", "answer": "51"})


def sums(**rules: Any) -> ToolSet:
    return ToolSet(
        "t", {"train": [SUM]}, lambda _: Functions(calculate), AnswerReward(), EpisodeRules(**rules)
    )


def compute(*expressions: str) -> Any:
    return message([Call("calculate", {"expression": e}) for e in expressions])


def test_several_calls_are_answered_in_order_and_the_last_word_is_rewarded() -> None:
    opened, steps = asyncio.run(walk(sums(system="Compute."), SUM, [compute("17*3", "2*2"), "It is 51."]))
    assert [m["content"] for m in opened.messages] == ["Compute.", "What is 17 * 3?"]
    assert opened.tools[0]["function"]["name"] == "calculate"
    assert [(m["role"], m["tool_call_id"], m["content"]) for m in steps[0].messages] == [
        ("tool", "call_0", "51"),
        ("tool", "call_1", "4"),
    ]
    assert (steps[0].reward, steps[0].done) == (None, False)
    assert (steps[1].reward, steps[1].done, steps[1].info["calls"]) == (1.0, True, 2)


def test_calls_as_text_are_calls_too() -> None:
    said = '<tool_call>{"name": "calculate", "arguments": {"expression": "17*3"}}</tool_call>'
    _, steps = asyncio.run(walk(sums(), SUM, [said, "51"]))
    assert steps[0].messages[0]["content"] == "51"
    assert steps[1].reward == 1.0


def test_unreadable_calls_stay_and_are_told_and_end_it_when_they_go_on() -> None:
    bad = "<tool_call>{oops}</tool_call>"
    _, steps = asyncio.run(walk(sums(), SUM, [bad, bad, compute("1+1"), bad, "51"]))
    assert [s.info.get("unparsable") for s in steps] == [True, True, None, True, None]
    assert "cannot be read" in steps[0].messages[0]["content"]
    assert steps[-1].reward == 1.0
    _, steps = asyncio.run(walk(sums(), SUM, [bad, bad, bad]))
    assert (steps[-1].done, steps[-1].reward) == (True, 0.0)


def test_turns_and_calls_have_an_end() -> None:
    _, steps = asyncio.run(walk(sums(turns=2), SUM, [compute("1"), compute("2"), "51"]))
    assert (steps[-1].done, steps[-1].reward, steps[-1].info["truncated"]) == (True, 0.0, True)
    _, steps = asyncio.run(walk(sums(calls=1), SUM, [compute("1", "2"), "51"]))
    assert "no more than 1 calls" in steps[0].messages[1]["content"]
    assert steps[1].info["wrong_calls"] == 1


def test_every_task_of_the_shop_is_sound() -> None:
    found = registry.find("tools:shop?tasks=12&held_out=12")
    for split in ("train", "test"):
        tasks = found.tasks(split)  # type: ignore[arg-type]
        checks = asyncio.run(validate(found, tasks))
        assert [(c.solved, c.problem) for c in checks] == [(True, "")] * 12
        assert {t.data["kind"] for t in tasks} == {"price", "buy", "cancel", "change", "deliver", "swap"}
    assert not {str(t.data["prompt"]) for t in found.tasks("train")} & {
        str(t.data["prompt"]) for t in found.tasks("test")
    }


def test_the_shop_pays_for_the_end_and_not_for_the_way() -> None:
    found = registry.find("tools:shop?kinds=cancel")
    task = found.tasks("train")[0]
    [look, cancel] = [Call(a["name"], a["arguments"]) for a in task.data["actions"]]
    other = next(name for name in shop.Shop(task.data["shop"]).orders if name != cancel.arguments["order"])
    for made, reward in (
        ([cancel], 1.0),
        ([look, look, cancel], 1.0),
        ([look, Call("cancel_order", {"order": "999"}), cancel], 1.0),
        ([look], 0.0),
        ([cancel, Call("cancel_order", {"order": other})], 0.0),
    ):
        _, steps = asyncio.run(walk(found, task, [message([one]) for one in made] + ["It is cancelled."]))
        assert steps[-1].reward == reward


def test_the_shop_refuses_what_cannot_be() -> None:
    made = shop.Shop(3)
    for wrong in (
        lambda: made.place_order("Ada", "lamp", 99),
        lambda: made.place_order("Ada", "dragon", 1),
        lambda: made.place_order("Ada", "lamp", 0),
        lambda: made.change_quantity("100", 0),
        lambda: made.restock("lamp", -5),
        lambda: (made.cancel_order("100"), made.cancel_order("100")),
    ):
        with pytest.raises(ToolError):
            wrong()
    before = made.stock["lamp"]
    order = made.place_order("Ada", "lamp", 1)
    made.change_quantity(order, 2)
    made.cancel_order(order)
    assert made.stock["lamp"] == before
    with pytest.raises(UsageError, match="no tasks of the kind `steal`"):
        registry.find("tools:shop?kinds=steal")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("(3 + 4) * 12.5", "87.5"),
        ("1,000 / 8", "125"),
        ("$7 * 2", "14"),
        ("-3 // 2", "-2"),
        ("7 % 4", "3"),
        ("1/3", "0.3333333333"),
    ],
)
def test_the_calculator(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["1/0", "2**99999", "__import__('os')", "(" * 400 + ")" * 400, "", "1e308*10*0", "x", "9" * 600],
)
def test_the_calculator_computes_and_does_nothing_else(expression: str) -> None:
    with pytest.raises(ToolError):
        calculate(expression)


def test_gsm8k_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    rows = [
        {"question": "2+2?", "answer": "Two and two.\n#### 4", "split": "train"},
        {"question": "1,000*2?", "ground_truth_answer": "2,000", "split": "test"},
    ]
    file.write_text("\n".join(map(json.dumps, rows)))
    found = registry.find(f"gsm8k:{file}")
    assert [t.data["answer"] for t in found.tasks("test")] == ["2,000"]
    for split in ("train", "test"):
        assert [c.problem for c in asyncio.run(validate(found, found.tasks(split)))] == [""]  # type: ignore[arg-type]
    assert registry.find(f"gsm8k:{file}?tools=none").tasks("train")[0].id == found.tasks("train")[0].id
    with pytest.raises(UsageError, match="no tools `hammer`"):
        registry.find(f"gsm8k:{file}?tools=hammer")
    with pytest.raises(UsageError, match="needs the file"):
        registry.find("gsm8k:")


SHARED = Path(__file__).parents[4] / "shared" / "data" / "gsm8k-test.json"


@pytest.mark.skipif(not SHARED.is_file(), reason="the questions are not on this machine")
def test_gsm8ks_own_answers_are_right() -> None:
    found = registry.find(f"gsm8k:{SHARED}?held_out=0.1")
    tasks = found.tasks("test")
    assert 100 < len(tasks) < 170
    played = asyncio.run(play.play(found, tasks, policies.Reference(found), play.PlaySettings(together=16)))
    assert {p.reward for p in played} == {1.0}


DESK = '''
class Desk:
    def __init__(self, row):
        self.left = row.get("sheets", 1)
    def take(self, n: int) -> int:
        """Take sheets."""
        if n > self.left:
            raise ValueError("not enough")
        self.left -= n
        return self.left
    def state(self):
        return self.left

def shout(text: str) -> str:
    """Louder."""
    return text.upper()
'''


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text(DESK)
    file = tmp_path / "desk.toml"
    file.write_text(
        """
        name = "desk"
        system = "You keep the desk."
        turns = 4
        object = "desk.py:Desk"
        functions = ["desk.py:shout"]
        reward = ["end-state", {verifier = "regex", pattern = "{says}", weight = 1}]
        [[tasks]]
        prompt = "Take 2 of the 5 sheets and say PAPER."
        sheets = 5
        actions = [{name = "take", arguments = {n = 2}}]
        outputs = ["PAPER"]
        says = "PAPER"
        split = "train"
        """
    )
    found = registry.find(f"tools:{file}")
    [task] = found.tasks("train")
    assert [c.problem for c in asyncio.run(validate(found, [task]))] == [""]
    take = message([Call("take", {"n": 2}), Call("shout", {"text": "paper"})])
    opened, steps = asyncio.run(walk(found, task, [take, "PAPER"]))
    assert [t["function"]["name"] for t in opened.tools] == ["shout", "take"]
    assert [m["content"] for m in steps[0].messages] == ["3", "PAPER"]
    assert steps[-1].reward == 1.0
    _, steps = asyncio.run(walk(found, task, ["PAPER"]))
    assert steps[-1].reward == 0.5


@pytest.mark.parametrize(
    ("told", "kind", "says"),
    [
        ("turns = ", UsageError, "is no TOML"),
        ("colour = 1", UsageError, "no setting `colour`"),
        ("turns = 3", UsageError, "no \\[\\[tasks\\]\\]"),
        ('reward = "luck"\n[[tasks]]\nprompt = "x"', UsageError, "no reward `luck`"),
        ('reward = "answer"\n[[tasks]]\nprompt = "x"', UsageError, "needs `answer`"),
        ('reward = {loud = 1}\n[[tasks]]\nprompt = "x"', UsageError, "`verifier` or a `rubric`"),
        ('reward = {verifier = "luck"}\n[[tasks]]\nprompt = "x"', UsageError, "no verifier 'luck'"),
        ('reward = {verifier = "regex"}\n[[tasks]]\nprompt = "x"', UsageError, "cannot be made"),
        (
            'reward = {verifier = "regex", pattern = "("}\n[[tasks]]\nprompt = "x"',
            UsageError,
            "no regular expression",
        ),
        (
            'reward = {verifier = "regex", pattern = "{says}"}\n[[tasks]]\nprompt = "x"',
            UsageError,
            "the first has none",
        ),
        ('reward = "gone.py:score"\n[[tasks]]\nprompt = "x"', NotFound, "no file"),
        ('tasks = ["x"]', UsageError, "a task is a table"),
        ('turns = "many"\n[[tasks]]\nprompt = "x"', UsageError, "are numbers"),
        ('definitions = "gone.json"\n[[tasks]]\nprompt = "x"\nanswer = "1"', NotFound, "no file"),
        (
            'definitions = [{type = "function"}]\n[[tasks]]\nprompt = "x"\nanswer = "1"',
            UsageError,
            "no `name`",
        ),
        ('mcp = "server"\n[[tasks]]\nprompt = "x"\nanswer = "1"', UsageError, "must be a table"),
        ('functions = ["gone.py:f"]\n[[tasks]]\nprompt = "x"\nanswer = "1"', NotFound, "no file"),
        ('rows = "gone.jsonl"', NotFound, "no file"),
    ],
)
def test_a_file_that_is_wrong_is_a_sentence(
    told: str, kind: type[Exception], says: str, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(told)
    with pytest.raises(kind, match=says):
        registry.find(f"tools:{file}")
    with pytest.raises(NotFound, match="no file"):
        registry.find("tools:absent.toml")


LIGHT = {
    "name": "light",
    "description": "Set a light.",
    "parameters": {"type": "object", "properties": {"room": {"type": "string"}}},
}


@pytest.mark.parametrize(
    "written",
    [
        [{"type": "function", "function": LIGHT}],
        {"tools": [{"type": "function", "function": LIGHT}]},
        [LIGHT],
        LIGHT,
    ],
)
def test_a_tools_file_of_openais_form(written: Any, tmp_path: Path) -> None:
    (tmp_path / "tools_config.json").write_text(json.dumps(written))
    (tmp_path / "light.toml").write_text(
        'definitions = "tools_config.json"\nreward = "calls"\n'
        '[[tasks]]\nprompt = "Light the hall."\nactions = [{name = "light", arguments = {room = "hall"}}]\n'
    )
    found = registry.find(f"tools:{tmp_path}/light.toml")
    opened, steps = asyncio.run(
        walk(found, found.tasks("test")[0], [message([Call("light", {"room": "hall"})]), "Done."])
    )
    assert [tool["function"] for tool in opened.tools] == [LIGHT]
    assert steps[-1].reward == 1.0


def test_a_definition_describes_the_function_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "tools_config.json").write_text(json.dumps([LIGHT, {**LIGHT, "name": "bell"}]))
    (tmp_path / "mine.py").write_text('def light(room):\n    return f"{room} is lit"\n')
    (tmp_path / "light.toml").write_text(
        'definitions = "tools_config.json"\nfunctions = ["mine.py:light"]\nreward = "calls"\n'
        '[[tasks]]\nprompt = "Light the hall."\nactions = [{name = "light", arguments = {room = "hall"}}]\n'
    )
    found = registry.find(f"tools:{tmp_path}/light.toml")
    calls = [message([Call(name, {"room": "hall"})]) for name in ("light", "bell")]
    opened, steps = asyncio.run(walk(found, found.tasks("test")[0], [*calls, "Done."]))
    assert [tool["function"] for tool in opened.tools] == [LIGHT, {**LIGHT, "name": "bell"}]
    assert [step.messages[0]["content"] for step in steps[:2]] == ["hall is lit", "ok"]


@pytest.mark.parametrize("reward", ['"mine.py:score"', '{verifier = "mine.py:score"}', '["mine.py:score"]'])
def test_a_reward_of_ones_own(reward: str, tmp_path: Path) -> None:
    """A Python function beside the file; one whose parameters nobody knows is said once."""
    (tmp_path / "mine.py").write_text(
        "def score(answer, task):\n    return float(task['word'] in answer)\n"
        "def odd(colour):\n    return 1\ndef wild(answer):\n    return 'much'\n"
    )
    file = tmp_path / "own.toml"
    file.write_text(f'reward = {reward}\n[[tasks]]\nprompt = "Say otter."\nword = "otter"\n')
    found = registry.find(f"tools:{file}")
    [task] = found.tasks("train")
    for reply, worth in (("An otter.", 1.0), ("No.", 0.0)):
        assert asyncio.run(walk(found, task, [reply]))[1][-1].reward == worth
    file.write_text(file.read_text().replace("score", "odd"))
    with pytest.raises(UsageError, match="wants `colour`"):
        registry.find(f"tools:{file}")
    file.write_text(file.read_text().replace("odd", "wild"))
    wild = registry.find(f"tools:{file}")
    with pytest.raises(EnvironmentFailure, match="not a number"):
        asyncio.run(walk(wild, wild.tasks("train")[0], ["x"]))
