import dataclasses
import sys

import psutil
import pytest
import torch

from clawback import devices, engine
from clawback.errors import MissingExtra, TrainingError, UsageError
from clawback.models.types import ModelInfo
from clawback.policy import memory

EIGHT_B = ModelInfo("m", "r", "A", 8_000_000_000, 8_000_000_000, 4096, 32, 128_000, 14_336, 8192)
GB = 10**9


FOUR_B = dataclasses.replace(
    EIGHT_B,
    total_parameters=4_000_000_000,
    active_parameters=4_000_000_000,
    hidden=2560,
    layers=36,
    vocabulary=152_000,
    intermediate=9728,
)
ALL = (16, 8, 4)


@pytest.fixture
def machine(monkeypatch):
    """``machine(kind, gigabytes, …)``: a computer with this device and so much free memory, and bitsandbytes unless it says not."""

    def pretend(kind, gigabytes, bitsandbytes=True, bfloat16=False):
        monkeypatch.setattr(devices, "there", lambda name: name in (kind, "cpu"))
        monkeypatch.setattr(devices, "free_bytes", lambda device: int(gigabytes * GB))
        monkeypatch.setattr(devices, "has_bitsandbytes", lambda: bitsandbytes)
        monkeypatch.setattr(devices, "multiplies_bfloat16", lambda: bfloat16)
        return devices.choose()

    return pretend


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (80, (16, False)),
        (30, (16, True)),
        (21, (16, True)),
        (17, (8, True)),
        (12, (4, True)),
        (10, (4, True)),
    ],
)
def test_the_fastest_way_that_fits(free, expected):
    choice = memory.decide(EIGHT_B, memory.DeviceMemory(free * GB), ALL, rank=16)
    assert (choice.bits, choice.gradient_checkpointing) == expected
    assert choice.bytes <= free * GB


def test_what_does_not_fit_is_refused_with_what_would():
    with pytest.raises(
        TrainingError, match=r"needs about .* GB .* 12\.0 GB is free.*weights in 4 bits.*prompt"
    ):
        memory.decide(EIGHT_B, memory.DeviceMemory(12 * GB), (16,), rank=16)
    with pytest.raises(
        TrainingError, match=r"4 bits a weight.*up to about \d\.\d billion parameters"
    ) as caught:
        memory.decide(EIGHT_B, memory.DeviceMemory(4 * GB), ALL, rank=16)
    assert "[cuda]" not in str(caught.value)
    with pytest.raises(TrainingError, match="does not fit"):
        memory.decide(EIGHT_B, memory.DeviceMemory(0), ALL, rank=16)


@pytest.mark.parametrize(
    ("total", "tokens"),
    [(0, 512), (8, 512), (16, 1024), (64, 2048)],
)
def test_pieces_on_a_cpu_are_as_large_as_their_share_of_the_machine(total, tokens):
    """By what the machine has in all: two runs have the same pieces, whatever else is in memory."""
    model = dataclasses.replace(
        EIGHT_B,
        total_parameters=135_000_000,
        active_parameters=135_000_000,
        hidden=576,
        layers=30,
        intermediate=1536,
    )
    choices = {
        memory.decide(model, memory.DeviceMemory(free * GB, "cpu", total * GB), (16,)).micro_tokens
        for free in (5, 20, 60)
    }
    assert choices == {tokens}
    tiny = dataclasses.replace(model, total_parameters=2_000_000, active_parameters=2_000_000)
    assert memory.decide(tiny, memory.DeviceMemory(5 * GB, "cpu", total * GB), (32,)).micro_tokens == 512


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_more_memory_is_never_used_worse(kind):
    seen = []
    for free in range(4, 90, 2):
        try:
            choice = memory.decide(EIGHT_B, memory.DeviceMemory(free * GB, kind), ALL, rank=16)
        except TrainingError:
            assert not seen
            continue
        seen.append((choice.bits, not choice.gradient_checkpointing, choice.micro_tokens))
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("computer", "info", "bits"),
    [
        (("cuda", 80), EIGHT_B, 16),
        (("cuda", 8), FOUR_B, 8),
        (("cuda", 6.5), FOUR_B, 4),
        (("mps", 16), FOUR_B, 16),
        (("cpu", 64), FOUR_B, 32),
        (("cpu", 16), FOUR_B, 16),
        (("cpu", 64, False, True), FOUR_B, 16),
    ],
)
def test_how_a_model_is_held_on_the_machines_that_people_have(machine, computer, info, bits):
    assert memory.holds(info, machine(*computer), "auto", None) == bits


def test_without_room_to_train_a_model_may_still_answer(machine):
    """A 4 B model in 16 bits on a GPU with 9 GB, without bitsandbytes: enough to chat with, not to train."""
    device = machine("cuda", 9, bitsandbytes=False)
    assert memory.holds(FOUR_B, device, "auto", None) == 16
    with pytest.raises(TrainingError, match=r"does not fit.*\[cuda\]"):
        memory.holds(FOUR_B, machine("cuda", 6, bitsandbytes=False), "auto", None)


def test_settings_stand_above_what_would_be_chosen(machine):
    gpu = machine("cuda", 80)
    assert memory.holds(FOUR_B, gpu, "auto", True) == 4
    assert memory.holds(FOUR_B, gpu, "float32", None) == 32
    with pytest.raises(TrainingError):
        memory.holds(FOUR_B, machine("cuda", 5), "auto", False)
    with pytest.raises(MissingExtra, match="bitsandbytes"):
        memory.holds(FOUR_B, machine("cuda", 80, bitsandbytes=False), "auto", True)
    with pytest.raises(UsageError, match="4-bit weights need CUDA"):
        memory.holds(FOUR_B, machine("mps", 80), "auto", True)


@pytest.mark.parametrize(("present", "chosen"), [("cuda", "cuda"), ("mps", "mps"), ("cpu", "cpu")])
def test_the_best_device_is_taken(machine, present, chosen):
    assert machine(present, 8) == torch.device(chosen)
    assert devices.choose("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="device"):
        devices.choose("a toaster")
    missing = "mps" if present == "cuda" else "cuda"
    with pytest.raises(UsageError, match=f"no device {missing}"):
        devices.choose(missing)


def test_a_model_is_refused_before_any_weight_is_read(folders, machine, monkeypatch):
    from transformers import AutoModelForCausalLM

    machine("cpu", 0.00001)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(TrainingError, match="does not fit"):
        engine.load(str(folders("llama")))


@pytest.mark.parametrize("family", ["llama", "mixtral", "gpt2"])
def test_what_the_configuration_says_is_what_is_loaded(folders, family):
    from clawback.models.loading import look

    found = look(str(folders(family)))
    loaded = engine.load(str(folders(family)), device="cpu").info
    # Whose weights they are is read from the files, which a look at the configuration does not open.
    unread = {"weights": "", "settings": "", "tokenizer": "", "template": ""}
    assert dataclasses.replace(found.info, **unread) == dataclasses.replace(loaded, **unread)


def test_a_model_that_fits_narrowly_is_trained_with_checkpointing(folders, tmp_path, monkeypatch):
    from tests.engine.test_train import make_samples, recipe

    policy = engine.load(str(folders("llama")), device="cpu")
    settings = recipe(policy, steps=1)
    counts = {"bits": 32, "rank": settings.rank, "micro_tokens": memory.CPU_MICRO_TOKENS // 2, "on_cpu": True}
    whole, least = (memory.need(policy.info, checkpointing=c, **counts) for c in (False, True))
    room = int(((whole + least) / 2 - memory._PROCESS) * memory._SPARE) - memory.weight_bytes(policy.info, 32)
    monkeypatch.setattr(devices, "free_bytes", lambda device: room)
    assert engine.train(policy, make_samples(), settings, out=tmp_path).steps
    assert any(getattr(part, "gradient_checkpointing", False) for part in policy.model.modules())
    monkeypatch.setattr(devices, "free_bytes", lambda device: 0)
    with pytest.raises(TrainingError, match="does not fit"):
        engine.train(policy, make_samples(), settings, seed=1, out=tmp_path / "other")


def test_need_grows_with_everything():
    small = memory.need(EIGHT_B, bits=4, rank=8, micro_tokens=512, checkpointing=True)
    for change in ({"bits": 16}, {"rank": 16}, {"micro_tokens": 1024}, {"checkpointing": False}):
        settings = {"bits": 4, "rank": 8, "micro_tokens": 512, "checkpointing": True, **change}
        assert memory.need(EIGHT_B, **settings) > small


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_what_was_freed_goes_back_to_the_system():
    """Pieces too small to be mapped by themselves, with one in a thousand kept: the heap cannot shrink from its end."""
    process = psutil.Process()
    pieces = [bytearray(16 << 10) for _ in range(8_000)]
    kept = pieces[::1000]
    del pieces
    before = process.memory_info().rss
    memory.give_back()
    assert process.memory_info().rss < before - (64 << 20)
    assert len(kept) == 8
