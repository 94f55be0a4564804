"""The example of an algorithm of one's own: installed as an entry point, found by name, trained with."""

import sys
import tomllib
from pathlib import Path

import pytest
import torch

from clawback import engine
from clawback.errors import UsageError
from clawback.records import Sample
from clawback.rl import algorithms

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_algorithm"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """What ``pip install ./examples/my_algorithm`` leaves behind, in a folder of this test alone."""
    site = tmp_path / "site"
    info = site / "my_algorithm-0.1.0.dist-info"
    info.mkdir(parents=True)
    (site / "my_algorithm.py").write_text((EXAMPLE / "my_algorithm.py").read_text("utf-8"), "utf-8")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    [(group, points)] = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {where}" for name, where in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines), "utf-8")
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", "utf-8")
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("my_algorithm", None)


def test_it_is_found_by_name(installed):
    assert "reward-weighted" in algorithms.names()
    algorithm = algorithms.make("reward-weighted", {"temperature": 0.25, "kl": 0.5, "steps": 3})
    assert (algorithm.temperature, algorithm.kl) == (0.25, 0.5)
    assert isinstance(algorithm, algorithms.Algorithm)


def test_it_is_gone_when_it_is_not_installed():
    with pytest.raises(UsageError, match="reward-weighted"):
        algorithms.find("reward-weighted")


def test_it_trains(installed, tmp_path):
    policy = engine.load("embedded")
    said = ("Sure thing! Otters love fish.", "Otters eat fish.")
    samples = [
        Sample(i + 1, ({"role": "user", "content": f"Otters {i // 2}?"},), said[i % 2], 1.0 - 2 * (i % 2))
        for i in range(8)
    ]

    def score():
        values = policy.logprobs([s.messages for s in samples], [s.response for s in samples])
        return torch.stack([v.mean() for v in values])

    before = score()
    recipe = engine.recipe(
        policy.info, algorithm="reward-weighted", overrides={"steps": 3, "extra": {"temperature": 0.3}}
    )
    result = engine.train(policy, samples, recipe, seed=0, out=tmp_path / "run")
    moved = score() - before
    assert result.algorithm == "reward-weighted"
    assert result.steps == 3
    assert moved[::2].mean() > 0.2
    assert moved[::2].mean() > moved[1::2].mean()
