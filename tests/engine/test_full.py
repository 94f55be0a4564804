"""All weights trained: it learns, the base stays the base to the bit, and a version is one safe file."""

import dataclasses
import hashlib
import json

import pytest
import torch

from clawback import engine
from clawback.errors import DoesNotFit, ModelError, UsageError
from clawback.models import adapter, delta, identity
from clawback.models.types import GREEDY
from clawback.policy import memory
from clawback.records import Sample
from clawback.sampling import DrawSettings
from clawback.trainer import RunConditions, training_loop

ASKED = ({"role": "user", "content": "Tell me about otters."},)
LIKED, DISLIKED = "Sure! Otters live in rivers.", "I am sorry, but I cannot."


def samples(count=12):
    return [
        Sample(
            i + 1,
            ({"role": "user", "content": f"Tell me about otter number {i // 2}."},),
            DISLIKED if i % 2 else LIKED,
            -1.0 if i % 2 else 1.0,
        )
        for i in range(count)
    ]


def recipe(policy, algorithm="reinforce", **overrides):
    chosen = {"full": True, "steps": 4, "batch": 4, "learning_rate": 1e-3, "max_drift": 9.0, **overrides}
    return engine.recipe(policy.info, algorithm=algorithm, overrides=chosen)


def said(policy):
    return policy.logprobs([ASKED, ASKED], [LIKED, DISLIKED])


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def digest(path):
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(path.iterdir())}


@pytest.fixture(scope="module")
def made(folders, tmp_path_factory):
    """(base's folder, a version of it)"""
    out = tmp_path_factory.mktemp("full")
    policy = engine.load(str(folders("llama")))
    engine.train(policy, samples(), recipe(policy), out=out)
    return folders("llama"), out / "adapter"


@pytest.mark.parametrize(
    "algorithm",
    ["mis-po", "dpo", *(pytest.param(name, marks=pytest.mark.slow) for name in ("reinforce", "grpo", "ppo"))],
)
def test_liked_answers_become_likelier_and_the_base_is_what_it_was(folders, tmp_path, algorithm):
    policy = engine.load(str(folders("llama")))
    before = said(policy)
    engine.train(policy, samples(), recipe(policy, algorithm, steps=10), seed=1, out=tmp_path)
    after = said(policy)
    assert after[0].mean() - before[0].mean() > 0.05
    assert after[0].mean() - before[0].mean() > after[1].mean() - before[1].mean()
    with policy.base():
        assert same(said(policy), before)
    assert same(said(policy), after)
    policy.put(None)
    assert same(said(policy), before)
    assert not policy.has_adapter


def test_every_weight_of_the_layers_moves_and_no_other(made):
    folder, version = made
    policy = engine.load(str(folder))
    layers = {
        name
        for name, _ in policy.model.named_parameters()
        if ".layers." in name or name == "model.norm.weight"
    }
    kept = delta.read(version)
    assert set(kept) == layers
    assert all(values.any() for values in kept.values())


@pytest.mark.parametrize(
    "family",
    ["gemma2", "mixtral", *(pytest.param(name, marks=pytest.mark.slow) for name in ("qwen3", "gpt2"))],
)
def test_other_families_learn_too(folders, tmp_path, family):
    policy = engine.load(str(folders(family)))
    before = said(policy)
    engine.train(policy, samples(), recipe(policy, steps=6), out=tmp_path)
    after = said(policy)
    assert after[0].mean() - before[0].mean() > after[1].mean() - before[1].mean()
    again = engine.load(str(folders(family)), adapter=tmp_path / "adapter")
    assert same(said(again), after)
    with again.base():
        assert same(said(again), before)


def test_a_run_killed_after_any_step_ends_in_the_same_bytes(made, tmp_path, monkeypatch):
    folder, version = made
    monkeypatch.setattr(training_loop, "CHECKPOINT_SECONDS", 0.0)

    class Killed(BaseException):
        pass

    def dies(progress):
        if progress["phase"] == "train" and progress["step"] in deaths:
            deaths.remove(progress["step"])
            raise Killed

    deaths = {2, 4}
    for _ in range(2):
        policy = engine.load(str(folder))
        with pytest.raises(Killed):
            engine.train(policy, samples(), recipe(policy), out=tmp_path, on_progress=dies)
    policy = engine.load(str(folder))
    engine.train(policy, samples(), recipe(policy), out=tmp_path)
    assert digest(tmp_path / "adapter") == digest(version)


def test_answers_are_drawn_by_all_ways_of_drawing_alike(made):
    folder, version = made
    policy = engine.load(str(folder), adapter=version)
    ids = policy.chat.prompt(ASKED)
    [[drawn]] = policy.sample([ids], DrawSettings(sampling=GREEDY, max_tokens=12))
    assert policy.adapted
    want = list(ids)
    for _ in drawn.ids:
        with torch.no_grad():
            want.append(int(policy.model(torch.tensor([want])).logits[0, -1].argmax()))
    assert list(drawn.ids) == want[len(ids) :]
    [[drawn]] = policy.sample([ids], DrawSettings(max_tokens=12))
    [logprobs] = policy.logprobs([ASKED], [drawn.ids])
    assert torch.allclose(logprobs, torch.tensor(drawn.logprobs), atol=1e-4)


def test_a_delta_beside_adapters_and_another_delta_speaks_alone(made, tmp_path):
    folder, version = made
    other = tmp_path / "other"
    other.mkdir()
    trained = engine.load(str(folder), adapter=version)
    with torch.no_grad():
        for name, values in trained.model.named_parameters():
            if delta.MARK in name:
                values.mul_(-2.0)
    trained.save(other)
    wanted = {"a": said(engine.load(str(folder), adapter=version)), "b": said(trained)}
    policy = engine.load(str(folder))
    base = said(policy)
    policy.attach(rank=2, alpha=2, seed=0)
    for name, source in (("a", version), ("b", other)):
        policy.model = adapter.put(policy.model, policy.info, source, name)
    for name in ("a", "b", None, "a"):
        delta.speak(policy.model, name)
        policy._scorer = None
        assert all(
            torch.allclose(x, y, atol=1e-5) for x, y in zip(said(policy), wanted.get(name, base), strict=True)
        )
    policy.model = adapter.remove(policy.model, "a")
    policy.model = adapter.remove(policy.model, "default")
    delta.speak(policy.model, "b")
    policy._scorer = None
    assert same(said(policy), wanted["b"])
    policy.put(None)
    assert same(said(policy), base)


def broken(version, tmp_path, change):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "broken"
    folder.mkdir()
    tensors = load_file(version / delta.WEIGHTS)
    stamp = json.loads((version / identity.STAMP).read_text())
    change(tensors, stamp)
    save_file(tensors, folder / delta.WEIGHTS)
    (folder / identity.STAMP).write_text(json.dumps(stamp))
    return folder


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t, s: t.update({"lm_head.weight": torch.zeros(1)}), "does not fit"),
        (lambda t, s: t.pop("model.norm.weight"), "does not fit"),
        (lambda t, s: t.update({"model.norm.weight": torch.zeros(3)}), "does not fit"),
        (lambda t, s: t["model.norm.weight"].fill_(float("nan")), "not finite"),
        (lambda t, s: t.update({"model.norm.weight": torch.zeros(32, dtype=torch.int32)}), "not finite"),
        (lambda t, s: s.update(base_revision="sha256:other", weights="weights:other"), "was made for"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(made, tmp_path, change, why):
    folder, version = made
    policy = engine.load(str(folder))
    before = said(policy)
    with pytest.raises(ModelError, match=why):
        policy.put(broken(version, tmp_path, change))
    assert same(said(policy), before)


def test_a_folder_with_both_kinds_of_weights_is_refused(made, tmp_path):
    folder, version = made
    both = broken(version, tmp_path, lambda t, s: None)
    (both / adapter.WEIGHTS).write_bytes(b"")
    with pytest.raises(ModelError, match="both"):
        engine.load(str(folder), adapter=both)
    (both / adapter.WEIGHTS).unlink()
    (both / identity.STAMP).unlink()
    with pytest.raises(ModelError, match="which base"):
        engine.load(str(folder), adapter=both)
    (both / delta.WEIGHTS).write_bytes(b"\x80\x04pickled")
    with pytest.raises(ModelError, match="damaged"):
        engine.load(str(folder), adapter=both)


def test_what_does_not_fit_is_refused_with_the_figure(folders, tmp_path, monkeypatch):
    policy = engine.load(str(folders("llama")))
    monkeypatch.setattr(memory.devices, "free_bytes", lambda device: 1 << 19)
    with pytest.raises(DoesNotFit, match=r"needs about \d+ MB of memory.*training.full false"):
        engine.train(policy, samples(), recipe(policy), out=tmp_path)
    weights = sum(values.numel() for _, _, values in delta.weights(policy.model).values())
    both = [
        memory.need(policy.info, bits=32, rank=rank, micro_tokens=1, checkpointing=True) for rank in (None, 1)
    ]
    assert both[0] - both[1] > 20 * weights


@pytest.mark.parametrize(("algorithm", "processes"), [("trpo", 1), ("reinforce", 2)])
def test_what_cannot_train_all_weights_says_so(folders, tmp_path, algorithm, processes):
    policy = engine.load(str(folders("llama")))
    chosen = dataclasses.replace(recipe(policy, algorithm), conditions=RunConditions(processes=processes))
    with pytest.raises(UsageError, match="full out"):
        engine.train(policy, samples(), chosen, out=tmp_path)


def test_layers_computed_again_give_the_same_weights(made, tmp_path):
    folder, version = made
    policy = engine.load(str(folder))
    engine.train(policy, samples(), recipe(policy, gradient_checkpointing=True), out=tmp_path)
    for name, values in delta.read(tmp_path / "adapter").items():
        assert torch.allclose(values, delta.read(version)[name], atol=1e-4), name
