"""Adapters on their way to workers: an object of the cluster under the hash of what it is."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch

from clawback.extensions.scale import dispatch

if TYPE_CHECKING:
    from clawback.policy import Policy


class AdapterCrew(dispatch.Crew, Protocol):
    """A crew whose workers find adapters by name."""

    count: int
    """Workers that were asked for."""
    lost: int
    """Workers that have died so far."""
    why: str
    """What the last of them died of."""

    def publish(self, name: str, weights: object, keep: Collection[str] = ()) -> None: ...

    def close(self) -> None: ...


def published(policy: Policy, crew: AdapterCrew, keep: Collection[str] = ()) -> str:
    """The name under which workers find the policy's adapter; "" for the base alone. ``keep``: older ones that are needed yet."""
    if not policy.adapted:
        return ""
    weights = {n: p.detach().cpu() for n, p in policy.model.named_parameters() if "lora_" in n}
    name = named(weights)
    crew.publish(name, weights, keep)
    return name


def named(weights: Mapping[str, torch.Tensor]) -> str:
    """An adapter's name: a hash of what it is."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def lost(crew: AdapterCrew, known: int) -> dict[str, Any] | None:
    """What is told of workers that have died since there were ``known`` of them; None where none has."""
    if crew.lost == known:
        return None
    text = f"{crew.lost - known} of the cluster's workers were lost ({crew.why}); what they had was given to others."
    return {"phase": "alert", "text": text}
