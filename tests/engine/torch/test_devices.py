"""Nothing that Clawback does with tensors mixes devices: every path runs on a pretended accelerator (``pretended.py``).

What there is to run is taken from the source (``tensor_code.py``): a new function that handles tensors fails the test until a
scenario (``device_paths.py``) reaches it, or it is named below with the reason why it never meets a device.
"""

import functools
from contextlib import contextmanager

import pytest
import torch

pytest.importorskip("peft")
pytest.importorskip("PIL")
pytest.importorskip("llguidance")
pytest.importorskip("sentence_transformers")

from clawback import devices, engine
from clawback.learning import run_budget
from clawback.policy import torch_policy
from clawback.sampling import batched_sampler, prefix_tree
from clawback.trainer import training_loop
from tests.engine.torch import tensor_code
from tests.engine.torch.device_paths import SCENARIOS, Stage, rounds_of_fresh_answers
from tests.engine.torch.pretended import accelerator, move
from tests.engine.torch.test_vision import folder as llava  # noqa: F401

ELSEWHERE = {
    "extensions/": "MLX has arrays of its own; other machines; weights elsewhere",
    "extensions/demo/build.py": "makes the embedded model on the CPU",
    "models/gguf.py": "files, before there is a model",
    "extensions/publishers/gguf_merge.py": "files",
    "models/mlx_adapter.py": "files, before there is a model",
    "models/lora_config.py": "files, before there is a model",
}
"""Files of which no function has to be reached."""

NEVER = {
    "devices.py:free_bytes": "asks the driver",
    "devices.py:peak_bytes": "asks the driver",
    "devices.py:there": "asks the driver",
    "devices.py:total_bytes": "asks the driver",
    "devices.py:wait": "asks the driver",
    "models/loading.py:_commit": "the hub",
    "models/loading.py:_quantisation": "settings for bitsandbytes",
    "models/loading.py:_unloadable": "a message",
    "models/adapter.py:receive": "files",
    "models/loading.py:load_tokenizer": "files, before there is a model",
    "models/loading.py:own_max_tokens": "a number in a file",
    "models/loading.py:names_of": "files, before there is a model",
    "models/loading.py:sampling_of": "files, before there is a model",
    "trainer/examples.py:logprob_gradients": "log-probs that a trainer elsewhere sends, on the CPU",
    "inference/batcher.py:Batcher.close": "a thread, which does not know the pretended device",
    "inference/batcher.py:Batcher.start": "a thread, which does not know the pretended device",
    "sampling/decoder.py:_spared": "packs for CPUs",
    "sampling/decoder_choice.py:_has_bfloat16": "asks about the CPU",
    "sampling/batched_sampler.py:Chance.at": "random numbers, which are drawn on the CPU",
    "sampling/batched_sampler.py:Chance.of": "random numbers, which are drawn on the CPU",
    "sources/word_guide.py:_likes": "what the reader says, in NumPy",
    "sources/word_guide.py:_word_weights": "what the reader says, in NumPy",
    "sources/word_guide.py:word_guide": "what the reader says, in NumPy",
    "sampling/batched_sampler.py:until_speaker": "token ids of answers drawn elsewhere",
    "sampling/decoder.py:PackedWeight.__call__": "oneDNN's, for CPUs",
    "sampling/decoder.py:can_pack": "oneDNN's, for CPUs",
    "sampling/decoder.py:by_products": "in bfloat16 on a CPU",
    "scoring/attention.py:_Whole.backward": "in float32 or bfloat16 on a CPU",
    "scoring/attention.py:_Whole.forward": "in float32 or bfloat16 on a CPU",
    "scoring/attention.py:_block": "in float32 or bfloat16 on a CPU",
    "scoring/attention.py:_by_head": "in float32 or bfloat16 on a CPU",
    "scoring/attention.py:_by_token": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:Attention.backward": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:Attention.forward": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:_block": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:_by_head": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:_by_token": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:_first": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:_padded": "in float32 or bfloat16 on a CPU",
    "scoring/branches.py:_plan": "in float32 or bfloat16 on a CPU",
    "models/linear.py:_Frozen.backward": "layers of models on a CPU",
    "models/linear.py:_Frozen.forward": "layers of models on a CPU",
    "jobs/tracking.py:TensorBoard.__init__": "numbers alone",
    "learning/warm_starts.py:Imitation.state": "nothing of it is kept",
    "learning/warm_starts.py:Improvement.state": "nothing of it is kept",
    "sources/ratings.py:_without_hints": "texts alone",
    "learning/episode_examples.py:_looked": "pictures in messages, before there are tensors",
    "learning/episode_examples.py:look_again": "pictures in messages, before there are tensors",
    "policy/torch_policy.py:quickest": "times in a file",
    "policy/torch_policy.py:reason": "a sentence",
    "policy/torch_policy.py:tokens_per_second": "a clock",
    "extensions/llamagym/agent.py:Agent.format_episode_for_ppo": "makes tensors of ids on the CPU, for others",
}
"""Single functions, and why they meet no device."""

NOT_YET = {
    # By chance or by size: the cache of prompts is never full in runs this small, and large models alone have products apart.
    "sampling/prefix_tree.py": "PrefixCache.__len__",
    "sampling/decoder.py": "Several.__call__",
    # Numbers and lists alone, no tensors.
    "sources/distilled.py": "DistilSettings.trials",
    "rl/algorithms/rpo.py": "Rpo.advantages",
}
"""Of each file, functions that a scenario need not reach so far, and why. Nothing may be added; what a scenario reaches fails the test until it is off."""


_SPEED = run_budget.speed


@functools.cache
def _speed_of(device):
    return _SPEED(device, torch.float32)


def quick_speed(device, dtype):
    """Measured once, and in float32: products of bfloat16 take seconds where the processor has none."""
    return _speed_of(device)


@pytest.fixture
def stage(folders, llava, monkeypatch, tmp_path):  # noqa: F811
    """``stage("cuda:0", name)`` → a context in which this device is pretended: what scenarios run on."""
    real, load_base = training_loop.LoopSettings, torch_policy.load_base
    monkeypatch.setattr(training_loop, "LoopSettings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))
    for module in (batched_sampler, prefix_tree, devices):
        monkeypatch.setattr(module, "total_bytes", lambda device: 8 * 10**9)
    monkeypatch.setattr(devices, "free_bytes", lambda device: 8 * 10**9)
    monkeypatch.setattr(devices, "wait", lambda device: None)
    monkeypatch.setattr(run_budget, "speed", quick_speed)

    @contextmanager
    def on(name, out):
        def loaded(found, *, bits, device):
            """On the CPU, and then moved: what transformers does with a device is its own business."""
            model, *more = load_base(found, bits=bits, device=torch.device("cpu"))
            return (model if device.type == "cpu" else move(model, there), *more)

        def policy(family="thin"):
            made = engine.load(
                str(llava if family == "llava" else folders(family)), device=name.split(":")[0]
            )
            made.max_prompt, made.max_response = 48, 8
            return made

        there = torch.device(name)
        with pytest.MonkeyPatch.context() as patch, accelerator(name):
            patch.setattr(devices, "there", lambda kind: kind in (there.type, "cpu"))
            patch.setattr(torch_policy, "load_base", loaded)
            folder = tmp_path / out
            folder.mkdir()
            yield Stage(policy, folders, folder, there, patch)

    return on


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
        with pytest.raises(TypeError, match="numpy"), torch.inference_mode():
            (torch.ones(3, device=device) * 2).numpy()
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, device=device, generator=torch.Generator())
        assert (torch.ones(3, device=device) * torch.tensor(2.0)).device == device
        weight = torch.ones(3, device=device, requires_grad=True)
        (weight * 2).cpu().sum().backward()
        assert weight.grad.device == device
        assert weight.grad.tolist() == [2.0] * 3
    with accelerator("mps") as device, pytest.raises(TypeError, match="float64"):
        torch.ones(3, device=device).double()


def test_the_default_of_a_small_model_goes_through_on_mps(stage):
    """Where there is no float64."""
    with stage("mps", "run") as on:
        rounds_of_fresh_answers(on)


def test_everything_that_handles_tensors_goes_through_on_a_device(stage, subtests):
    ended = []
    listed = tensor_code.functions()
    files = {name.partition(":")[0] for name in listed if not name.startswith(tuple(ELSEWHERE))}
    with tensor_code.entered(files) as reached:
        for name, run in SCENARIOS.items():
            with subtests.test(name), stage("cuda:0", name) as on:
                run(on)
                ended.append(name)
    if len(ended) < len(SCENARIOS):
        return  # what the others would have reached is not known
    missing = {one for one in listed - reached if not one.startswith(tuple(ELSEWHERE))}
    assert missing - NEVER.keys() - not_yet() == set(), "no scenario of device_paths.py reaches these"
    assert reached & not_yet() == set(), "these are reached: take them off NOT_YET"


def not_yet():
    return {f"{file}:{name}" for file, names in NOT_YET.items() for name in names.split()}


def test_what_handles_tensors_is_found_in_the_source():
    listed = tensor_code.functions()
    assert "sources/instructed.py:relevance" in listed
    assert "sources/distilled.py:forgotten" in listed
    assert "extensions/reward/encoder.py:_Course._step" in listed, "torch is imported in the function"
    assert "devices.py:has_bitsandbytes" not in listed
    assert not any(one.startswith(("store/", "capture/")) for one in listed)
    assert (NEVER.keys() | not_yet()) - listed == set(), "these are no more: take them off the lists"
    for prefix in ELSEWHERE:
        assert any(one.startswith(prefix) for one in listed), f"{prefix} has nothing left"


def test_a_new_function_that_handles_tensors_is_on_the_list():
    import ast

    tree = ast.parse(
        "from torch import Tensor\n"
        "class New:\n"
        "    def examples(self, step):\n        return Tensor()\n"
        "    def later(self): ...\n"
        "async def go():\n    await go()\n"
    )
    assert set(tensor_code._of_module(tree)) == {"New.examples", "go"}
    tree = ast.parse("def a():\n    import torch\n    return torch\ndef b():\n    return 1\n")
    assert set(tensor_code._of_module(tree)) == {"a"}
