"""Tinker's own SDK trains on the stand-in, where it is installed (`pip install tinker`, in an environment of its own)."""

from __future__ import annotations

import importlib.util

import pytest

from clawback.policy.policy import Policy
from tests.hosted.conftest import KEY, Start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not importlib.util.find_spec("tinker"), reason="Tinker's SDK is not installed."),
]


def test_every_verb_by_the_sdk(start: Start, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    import tinker
    import torch

    monkeypatch.setenv("TINKER_TELEMETRY", "0")
    server = start(policy)
    service = tinker.ServiceClient(base_url=server.url, api_key=f"tml-{KEY}")
    client = service.create_lora_training_client(base_model=server.service.base, rank=4, seed=1)
    ids = [5, 9, 40, 41, 7, 100, 3]
    datum = tinker.Datum(
        model_input=tinker.ModelInput.from_ints(ids[:-1]),
        loss_fn_inputs={
            "target_tokens": torch.tensor(ids[1:]),
            "weights": torch.tensor([0.0, 0, 1, 1, 1, 1]),
        },
    )
    losses = []
    for _ in range(3):
        result = client.forward_backward([datum], "cross_entropy").result()
        losses.append(-sum(result.loss_fn_outputs[0]["logprobs"].tolist()[2:]))
        client.optim_step(tinker.AdamParams(learning_rate=0.001)).result()
    assert losses[2] < losses[1] < losses[0]

    def custom(data: object, logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        return (logprobs[0] ** 2).sum(), {"custom": 1.0}

    found = client.forward_backward_custom([datum], custom).result()
    assert found.metrics["custom"] == 1.0
    client.optim_step(tinker.AdamParams(learning_rate=0.0005)).result()
    path = client.save_state("three").result().path
    sampler = client.save_weights_and_get_sampling_client()
    if hasattr(sampler, "result"):
        sampler = sampler.result()
    drawn = sampler.sample(
        prompt=tinker.ModelInput.from_ints(ids[:3]),
        num_samples=2,
        sampling_params=tinker.SamplingParams(max_tokens=5, seed=1),
    ).result()
    assert len(drawn.sequences) == 2
    assert all(len(one.tokens) == len(one.logprobs) for one in drawn.sequences)
    scored = sampler.compute_logprobs(tinker.ModelInput.from_ints(ids)).result()
    assert scored[0] is None
    before = client.forward([datum], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].tolist()
    assert scored[1:] == pytest.approx(before, abs=1e-4)
    client.load_state(path).result()
    assert client.forward([datum], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].tolist() == before
