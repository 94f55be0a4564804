"""``clawback config``: what is shown, what is written, and what is refused before it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checked
from hypothesis import strategies as st

from clawback import config, paths
from clawback.cli import main
from clawback.config import settings

from .conftest import Run

FILE = "# mine\n[training]\nthreshold = 20  # I am patient\n\n[gate]\nheld_out = 0.2\n"


@pytest.fixture
def file() -> Path:
    here = paths.home()
    here.create()
    here.config.write_text(FILE)
    return here.config


def test_a_setting_is_read_and_changed_and_the_rest_of_the_file_stays(run: Run, file: Path) -> None:
    assert run("config", "get", "training.threshold") == (0, "20\n", "")
    assert run("config", "set", "training.threshold", "48")[:2] == (0, "training.threshold = 48\n")
    assert file.read_text() == FILE.replace("20 ", "48 ")
    shown = json.loads(run("config", "get", "training.threshold", "--json")[1])
    assert (shown["value"], shown["default"]) == (48, 32)
    assert shown["takes"] == "a whole number from 1"
    assert run("config", "unset", "training.threshold")[1] == "training.threshold = 32\n"
    assert "# mine" in file.read_text()
    assert run("config", "path")[1].strip() == str(file)


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("training.preset", "careful", "careful"),
        ("training.background", "false", False),
        ("training.budget", "8h", "8h"),
        ("model.base", "7", "7"),
        ("gate.held_out", "0.25", 0.25),
        ("capture.admin", "train,rollback", ["train", "rollback"]),
        ("capture.admin", '["reset"]', ["reset"]),
        ("training.learn_from", "gpt-*, claude-*", ["gpt-*", "claude-*"]),
        ("telegram.owners", "12, 34", [12, 34]),
        ("telegram.owners", "12", [12]),
        ("generation.temperature", "0.7", 0.7),
        ("training.overrides.steps", "48", 48),
        ("reward.weights.critic", "0.2", 0.2),
        ("reward.tokens", "[100, 400]", [100, 400]),
    ],
)
def test_values_are_typed_as_a_person_types_them(run: Run, key: str, typed: str, value: object) -> None:
    code, out, err = run("config", "set", key, typed, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["value"] == value
    assert json.loads(run("config", "get", key, "--json")[1])["value"] == value


@pytest.mark.parametrize(
    ("key", "typed", "sentence"),
    [
        ("training.treshold", "3", "did you mean `training.threshold`?"),
        ("threshold", "3", "did you mean `training.threshold`?"),
        ("training.threshold", "0", "takes a whole number from 1, not `0`"),
        (
            "training.preset",
            "bald",
            "one of aggressive, balanced, careful, not `bald`; did you mean `balanced`?",
        ),
        ("training.algorithm", "ppoo", "did you mean `ppo`? Choose one of: auto, "),
        ("training.budget", "soon", 'takes a time, such as "20m"'),
        ("training.overrides.stepps", "3", "no setting 'stepps' in a recipe"),
        ("gate.held_out", "-1", "a number from 0 to below 1, not `-1`"),
        ("capture.admin", "rollbak", "did you mean `rollback`?"),
        ("schedule.quiet_hours", "22-7", 'such as "22:00-07:00"'),
        ("serve.upstream", "foo", "http://"),
        ("serve.port", "99999", "from 0 to 65535"),
        ("slack.token", "xoxb-1", "the name of an environment variable"),
        ("reward.weights.critc", "1", "feedback"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(
    run: Run, file: Path, key: str, typed: str, sentence: str
) -> None:
    code, out, err = run("config", "set", key, typed)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert file.read_text() == FILE


def test_the_list_marks_what_was_set(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("config", "list")[1].splitlines()
    assert {line for line in lines if line.startswith("*")} == {
        "* training.threshold = 20",
        "* gate.held_out = 0.2",
    }
    assert max(map(len, lines)) <= 80
    data = json.loads(run("config", "list", "gate", "--json")[1])
    assert all(one["key"].startswith("gate.") for one in data)


def test_every_setting_says_what_it_does_and_takes() -> None:
    assert [one.key for one in settings.settings() if not one.meaning or not one.allowed] == []
    assert all(settings.sections().values())


def test_every_default_is_a_value_that_may_be_set() -> None:
    for one in settings.settings():
        if one.default is not None:
            made = settings.read(one.key, settings.shown(one.default))
            assert settings.shown(made) == settings.shown(one.default), one.key


@checked(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(
        [one.key for one in settings.settings() if not re.search("algorithm|overrides", one.key)]
    ),
    typed=st.text(max_size=12) | st.integers().map(str) | st.floats().map(str),
)
def test_whatever_is_typed_the_file_can_be_read_afterwards(key: str, typed: str) -> None:
    assert main(["config", "set", "--", key, typed]) in (0, 2)
    config.load(paths.home().config)
