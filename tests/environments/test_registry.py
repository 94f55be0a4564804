"""Names become environment sets, and wrong ones sentences that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawback.environments import registry
from clawback.environments.core import EnvironmentSet, Solvable
from clawback.errors import MissingExtra, NotFound, UsageError

MINE = '''
from clawback.environments.core import Observation, Step, Task

class Echo:
    """Says what it hears; pays for a length."""
    def __init__(self, length: int = 3):
        self.length = length
        self.name = f"echo?length={length}"
    def tasks(self, split):
        return [Task(f"{self.name}/{split}/{n}", {"n": n}, split) for n in range(3)]
    def make(self):
        return World(self.length)

class World:
    def __init__(self, length): self.length = length
    async def reset(self, task, seed): return Observation(({"role": "user", "content": "Speak."},))
    async def step(self, message): return Step((), float(len(message["content"]) == self.length), True)
    async def close(self): pass

ready = Echo(5)
nothing = 3
'''


@pytest.fixture
def mine(tmp_path: Path) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    return str(file)


def test_settings_are_read_as_json_where_they_are_json() -> None:
    assert registry.split("a:b?n=3&x=left&y=false&z=1.5") == (
        "a:b",
        {"n": 3, "x": "left", "y": False, "z": 1.5},
    )
    assert registry.split("openenv:ws://h:1/p") == ("openenv:ws://h:1/p", {})
    with pytest.raises(UsageError, match="no setting"):
        registry.split("a?b")


def test_a_class_is_made_with_settings_and_a_made_set_is_taken_as_it_is(mine: str) -> None:
    made = registry.find(f"{mine}:Echo?length=4")
    assert made.name == "echo?length=4"
    assert isinstance(made, EnvironmentSet)
    assert not isinstance(made, Solvable)
    assert registry.find(f"{mine}:ready").name == "echo?length=5"


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("nonsense", NotFound, "There is no environment `nonsense`"),
        ("gymnasum:FrozenLake-v1", NotFound, "Did you mean `gymnasium`"),
        ("FrozenLake-v1", NotFound, "Did you mean `gymnasium:FrozenLake-v1`"),
        ("tools:shap", NotFound, "Did you mean `tools:shop`"),
        ("tools:shop?nope=1", UsageError, "It has: held_out, kinds, tasks, turns"),
        ("tools:", NotFound, "needs a name after it"),
        ("no_such_module_here:Thing", NotFound, "no Python module no_such_module_here"),
        ("/no/such/file.py:Thing", NotFound, "no file /no/such/file.py"),
        ("MINE:Absent", NotFound, "There is no Absent in"),
        ("MINE:nothing", UsageError, "is no environment set"),
        ("MINE:Echo?width=4", UsageError, "cannot be made with these settings"),
        ("MINE:ready?length=4", UsageError, "takes no settings"),
        ("MINE:World?length=2", UsageError, "gave a World"),
    ],
)
def test_wrong_names_are_sentences(name: str, kind: type[Exception], says: str, mine: str) -> None:
    with pytest.raises(kind, match=says.replace("?", "\\?")):
        registry.find(name.replace("MINE", mine))


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "textarena", None)  # type: ignore[arg-type]
    with pytest.raises(MissingExtra, match="pip install textarena"):
        registry.find("textarena:TicTacToe-v0")


def test_plugins_are_found_by_entry_point(monkeypatch: pytest.MonkeyPatch, mine: str, tmp_path: Path) -> None:
    from importlib.metadata import EntryPoint

    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("parrot", "mine:Echo", registry.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    assert registry.find("parrot").name == "echo?length=3"
    assert registry.find("parrot?length=9").name == "echo?length=9"
    assert registry.plugins() == {"parrot": "mine:Echo"}
    assert "parrot" in registry.names()
    with pytest.raises(NotFound, match="Did you mean `parrot`"):
        registry.find("parot")


def test_every_kind_says_what_can_stand_after_it() -> None:
    for name, kind in registry.KINDS.items():
        if kind.installed:
            try:
                assert registry.members(name) or kind.example == name
            except NotFound as error:  # pages that are not installed
                assert "pip install" in str(error)
    with pytest.raises(NotFound):
        registry.members("nonsense")
