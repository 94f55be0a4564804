"""OpenClaw-RL's own examples of settings: every key has an answer, what is set can be used, and nonsense is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from clawback import config, engine
from clawback.cli.settings import config as command
from clawback.errors import UsageError
from clawback.extensions.openclaw_rl import translation
from clawback.jobs import inputs, tracking
from clawback.models.types import ModelInfo
from clawback.paths import Home

TRAINING = """
model: {name: qwen3.5-4b, checkpoint_path: /models/qwen, tokenizer_path: /models/tokenizer}
training:
  method: combine
  batch_size: 32
  gradient_accumulation_steps: 4
  learning_rate: 1e-6
  warmup_steps: 100
  max_steps: 10000
  ppo_clip_ratio: 0.2
  value_clip_ratio: 0.2
  gae_lambda: 0.95
  teacher_temperature: 1.0
  hint_extraction_model: gpt-4
  binary_weight: 0.5
  opd_weight: 0.25
rollout: {num_workers: 4, max_turns: 10, session_aware: true, parallel_envs: 16}
evaluation: {judge_model: gpt-4, majority_voting: true, num_judges: 3, consensus_threshold: 0.6, eval_frequency: 100}
"""
SESSIONS = {
    "rollout_config": {
        "collection_mode": "async",
        "max_concurrent_sessions": 100,
        "session_timeout": 1800,
        "trajectory_format": "multi_turn",
        "message_classification": {"main_line": ["user", "assistant"], "side": ["system", "tool"]},
        "reward_computation": {"type": "next_state_feedback", "aggregation": "majority", "num_samples": 5},
    }
}


def written(folder: Path, text: str | dict[str, Any]) -> Path:
    path = folder / ("a.yaml" if isinstance(text, str) else "a.json")
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    return path


def leaves(of: dict[str, Any], under: str = "") -> list[str]:
    """Dotted names of all values."""
    return [
        name
        for key, value in of.items()
        for name in (leaves(value, f"{under}{key}.") if isinstance(value, dict) else [f"{under}{key}"])
    ]


@pytest.mark.parametrize("text", [TRAINING, SESSIONS])
def test_every_key_of_its_examples_has_an_answer(text: str | dict[str, Any], tmp_path: Path) -> None:
    answers = translation.read(written(tmp_path, text))
    named = [one.key for one in answers]
    assert len(set(named)) == len(named)
    for leaf in leaves(yaml.safe_load(text) if isinstance(text, str) else text):
        assert any(leaf == name or leaf.startswith(f"{name}.") for name in named), leaf
    assert not [one.key for one in answers if one.kind == "unknown"]
    assert all(one.note for one in answers)
    assert all(bool(one.sets) == (one.kind == "set") for one in answers)


def test_what_is_set_makes_a_recipe_with_those_values(home: Home, tmp_path: Path) -> None:
    for text in (TRAINING, SESSIONS):
        config.save(home.config, translation.changes(translation.read(written(tmp_path, text))))
    chosen = config.load(home.config)
    assert chosen.model.base == "/models/qwen"
    assert (chosen.judge.enabled, chosen.judge.hints, chosen.judge.votes) == (True, True, 5)
    assert chosen.training.session_timeout == 1800
    info = ModelInfo("b", "r", "a", 10**6, 10**6, 8, 1, 10, 10, 512)
    made = engine.recipe(info, algorithm=chosen.training.algorithm, overrides=inputs.making(chosen))
    assert (made.batch, made.accumulation, made.learning_rate) == (32, 4, 1e-6)
    from clawback.rl import algorithms

    algorithm: Any = algorithms.make(made.algorithm, made.settings())
    assert algorithm.name == "combined"
    assert (algorithm.w_binary, algorithm.w_opd) == (0.5, 0.25)
    assert (algorithm.clip_low, algorithm.clip_high) == (0.8, 1.2)


def test_binary_is_grpo_without_groups(home: Home, tmp_path: Path) -> None:
    config.save(
        home.config, translation.changes(translation.read(written(tmp_path, "training: {method: binary}")))
    )
    from clawback.rl import algorithms

    chosen = config.load(home.config)
    info = ModelInfo("b", "r", "a", 10**6, 10**6, 8, 1, 10, 10, 512)
    made = engine.recipe(info, algorithm=chosen.training.algorithm, overrides=inputs.making(chosen))
    algorithm: Any = algorithms.make(made.algorithm, made.settings())
    assert (algorithm.name, algorithm.grouped) == ("grpo", False)


@pytest.mark.parametrize(
    "text",
    [
        "training: {method: magic}",
        "training: {batch_size: -3}",
        "training: {learning_rate: fast}",
        "[1]",
        "a: [",
        "x: 1",
    ],
)
def test_nonsense_is_refused_and_unknown_keys_are_named(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    if text == "x: 1":
        assert [one.kind for one in translation.read(path)] == ["unknown"]
    else:
        with pytest.raises(UsageError):
            translation.read(path)


def test_the_command_says_all_of_it_and_sets_nothing_when_dry(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    path = written(tmp_path, TRAINING)
    dry = CliRunner().invoke(command, ["import", str(path), "--dry-run"], standalone_mode=False)
    assert "training.warmup_steps: not taken over" in dry.output
    assert not home.config.exists()
    done = CliRunner().invoke(command, ["import", str(path), "--json"], standalone_mode=False)
    assert {row["answer"] for row in json.loads(done.output)} == {"set", "same", "other", "not"}
    assert config.load(home.config).training.algorithm == "combined"


def test_a_file_that_sets_nothing_is_not_said_to_have_set_something(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    done = CliRunner().invoke(
        command, ["import", str(written(tmp_path, "training: {methd: combine}"))], standalone_mode=False
    )
    assert done.return_value == 1
    assert "training.methd: not known" in done.output
    assert "Nothing of it changes a setting here." in done.output
    assert not home.config.exists()


def test_its_names_for_figures() -> None:
    told = {"phase": "train", "step": 1, "loss": 1.0, "binary_loss": 0.5, "opd_loss": 0.4, "reward": 0.2}
    told |= {"reward_std": 0.1, "grad_norm": 3.0, "learning_rate": 1e-3, "drift": 0.01}
    names = set(tracking.scalars(told, "openclaw-rl"))
    assert {
        "loss/total",
        "loss/binary",
        "loss/opd",
        "reward/mean",
        "reward/std",
        "gradient/norm",
        "learning_rate",
    } < names
    assert "train/loss" in tracking.scalars(told)
