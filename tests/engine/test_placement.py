"""A small model computes where it is faster here, which is measured once; a large one goes to the accelerator."""

import json
from types import SimpleNamespace

import pytest
import torch

from clawback import config, devices, engine, paths
from clawback.errors import UsageError
from clawback.policy import throughput, torch_policy
from clawback.policy.throughput import Speed

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture
def loads(monkeypatch):
    """Speeds by device type (a speed, or an error) → a function that loads, and the devices on which it did."""
    monkeypatch.setattr(throughput, "device_name", lambda device: f"a {device.type}")

    def made(**rates):
        seen = []

        def measure(policy, prompts, limit):
            seen.append("measured")
            rate = rates[policy.device.type]
            if isinstance(rate, Exception):
                raise rate
            return Speed(rate, rate, rate)

        def load_on(device):
            seen.append(device.type)
            return SimpleNamespace(device=device, placement="")

        monkeypatch.setattr(throughput, "measure", measure)
        return load_on, seen

    return made


@pytest.mark.parametrize(
    ("cuda", "cpu", "chosen"), [(300, 1200, "cpu"), (5000, 1200, "cuda"), (9, 9, "cuda")]
)
def test_the_faster_one_is_taken_kept_and_said(loads, tmp_path, cuda, cpu, chosen):
    load_on, seen = loads(cuda=cuda, cpu=cpu)
    file = tmp_path / "speeds.json"
    policy = torch_policy.quickest(load_on, (CUDA, CPU), "a model", file)
    assert policy.device.type == chosen
    assert f"{max(cuda, cpu):,} tokens/s" in policy.placement
    assert f"{min(cuda, cpu):,} on" in policy.placement
    seen.clear()
    again = torch_policy.quickest(load_on, (CUDA, CPU), "a model", file)
    assert (again.device, again.placement, seen) == (policy.device, policy.placement, [chosen])
    torch_policy.quickest(load_on, (CUDA, CPU), "another model", file)
    assert seen.count("measured") == 2
    assert len(json.loads(file.read_text())) == 2


def test_a_device_that_cannot_compute_it_is_left_out(loads):
    load_on, _ = loads(cuda=RuntimeError("no kernel image is available"), cpu=10)
    assert torch_policy.quickest(load_on, (CUDA, CPU), "a model", None).device == CPU
    load_on, _ = loads(cuda=RuntimeError("no"), cpu=RuntimeError("not here either"))
    with pytest.raises(RuntimeError, match="not here either"):
        torch_policy.quickest(load_on, (CUDA, CPU), "a model", None)


@pytest.mark.parametrize(
    ("asked", "parameters", "measured"),
    [(None, 300_000_000, True), (None, 300_000_001, False), ("cpu", 10, False), ("cuda", 10, False)],
)
def test_only_small_models_that_nobody_has_placed_are_measured(monkeypatch, asked, parameters, measured):
    info = SimpleNamespace(base="a model", revision="1", total_parameters=parameters)
    found = SimpleNamespace(info=info, sees=False)
    where = []
    monkeypatch.setattr(devices, "there", lambda kind: kind != "mps")
    monkeypatch.setattr(torch_policy, "look", lambda base, revision: found)

    def quickest(load_on, candidates, key, file):
        where.append([one.type for one in candidates])
        raise UsageError("measured")

    def load_base(found, bits, device):
        where.append(device.type)
        raise UsageError("loaded")

    monkeypatch.setattr(torch_policy, "quickest", quickest)
    monkeypatch.setattr(torch_policy, "load_base", load_base)
    monkeypatch.setattr("clawback.policy.memory.holds", lambda *_: 32)
    with pytest.raises(UsageError):
        engine.load("a model", device=asked)
    assert where == ([["cuda", "cpu"]] if measured else [asked or "cuda"])


def test_the_setting_decides(tmp_path):
    home = paths.Home(tmp_path)
    assert config.load(home.config).model.load_device is None
    home.config.write_text('[model]\ndevice = "cpu"\n')
    model = config.load(home.config).model
    assert (model.load_device, model.torch_device) == ("cpu", "cpu")
    home.config.write_text('[model]\ndevice = "cuda"\nengine = "mlx"\n')
    model = config.load(home.config).model
    assert (model.load_device, model.torch_device) == ("mlx", "cuda")
