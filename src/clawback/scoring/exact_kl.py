"""The exact KL between policy and base at each position, over the whole vocabulary, with its gradient.

The usual estimate of the KL from the one token that was sampled is unbiased and very noisy: at a position where the base is
certain, it is nearly always nearly zero, and now and then enormous. The exact value pulls at every position at once, also towards
tokens that were not sampled. At the same weight a run drifts far less (research/studies/2026-11-21-keeping-facts.md).

With policy p, base q and logits z = scale · W h, at one position:

    KL(p‖q) = Σ_v p_v (log p_v − log q_v)        dKL/dh = scale · Σ_v p_v (log p_v − log q_v − KL) · W_v
    KL(q‖p) = Σ_v q_v (log q_v − log p_v)        dKL/dh = scale · Σ_v (p_v − q_v) · W_v

The first keeps the policy from saying what the base would not: content. The second keeps it able to say what the base would:
ways of saying things that the reward is indifferent to, or wrongly rates low.
    H(p)    = −Σ_v p_v log p_v                   dH/dh  = −scale · Σ_v p_v (log p_v + H) · W_v

The last one is the entropy, for algorithms that pay for variety. As in ``lm_head.py`` the table [tokens, vocabulary] never exists, and
the gradient is computed in the forward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from clawback.scoring.lm_head import TILE, Head, known, online_softmax


def divergence(head: Head, hidden: Tensor, reference: Tensor, cover: float = 0.0) -> Tensor:
    """KL(policy ‖ base) + cover · KL(base ‖ policy) in nats at each position.

    Args:
        hidden: [N, H] last hidden states under the policy; the gradient goes here.
        reference: [N, H] the same under the base, whose head is the same.

    Returns:
        [N] float32, ≥ 0.
    """
    value, direction = _measure(head, hidden, reference, cover)
    return known(hidden, value, direction) if torch.is_grad_enabled() and hidden.requires_grad else value


def entropy(head: Head, hidden: Tensor) -> Tensor:
    """[N, H] → [N] entropy of the next-token distribution in nats, float32, differentiable in ``hidden``."""
    if not (torch.is_grad_enabled() and hidden.requires_grad):
        log_p, mean_logit, _ = online_softmax(head, hidden, False, True)
        return log_p - mean_logit
    return known(hidden, *_uncertain(head, hidden))


@torch.no_grad()
def _uncertain(head: Head, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Entropies [N] and their gradient towards ``hidden`` [N, H], both float32."""
    log_p, mean_logit, _ = online_softmax(head, hidden, False, True)
    value = log_p - mean_logit
    pull = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
    for start in range(0, head.weight.shape[0], TILE):
        ours, slope = _capped(head, head.tile(hidden, start))
        ours = ours - log_p[:, None]
        weights = ours.exp() * (ours + value[:, None])
        rows = head.weight[start : start + TILE]
        pull -= (weights if slope is None else weights * slope).to(rows.dtype) @ rows
    return value, pull * head.scale


@torch.no_grad()
def _measure(head: Head, hidden: Tensor, reference: Tensor, cover: float) -> tuple[Tensor, Tensor]:
    """Values [N] and their gradient towards ``hidden`` [N, H], both float32."""
    log_p, _, mean_row = online_softmax(head, hidden, True, False)
    log_q, _, _ = online_softmax(head, reference, False, False)
    there, back = torch.zeros_like(log_p), torch.zeros_like(log_p)
    pull = torch.zeros_like(mean_row)
    for start in range(0, head.weight.shape[0], TILE):
        ours, slope = _capped(head, head.tile(hidden, start))
        theirs, _ = _capped(head, head.tile(reference, start))
        ours, theirs = ours - log_p[:, None], theirs - log_q[:, None]
        apart = ours - theirs
        weights = ours.exp() * apart  # [N, tile]
        there += weights.sum(1)
        if cover:
            q = theirs.exp()
            back -= (q * apart).sum(1)
            weights -= cover * q
        rows = head.weight[start : start + TILE]
        pull += (weights if slope is None else weights * slope).to(rows.dtype) @ rows
    value = (there + cover * back).clamp(min=0.0)
    return value, (pull + (cover - there)[:, None] * mean_row) * head.scale


def _capped(head: Head, logits: Tensor) -> tuple[Tensor, Tensor | None]:
    """The final logits and, where there is a cap, its derivative."""
    if not head.softcap:
        return logits, None
    squashed = torch.tanh(logits / head.softcap)
    return head.softcap * squashed, 1 - squashed.square()
