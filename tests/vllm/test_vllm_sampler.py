"""Fresh answers of a run on ratings, drawn over HTTP by what behaves like vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from clawback.errors import TrainingError
from clawback.extensions.hosted import trainer_http
from clawback.extensions.hosted.trainer_records import HostedError
from clawback.extensions.vllm.vllm_conversations import present
from clawback.extensions.vllm.vllm_sampler import VllmSampler
from clawback.models.types import Sampling
from clawback.policy.policy import Policy
from clawback.sampling.batched_sampler import Chance
from tests.vllm.test_vllm import PLAIN, Serve, Unmoved, nudge, serve

__all__ = ["serve"]
PROMPTS = [(5, 9, 40, 41), (5, 9, 40, 42), (7, 8)]


def chance(policy: Policy, seed: int) -> Chance:
    return Chance.of_seed(len(PROMPTS), 2, 6, policy.sampling.truncates, seed)


def own(policy: Policy, prompt: tuple[int, ...], ids: tuple[int, ...]) -> list[float]:
    from clawback.templates.chat_tokens import Encoded

    with torch.no_grad():
        return list(policy.scorer([Encoded(prompt, ids)]).logprobs.tolist())


@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(PLAIN, id="plain", marks=pytest.mark.slow),
        pytest.param(Sampling(0.7, top_p=0.9), id="truncated"),
    ],
)
def test_answers_carry_the_log_probs_of_what_learns(
    sampling: Sampling, policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    there, url = serve()
    policy.sampling = sampling
    nudge(policy, 3)
    with VllmSampler(url, tmp_path / "adapters") as sampler:
        moved = sampler(policy, PROMPTS, chance(policy, 1), False)
        again = sampler(policy, PROMPTS, chance(policy, 1), False)
        with policy.base():
            plain = sampler(policy, PROMPTS, chance(policy, 1), False)
            for prompt, group in zip(PROMPTS, plain, strict=True):
                for one in group:
                    assert list(one.logprobs) == pytest.approx(own(policy, prompt, one.ids), abs=1e-3)
    assert [len(group) for group in moved] == [2, 2, 2]
    assert moved == again
    assert moved != plain
    assert {name for name, _ in there.answered[-6:]} == {"the-base"}
    for prompt, group in zip(PROMPTS, moved, strict=True):
        for one in group:
            assert list(one.logprobs) == pytest.approx(own(policy, prompt, one.ids), abs=1e-3)
    assert not there.known  # what was loaded is unloaded


def test_a_server_that_does_not_apply_the_adapter_ends_the_run(
    policy: Policy, serve: Serve, tmp_path: Path
) -> None:
    there, url = serve()
    nudge(policy, 5)
    with torch.no_grad():
        for name, weights in policy.model.named_parameters():
            if "lora_B" in name:
                weights.mul_(20)
    there.policy = Unmoved(there.policy)  # type: ignore[assignment]
    with VllmSampler(url, tmp_path) as sampler, pytest.raises(TrainingError, match="log-probs differ"):
        sampler(policy, PROMPTS, chance(policy, 1), False)


def test_where_nothing_answers_no_run_begins(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    present(serve()[1])
    present(serve()[1] + "/v1/")
    monkeypatch.setattr(trainer_http, "PRESENT", 0.2)
    with pytest.raises(HostedError, match=r"127\.0\.0\.1:1 .* Nothing was begun") as said:
        present("http://127.0.0.1:1")
    assert "resume" not in str(said.value)
