"""Settings of single algorithms and sources: each in its own place, and a misspelt one is refused with the nearest."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from clawback import config, engine, paths
from clawback.cli import main
from clawback.errors import UsageError
from clawback.jobs import inputs
from clawback.learning.episode_examples import EpisodeSettings
from clawback.models.types import ModelInfo
from clawback.rl import algorithms
from clawback.sources.distilled import DistilSettings
from clawback.sources.fresh_answers import RolloutSettings
from clawback.sources.graded import GradingSettings
from clawback.trainer.recipe import option_types

INFO = ModelInfo("m", "r", "A", 10**6, 10**6, 64, 2, 1000, 128, 512)


def recipe(algorithm="auto", **overrides: Any):
    return engine.recipe(INFO, algorithm=algorithm, overrides=overrides)


@pytest.mark.parametrize(
    ("place", "near"),
    [
        ({"extra": {"groupd": False}}, "grouped"),
        ({"extra": {"roundz": 3}}, "rounds"),
        ({"options": {"grpo": {"groupd": False}}}, "grouped"),
        ({"options": {"rollouts": {"max_kll": 1}}}, "max_kl"),
        ({"options": {"distiled": {}}}, "distilled"),
        ({"options": {"grppo": {}}}, "grpo"),
        ({"options": {"reinforce": {"grouped": False}}}, ""),
    ],
)
def test_a_misspelt_setting_is_refused_with_the_nearest(place, near):
    with pytest.raises(
        UsageError, match=f"did you mean `{near}`" if near else "There is no setting `grouped`"
    ):
        recipe(**place)


@pytest.mark.parametrize(
    "place",
    [
        {"extra": {"grouped": "no"}},
        {"options": {"grpo": {"grouped": 2}}},
        {"options": {"rollouts": {"rounds": 1.5}}},
        {"options": {"ppo": {"lam": "much"}}},
    ],
)
def test_a_value_of_another_kind_is_refused_by_name(place):
    with pytest.raises(UsageError, match="cannot be"):
        recipe(**place)


def test_every_field_of_every_part_can_be_set_and_arrives():
    """Read from the classes themselves: a part that gets a field tomorrow is in."""
    sources = {
        "distilled": DistilSettings,
        "rollouts": RolloutSettings,
        "graded": GradingSettings,
        "episodes": EpisodeSettings,
    }
    for part, kind in option_types().items():
        defaults = {
            f.name: f.default for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING
        }
        made = recipe(part if part not in sources else "auto", options={part: defaults})
        if part in sources:
            held = sources[part].of(made)
            same = {name: value for name, value in defaults.items() if name != "exact_kl"}
            assert {name: getattr(held, name) for name in same} == same, part
        else:
            held = algorithms.make(part, made.settings())
            assert {name: getattr(held, name) for name in defaults} == defaults, part


def test_a_place_is_read_by_its_owner_alone():
    made = recipe("ppo", options={"ppo": {"lam": 0.5}, "grpo": {"kl": 0.6}})
    assert algorithms.make("ppo", made.settings()).lam == 0.5  # type: ignore[attr-defined]
    assert EpisodeSettings.of(made).lam == EpisodeSettings().lam
    assert algorithms.make("gspo", made.settings("gspo")).kl != 0.6  # type: ignore[attr-defined]
    assert algorithms.make("grpo", made.settings("grpo")).kl == 0.6  # type: ignore[attr-defined]


def test_the_old_place_is_read_and_the_own_one_comes_first():
    made = recipe("grpo", extra={"grouped": False, "lam": 0.5})
    assert algorithms.make("grpo", made.settings()).grouped is False  # type: ignore[attr-defined]
    assert EpisodeSettings.of(made).lam == 0.5
    both = recipe("grpo", extra={"grouped": False}, options={"grpo": {"grouped": True}})
    assert algorithms.make("grpo", both.settings()).grouped is True  # type: ignore[attr-defined]


def test_nobody_sets_by_hand_what_a_run_records():
    with pytest.raises(UsageError, match="not a setting"):
        recipe("grpo", conditions={"hosted": "http://x"})


def test_a_run_recorded_with_a_misspelt_setting_can_still_be_read():
    values = json.loads(json.dumps(dataclasses.asdict(recipe()))) | {
        "extra": {"groupd": 1, "hosted": "http://x"}
    }
    del values["options"]  # by an earlier release
    recorded = engine.recipe_from(values)
    assert (dict(recorded.extra), recorded.conditions.hosted) == ({"groupd": 1}, "http://x")


@dataclass(frozen=True)
class Declared:
    name: ClassVar[str] = "declared"
    sharpness: float = 1.0


@dataclass(frozen=True)
class Free:
    name: ClassVar[str] = "free"
    extra: Any = None


@pytest.fixture
def plugins(monkeypatch):
    entries = {"declared": f"{__name__}:Declared", "free": f"{__name__}:Free"}
    monkeypatch.setattr("clawback.plugins.others", lambda group: entries)


def test_a_plugin_declares_its_settings_or_takes_any(plugins):
    made = recipe("declared", options={"declared": {"sharpness": 2}})
    assert algorithms.make("declared", made.settings()).sharpness == 2  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="did you mean `sharpness`"):
        recipe("declared", options={"declared": {"sharpnes": 2}})
    made = recipe("free", options={"free": {"whatever": 3}})
    assert algorithms.make("free", made.settings()).extra["whatever"] == 3  # type: ignore[attr-defined]


def test_the_command_sets_checks_and_shows_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path))
    assert main(["config", "set", "training.options.grpo.grouped", "false"]) == 0
    assert main(["config", "set", "training.overrides.extra.lam", "0.9"]) == 0
    chosen = config.load(paths.home().config)
    assert chosen.training.options == {"grpo": {"grouped": False}}
    assert chosen.training.overrides == {"extra": {"lam": 0.9}}
    made = engine.recipe(INFO, algorithm="grpo", overrides=inputs.making(chosen))
    assert algorithms.make("grpo", made.settings()).grouped is False  # type: ignore[attr-defined]
    capsys.readouterr()
    assert main(["config", "get", "training.options.grpo.grouped"]) == 0
    assert "false" in capsys.readouterr().out
    for key, near in (
        ("training.options.grpo.groupd", "grouped"),
        ("training.overrides.extra.groupd", "grouped"),
        ("training.options.grppo.grouped", "grpo"),
    ):
        assert main(["config", "set", key, "false"]) == 2
        assert f"did you mean `{near}`" in capsys.readouterr().err
    assert main(["config", "unset", "training.options.grpo.grouped"]) == 0
    assert not config.load(paths.home().config).training.options.get("grpo")
