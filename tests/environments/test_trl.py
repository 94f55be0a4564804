"""Classes as TRL's environment_factory takes them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clawback.environments import registry
from clawback.environments.core import EnvironmentFailure
from clawback.environments.tools.calls import Call, message
from clawback.environments.validate import validate
from clawback.errors import UsageError
from tests.environments.playing import walk

GUESS = '''
class Guess:
    """Find a word, letter by letter."""

    def reset(self, word, **row):
        if word == "broken":
            raise OSError("no dictionary")
        self.word, self.tries, self.won = word, 0, False
        return f"The word has {len(word)} letters."

    def guess(self, letter: str, loud: bool = False) -> str:
        """Guess a letter.

        Args:
            letter: one letter, in lower case
            loud: say it loudly
        """
        self.tries += 1
        if len(letter) != 1:
            raise ValueError("one letter at a time")
        self.won = self.won or letter == self.word[0]
        return "yes" if letter in self.word else "no"

    def get_reward(self) -> float:
        return float(self.won)

    def _hidden(self):
        return self.word


class Dice:
    def reset(self, seed):
        self.seed = seed
        return str(seed)

    def roll(self) -> int:
        """Roll."""
        return self.seed % 6
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "guess.py").write_text(GUESS)
    rows = [{"word": word, "prompt": "Find my word.", "split": "train"} for word in ("otter", "broken")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "guess.py"


def call(*letters: str) -> Any:
    return message([Call("guess", {"letter": letter}) for letter in letters])


def by_word(found: Any, word: str) -> Any:
    return next(task for task in found.tasks("train") if task.data["word"] == word)


def test_methods_are_tools_and_the_object_says_what_it_was_worth(file: Path) -> None:
    found = registry.find(f"trl:{file}:Guess?rows={file.parent}/rows.jsonl")
    opened, steps = asyncio.run(
        walk(found, by_word(found, "otter"), [call("t", "x"), call("o"), "I know it."])
    )
    assert opened.messages == ({"role": "user", "content": "Find my word.\nThe word has 5 letters."},)
    [tool] = opened.tools
    assert tool["function"]["name"] == "guess"
    assert tool["function"]["description"] == "Guess a letter."
    parameters = tool["function"]["parameters"]
    assert parameters["required"] == ["letter"]
    assert parameters["properties"]["letter"] == {
        "type": "string",
        "description": "one letter, in lower case",
    }
    assert parameters["properties"]["loud"]["default"] is False
    assert [m["content"] for m in steps[0].messages] == ["yes", "no"]
    assert [s.reward for s in steps] == [None, None, 1.0]


def test_what_a_tool_raises_is_told_and_what_reset_raises_is_a_broken_world(file: Path) -> None:
    found = registry.find(f"trl:{file}:Guess?rows={file.parent}/rows.jsonl")
    _, steps = asyncio.run(walk(found, by_word(found, "otter"), [call("ot"), call("o", "o"), "Done."]))
    assert "one letter at a time" in steps[0].messages[0]["content"]
    with pytest.raises(EnvironmentFailure, match="no dictionary"):
        asyncio.run(walk(found, by_word(found, "broken"), []))


def test_without_rows_tasks_are_seeds_and_the_turns_have_an_end(file: Path) -> None:
    found = registry.find(f"trl:{file}:Dice?turns=2")
    roll = message([Call("roll")])
    opened, steps = asyncio.run(walk(found, found.tasks("test")[0], [roll, roll, roll]))
    assert len(steps) == 2
    assert steps[-1].info["truncated"]
    assert steps[-1].reward is None  # the class has no reward of its own
    assert opened == asyncio.run(walk(found, found.tasks("test")[0], []))[0]
    assert [c.problem for c in asyncio.run(validate(found, found.tasks("test")[:2]))] == ["", ""]


def test_a_class_without_reset_is_none(file: Path) -> None:
    with pytest.raises(UsageError, match="has no reset"):
        registry.find("trl:json:JSONDecoder")
