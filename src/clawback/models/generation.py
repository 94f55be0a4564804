"""Sampling settings from a model's own ``generation_config.json``."""

from __future__ import annotations

from typing import Any

from clawback.models.types import Sampling

USUAL = Sampling(temperature=0.6, top_p=0.95)
"""For a model that names nothing: what most makers of instruct models recommend for theirs (Llama 3: 0.6 and 0.9, Qwen 3 and
DeepSeek R1: 0.6 and 0.95). At temperature 1 a small model of this kind writes gibberish, at 0.6 it is a sane assistant."""


def own_sampling(model: Any) -> Sampling:
    """Temperature, top-p and top-k as the model's folder gives them.

    A model that says ``do_sample`` means what it leaves out to be off (Gemma 3 names top-k and top-p alone and is drawn from at
    temperature 1). ``do_sample: false`` is what the library writes for makers who said nothing: it is no wish for greedy answers.
    """
    given = getattr(model, "generation_config", None)
    named = {name: getattr(given, name, None) for name in ("temperature", "top_p", "top_k")}
    found: dict[str, Any] = {
        name: value
        for name, value in named.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    if not found and not getattr(given, "do_sample", None):
        return USUAL
    return Sampling(
        temperature=max(0.0, float(found.get("temperature", 1.0))),
        top_p=min(1.0, float(found.get("top_p", 1.0))) or 1.0,
        top_k=max(0, int(found.get("top_k", 0))),
    )


def own_max_tokens(model: Any) -> int | None:
    """Longest answer that the model's folder names; None where it names none."""
    named = getattr(getattr(model, "generation_config", None), "max_new_tokens", None)
    return int(named) if isinstance(named, int) and named > 0 else None
