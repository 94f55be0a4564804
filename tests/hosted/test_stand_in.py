"""The trainer itself: its losses against plain autograd, its order, its refusals; and what its clients must be able to rely on."""

from __future__ import annotations

import io
import json
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from clawback.extensions.hosted.tinker import TinkerTrainer, unpack
from clawback.extensions.hosted.trainer_records import AdamParams, Datum, HostedError, SamplingParams
from clawback.extensions.trainer_server.lora_weights import StandInLearner
from clawback.policy.policy import Policy
from tests.hosted.conftest import KEY, Running, Start, connect

IDS = (5, 9, 40, 41, 7, 100, 3)
OTHER = (5, 9, 12, 60)


def gradient(policy: Policy) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in policy.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("loss", ["cross_entropy", "importance_sampling", "ppo", "cispo"])
def test_losses_and_gradients_are_those_of_their_definitions(loss: str, policy: Policy) -> None:
    """Against the whole model's own logits and autograd."""
    learner = StandInLearner(policy)
    learner.create("m", 4, 1)
    with torch.no_grad():  # so that the adapter says something
        for name, p in policy.model.named_parameters():
            if "lora_B" in name:
                p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(len(name))) * 0.05)
    weights = (0.0, 0.0, 1.0, 0.5, -2.0, 1.0)
    advantages = (0.0, 0.0, 1.0, -1.0, 2.0, 0.7)
    drawn = tuple(-1.0 - 0.7 * i for i in range(6))
    inputs: dict[str, Any] = {"weights": weights} if loss == "cross_entropy" else {"logprobs": drawn, "advantages": advantages}  # fmt: skip
    scores = learner.forward_backward("m", [Datum.of(IDS, **inputs)], loss, {})
    ours = gradient(policy)
    policy.model.zero_grad()
    logits = policy.model(input_ids=torch.tensor([IDS[:-1]])).logits[0].float().log_softmax(-1)
    now = logits.gather(1, torch.tensor(IDS[1:])[:, None])[:, 0]
    ratio, gain, w = (now - torch.tensor(drawn)).exp(), torch.tensor(advantages), torch.tensor(weights)
    want = {
        "cross_entropy": lambda: -(now * w).sum(),
        "importance_sampling": lambda: -(ratio * gain).sum(),
        "ppo": lambda: -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).sum(),
        "cispo": lambda: -(ratio.clamp(0.8, 1.2).detach() * gain * now).sum(),
    }[loss]()
    want.backward()
    assert scores.metrics["loss:sum"] == pytest.approx(float(want.detach()), rel=1e-4)
    assert scores.logprobs[0] == pytest.approx(now.tolist(), abs=1e-4)
    theirs = gradient(policy)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], atol=1e-4, rtol=1e-3), name


def test_two_models_take_turns_and_do_not_touch_each_other(
    start: Start, policy: Policy, tmp_path: Path
) -> None:
    server = start(policy)
    datum = [Datum.of(IDS, weights=(0.0, 1.0, 1.0, 1.0, 1.0, 1.0))]
    adam = AdamParams(0.01)

    def alone(name: str, rank: int) -> TinkerTrainer:
        return connect(server, tmp_path / name, rank=rank, seed=rank)

    def steps(trainer: TinkerTrainer, *which: int) -> None:
        for i in which:
            trainer.forward_backward(f"fb{i}", datum, "cross_entropy")
            trainer.optim_step(f"step{i}", adam)

    one, two = alone("one", 2), alone("two", 4)
    steps(one, 0)
    two.forward_backward("fb0", datum, "cross_entropy")
    steps(one, 1)
    two.optim_step("step0", adam)
    steps(two, 1)
    lonely = alone("lonely", 4)
    steps(lonely, 0, 1)
    assert two.forward("end", datum) == lonely.forward("end", datum)
    assert one.forward("end", datum) != two.forward("end", datum)


def test_a_state_is_all_that_training_goes_on_from(trainer: TinkerTrainer) -> None:
    datum, adam = [Datum.of(IDS, weights=(1.0,) * 6)], AdamParams(0.01)
    for i in range(2):
        trainer.forward_backward(f"a{i}", datum, "cross_entropy")
        trainer.optim_step(f"b{i}", adam)
    path = trainer.save_state("save", "two")
    assert path.endswith("/weights/two")
    seen = []
    for turn in range(2):
        trainer.forward_backward(f"c{turn}", datum, "cross_entropy")
        trainer.optim_step(f"d{turn}", adam)
        seen.append(trainer.forward(f"e{turn}", datum).logprobs)
        trainer.load_state(f"f{turn}", path)
    assert seen[0] == seen[1]


def test_what_is_exported_says_what_was_trained(
    trainer: TinkerTrainer, other: Policy, tmp_path: Path
) -> None:
    datum = [Datum.of(IDS, weights=(1.0,) * 6)]
    trainer.forward_backward("a", datum, "cross_entropy")
    trainer.optim_step("b", AdamParams(0.01))
    want = trainer.forward("c", datum).logprobs[0]
    for kind in ("files", "archive"):
        folder = tmp_path / kind
        folder.mkdir()
        if kind == "archive":  # a server without signed files, as SkyRL's
            trainer.journal.fact("export", "archive")
        trainer.export(f"export {kind}", kind, folder)
        other.put(folder)
        from clawback.models.types import Sampling
        from clawback.templates.chat_tokens import Encoded

        other.sampling = Sampling()
        got = other.scorer([Encoded(IDS[:1], IDS[1:])]).logprobs
        assert got.tolist() == pytest.approx(list(want), abs=1e-5)
    assert load_file(tmp_path / "files/adapter_model.safetensors").keys()


def test_samples_are_those_of_their_seed_and_paid_by_what_was_written(trainer: TinkerTrainer) -> None:
    params = SamplingParams(6, seed=4)
    first = trainer.sample("one", IDS[:3], 3, params)
    assert trainer.sample("one", IDS[:3], 3, params) == first  # the same request
    assert trainer.sample("two", IDS[:3], 3, params) == first  # the same seed
    assert len({one.tokens for one in first}) > 1
    assert trainer.journal.spent.sample == 2 * sum(len(one.tokens) for one in first)


def ask(server: Running, path: str, body: Any, key: str = KEY, raw: bytes | None = None) -> tuple[int, Any]:
    data = json.dumps(body).encode() if raw is None else raw
    request = urllib.request.Request(server.url + "/api/v1/" + path, data, {"x-api-key": key})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_same_number_for_something_else_is_refused_and_nobody_jumps_the_queue(
    trainer: TinkerTrainer, start: Start, policy: Policy
) -> None:
    model = trainer.model()
    server = Running.__new__(Running)
    server.url = trainer.wire.url
    step = {"model_id": model, "adam_params": {"learning_rate": 0.1}}
    status, third = ask(server, "optim_step", {**step, "seq_id": 2})
    assert status == 200
    status, first = ask(server, "optim_step", {**step, "seq_id": 1})
    for promise in (first, third):
        status, said = ask(server, "retrieve_future", {"request_id": promise["request_id"]})
        assert (status, said["type"]) == (200, "optim_step")
    other_step = {"model_id": model, "adam_params": {"learning_rate": 0.2}, "seq_id": 1}
    assert ask(server, "optim_step", other_step)[0] == 409


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("create_session", {}, 401),
        ("create_model", {"session_id": "no"}, 422),
        ("optim_step", {"model_id": "no", "adam_params": {}}, 404),
        ("asample", {"sampling_session_id": "no", "prompt": {}, "sampling_params": {}}, 404),
        ("retrieve_future", {"request_id": "r999"}, 404),
        ("load_weights", {"path": "tinker://../../etc/passwd", "model_id": "x"}, 400),
        ("load_weights", {"path": "tinker://a/weights/..", "model_id": "x"}, 400),
        ("forward_backward", ["no"], 422),
    ],
)
def test_what_cannot_be_done_is_refused_with_its_status(
    path: str, body: Any, status: int, start: Start, policy: Policy
) -> None:
    server = start(policy)
    got, said = ask(server, path, body, key="wrong" if status == 401 else KEY)
    assert got == status
    assert said["detail"]


def test_of_an_archive_nothing_but_the_two_files_is_written(tmp_path: Path) -> None:
    def packed(**files: bytes) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for name, content in files.items():
                info = tarfile.TarInfo(name.replace("_DOT_", ".").replace("_UP_", "../"))
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            link = tarfile.TarInfo("adapter_config.json.lnk")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(link)
        return out.getvalue()

    whole = {"adapter_model_DOT_safetensors": b"w", "x/adapter_config_DOT_json": b"{}"}
    unpack(packed(**whole, _UP_evil_DOT_sh=b"#!"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"adapter_model.safetensors", "adapter_config.json"}
    assert not (tmp_path.parent / "evil.sh").exists()
    for bad in (b"no archive", packed(adapter_model_DOT_safetensors=b"w")):
        with pytest.raises(HostedError):
            unpack(bad, tmp_path)
