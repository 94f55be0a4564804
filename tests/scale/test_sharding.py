"""A base in parts gives the losses and the adapter of one that is whole, and an adapter that is saved whole."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clawback import embedded, engine
from clawback.errors import UsageError
from clawback.extensions.demo import corpus
from clawback.extensions.scale import sharding
from clawback.policy import load
from clawback.policy.policy import Policy
from clawback.records import Sample
from clawback.trainer import RunConditions
from tests.scale.test_process_group import LOSS, WEIGHT, samples


def paired() -> list[Sample]:
    """Two answers to each prompt, one of them liked."""
    rng = random.Random(0)
    made = []
    for place, prompt in enumerate(corpus.prompts("rated", 4, 0)):
        for which, reward in enumerate((1.0, -1.0)):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            made.append(Sample(2 * place + which, tuple(prompt.messages), text, reward))
    return made


def run(
    out: Path, count: int, algorithm: str = "reinforce", tell: Any = None, **changes: Any
) -> tuple[Policy, Any]:
    policy = load(str(embedded.path()), device="cpu", dtype="float32")
    changes = {"steps": 3, "batch": 5, "rank": 4, **changes}
    recipe = engine.recipe(policy.info, algorithm=algorithm, overrides=changes)
    conditions = RunConditions(processes=count, shard=count > 1)
    recipe = dataclasses.replace(recipe, conditions=conditions)
    done = engine.train(
        policy, paired(), recipe, seed=2, out=out, on_progress=tell and (lambda p: tell(policy, p))
    )
    return policy, done


def weights(done: Any) -> dict[str, torch.Tensor]:
    return load_file(Path(done.path) / "adapter_model.safetensors")


@pytest.mark.slow
def test_a_base_in_two_parts_trains_as_a_whole_one_and_its_adapter_is_whole(tmp_path: Path) -> None:
    _, by_one = run(tmp_path / "one", 1)
    held: list[tuple[int, int]] = []

    def look(policy: Policy, progress: Any) -> None:
        if progress["phase"] == "train":
            held.append(sharding.held(policy))

    policy, by_two = run(tmp_path / "two", 2, tell=look)
    own, everything = held[-1]
    outside = sum(p.numel() for n, p in policy.model.named_parameters() if "layers." not in n)
    assert own == outside + (everything - outside) // 2
    for a, b in zip(by_one.history, by_two.history, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], abs=LOSS)
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-4)
    one, two = weights(by_one), weights(by_two)
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < WEIGHT

    # Saved, zeroed, loaded, compared.
    trained = {n: p.detach().clone() for n, p in policy.model.named_parameters() if "lora_" in n}
    with torch.no_grad():
        for name, p in policy.model.named_parameters():
            if "lora_" in name:
                p.zero_()
    again = load(str(embedded.path()), device="cpu", dtype="float32", adapter=Path(by_two.path))
    found = {n: p for n, p in again.model.named_parameters() if "lora_" in n}
    assert found.keys() == trained.keys()
    assert all(torch.equal(found[name], trained[name]) for name in trained)
    assert any(bool(p.any()) for name, p in trained.items() if "lora_B" in name)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dpo", "kto"])
def test_who_has_fewer_passes_goes_along_and_layers_may_be_computed_again(
    algorithm: str, tmp_path: Path
) -> None:
    """Pieces of a few tokens, so that processes need unlike numbers of passes; and three processes for five examples."""
    changes = {"micro_tokens": 64, "gradient_checkpointing": True, "steps": 2}
    _, by_one = run(tmp_path / "one", 1, algorithm, **changes)
    _, by_three = run(tmp_path / "three", 3, algorithm, **changes)
    one, three = weights(by_one), weights(by_three)
    assert max(float((one[name] - three[name]).abs().max()) for name in one) < WEIGHT


def test_what_a_base_in_parts_cannot_do_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="draws answers"):
        run(tmp_path / "rollouts", 2, "rollouts")
    policy = load(str(embedded.path()), device="cpu", dtype="float32")
    recipe = dataclasses.replace(
        engine.recipe(policy.info, algorithm="grpo"), conditions=RunConditions(shard=True)
    )
    with pytest.raises(UsageError, match="--processes"):
        engine.train(policy, samples(), recipe, out=tmp_path / "one")
    assert engine.shardable(engine.recipe(policy.info, algorithm="auto")).algorithm == "reinforce"
