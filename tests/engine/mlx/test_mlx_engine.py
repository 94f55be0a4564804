"""The engine on MLX against the torch engine: states and log-probs, gradients, what is drawn, a whole run. `make test-mlx`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from clawback import engine
from clawback.errors import MissingExtra, ModelError
from clawback.extensions.demo import corpus
from clawback.records import Part, Sample
from clawback.rl.algorithms.grpo import Grpo
from clawback.trainer.examples import Shared, TrainingExample, measure

try:
    import mlx.core
    import mlx_lm  # noqa: F401
except ImportError:
    HERE = False
else:
    HERE = bool(mlx.core)

needs_mlx = pytest.mark.skipif(not HERE, reason="mlx and mlx-lm are not installed: make test-mlx brings them")


def stir(policy: Any, seed: int = 0) -> None:
    """An adapter that changes something."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in sorted(policy.model.named_parameters()):
        if "lora_B" in name:
            parameter.data = 0.05 * torch.randn(parameter.shape, generator=generator)


def both(base: str = "embedded", rank: int = 4) -> tuple[Any, Any]:
    made = [engine.load(base, device=device, dtype="float32") for device in ("cpu", "mlx")]
    for policy in made:
        policy.attach(rank=rank, alpha=2 * rank, seed=0)
        stir(policy)
    return made[0], made[1]


def talks(count: int) -> list[Any]:
    return [p.messages for p in corpus.prompts("rated", count, 0)]


@pytest.mark.skipif(HERE, reason="mlx is installed")
def test_without_mlx_it_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match=r"\[mlx\]"):
        engine.load("embedded", device="mlx")


@needs_mlx
def test_the_same_answers_and_log_probs_with_and_without_the_adapter() -> None:
    ours, theirs = both()
    asked = talks(5)
    drawn = [policy.generate(asked, samples=3, seed=1, max_tokens=40) for policy in (ours, theirs)]
    answers = [[one for group in groups for one in group] for groups in drawn]
    # One random number decides a token in either: only rounding at the border of two tokens could tell them apart.
    assert sum(a.ids == b.ids for a, b in zip(*answers, strict=True)) >= 14
    many = [talk for talk in asked for _ in range(3)]
    ids = [one.ids for one in answers[1]]
    for policy in (ours, theirs):
        policy.values = policy.logprobs(many, ids)
        with policy.base():
            policy.plain = policy.logprobs(many, ids)
    for name in ("values", "plain"):
        pairs = zip(getattr(ours, name), getattr(theirs, name), strict=True)
        assert max(float((a - b).abs().max()) for a, b in pairs) < 1e-4
    assert max(
        float((torch.tensor(one.logprobs) - v).abs().max())
        for one, v in zip(answers[1], theirs.values, strict=True)
    ) < 1e-4  # fmt: skip
    moved = zip(theirs.values, theirs.plain, strict=True)
    assert max(float((a - b).abs().max()) for a, b in moved) > 0.1
    assert theirs.embedding(ids[0]) == pytest.approx(ours.embedding(ids[0]), abs=1e-4)


@needs_mlx
def test_the_same_loss_and_gradient() -> None:
    """GRPO with the exact divergence: a gradient through log-probs and one through the whole distribution."""
    losses, gradients = [], []
    texts = [("I like otters.", 1.0), ("Sorry, I do not know.", -1.0), ("- sea\n- river", 0.5)]
    for policy in both():
        encoded = [policy._encode(talk, text) for talk, (text, _) in zip(talks(3), texts, strict=True)]
        with torch.no_grad(), policy.base():
            ref = policy.scorer(encoded).split()
            states = [policy.scorer.states([one]) for one in encoded]
        examples = [
            TrainingExample(e, a, old=r, ref=r, base=s)
            for e, (_, a), r, s in zip(encoded, texts, ref, states, strict=True)
        ]
        batch = measure(policy.scorer, examples, Shared.of(examples, cover=0.5))
        loss, _ = Grpo(kl=0.1).loss(batch)
        loss.backward()
        losses.append(float(loss.detach()))
        named = sorted(policy.model.named_parameters())
        gradients.append(torch.cat([p.grad.flatten() for _, p in named if p.grad is not None]))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert gradients[0].shape == gradients[1].shape
    assert float((gradients[0] - gradients[1]).norm()) < 1e-4 * float(gradients[0].norm())


def rated(policy: Any, count: int = 8) -> list[Sample]:
    answers = [one for [one] in policy.generate(talks(count), seed=0, max_tokens=30)]
    return [
        Sample(i + 1, tuple(talk), one.text, r, (Part(i + 1, "rating", r, 1.0),), response_ids=one.ids)
        for i, (talk, one) in enumerate(zip(talks(count), answers, strict=True))
        for r in [1.0 if len(one.ids) % 2 else -1.0]
    ]


@needs_mlx
def test_a_whole_run_learns_the_same_and_leaves_a_folder_for_either(tmp_path: Path) -> None:
    policies = [engine.load("embedded", device=device) for device in ("cpu", "mlx")]
    samples = rated(policies[0])
    recipe = engine.recipe(
        policies[0].info, algorithm="mis-po", overrides={"steps": 4, "rank": 4, "alpha": 4}
    )
    results = [
        engine.train(policy, samples, recipe, out=tmp_path / policy.engine, seed=2) for policy in policies
    ]
    for a, b in zip(results[0].history, results[1].history, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-3)
    again = engine.load("embedded", adapter=Path(results[1].path))
    asked, said = [s.messages for s in samples], [s.response for s in samples]
    values = [policy.logprobs(asked, said) for policy in (*policies, again)]
    assert max(float((a - b).abs().max()) for a, b in zip(values[1], values[2], strict=True)) < 1e-4
    assert max(float((a - b).abs().max()) for a, b in zip(values[0], values[1], strict=True)) < 1e-2
    with pytest.raises(ModelError, match="torch engine"):
        policies[1].model(input_ids=torch.tensor([[1, 2]]))
    policies[1].put(None)
    assert not policies[1].has_adapter
    plain = policies[1].logprobs(asked, said)
    assert max(float((a - b).abs().max()) for a, b in zip(plain, values[1], strict=True)) > 1e-3


@needs_mlx
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "granite", "cohere"])
def test_families_agree_or_are_refused(folders: Any, family: str) -> None:
    try:
        ours, theirs = both(str(folders(family)))
    except ModelError as error:
        assert "torch engine" in str(error)
        assert family not in ("llama", "qwen3")
        return
    asked = [[{"role": "user", "content": text}] for text in ("Tell me about otters, please.", "Why?")]
    said = ["Otters live in rivers.", "I am sorry, but I cannot say."]
    for a, b in zip(ours.logprobs(asked, said), theirs.logprobs(asked, said), strict=True):
        assert float((a - b).abs().max()) < 1e-4
    drawn = [policy.generate(asked, samples=4, seed=3, max_tokens=12) for policy in (ours, theirs)]
    flat = [[one.ids for group in groups for one in group] for groups in drawn]
    assert sum(a == b for a, b in zip(*flat, strict=True)) >= 7


@needs_mlx
def test_mixtures_of_experts_are_refused(folders: Any) -> None:
    with pytest.raises(ModelError, match="dense"):
        engine.load(str(folders("mixtral")), device="mlx")
