"""Nothing that Clawback does with tensors mixes devices: every path runs on a pretended accelerator (``pretended.py``).

What there is to run is taken from the source (``tensor_code.py``): a new function that handles tensors fails the test until a
scenario (``device_paths.py``) reaches it, or it is named below with the reason why it never meets a device.
"""

from contextlib import contextmanager

import pytest
import torch

pytest.importorskip("peft")
pytest.importorskip("PIL")
pytest.importorskip("llguidance")
pytest.importorskip("sentence_transformers")

from clawback import engine
from clawback.engine import devices
from clawback.engine.torch.loop import trainer
from clawback.engine.torch.models import loading
from clawback.engine.torch.sampling import generate, prefix_cache
from tests.engine.torch import tensor_code
from tests.engine.torch.device_paths import SCENARIOS, Stage, rounds_of_fresh_answers
from tests.engine.torch.pretended import accelerator, move
from tests.engine.torch.test_vision import folder as llava  # noqa: F401

ELSEWHERE = {
    "engine/mlx/": "another engine, with arrays of its own",
    "engine/embedded/build.py": "makes the embedded model on the CPU",
    "engine/torch/models/gguf.py": "files, before there is a model",
    "engine/torch/models/mlx_adapter.py": "files, before there is a model",
    "engine/torch/sampling/step_kernels.py": "compiled for CPUs",
    "engine/torch/loop/parallel.py": "other processes, and tensors that travel to them on the CPU",
    "engine/torch/loop/sharding.py": "refuses what is not on the CPU",
    "engine/torch/loop/worker.py": "other processes",
    "cluster/": "other machines",
    "hosted/": "weights elsewhere",
}
"""Files of which no function has to be reached."""

NEVER = {
    "engine/devices.py:free_bytes": "asks the driver",
    "engine/devices.py:peak_bytes": "asks the driver",
    "engine/devices.py:total_bytes": "asks the driver",
    "engine/devices.py:wait": "asks the driver",
    "engine/torch/models/loading.py:_commit": "the hub",
    "engine/torch/models/loading.py:_quantisation": "settings for bitsandbytes",
    "engine/torch/models/loading.py:_unloadable": "a message",
    "engine/torch/sampling/batcher.py:Batcher.close": "a thread, which does not know the pretended device",
    "engine/torch/sampling/batcher.py:Batcher.start": "a thread, which does not know the pretended device",
    "engine/torch/sampling/decoder.py:Decoder._compiled": "compiled for CPUs",
    "engine/torch/sampling/decoder.py:_spared": "packs for CPUs",
    "engine/torch/sampling/decoder_choice.py:_has_bfloat16": "asks about the CPU",
    "engine/torch/sampling/products.py:Packed.__call__": "oneDNN's, for CPUs",
    "engine/torch/sampling/products.py:can_pack": "oneDNN's, for CPUs",
    "engine/tracking.py:TensorBoard.__init__": "numbers alone",
    "environments/agent.py:Agent.format_episode_for_ppo": "makes tensors of ids on the CPU, for others",
    "rewards/members.py:states": "files, before there is a model",
    "rl/algorithms/__init__.py:names": "names alone",
}
"""Single functions, and why they meet no device."""

NOT_YET = {
    "engine/episodes.py": "_identity",
    "engine/throughput.py": "clock device_name load measure name",
    "engine/torch/loop/natural_gradient.py": "Step.__init__ Step._slope Step.fisher Step.moved Step.put Step.take _grad",
    "engine/torch/loop/trainer.py": "Loop.evaluate Loop.put_back",
    "engine/torch/loop/value_head.py": "ValueHead.__init__ ValueHead.fit ValueHead.forward",
    "engine/torch/models/adapter.py": "remove",
    "engine/torch/models/delta.py": "fold",
    "engine/torch/models/policy.py": "Policy.config Policy.configure Policy.max_tokens",
    "engine/torch/models/vision.py": "Pixels.of Pixels.plain",
    "engine/torch/sampling/batcher.py": "Batcher.run",
    "engine/torch/sampling/cache.py": "Roomy.batch_select_indices Roomy.join",
    "engine/torch/sampling/conversations.py": "Conversations._seen",
    "engine/torch/sampling/decoder.py": "Decoder._read_brief",
    "engine/torch/sampling/generate.py": "Chance.of",
    "engine/torch/sampling/lanes.py": "_level",
    "engine/torch/sampling/prefix_cache.py": "PrefixCache.__len__ PrefixCache._forget",
    "engine/torch/sampling/products.py": "Several.__call__",
    "engine/torch/sampling/seeing.py": "Seeing.drop",
    "engine/torch/sampling/step_attention.py": "by_products",
    "engine/torch/scoring/attention.py": "_Whole.backward _Whole.forward _block _by_head _by_token",
    "engine/torch/scoring/branches.py": "Attention.backward Attention.forward _block _by_head _by_token _first _padded _plan",
    "engine/torch/scoring/distillation.py": "_measure overlap teacher_divergence top",
    "engine/torch/scoring/exact_kl.py": "_uncertain entropy",
    "engine/torch/scoring/lm_head.py": "full_kl",
    "engine/torch/scoring/logprobs.py": "Scorer.of_hidden",
    "engine/torch/scoring/pooling.py": "_apart _layers _recorded read",
    "engine/torch/sources/beside.py": "EpisodesBeside.__init__ EpisodesBeside._as_episode EpisodesBeside.examples EpisodesBeside.figures EpisodesBeside.restore EpisodesBeside.state",
    "engine/torch/sources/distilled.py": "DistilSettings.trials",
    "engine/torch/sources/episodes.py": "EpisodeSettings.of Episodes.restore Episodes.state",
    "engine/torch/sources/epochs.py": "Rounds.__init__ Rounds._begun Rounds._scored Rounds._set Rounds.examples Rounds.restore Rounds.state Valued.__init__ Valued._begun Valued._read Valued._scored Valued._whole Valued._written_states _written",
    "engine/torch/sources/instructed.py": "picked",
    "engine/torch/sources/plan.py": "_fall_back",
    "engine/torch/sources/ratings.py": "_easy_first _mismatched",
    "engine/torch/sources/teacher.py": "_near _nearest _read hinted taught",
    "jobs/federating.py": "_policy",
    "rl/advantages.py": "leave_one_out",
    "rl/algorithms/combined.py": "Combined.advantages Combined.loss",
    "rl/algorithms/grpo.py": "Grpo.advantages",
    "rl/algorithms/gspo.py": "Gspo.advantages Gspo.loss",
    "rl/algorithms/kto.py": "Kto.advantages Kto.loss",
    "rl/algorithms/mis_po.py": "MisPo.advantages MisPo.loss",
    "rl/algorithms/opd.py": "Opd.advantages Opd.loss",
    "rl/algorithms/ppo.py": "Ppo.adapt Ppo.advantages Ppo.credit Ppo.loss Ppo.paid Ppo.value_error",
    "rl/algorithms/rloo.py": "Rloo.advantages Rloo.loss",
    "rl/algorithms/rpo.py": "Rpo.advantages",
    "rl/algorithms/sac.py": "Sac.actor_loss Sac.critic_loss Sac.follow Sac.target Sac.temperature_loss",
    "rl/algorithms/trpo.py": "Trpo.advantages Trpo.direction Trpo.loss Trpo.search conjugate_gradient",
    "rl/batch.py": "Batch.lengths Batch.means Batch.sample_mean",
    "rl/credit.py": "_stepping_over of_turns",
    "rl/kl.py": "k1 k2 per_token",
    "rl/turns.py": "places step_wise totals",
}
"""Of each file, functions that a scenario need not reach so far. Nothing may be added; take off what a scenario reaches."""


@pytest.fixture
def stage(folders, llava, monkeypatch, tmp_path):  # noqa: F811
    """``stage("cuda:0", name)`` → a context in which this device is pretended: what scenarios run on."""
    real, load_base = trainer.Settings, loading.load_base
    monkeypatch.setattr(trainer, "Settings", lambda **kw: real(**{**kw, "checkpoint_seconds": 0.0}))
    for module in (generate, prefix_cache, devices):
        monkeypatch.setattr(module, "total_bytes", lambda device: 8 * 10**9)
    monkeypatch.setattr(devices, "free_bytes", lambda device: 8 * 10**9)
    monkeypatch.setattr(devices, "wait", lambda device: None)

    @contextmanager
    def on(name, out):
        def loaded(found, *, bits, device):
            """On the CPU, and then moved: what transformers does with a device is its own business."""
            model, *more = load_base(found, bits=bits, device=torch.device("cpu"))
            return (model if device.type == "cpu" else move(model, there), *more)

        def policy(family="llama"):
            made = engine.load(
                str(llava if family == "llava" else folders(family)), device=name.split(":")[0]
            )
            made.max_prompt, made.max_response = 48, 12
            return made

        there = torch.device(name)
        with pytest.MonkeyPatch.context() as patch, accelerator(name):
            patch.setattr(devices, "there", lambda kind: kind in (there.type, "cpu"))
            patch.setattr(loading, "load_base", loaded)
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
    reached, ended = set(), []
    for name, run in SCENARIOS.items():
        with subtests.test(name), stage("cuda:0", name) as on:
            with tensor_code.entered() as names:
                run(on)
            ended.append(name)
            reached |= names
    if len(ended) < len(SCENARIOS):
        return  # what the others would have reached is not known
    listed = tensor_code.functions()
    missing = {one for one in listed - reached if not one.startswith(tuple(ELSEWHERE))}
    assert missing - NEVER.keys() - not_yet() == set(), "no scenario of device_paths.py reaches these"


def not_yet():
    return {f"{file}:{name}" for file, names in NOT_YET.items() for name in names.split()}


def test_what_handles_tensors_is_found_in_the_source():
    listed = tensor_code.functions()
    assert "engine/torch/sources/instructed.py:relevance" in listed
    assert "engine/torch/sources/rpo_rounds.py:RpoRounds._forgotten" in listed
    assert "rewards/encoder.py:_Course._step" in listed, "torch is imported in the function"
    assert "engine/devices.py:has_bitsandbytes" not in listed
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
