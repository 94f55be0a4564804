"""Losses and gradients equal to TRL's own on the same batch, to 1e-5: its trainers' loss methods, called without a trainer.

Needs trl 1.16 with pandas and datasets beside it: ``make test-reference`` fetches them and runs this, as CI does. Elsewhere it is skipped where
they cannot be imported. TRL has no PPO any more: the policy term is held against its GRPO loss with an advantage a token, the value term against the slow
loop in ``test_more_algorithms.py``.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch

from clawback.rl import Batch
from clawback.rl.algorithms.dpo import Dpo
from clawback.rl.algorithms.grpo import Grpo
from clawback.rl.algorithms.gspo import Gspo
from clawback.rl.algorithms.kto import Kto
from clawback.rl.algorithms.ppo import Ppo
from clawback.rl.algorithms.rloo import Rloo

pytestmark = pytest.mark.slow  # importing trl takes a while
LENGTHS = (3, 1, 6, 2)


@pytest.fixture(scope="module")
def trl():
    """Its trainers by name."""
    found = {}
    for name in ("grpo", "rloo", "dpo", "kto"):
        place = f"trl.trainer.{name}_trainer"
        if os.environ.get("CLAWBACK_REFERENCE"):
            module = importlib.import_module(place)  # asked for: what cannot be imported is a failure
        else:
            module = pytest.importorskip(place, reason="trl is not installed", exc_type=ImportError)
        found[name] = getattr(module, f"{name.upper()}Trainer")
    return found


def bare(kind, **fields):
    """A trainer without its constructor: what its loss method reads, and nothing else."""
    trainer = object.__new__(kind)
    same = {name: lambda x, *_, **__: x for name in ("gather", "gather_for_metrics", "reduce")}
    vars(trainer).update(
        accelerator=SimpleNamespace(**same, num_processes=1, device=torch.device("cpu")),
        model=SimpleNamespace(training=False),
        aux_loss_enabled=False,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        **fields,
    )
    return trainer


def make(seed):
    draw = torch.Generator().manual_seed(seed)
    count = sum(LENGTHS)
    ref = -3 * torch.rand(count, generator=draw)
    return Batch(
        logprobs=(ref + 0.4 * torch.randn(count, generator=draw)).requires_grad_(),
        old_logprobs=ref + 0.4 * torch.randn(count, generator=draw),
        ref_logprobs=ref,
        segment=torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS)),
        advantages=torch.randn(len(LENGTHS), generator=draw),
        token_advantages=torch.randn(count, generator=draw),
        pairs=torch.tensor([[0, 2], [1, 3]]),
    )


def padded(flat, extra=0):
    """[N] → [S, T], zeros where there is no token; ``extra`` columns before."""
    rows = flat.split(list(LENGTHS))
    return torch.stack(
        [torch.cat([flat.new_zeros(extra), row, flat.new_zeros(max(LENGTHS) - len(row))]) for row in rows]
    )


def agree(batch, ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    mine, other = (torch.autograd.grad(x, batch.logprobs)[0] for x in (ours, theirs))
    assert mine.abs().max() > 1e-4  # something was compared
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def group_inputs(batch, advantages):
    mask = padded(torch.ones(sum(LENGTHS)))
    ids = mask.long()
    return {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": advantages,
        "old_per_token_logps": padded(batch.old_logprobs),
        "ref_per_token_logps": padded(batch.ref_logprobs),
        "old_logps": padded(batch.old_logprobs).sum(1),
        "num_items_in_batch": mask.sum(),
    }


def grpo_trainer(trl, batch, **fields):
    trainer = bare(
        trl["grpo"],
        args=SimpleNamespace(use_bias_correction_kl=False, delta=None),
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1,
        **fields,
    )
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
        padded(batch.logprobs),
        padded(torch.zeros(sum(LENGTHS))),
        None,
    )
    return trainer


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("by_token", [False, True])
def test_grpo(trl, seed, by_token):
    """One advantage an answer, and one a token: what the turns of an episode have."""
    batch = make(seed)
    if not by_token:
        batch = dataclasses.replace(batch, token_advantages=None)
    trainer = grpo_trainer(
        trl,
        batch,
        importance_sampling_level="token",
        beta=0.3,
        loss_type="dapo",
        epsilon_low=0.2,
        epsilon_high=0.28,
    )
    advantages = padded(batch.token_advantages) if by_token else batch.advantages
    theirs = trainer._compute_loss(trainer.model, group_inputs(batch, advantages))
    agree(batch, Grpo(kl=0.3).loss(batch)[0], theirs)


@pytest.mark.parametrize("seed", range(4))
def test_gspo(trl, seed):
    batch = make(seed)
    trainer = grpo_trainer(
        trl,
        batch,
        importance_sampling_level="sequence",
        beta=0.3,
        loss_type="grpo",
        epsilon_low=0.1,
        epsilon_high=0.15,
    )
    theirs = trainer._compute_loss(trainer.model, group_inputs(batch, batch.advantages))
    agree(batch, Gspo(kl=0.3, mean_low=0.9, mean_high=1.15).loss(batch)[0], theirs)


@pytest.mark.parametrize("seed", range(4))
def test_the_policy_term_of_ppo(trl, seed):
    batch = make(seed)
    trainer = grpo_trainer(
        trl,
        batch,
        importance_sampling_level="token",
        beta=0.3,
        loss_type="dapo",
        epsilon_low=0.2,
        epsilon_high=0.2,
    )
    theirs = trainer._compute_loss(trainer.model, group_inputs(batch, padded(batch.token_advantages)))
    agree(batch, Ppo(kl=0.3).loss(batch)[0], theirs)


@pytest.mark.parametrize("seed", range(4))
def test_rloo(trl, seed):
    batch = make(seed)
    trainer = bare(trl["rloo"], epsilon_low=0.2, epsilon_high=0.2)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
        padded(batch.logprobs),
        padded(torch.zeros(sum(LENGTHS))),
        None,
    )
    theirs = trainer._compute_loss(trainer.model, group_inputs(batch, batch.advantages))
    agree(batch, Rloo(kl=0.0, answer_low=0.8, answer_high=1.2).loss(batch)[0], theirs)


def scored(batch, order):
    """A model that has scored the answers already, in this order."""
    values = padded(batch.logprobs)[order]
    zeros = torch.zeros_like(values)
    out = SimpleNamespace(log_probs=values, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool())
    return lambda **_: out


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_dpo(trl, seed, smoothing):
    batch = make(seed)  # 0 and 1 are the better ones, 2 and 3 the worse ones
    trainer = bare(
        trl["dpo"],
        ld_alpha=None,
        precompute_ref_logps=True,
        f_divergence_type="reverse_kl",
        loss_types=["sigmoid"],
        loss_weights=[1.0],
        beta=0.2,
        use_weighting=False,
    )
    mask = padded(torch.ones(sum(LENGTHS)), extra=1)
    ref = padded(batch.ref_logprobs).sum(1)
    inputs = {"input_ids": mask.long(), "attention_mask": mask, "completion_mask": mask}

    # TRL's own smoothing ("robust") has another scale; the paper's is a mixture of both directions.
    def loss(better, worse):
        fields = {"ref_chosen_logps": ref[better], "ref_rejected_logps": ref[worse]}
        places = torch.tensor([*better, *worse])
        return trainer._compute_loss(scored(batch, places), {**inputs, **fields}, False)

    theirs = (1 - smoothing) * loss([0, 1], [2, 3]) + smoothing * loss([2, 3], [0, 1])
    agree(batch, Dpo(beta=0.2, smoothing=smoothing).loss(batch)[0], theirs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("far", [0.0, 0.8, -0.5])
def test_kto(trl, seed, far):
    batch = make(seed)
    labels = torch.tensor([True, False, True, False])
    trainer = bare(
        trl["kto"],
        calculate_KL=True,
        precompute_ref_logps=True,
        loss_type="kto",
        beta=0.2,
        desirable_weight=1.0,
        undesirable_weight=1.3,
    )
    odd = torch.tensor([0.5, -1.0, 2.0, 0.1])
    trainer._compute_kl_logps = lambda *_: odd
    mask = padded(torch.ones(sum(LENGTHS)), extra=1)
    inputs = {
        "label": labels,
        "input_ids": mask.long(),
        "attention_mask": mask,
        "completion_mask": mask,
        "ref_logps": padded(batch.ref_logprobs).sum(1),
        "ref_KL_logps": odd - far,
    }
    theirs = trainer._compute_loss(scored(batch, torch.arange(4)), inputs, False)
    algorithm = Kto(beta=0.2, undesirable=1.3, balance=False)
    weights, _ = algorithm.advantages(torch.where(labels, 1.0, -1.0), torch.arange(4), 0.0)
    batch = dataclasses.replace(batch, advantages=weights, mismatch_kl=max(0.0, far))
    agree(batch, algorithm.loss(batch)[0], theirs)
