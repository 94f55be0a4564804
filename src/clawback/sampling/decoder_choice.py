"""Decides whether the lean decoder (``decoder.py``) samples from a model, and in which dtype."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import psutil
import torch
from torch import Tensor, nn

from clawback.models.traits import agree, window
from clawback.sampling.decoder import SMALL, Cache, Decoder

if TYPE_CHECKING:
    from clawback.sampling.choose import ChatModel

_ROPE = {"default", "linear", "llama3", "yarn"}
"""Kinds of rotary positions that do not depend on how long the sequence is."""


def drawing_dtype(model: Any) -> torch.dtype:
    """What to draw in: bfloat16 where a processor has products of it that are worth a cast, and there is memory for the copy.

    The choice depends on the machine and the model and never on a measurement, so that the same seed gives the same bits.
    """
    weight: Tensor = next(model.parameters())
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return weight.dtype
    count = sum(p.numel() for p in model.parameters())
    fits_twice = 2 * count <= psutil.virtual_memory().total / 4
    return torch.bfloat16 if count >= SMALL and fits_twice and _has_bfloat16() else torch.float32


def _has_bfloat16() -> bool:
    """Products of bfloat16 in the processor itself (AMX or AVX-512 BF16), not emulated."""
    checks = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(bool(getattr(torch.cpu, name)()) for name in checks if hasattr(torch.cpu, name))


_PROVEN: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def fits(model: nn.Module, tokens: int) -> bool:
    """True where ``Decoder`` says what the module does, for sequences of up to so many tokens."""
    causal: Any = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[operator]
    if window(causal.config) < tokens:
        return False
    if causal not in _PROVEN:
        _PROVEN[causal] = _proven(causal)
    return _PROVEN[causal]


def lean(policy: ChatModel) -> bool:
    """Whether a server draws by the decoder: where it knows the model, and its copy of the weights fits into what memory is free now."""
    model: Any = policy.model
    if not fits(model, policy.info.context):
        return False
    dtype = drawing_dtype(model)
    copied = dtype != next(model.parameters()).dtype
    size = policy.info.total_parameters * dtype.itemsize
    return not copied or 3 * size < psutil.virtual_memory().available


@torch.no_grad()
def _proven(causal: Any) -> bool:
    """The last logits of a short sequence, read and stepped through, by both."""
    config = causal.config
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") not in _ROPE or not _plain(causal):
        return False
    ids = torch.randint(0, config.vocab_size, (9,), generator=torch.Generator().manual_seed(0)).tolist()
    try:
        decoder = Decoder(causal)
        cache = Cache(decoder, 2, 12)
        got = [decoder.read([ids[:3], ids[:6]], cache, torch.tensor([1, 0], device=decoder.device))[1]]
        for place, token in enumerate(ids[6:], 6):
            here = torch.tensor([place], device=decoder.device)
            got.append(decoder.step(torch.tensor([token], device=decoder.device), here, cache, place + 1)[0])
        wanted = causal(input_ids=torch.tensor([ids], device=decoder.device), use_cache=False).logits[0, 5:]
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, KeyError):
        return False
    return agree(torch.stack(got), wanted)


def _plain(causal: object) -> bool:
    """No layer has parts beyond those that are known here, and all weights are numbers that can be multiplied."""
    known = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
    layers = getattr(getattr(causal, "model", None), "layers", ())
    return bool(len(layers)) and all(
        {name for name, _ in layer.named_children()} == known
        and all(p.dtype.is_floating_point for p in layer.parameters())
        for layer in layers
    )
