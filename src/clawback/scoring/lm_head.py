"""Log-probabilities, the exact KL and a teacher's divergence from hidden states, without ever holding a table of [tokens, vocabulary].

**Log-probabilities.** With a real vocabulary the LM head costs more than all layers of a small model, and its logits more memory than
everything else. Three things reduce its cost to that of its matrix products:

* Logits exist for one tile of the vocabulary at a time (2,048 columns stay in the processor's cache), with the running
  maximum and sum of an online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867).
* The gradient of a token's log-probability y with respect to its hidden state is ``W[y] − Σ_v p_v·W[v]``: a vector of the
  hidden size. It is computed in the same pass, like the values in flash attention, and kept in place of the logits. The
  backward pass is then one multiplication per token: two matrix products in all, where recomputing would take three.
* The logit of the token itself is a dot product in float32, so that a bfloat16 head does not round it.

**The exact KL** between policy and base at each position, over the whole vocabulary. The usual estimate of the KL from the one token that was sampled is unbiased and very noisy: at a position where the base is
certain, it is nearly always nearly zero, and now and then enormous. The exact value pulls at every position at once, also towards
tokens that were not sampled. At the same weight a run drifts far less (research/studies/2026-11-21-keeping-facts.md).

With policy p, base q and logits z = scale · W h, at one position:

    KL(p‖q) = Σ_v p_v (log p_v − log q_v)        dKL/dh = scale · Σ_v p_v (log p_v − log q_v − KL) · W_v
    KL(q‖p) = Σ_v q_v (log q_v − log p_v)        dKL/dh = scale · Σ_v (p_v − q_v) · W_v

The first keeps the policy from saying what the base would not: content. The second keeps it able to say what the base would:
ways of saying things that the reward is indifferent to, or wrongly rates low.
    H(p)    = −Σ_v p_v log p_v                   dH/dh  = −scale · Σ_v p_v (log p_v + H) · W_v

The last one is the entropy, for algorithms that pay for variety. The gradients are computed in the forward pass.

**Distillation**: a teacher's k likeliest tokens, and the divergence of the policy on them and one bucket for all others. With the teacher's probabilities q on its k likeliest tokens K, q_r = 1 − Σ_K q_v on the rest, and the policy's p, p_r likewise:

    D      = Σ_K q_v·(log q_v − log p_v) + q_r·(log q_r − log p_r)
    dD/dh  = scale · Σ_K c_v·(W_v − E_p[W]),    c_v = q_r·p_v / p_r − q_v
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from clawback.models import product

TILE = 2048
"""Columns of the vocabulary at a time: 512 to 4,096 measured alike, 16,384 is 15–25 % slower."""


@dataclass(frozen=True)
class Head:
    """An LM head: ``logits = cap · tanh(scale · (h·Wᵀ + b) / cap)``, with what a family leaves out at its default."""

    weight: Tensor
    """[V, H]"""
    bias: Tensor | None = None
    """[V]"""
    scale: float = 1.0
    """Granite divides its logits, Cohere multiplies them."""
    softcap: float = 0.0
    """Gemma; 0: none."""

    def at(self, temperature: float) -> Head:
        """The head whose logits are these divided by ``temperature``: log-probs, entropies, divergences and their gradients
        are then those of the tempered distribution. cap · tanh(s·z / cap) / T is a head with scale s / T and cap cap / T."""
        if temperature == 1.0:
            return self
        return replace(self, scale=self.scale / temperature, softcap=self.softcap / temperature)

    def tile(self, hidden: Tensor, start: int) -> Tensor:
        """[N, H] → [N, ≤ TILE] float32 logits of the vocabulary from ``start``, before the cap."""
        logits = product(hidden, self.weight[start : start + TILE]).float()
        if self.bias is not None:
            logits += self.bias[start : start + TILE]
        return logits.mul_(self.scale) if self.scale != 1.0 else logits

    def target_logits(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """[N, H], [N] → [N] float32 logit of each target, before the cap."""
        logits = torch.einsum("nh,nh->n", hidden.float(), self.weight[targets].float())
        if self.bias is not None:
            logits += self.bias[targets]
        return logits * self.scale

    def capped(self, logits: Tensor) -> Tensor:
        """Logits after the cap, where there is one."""
        return self.softcap * torch.tanh(logits / self.softcap) if self.softcap else logits


@dataclass(frozen=True)
class Scores:
    """What the head says of N tokens; all [N] float32."""

    logprobs: Tensor
    entropy: Tensor | None
    direction: Tensor | None
    """[N, H] gradient of each log-probability towards its hidden state."""


def online_softmax(
    head: Head, hidden: Tensor, want_mean: bool, want_entropy: bool, shift: Tensor | None = None
) -> tuple[Tensor, ...]:
    """One pass over the vocabulary: log Σ exp [N], E_p[logit] [N], E_p[d logit/d raw · W] [N, H].

    With ``shift`` [N] (some logit of each row) exponents are taken relative to it instead of to a running maximum,
    which saves three passes over each tile. The sums are not finite where the maximum is some 80 nats above it.
    """
    count, width = hidden.shape
    top = hidden.new_full((count,), -torch.inf, dtype=torch.float32) if shift is None else shift
    total, mean_logit = torch.zeros_like(top), torch.zeros_like(top)
    mean_row = hidden.new_zeros((count, width) if want_mean else (0, width), dtype=torch.float32)
    for start in range(0, head.weight.shape[0], TILE):
        logits = head.tile(hidden, start)  # [N, tile]
        if head.softcap:
            logits = logits.div_(head.softcap).tanh_()
            slope = 1 - logits.square() if want_mean else None
            logits = logits.mul_(head.softcap)
        if shift is None:
            fade, top = top, torch.maximum(top, logits.amax(1))
            fade = (fade - top).exp_()
            total.mul_(fade)
            mean_logit.mul_(fade)
            if want_mean:
                mean_row.mul_(fade[:, None])
        weights = logits.sub(top[:, None]).exp_() if want_entropy else logits.sub_(top[:, None]).exp_()
        total += weights.sum(1)
        if want_entropy:
            mean_logit += logits.mul_(weights).sum(1)
        if want_mean:
            if head.softcap and slope is not None:
                weights = weights.mul_(slope)
            rows = head.weight[start : start + TILE]
            mean_row += product(weights.to(rows.dtype), rows.t())
    return total.log().add_(top), mean_logit / total, mean_row.div_(total[:, None]) if want_mean else mean_row


@torch.no_grad()
def score(head: Head, hidden: Tensor, targets: Tensor, *, gradient: bool, entropy: bool) -> Scores:
    """[N, H], [N] → log-probabilities of the targets, and what else was asked for.

    Args:
        hidden: [N, H] in the dtype of the head.
        targets: [N] int64.
        gradient: make ``direction`` too; doubles the cost.
        entropy: make ``entropy`` too, in nats.
    """
    own = head.target_logits(hidden, targets)
    # Few shapes: oneDNN compiles code for each, and keeps it.
    spare = -len(hidden) % 32 if hidden.device.type == "cpu" else 0
    rows = torch.nn.functional.pad(hidden, (0, 0, 0, spare)) if spare else hidden
    shift = torch.nn.functional.pad(head.capped(own), (0, spare))
    found = online_softmax(head, rows, gradient, entropy, shift)
    if not all(bool(part.isfinite().all()) for part in found):
        found = online_softmax(head, rows, gradient, entropy)
    log_total, mean_logit, mean_row = (part[: len(hidden)] for part in found)
    slope = torch.full_like(own, head.scale)
    if head.softcap:
        squashed = torch.tanh(own / head.softcap)
        own, slope = head.softcap * squashed, slope * (1 - squashed.square())
    direction = None
    if gradient:
        direction = mean_row.mul_(-head.scale).addcmul_(head.weight[targets].float(), slope[:, None])
    return Scores(own - log_total, log_total - mean_logit if entropy else None, direction)


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, value: Tensor, direction: Tensor) -> Tensor:
        ctx.save_for_backward(direction)
        ctx.dtype = hidden.dtype
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (direction,) = ctx.saved_tensors
        return (direction * grads[0][:, None]).to(ctx.dtype), None, None


def known(hidden: Tensor, value: Tensor, direction: Tensor) -> Tensor:
    """``value`` [N] as a function of ``hidden`` [N, H] whose gradient, ``direction`` [N, H], is ready before anyone asks."""
    return _Known.apply(hidden, value, direction)  # type: ignore[no-any-return, no-untyped-call]


def token_logprobs(
    head: Head, hidden: Tensor, targets: Tensor, *, entropy: bool = False
) -> tuple[Tensor, Tensor | None]:
    """[N, H], [N] → log-probabilities [N] float32 (differentiable in ``hidden``), entropies [N] (no gradient) or None.

    The head itself is frozen: no gradient goes to its weight.
    """
    if torch.is_grad_enabled() and hidden.requires_grad:
        scores = score(head, hidden, targets, gradient=True, entropy=entropy)
        assert scores.direction is not None
        return known(hidden, scores.logprobs, scores.direction), scores.entropy
    scores = score(head, hidden, targets, gradient=False, entropy=entropy)
    return scores.logprobs, scores.entropy


def divergence(head: Head, hidden: Tensor, reference: Tensor, cover: float = 0.0) -> Tensor:
    """KL(policy ‖ base) + cover · KL(base ‖ policy) in nats at each position.

    Args:
        hidden: [N, H] last hidden states under the policy; the gradient goes here.
        reference: [N, H] the same under the base, whose head is the same.

    Returns:
        [N] float32, ≥ 0.
    """
    value, direction = _measure_kl(head, hidden, reference, cover)
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
def _measure_kl(head: Head, hidden: Tensor, reference: Tensor, cover: float) -> tuple[Tensor, Tensor]:
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
    value, direction = _measure_bucketed(head, hidden, ids, logprobs)
    return known(hidden, value, direction) if torch.is_grad_enabled() and hidden.requires_grad else value


@torch.no_grad()
def _measure_bucketed(head: Head, hidden: Tensor, ids: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
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
