"""The further losses against slow loops over answers and tokens, written from the equations alone."""

import dataclasses
import math

import pytest
import torch

from clawback.rl import Batch, advantages, algorithms
from clawback.rl.algorithms.combined import Combined
from clawback.rl.algorithms.dpo import Dpo
from clawback.rl.algorithms.grpo import Grpo
from clawback.rl.algorithms.gspo import Gspo
from clawback.rl.algorithms.kto import Kto
from clawback.rl.algorithms.opd import Opd
from clawback.rl.algorithms.ppo import Ppo
from clawback.rl.algorithms.rloo import Rloo
from clawback.rl.algorithms.sac import Sac
from clawback.rl.algorithms.trpo import Trpo, conjugate_gradient


def random_batch(seed, lengths=(3, 1, 6, 2)):
    draw = torch.Generator().manual_seed(seed)
    count = sum(lengths)

    def noise(scale=0.4):
        return scale * torch.randn(count, generator=draw)

    ref = -3 * torch.rand(count, generator=draw)
    return Batch(
        logprobs=(ref + noise()).requires_grad_(),
        old_logprobs=ref + noise(),
        ref_logprobs=ref,
        segment=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        advantages=torch.randn(len(lengths), generator=draw),
        entropy=noise(1.0).abs().requires_grad_(),
        token_advantages=noise(2.0),
        teacher_kl=None,
        values=noise(1.0).requires_grad_(),
        old_values=noise(1.0),
        returns=noise(1.0),
        pairs=torch.tensor([[0, 1], [3, 2]]),
        mismatch_kl=0.3,
        kl_scale=1.7,
    )


def k3(batch, t):
    d = batch.ref_logprobs[t] - batch.logprobs[t]
    return torch.exp(d) - d - 1


def tokens(batch, answer):
    return [t for t in range(len(batch.logprobs)) if batch.segment[t] == answer]


def surrogate(ratio, advantage, low, high):
    return min(ratio * advantage, torch.clip(ratio, low, high) * advantage)


def ratio_of(batch, t):
    return torch.exp(batch.logprobs[t] - batch.old_logprobs[t])


def slow_token_clipped(batch, algorithm, advantage):
    total = 0.0
    for t in range(len(batch.logprobs)):
        gain = surrogate(ratio_of(batch, t), advantage(t), algorithm.clip_low, algorithm.clip_high)
        total = total - gain + algorithm.kl * k3(batch, t)
    return total / len(batch.logprobs)


def slow_rloo(batch, algorithm):
    count, total = len(batch.advantages), 0.0
    for i in range(count):
        ratio = torch.exp(sum(batch.logprobs[t] - batch.old_logprobs[t] for t in tokens(batch, i)))
        total = total - surrogate(ratio, batch.advantages[i], algorithm.answer_low, algorithm.answer_high)
    penalty = sum(k3(batch, t) for t in range(len(batch.logprobs))) / len(batch.logprobs)
    return total / count + algorithm.kl * penalty


def slow_gspo(batch, algorithm):
    count, total = len(batch.advantages), 0.0
    for i in range(count):
        mine = tokens(batch, i)
        ratio = torch.exp(sum(batch.logprobs[t] - batch.old_logprobs[t] for t in mine) / len(mine))
        total = total - surrogate(ratio, batch.advantages[i], algorithm.mean_low, algorithm.mean_high)
        total = total + algorithm.kl * sum(k3(batch, t) for t in mine) / len(mine)
    return total / count


def slow_ppo(batch, algorithm):
    total = 0.0
    for t in range(len(batch.logprobs)):
        low, high = 1 - algorithm.clip, 1 + algorithm.clip
        total = total - surrogate(ratio_of(batch, t), batch.token_advantages[t], low, high)
        value, old, target = batch.values[t], batch.old_values[t], batch.returns[t]
        near = old + torch.clip(value - old, -algorithm.value_clip, algorithm.value_clip)
        total = total + algorithm.value_weight * 0.5 * max((value - target) ** 2, (near - target) ** 2)
        total = total - algorithm.entropy_bonus * batch.entropy[t] + algorithm.kl * 1.7 * k3(batch, t)
    return total / len(batch.logprobs)


def slow_kto(batch, algorithm):
    total = 0.0
    for i in range(len(batch.advantages)):
        reward = sum(batch.logprobs[t] - batch.ref_logprobs[t] for t in tokens(batch, i))
        weight = batch.advantages[i]
        if weight > 0:
            total = total + weight * (1 - torch.sigmoid(algorithm.beta * (reward - 0.3)))
        else:
            total = total - weight * (1 - torch.sigmoid(algorithm.beta * (0.3 - reward)))
    return total / len(batch.advantages)


def slow_dpo(batch, algorithm):
    rewards = [
        sum(batch.logprobs[t] - batch.ref_logprobs[t] for t in tokens(batch, i))
        for i in range(len(batch.advantages))
    ]
    total = 0.0
    for better, worse in ((0, 1), (3, 2)):
        right = torch.sigmoid(algorithm.beta * (rewards[better] - rewards[worse]))
        total = total - (1 - algorithm.smoothing) * torch.log(right)
        total = total - algorithm.smoothing * torch.log(1 - right)
    return total / 2


def slow_trpo(batch, algorithm):
    total = 0.0
    for t in range(len(batch.logprobs)):
        total = total - ratio_of(batch, t) * batch.advantages[batch.segment[t]] + algorithm.kl * k3(batch, t)
    return total / len(batch.logprobs)


CASES = [
    (Rloo(kl=0.3), slow_rloo),
    (Rloo(kl=0.3, answer_low=0.8, answer_high=1.2), slow_rloo),
    (Gspo(kl=0.3), slow_gspo),
    (Gspo(kl=0.3, mean_low=0.9, mean_high=1.1), slow_gspo),
    (Ppo(kl=0.3, entropy_bonus=0.2), slow_ppo),
    (Kto(), slow_kto),
    (Kto(beta=0.7), slow_kto),
    (Dpo(), slow_dpo),
    (Dpo(beta=0.5, smoothing=0.1), slow_dpo),
    (
        Opd(kl=0.3),
        lambda b, a: slow_token_clipped(b, a, lambda t: torch.clip(b.token_advantages[t], -2, 2)),
    ),
    (
        Combined(kl=0.3, w_opd=0.7, hint_clip=1.0),
        lambda b, a: slow_token_clipped(
            b, a, lambda t: b.advantages[b.segment[t]] + 0.7 * torch.clip(b.token_advantages[t], -1, 1)
        ),
    ),
    (Trpo(kl=0.3), slow_trpo),
]


@pytest.mark.parametrize(("algorithm", "slow"), CASES, ids=lambda x: getattr(x, "name", ""))
def test_loss_and_gradient_against_a_slow_loop(algorithm, slow):
    for seed in range(5):
        batch = random_batch(seed)
        leaves = [batch.logprobs, batch.values, batch.entropy]
        loss, metrics = algorithm.loss(batch)
        expected = slow(batch, algorithm)
        torch.testing.assert_close(loss, expected)
        ours, theirs = (torch.autograd.grad(x, leaves, allow_unused=True) for x in (loss, expected))
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine is None) == (other is None)
            if mine is not None:
                torch.testing.assert_close(mine, other)
        assert metrics["loss"] == pytest.approx(loss.item())


@pytest.mark.parametrize("algorithm", [case[0] for case in CASES], ids=lambda x: x.name)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_pieces_of_a_step_add_up_to_the_step(algorithm, cut):
    whole = random_batch(7)
    whole = dataclasses.replace(whole, pairs=torch.tensor([[0, 1], [2, 3]]))
    if algorithm.name == "dpo":
        cut = 2  # a pair stays together
    loss, metrics = algorithm.loss(whole)
    parts, sums = 0.0, dict.fromkeys(metrics, 0.0)
    for first, last in ((0, cut), (cut, 4)):
        where = (whole.segment >= first) & (whole.segment < last)
        fields = {
            name: value[where]
            for name, value in vars(whole).items()
            if isinstance(value, torch.Tensor) and len(value) == 12
        }
        fields["segment"] = fields["segment"] - first
        inside = (whole.pairs >= first).all(1) & (whole.pairs < last).all(1)
        piece = dataclasses.replace(
            whole,
            **fields,
            advantages=whole.advantages[first:last],
            pairs=whole.pairs[inside] - first,
            samples_in_step=4,
            tokens_in_step=12,
        )
        value, figures = algorithm.loss(piece)
        parts = parts + value
        for key in sums:
            sums[key] += figures[key]
    torch.testing.assert_close(parts, loss)
    assert sums == pytest.approx(metrics, abs=1e-5)


def test_the_top_k_loss_takes_the_place_of_the_sampled_token():
    batch = random_batch(0)
    apart = torch.rand(12, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss, _ = Opd(kl=0.0, top_k=8).loss(dataclasses.replace(batch, teacher_kl=apart))
    torch.testing.assert_close(loss, apart.mean())
    assert torch.autograd.grad(loss, batch.logprobs, allow_unused=True)[0].abs().max() == 0


def test_the_four_cases_of_combined():
    batch = random_batch(0, (2, 2, 2, 2))
    batch = dataclasses.replace(
        batch, old_logprobs=batch.logprobs.detach(), ref_logprobs=batch.logprobs.detach()
    )
    hint = torch.tensor([0.5, -0.5])
    taught = torch.cat([hint, hint, torch.zeros(4)])  # both, a hint alone, a score alone, neither
    batch = dataclasses.replace(
        batch, token_advantages=taught, advantages=torch.tensor([1.0, 0.0, -1.0, 0.0])
    )
    gradient = torch.autograd.grad(Combined().loss(batch)[0], batch.logprobs)[0] * -8
    assert gradient.tolist() == pytest.approx([1.5, 0.5, 0.5, -0.5, -1, -1, 0, 0], abs=1e-5)


def test_leave_one_out_against_a_loop():
    torch.manual_seed(2)
    rewards = torch.randn(12)
    groups = torch.tensor([5, 5, 5, 1, 1, 1, 1, 9, 8, 7, 2, 2])
    result = advantages.leave_one_out(rewards, groups)
    alone = [7, 8, 9]
    for i in range(12):
        mates = [j for j in range(12) if groups[j] == groups[i] and j != i]
        mates = mates or [j for j in alone if j != i]
        assert result[i].item() == pytest.approx(rewards[i].item() - rewards[mates].mean().item(), abs=1e-6)
    assert advantages.leave_one_out(torch.ones(1), torch.zeros(1, dtype=torch.int64)).tolist() == [0.0]


@pytest.mark.parametrize("kind", [Grpo, Gspo])
def test_groups_of_one_take_the_score_itself(kind):
    rewards, groups = torch.tensor([1.0, -1.0, 0.5]), torch.arange(3)
    compared, _ = kind().advantages(rewards, groups, 0.25)
    assert compared.tolist() == [0.0, 0.0, 0.0]
    result, baseline = kind(grouped=False).advantages(rewards, groups, 0.25)
    assert result.tolist() == rewards.tolist()
    assert baseline == 0.25


def test_kto_weighs_a_few_good_ratings_like_many_bad_ones():
    rewards = torch.tensor([1.0, -1.0, -1.0, -0.5])
    weights, _ = Kto().advantages(rewards, torch.zeros(4, dtype=torch.int64), 0.0)
    assert weights[0].item() == pytest.approx(-weights[1:].sum().item())
    assert weights.sign().tolist() == rewards.sign().tolist()
    plain, _ = Kto(balance=False, desirable=2.0).advantages(rewards, torch.zeros(4, dtype=torch.int64), 0.0)
    assert plain.tolist() == [2.0, -1.0, -1.0, -0.5]


def test_ppo_shares_a_reward_out_over_tokens():
    algorithm, segment = Ppo(), torch.tensor([0, 0, 0, 1, 1])
    values = torch.tensor([0.1, 0.2, 0.3, -0.1, 0.4])
    found, returns = algorithm.credit(torch.tensor([1.0, -1.0]), values, segment)
    g, la = 0.99, 0.95
    last = [1.0 - 0.3, -1.0 - 0.4]
    middle = g * 0.3 - 0.2 + g * la * last[0]
    plain = [g * 0.2 - 0.1 + g * la * middle, middle, last[0], g * 0.4 + 0.1 + g * la * last[1], last[1]]
    assert (returns - values).tolist() == pytest.approx(plain, abs=1e-6)
    mean = sum(plain) / 5
    spread = math.sqrt(sum((x - mean) ** 2 for x in plain) / 5)
    assert found.tolist() == pytest.approx([(x - mean) / spread for x in plain], abs=1e-5)


def test_the_weight_of_the_kl_steers_for_its_target():
    algorithm, scale, moved = Ppo(target_kl=0.1), 1.0, 1.0
    for _ in range(400):  # a world in which the KL falls as its weight grows
        scale = algorithm.adapt(scale, {"kl_loss": moved})
        moved = 0.4 / scale
    assert moved == pytest.approx(0.1, rel=0.1)
    assert algorithm.adapt(1.0, {"kl_loss": 1e9}) == pytest.approx(1.02)
    assert algorithm.adapt(1.0, {"kl_loss": 0.0}) == pytest.approx(0.98)


def test_conjugate_gradients_solve():
    torch.manual_seed(0)
    root = torch.randn(6, 6, dtype=torch.float64)
    matrix, target = root @ root.T + torch.eye(6), torch.randn(6, dtype=torch.float64)
    x = conjugate_gradient(lambda v: matrix @ v, target, 6)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, target))
    assert conjugate_gradient(lambda v: matrix @ v, torch.zeros(6), 6).abs().max() == 0


def test_a_natural_step_has_the_length_that_was_asked_for():
    torch.manual_seed(0)
    root = torch.randn(5, 5)
    fisher, gradient = root @ root.T + 0.1 * torch.eye(5), torch.randn(5)
    algorithm = Trpo(max_step_kl=0.01, damping=0.0, products=5)
    step = algorithm.direction(gradient, lambda v: fisher @ v)
    assert (0.5 * step @ fisher @ step).item() == pytest.approx(0.01, rel=1e-3)
    torch.testing.assert_close(
        step / step.norm(), -(x := torch.linalg.solve(fisher, gradient)) / x.norm(), atol=1e-3, rtol=0
    )
    bigger = algorithm.direction(100 * gradient, lambda v: fisher @ v)
    torch.testing.assert_close(bigger, step, atol=1e-4, rtol=1e-3)


def test_the_line_search_takes_the_longest_step_that_is_allowed():
    algorithm = Trpo(max_step_kl=0.01)
    assert algorithm.search(lambda share: (0.04 * share**2, 1 - share), 1.0) == 0.5
    assert algorithm.search(lambda share: (0.0, 0.9 if share < 0.2 else 2.0), 1.0) == 0.125
    assert algorithm.search(lambda share: (0.0, 2.0), 1.0) == 0.0


def test_sac_against_slow_loops():
    torch.manual_seed(0)
    sac, alpha = Sac(gamma=0.9, target_share=0.5), 0.3
    logits, q1, q2, later, p1, p2 = (torch.randn(4, 3).requires_grad_() for _ in range(6))
    rewards, done, actions = (
        torch.randn(4),
        torch.tensor([True, False, False, True]),
        torch.tensor([0, 2, 1, 1]),
    )
    target = sac.target(rewards, done, later, p1, p2, alpha)
    assert not target.requires_grad
    pi, after = logits.softmax(1), later.softmax(1)
    expected, critic, actor, heat = [], 0.0, 0.0, 0.0
    for b in range(4):
        value = sum(after[b, a] * (min(p1[b, a], p2[b, a]) - alpha * after[b, a].log()) for a in range(3))
        expected.append(rewards[b] + 0.9 * (0 if done[b] else value))
        for q in (q1, q2):
            critic = critic + (q[b, actions[b]] - expected[b].detach()) ** 2 / 8
        for a in range(3):
            actor = actor + pi[b, a] * (alpha * pi[b, a].log() - min(q1[b, a], q2[b, a]).detach()) / 4
        entropy = -sum(pi[b, a] * pi[b, a].log() for a in range(3)).detach()
        heat = heat + (entropy - 0.5 * math.log(3)) / 4
    torch.testing.assert_close(target, torch.stack(expected).detach())
    log_alpha = torch.tensor(math.log(alpha), requires_grad=True)
    pairs = (
        (sac.critic_loss(q1, q2, actions, target), critic, [q1, q2]),
        (sac.actor_loss(logits, q1, q2, alpha), actor, [logits]),
        (sac.temperature_loss(log_alpha, logits), log_alpha * heat, [log_alpha]),
    )
    for ours, theirs, leaves in pairs:
        torch.testing.assert_close(ours, theirs)
        for mine, other in zip(
            torch.autograd.grad(ours, leaves), torch.autograd.grad(theirs, leaves), strict=True
        ):
            torch.testing.assert_close(mine, other)
    slow, fast = [torch.zeros(2)], [torch.ones(2)]
    Sac(tau=0.25).follow(slow, fast)
    assert slow[0].tolist() == [0.25, 0.25]


def test_environment_algorithms_are_found_but_not_offered_for_feedback():
    assert algorithms.find("sac") is Sac
    assert "sac" not in algorithms.names()
    assert {"rloo", "gspo", "ppo", "kto", "dpo", "opd", "combined", "trpo"} <= set(algorithms.names())
