"""Old module names of rooms that moved into ``clawback.extensions`` give the same modules."""

import importlib
import runpy
import subprocess
import sys

import pytest

from clawback import moved

HEAVY = ("engine.mlx",)


@pytest.mark.parametrize("old", sorted(set(moved.MOVED) - set(HEAVY)))
def test_an_old_name_is_the_same_module(old):
    module = importlib.import_module(f"clawback.{moved.MOVED[old]}")
    spec = module.__spec__
    sys.modules.pop(f"clawback.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"clawback.{moved.MOVED[old]} now"):
        alias = importlib.import_module(f"clawback.{old}")
    assert alias is module
    assert module.__spec__ is spec
    assert module.__name__ == f"clawback.{moved.MOVED[old]}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_inside_a_moved_room_are_the_same_too():
    from clawback.environments.terminal.episode import ShellEnvironment as Old  # type: ignore[import-not-found]

    from clawback.extensions.terminal_tasks.episode import ShellEnvironment as New

    assert Old is New
    from clawback import sandbox  # type: ignore[attr-defined]
    from clawback.extensions import sandbox as new

    assert sandbox is new


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_name_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "clawback.sandbox.relay", "--help"],
        capture_output=True,
        text=True,
    )
    assert "usage" in done.stdout
    with pytest.raises(ImportError):
        runpy.run_module("clawback.sandbox.nothing")


def test_other_names_are_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("clawback.nothing")
    assert moved.new_name("clawback.peoples") == ""
    assert moved.new_name("sandbox") == ""
    assert moved.new_name("clawback.sandbox.box") == "clawback.extensions.sandbox.box"


@pytest.mark.parametrize(
    ("room", "former", "present"),
    [("capture.events", "Failed", "FailureEvent"), ("prompts", "Section", "PromptSection")],
)
def test_names_that_users_import_are_still_there(room, former, present):
    module = importlib.import_module(f"clawback.{room}")
    with pytest.warns(DeprecationWarning, match=f"{former} is {present} now"):
        assert getattr(module, former) is getattr(module, present)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        module.Nothing  # noqa: B018
