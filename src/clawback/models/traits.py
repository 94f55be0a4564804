"""What a model can do, found by asking it: which inputs its forward takes, what its cache keeps, whether it reads from left to right.

Nothing here knows a family by its name. Heavy imports are inside the functions.
"""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any

import torch
from torch import Tensor

from clawback.errors import ModelError

UNLIMITED = 2**62
_PROBE = 12
"""Tokens of the sequence that models are asked about."""
_CHECKED: weakref.WeakSet[Any] = weakref.WeakSet()


def causal_of(model: object) -> Any:
    """The transformers model within a PEFT model, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@cache
def _inputs(function: Any) -> frozenset[str] | None:
    """Names of a function's inputs; None: any name."""
    import inspect

    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def takes(model: object, name: str) -> bool:
    """Whether the model's forward takes an input of this name."""
    names = _inputs(type(causal_of(model)).forward)
    return names is None or name in names


def forward(model: Any, **inputs: Any) -> Any:
    """The model's own forward, with those of the inputs that it takes."""
    return model(**{name: value for name, value in inputs.items() if takes(model, name)})


@torch.no_grad()
def full_logits(model: Any, ids: list[int]) -> Tensor:
    """[tokens, vocabulary] logits of one sequence, by one pass without a cache."""
    device = next(model.parameters()).device
    logits: Tensor = forward(model, input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0]
    return logits


def probe_ids(model: object, count: int = _PROBE) -> list[int]:
    """Random tokens of the model's vocabulary, always the same; none that stands for a picture."""
    config = causal_of(model).config
    vocabulary = int(config.get_text_config(decoder=True).vocab_size)
    generator = torch.Generator().manual_seed(0)
    ids: list[int] = torch.randint(0, vocabulary, (count,), generator=generator).tolist()
    known = marks(config)
    return [read_as(token, known) for token in ids]


def agree(logits: Tensor, expected: Tensor) -> bool:
    """Whether two sets of logits [n, vocabulary] are the same within rounding.

    16-bit weights round in every layer and with every shape: a nat at the worst logit after 30 layers. A missing norm or
    scale, or a position that is off, is tens of nats away.
    """
    apart = (logits.float().log_softmax(-1) - expected.float().log_softmax(-1)).abs()
    if not apart.isfinite().all():
        return False
    if expected.dtype == torch.float32:
        return float(apart.max()) < 1e-3
    return float(apart.max()) < 3.0 and float(apart.mean()) < 0.5


def check_causal(model: object) -> None:
    """Raises ``ModelError`` for a model whose forward fails, or whose tokens depend on those that follow them.

    It is asked once for each model in memory.
    """
    causal = causal_of(model)
    if causal in _CHECKED:
        return
    name, training = type(causal).__name__, causal.training
    causal.eval()
    try:
        ids = probe_ids(causal)
        logits = full_logits(causal, ids)
        shorter, again = full_logits(causal, ids[:7]), full_logits(causal, ids)
    except Exception as error:  # transformers raises many kinds; each means the same to the user
        reason = (str(error).strip() or type(error).__name__).split("\n")[0]
        raise ModelError(
            f"{name} cannot read plain text here ({reason.rstrip('.')}). Choose another model: `clawback model list`."
        ) from error
    finally:
        causal.train(training)
    if not agree(logits, again):
        raise ModelError(
            f"{name} gives another answer each time it reads the same text, so nothing can be learned from "
            "what it says. Choose another model: `clawback model list`."
        )
    if not agree(shorter, logits[:7]):
        raise ModelError(
            f"{name} reads text in both directions and not from left to right, so it cannot write an answer. "
            "Choose a model that is made for text generation: `clawback model list`."
        )
    _CHECKED.add(causal)


def cache_layers(config: Any) -> list[Any] | None:
    """What each layer of a model keeps of the tokens that it has read, as transformers' cache has it; None: unknown."""
    from transformers import DynamicCache

    try:
        return list(DynamicCache(config=config.get_text_config(decoder=True)).layers)
    except Exception:  # a kind of layer that the cache does not know
        return None


def attends_only(config: object) -> bool:
    """Whether every layer passes on nothing from token to token but keys and values, as transformers' cache has it.

    A state (a convolution, a recurrence) flows from one packed sequence into the next, and takes padding on the left for
    text. An index over keys chooses among those of all packed sequences.
    """
    layers = cache_layers(config)
    return layers is not None and all(map(_attends, layers))


def takes_padding(config: object) -> bool:
    """Whether padding on the right changes nothing: every layer attends, or carries a state from left to right.

    An index over keys chooses otherwise when rounding does, and that depends on the width of the batch.
    """
    layers = cache_layers(config)
    return layers is not None and all(_attends(layer) or hasattr(layer, "conv_states") for layer in layers)


def _attends(layer: object) -> bool:
    from transformers.cache_utils import DummyLayer, DynamicLayer, DynamicSlidingWindowLayer

    return type(layer) in (
        DynamicLayer,
        DynamicSlidingWindowLayer,
        DummyLayer,
    )  # and nothing that adds to them


def window(config: Any) -> int:
    """Tokens up to which attention in a sliding window or in chunks is plain causal attention."""
    layers = cache_layers(config)
    if layers is None:
        text = config.get_text_config(decoder=True)
        limits = [number(text, name) for name in ("sliding_window", "attention_chunk_size")]
    else:
        limits = [getattr(layer, "sliding_window", None) for layer in layers]
    return min([int(limit) for limit in limits if isinstance(limit, int) and limit > 0], default=UNLIMITED)


def number(config: Any, *names: str) -> int | float | None:
    """The first of these fields that is a number; of a field that differs from layer to layer, the largest."""
    for name in names:
        try:
            value = getattr(config, name, None)
        except RuntimeError:  # transformers asks for one layer's value
            value = [getattr(layer, name, None) for layer in config.per_layer_config]
        if isinstance(value, (list, tuple)):
            value = max((size for size in value if isinstance(size, (int, float))), default=None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
    return None


def marks(config: object) -> frozenset[int]:
    """Tokens that stand for what is seen."""
    names = ("image_token_id", "image_token_index", "video_token_id")
    return frozenset(t for name in names if isinstance(t := getattr(config, name, None), int))


def read_as(token: int, marks: frozenset[int]) -> int:
    """What a model is given to read of a token that it wrote: a mark of a picture where there is none would be one too many."""
    return 0 if token in marks else token
