"""Each loss against a slow loop over answers and tokens, written from the equations alone."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clawback.errors import UsageError
from clawback.rl import Batch, algorithms
from clawback.rl.algorithms.grpo import Grpo
from clawback.rl.algorithms.mis_po import MisPo
from clawback.rl.algorithms.reinforce import Reinforce


def random_batch(seed, lengths=(3, 1, 6), spread=0.4, weights=False):
    generator = torch.Generator().manual_seed(seed)
    count = sum(lengths)
    ref = -3 * torch.rand(count, generator=generator)
    return Batch(
        logprobs=(ref + spread * torch.randn(count, generator=generator)).requires_grad_(),
        old_logprobs=ref + spread * torch.randn(count, generator=generator),
        ref_logprobs=ref,
        segment=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        advantages=torch.randn(len(lengths), generator=generator),
        pg_weight=torch.rand(count, generator=generator) if weights else None,
        kl_weight=torch.rand(count, generator=generator) if weights else None,
    )


def answers(batch):
    for index in range(batch.advantages.numel()):
        where = batch.segment == index
        pg = batch.pg_weight[where] if batch.pg_weight is not None else torch.ones(int(where.sum()))
        kl = batch.kl_weight[where] if batch.kl_weight is not None else torch.ones(int(where.sum()))
        yield (
            batch.logprobs[where],
            batch.old_logprobs[where],
            batch.ref_logprobs[where],
            batch.advantages[index],
            pg,
            kl,
        )


def k3(logprob, ref):
    return torch.exp(ref - logprob) - (ref - logprob) - 1


def slow_mis_po(batch, algorithm):
    total = 0.0
    for logprobs, _, refs, advantage, pg, kl in answers(batch):
        rho_bar = torch.exp(torch.mean(logprobs - refs)).item()
        scale = min(1.0, rho_bar / algorithm.band_low, algorithm.band_high / rho_bar)
        for t in range(len(logprobs)):
            clipped = torch.clip(torch.exp(logprobs[t] - refs[t]), algorithm.token_low, algorithm.token_high)
            total += -advantage * clipped * scale * pg[t] / len(logprobs)
            total += algorithm.kl * kl[t] * k3(logprobs[t], refs[t]) / len(logprobs)
    return total / len(batch.advantages)


def slow_reinforce(batch, algorithm):
    total = 0.0
    for logprobs, olds, refs, advantage, pg, kl in answers(batch):
        for t in range(len(logprobs)):
            weight = min(algorithm.importance_cap, torch.exp(logprobs[t] - olds[t]).item())
            if algorithm.importance_cap <= 0:
                weight = 1.0
            total += -advantage * weight * pg[t] * logprobs[t] + algorithm.kl * kl[t] * k3(
                logprobs[t], refs[t]
            )
    return total / len(batch.logprobs)


def slow_grpo(batch, algorithm):
    total = 0.0
    for logprobs, olds, refs, advantage, pg, kl in answers(batch):
        for t in range(len(logprobs)):
            ratio = torch.exp(logprobs[t] - olds[t])
            clipped = torch.clip(ratio, algorithm.clip_low, algorithm.clip_high)
            total += -pg[t] * torch.min(ratio * advantage, clipped * advantage)
            total += algorithm.kl * kl[t] * k3(logprobs[t], refs[t])
    return total / len(batch.logprobs)


CASES = [
    (MisPo(kl=0.3), slow_mis_po),
    (MisPo(kl=0.3, band_low=0.7, band_high=1.4), slow_mis_po),
    (Reinforce(kl=0.3), slow_reinforce),
    (Reinforce(kl=0.3, importance_cap=0), slow_reinforce),
    (Grpo(kl=0.3), slow_grpo),
]


@pytest.mark.parametrize(("algorithm", "slow"), CASES)
@pytest.mark.parametrize("weights", [False, True])
def test_loss_and_gradient_against_a_slow_loop(algorithm, slow, weights):
    for seed in range(5):
        batch = random_batch(seed, weights=weights)
        loss, metrics = algorithm.loss(batch)
        expected = slow(batch, algorithm)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(
            torch.autograd.grad(loss, batch.logprobs)[0], torch.autograd.grad(expected, batch.logprobs)[0]
        )
        assert metrics["loss"] == pytest.approx(loss.item())


@pytest.mark.parametrize("algorithm", [MisPo(kl=0.1), Reinforce(kl=0.1), Grpo(kl=0.1)])
@given(seed=st.integers(0, 10_000), cut=st.integers(1, 2))
@settings(max_examples=20, deadline=None)
def test_pieces_of_a_step_add_up_to_the_step(algorithm, seed, cut):
    whole = random_batch(seed)
    loss, metrics = algorithm.loss(whole)
    parts, sums = 0.0, dict.fromkeys(metrics, 0.0)
    for first, last in ((0, cut), (cut, 3)):
        where = (whole.segment >= first) & (whole.segment < last)
        piece = Batch(
            whole.logprobs[where],
            whole.old_logprobs[where],
            whole.ref_logprobs[where],
            whole.segment[where] - first,
            whole.advantages[first:last],
            samples_in_step=3,
            tokens_in_step=10,
        )
        value, figures = algorithm.loss(piece)
        parts = parts + value
        for key in sums:
            sums[key] += figures[key]
    torch.testing.assert_close(parts, loss)
    assert sums == pytest.approx(metrics, abs=1e-5)


def test_the_trajectory_scale_passes_no_gradient():
    # Far above the band: the update is scaled down by high/ρ̄, and its direction stays that of a good answer.
    batch = dataclasses.replace(random_batch(0, (4,), spread=0.0), advantages=torch.ones(1))
    up = dataclasses.replace(batch, logprobs=(batch.ref_logprobs + 0.1).requires_grad_())
    loss, _ = MisPo(kl=0.0).loss(up)
    gradient = torch.autograd.grad(loss, up.logprobs)[0]
    scale = 1.002 / torch.tensor(0.1).exp()
    torch.testing.assert_close(gradient, -(torch.tensor(0.1).exp() * scale / 4).expand(4))


def test_good_and_bad_move_alike_at_the_reference():
    for algorithm in (MisPo(), Reinforce(), Grpo()):
        batch = random_batch(0, (5, 5), spread=0.0)
        batch = dataclasses.replace(
            batch, old_logprobs=batch.ref_logprobs, advantages=torch.tensor([1.0, -1.0])
        )
        gradient = torch.autograd.grad(algorithm.loss(batch)[0], batch.logprobs)[0]
        torch.testing.assert_close(gradient[:5], -gradient[5:])


def test_mis_po_advantages_weigh_good_news_and_are_not_normalised():
    result, baseline = MisPo().advantages(torch.tensor([1.0, -1.0]), torch.zeros(2, dtype=torch.int64), 0.5)
    assert result.tolist() == pytest.approx([0.5 * 1.2, -1 - 0.505])
    assert baseline == pytest.approx(0.99 * 0.505 - 0.01)


def test_reinforce_on_ratings_of_one_sign_stays_still_with_the_mean():
    result, baseline = Reinforce().advantages(-torch.ones(8), torch.zeros(8, dtype=torch.int64), 0.0)
    assert result.tolist() == [0.0] * 8
    assert baseline < 0


def test_repeating_a_bad_answer_fades_out():
    batch = random_batch(0, (4,), spread=0.0)
    pushed = dataclasses.replace(
        batch,
        old_logprobs=batch.ref_logprobs,
        advantages=-torch.ones(1),
        logprobs=(batch.ref_logprobs - 8).requires_grad_(),
    )
    for algorithm in (MisPo(kl=0.0), Reinforce(kl=0.0), Grpo(kl=0.0)):
        gradient = torch.autograd.grad(algorithm.loss(pushed)[0], pushed.logprobs)[0]
        assert gradient.abs().max().item() < 1e-3


def test_algorithms_are_found_by_name_and_take_their_own_settings():
    algorithm = algorithms.make("mis-po", {"kl": 0.5, "steps": 32})
    assert isinstance(algorithm, MisPo)
    assert algorithm.kl == 0.5
    assert all(isinstance(algorithms.make(name), algorithms.Algorithm) for name in algorithms.names())
    with pytest.raises(UsageError, match="mis-po"):
        algorithms.find("ppo2")
