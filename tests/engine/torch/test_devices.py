"""Nothing that a run does by default mixes devices: whole runs on a pretended accelerator (``pretended.py``), held against the CPU's."""

import dataclasses
import math

import pytest
import torch

pytest.importorskip("peft")

from clawback import engine
from clawback.engine import devices
from clawback.engine.torch.loop import trainer
from clawback.engine.torch.sampling import generate, lanes, prefix_cache
from clawback.engine.torch.sampling.batcher import Ask, Batcher
from clawback.engine.torch.sampling.generate import stop_ids
from clawback.engine.types import Sampling
from clawback.records import Part
from clawback.release import evidence
from clawback.rl import algorithms
from tests.engine.test_train import make_samples, recipe
from tests.engine.torch.pretended import accelerator, move

ROUNDS = {
    "rounds": 2,
    "prompts": 2,
    "samples": 2,
    "round_steps": 2,
    "grounding": 8,
    "replay": 0.5,
    "cut_off": 0.0,
}


@pytest.fixture
def there(folders, monkeypatch):
    """``there("cuda:0")`` → a context in which this device is pretended and gives a policy on it."""

    def load():
        policy = engine.load(str(folders("llama")), device="cpu")
        policy.max_prompt, policy.max_response = 48, 12
        return policy

    class There:
        def __init__(self, device):
            self.pretended = accelerator(device)

        def __enter__(self):
            policy = load()
            where = self.pretended.__enter__()
            move(policy.model, where)
            return policy

        def __exit__(self, *error):
            return self.pretended.__exit__(*error)

    real = trainer.Settings
    monkeypatch.setattr(trainer, "Settings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))
    for module in (generate, prefix_cache):
        monkeypatch.setattr(module, "total_bytes", lambda device: 8 * 10**9)
    monkeypatch.setattr(devices, "free_bytes", lambda device: 8 * 10**9)
    return lambda device: There(device) if device != "cpu" else _Here(load)


class _Here:
    def __init__(self, load):
        self.load = load

    def __enter__(self):
        return self.load()

    def __exit__(self, *error):
        return None


def adapter(policy):
    return [p.detach().cpu() for name, p in sorted(policy.model.named_parameters()) if "lora_" in name]


class Killed(Exception):
    pass


def killed_and_resumed(policy, samples, settings, out):
    """A run that is killed after its fourth step and before its checkpoint, and taken up again at the third."""

    def kill(progress):
        if progress["phase"] == "train" and progress["step"] == 4:
            raise Killed

    with pytest.raises(Killed):
        engine.train(policy, samples, settings, seed=2, out=out, on_progress=kill)
    assert (out / "checkpoint.pt").is_file()
    policy.put(None)
    steps = []
    result = engine.train(
        policy, samples, settings, seed=2, out=out, on_progress=lambda p: steps.append(p.get("step"))
    )
    assert result.steps == 4
    assert [step for step in steps if step] == [4]
    return result


def test_a_mixture_of_devices_is_noticed():
    with accelerator() as device:
        with pytest.raises(RuntimeError, match="same device"):
            torch.ones(3) + torch.ones(3, device=device)
        with pytest.raises(RuntimeError, match="same device"):
            torch.cat([torch.ones(3), torch.ones(3).to(device)])
        with pytest.raises(RuntimeError, match="indices"):
            torch.ones(3)[torch.zeros(1, dtype=torch.int64, device=device)]
        with pytest.raises(TypeError, match="numpy"):
            torch.ones(3, device=device).numpy()
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, device=device, generator=torch.Generator())
        assert (torch.ones(3, device=device) * torch.tensor(2.0)).device == device
        weight = torch.ones(3, device=device, requires_grad=True)
        (weight * 2).cpu().sum().backward()
        assert weight.grad.device == device
        assert weight.grad.tolist() == [2.0] * 3
    with accelerator("mps") as device, pytest.raises(TypeError, match="float64"):
        torch.ones(3, device=device).double()


@pytest.mark.parametrize("device", ["cuda:0", "mps"])
def test_a_whole_run_of_the_default_goes_through_and_ends_as_on_the_cpu(there, tmp_path, device):
    """Draw, grade, step, replay; killed and resumed; then the gate's measure of what came out."""
    samples = make_samples(12)
    asked = [s.messages for s in samples[:3]]
    found = {}
    for where in (device, "cpu"):
        with there(where) as policy:
            settings = dataclasses.replace(recipe(policy, "rollouts"), extra=ROUNDS)
            result = killed_and_resumed(policy, samples, settings, tmp_path / where[:3])
            weights = adapter(policy)
            limits = {"max_tokens": 8, "seed": 5, "count": 6}
            judged = evidence.measure(
                policy, tmp_path / where[:3] / "adapter", None, samples, samples[:4], asked, **limits
            )
            found[where] = (result, weights, judged)
    (on_device, theirs, seen), (on_cpu, ours, expected) = found[device], found["cpu"]
    assert on_device.algorithm == on_cpu.algorithm == "rollouts"
    assert any(bool(one.any()) for one in ours)
    # As many tokens were learned from. What the head makes of a model that says random things is rounding, enlarged.
    assert on_device.history[0]["tokens"] == on_cpu.history[0]["tokens"]
    assert seen.base.finished == expected.base.finished
    assert any(bool(one.any()) for one in theirs)
    assert math.isfinite(seen.kl)


@pytest.mark.parametrize("algorithm", algorithms.names())
def test_every_algorithm_goes_through(there, tmp_path, algorithm):
    with there("cuda:0") as policy:
        settings = recipe(policy, algorithm, steps=3, batch=4, max_drift=1e9)
        result = killed_and_resumed_apart(policy, said_of(policy), settings, tmp_path)
    assert result.steps == 3
    assert all(math.isfinite(row[name]) for row in result.history for name in ("loss", "grad_norm", "drift"))


def said_of(policy):
    """Ratings, preferences and remarks; the first answer with recorded log-probs and a token that a tool wrote."""
    samples = [
        dataclasses.replace(
            s, hints=("Shorter, please.",), parts=(Part(i // 2 + 1, "preference", s.reward, 1.0),)
        )
        for i, s in enumerate(make_samples(4))
    ]
    recorded = policy.encode(samples[0]).response
    samples[0] = dataclasses.replace(
        samples[0],
        response_ids=recorded,
        response_logprobs=(-1.0,) * len(recorded),
        response_mask=tuple(place != 1 for place in range(len(recorded))),
    )
    return samples


def moved(policy):
    """With an adapter that changes something, so that the log-probs of the start and of the base differ."""
    policy.attach(rank=4, alpha=4, seed=0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                weight.add_(0.01)


def killed_and_resumed_apart(policy, samples, settings, out):
    def kill(progress):
        if progress["phase"] == "train" and progress["step"] == 2:
            raise Killed

    moved(policy)
    with pytest.raises(Killed):
        engine.train(policy, samples, settings, seed=2, out=out, on_progress=kill)
    policy.put(None)
    moved(policy)
    return engine.train(policy, samples, settings, seed=2, out=out)


def test_the_server_answers(there, monkeypatch):
    monkeypatch.setattr(prefix_cache, "LEAST", 4)
    monkeypatch.setattr(lanes, "LEAST", 4)
    asks, ends = [], []

    def ask(prompt, temperature):
        asks.append(Ask(prompt, 6, lambda *_: None, ends.append, sampling=Sampling(temperature=temperature)))
        return asks[-1]

    with there("cuda:0") as policy:
        batcher = Batcher(policy, stop_ids(policy.model, policy.chat.end_id))
        prompts = [policy.chat.prompt(s.messages) for s in make_samples(3)]
        for _ in range(2):  # the second time they are known
            batcher.waiting += [ask(p, t) for p, t in zip(prompts, (0.0, 1.0, 0.7), strict=True)]
            with torch.no_grad():
                batcher._admit()
                while any(lane.rows for lane in batcher.lanes.values()):
                    for lane in batcher.lanes.values():
                        batcher._step(lane)
    assert len(ends) == 6
    assert set(ends) <= {"stop", "length"}
    assert [one.cached for one in asks[3:]] == [len(prompt) - 1 for prompt in prompts]
