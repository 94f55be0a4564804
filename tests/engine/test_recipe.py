import dataclasses
import json

import pytest

from clawback import engine
from clawback.errors import UsageError
from clawback.models.types import ModelInfo


def info(total, active=None, experts=0):
    return ModelInfo("m", "r", "A", int(total), int(active or total), 64, 2, 1000, 128, 512, experts)


def test_the_table_of_a_31_billion_model():
    recipe = engine.recipe(info(31e9), "balanced", "mis-po")
    assert recipe.learning_rate == pytest.approx(5e-6)
    assert (recipe.batch, recipe.accumulation, recipe.rank, recipe.steps) == (3, 2, 16, 32)
    assert (recipe.kl, recipe.band_low, recipe.band_high, recipe.positive_weight) == (
        0.001,
        0.994,
        1.002,
        1.2,
    )


def test_a_mixture_of_experts_is_pushed_less_and_has_a_higher_rank():
    recipe = engine.recipe(info(31e9, 4e9, experts=64), "careful", "mis-po")
    assert recipe.kind == "moe"
    assert recipe.bucket == "small"
    assert recipe.learning_rate == pytest.approx(5e-6 * 1.4 * 0.85 * 0.6)
    assert recipe.kl == pytest.approx(0.001)
    assert recipe.rank == recipe.alpha == 24


def test_very_large_models_are_cut():
    assert engine.recipe(info(400e9, 30e9, experts=8)).learning_rate == pytest.approx(5e-6 * 0.45 * 0.70)


def test_the_rate_falls_steadily_with_size():
    sizes = (2e6, 49e6, 51e6, 2e8, 1e9, 2e9, 3e9, 1e10, 3e10, 7e10)
    rates = [engine.recipe(info(size)).learning_rate for size in sizes]
    assert rates[0] == rates[1] == 1e-3
    assert rates[2] == pytest.approx(1e-3, rel=0.05)
    assert rates[5] == pytest.approx(8e-6)
    assert rates == sorted(rates, reverse=True)


def test_presets_are_ordered():
    careful, balanced, aggressive = (
        engine.recipe(info(2e6), p) for p in ("careful", "balanced", "aggressive")
    )
    assert careful.learning_rate < balanced.learning_rate < aggressive.learning_rate
    assert careful.steps < balanced.steps < aggressive.steps
    assert careful.kl > balanced.kl > aggressive.kl


def test_every_rating_is_used_once_at_least():
    recipe = engine.recipe(info(2e6))
    assert recipe.steps_for(40) == 32
    assert recipe.steps_for(1000) * recipe.batch >= 1000


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        ({"learning_rat": 1.0}, "learning_rat"),
        ({"learning_rate": "fast"}, "float"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"steps": 0}, "steps"),
        ({"band_low": 1.2}, "band_low"),
        ({"max_drift": float("nan")}, "max_drift"),
    ],
)
def test_overrides_are_checked(overrides, word):
    with pytest.raises(UsageError, match=word):
        engine.recipe(info(2e6), overrides=overrides)


def test_an_unknown_preset_is_named():
    with pytest.raises(UsageError, match="reckless"):
        engine.recipe(info(2e6), "reckless")


def test_a_recipe_survives_being_recorded():
    recipe = engine.recipe(
        info(31e9, 4e9, experts=64), "aggressive", "grpo", {"steps": 5, "extra": {"grouped": False}}
    )
    assert engine.recipe_from(json.loads(json.dumps(dataclasses.asdict(recipe)))) == recipe
    assert recipe.settings()["grouped"] is False
