"""Distillation: a teacher's k likeliest tokens, and the divergence of the policy on them and one bucket for all others.

With the teacher's probabilities q on its k likeliest tokens K, q_r = 1 − Σ_K q_v on the rest, and the policy's p, p_r likewise:

    D      = Σ_K q_v·(log q_v − log p_v) + q_r·(log q_r − log p_r)
    dD/dh  = scale · Σ_K c_v·(W_v − E_p[W]),    c_v = q_r·p_v / p_r − q_v

As in ``lm_head.py`` the table [tokens, vocabulary] never exists, and the gradient is computed in the forward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clawback.engine.torch.scoring.lm_head import TILE, Head, known, online_softmax

_LEAST = 1e-6
"""What the rest has at least: beyond it float32 has no digits left for 1 − Σ."""


@torch.no_grad()
def top(head: Head, hidden: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k likeliest tokens at each position.

    Args:
        hidden: [N, H].
        k: at most the size of the vocabulary.

    Returns:
        [N, k] int64 ids, likeliest first, and [N, k] float32 log-probabilities.
    """
    log_total, _, _ = online_softmax(head, hidden, False, False)
    best = hidden.new_full((len(hidden), k), -torch.inf, dtype=torch.float32)
    ids = torch.zeros(len(hidden), k, dtype=torch.int64, device=hidden.device)
    for start in range(0, head.weight.shape[0], TILE):
        logits = head.capped(head.tile(hidden, start))
        found = torch.arange(start, start + logits.shape[1], device=hidden.device).expand_as(logits)
        best, place = torch.cat([best, logits], 1).topk(k, dim=1)
        ids = torch.cat([ids, found], 1).gather(1, place)
    return ids, best - log_total[:, None]


def overlap(student: Tensor, teacher: Tensor) -> float:
    """Share of the tokens in ``student`` [N, k] that are in ``teacher`` [N, k] at the same position; mean over positions."""
    same = (student[:, :, None] == teacher[:, None, :]).any(2)
    return float(same.float().mean()) if same.numel() else 0.0


def teacher_divergence(head: Head, hidden: Tensor, ids: Tensor, logprobs: Tensor) -> Tensor:
    """D in nats at each position.

    Args:
        hidden: [N, H] last hidden states under the policy; the gradient goes here.
        ids: [N, k] int64, the teacher's likeliest tokens.
        logprobs: [N, k] what it gives them.

    Returns:
        [N] float32, ≥ 0.
    """
    value, direction = _measure(head, hidden, ids, logprobs)
    return known(hidden, value, direction) if torch.is_grad_enabled() and hidden.requires_grad else value


@torch.no_grad()
def _measure(head: Head, hidden: Tensor, ids: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
    """Values [N] and their gradient towards ``hidden`` [N, H], both float32."""
    log_total, _, mean_row = online_softmax(head, hidden, True, False)
    raw = torch.stack([head.target_logits(hidden, ids[:, j]) for j in range(ids.shape[1])], 1)  # [N, k]
    log_p = head.capped(raw) - log_total[:, None]
    p, q = log_p.exp(), logprobs.exp()
    rest_p, rest_q = ((1 - x.sum(1)).clamp(min=_LEAST) for x in (p, q))
    value = (q * (logprobs - log_p)).sum(1) + rest_q * (rest_q.log() - rest_p.log())
    pull = (rest_q / rest_p)[:, None] * p - q  # c, [N, k]
    direction = mean_row * -pull.sum(1, keepdim=True)
    slope = 1 - torch.tanh(raw / head.softcap).square() if head.softcap else torch.ones_like(raw)
    for j in range(ids.shape[1]):
        direction.addcmul_(head.weight[ids[:, j]].float(), (pull * slope)[:, j, None])
    return value.clamp(min=0.0), direction * head.scale
