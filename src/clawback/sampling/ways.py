"""Sampling from models that the lean decoder does not know, by their own forward: in the fastest way that a model provably supports.

* **padded**: rows of several lengths in one batch, padded on the left (``padded.py``). Never where a layer does more
  than attend to keys and values.
* **cached**: rows of one length in one batch, with whatever cache the model has (``cached_rows.py``); rows that end leave
  the batch if that cache can be selected from.
* **anew**: rows of one length, read anew for each token. This is the definition of what a model says.

"Provably": the first time that a model is drawn from, a short sequence goes through each way, and a way whose logits
differ from those of one pass without a cache is not used. A new family is at worst slow.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from clawback.devices import total_bytes
from clawback.models.traits import agree, attends_only, causal_of, check_causal, full_logits, probe_ids, takes
from clawback.sampling.apart import Apart, Way
from clawback.sampling.cached_rows import Reading, cache_bytes
from clawback.sampling.decoder_choice import drawing_dtype
from clawback.sampling.padded import Padded
from clawback.sampling.rows import MOST_ROWS, Lean, Rows

CACHE_SHARE = 1 / 8
"""Of the memory, for the cache of all rows."""
MOST_TOKENS = 4096
"""Tokens of a batch whose logits are computed at every position."""


_WAYS: weakref.WeakKeyDictionary[Any, Way] = weakref.WeakKeyDictionary()


def way_of(model: Any) -> Way:
    """Found once for each model in memory. Raises ``ModelError`` for a model that nothing can be drawn from."""
    causal = causal_of(model)
    if causal not in _WAYS:
        check_causal(causal)
        training = causal.training
        causal.eval()
        try:
            _WAYS[causal] = _proven(causal)
        finally:
            causal.train(training)
    return _WAYS[causal]


def rows_of(
    model: Callable[[], Any],
    lean: bool,
    *,
    expected: int,
    memory: bool = False,
    context: int = 0,
    eyes: bool = False,
) -> Rows:
    """For the version that the model speaks for now. ``lean``: by the lean decoder (``Lean``); ``eyes``: some may have pictures."""
    rows: Rows
    if lean:
        rows = Lean(model(), expected, memory, context)
    else:
        way = way_of(model())
        rows = Padded(model) if way.padded else Apart(model, way)
    return Apart(model, Way(), rows) if eyes and not isinstance(rows, Apart) else rows


def most_rows(model: Any, tokens: int, lean: bool) -> int:
    """As many rows as may hold this many tokens in the cache, by the lean decoder or by the model's own forward.

    By the memory that the machine has in all and not by what is free at the moment: how rows are batched must follow from the
    machine alone, or the same seed would not give the same bits.
    """
    room = int(total_bytes(next(model.parameters()).device) * CACHE_SHARE)
    if lean:
        return max(1, min(MOST_ROWS, room // max(1, _decoder_bytes(model) * tokens)))
    way = way_of(model)
    rows = room // max(1, way.row_bytes + way.token_bytes * tokens)
    if not (way.padded or way.cached) or not takes(model, "logits_to_keep"):
        rows = min(rows, MOST_TOKENS // tokens)
    return max(1, min(MOST_ROWS, rows))


def _decoder_bytes(model: Any) -> int:
    """Of a token in the lean decoder's cache."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * size * drawing_dtype(model).itemsize)


def _proven(causal: Any) -> Way:
    ids = probe_ids(causal)
    expected = full_logits(causal, ids)
    sizes = _attempt(lambda: _step_bytes(causal, ids, expected))
    cached = sizes is not None
    selects = cached and bool(_attempt(lambda: _selects(causal, ids, expected)))
    padded = attends_only(causal.config) and takes(causal, "past_key_values")
    padded = padded and bool(_attempt(lambda: _pads(causal, ids, expected)))
    return Way(padded, cached, selects, *(sizes or (0, 0)))


def _attempt(way: Callable[[], Any]) -> Any:
    """What it gives; None where the model cannot do it."""
    try:
        with torch.no_grad():
            return way()
    except Exception:  # a model that does not know a way raises anything
        return None


def _other(ids: Sequence[int]) -> list[int]:
    """Other tokens than these."""
    return [ids[-1 - i] for i in range(len(ids))]


def _step_bytes(causal: Any, ids: Sequence[int], expected: Tensor) -> tuple[int, int] | None:
    """Bytes of the cache for a row, and for each of its tokens; None where stepping through is not the same as reading."""
    reading = Reading(lambda: causal, [ids[:6], _other(ids)[:6]], selects=False)
    logits, first = [reading.logits[0]], cache_bytes(reading.cache)
    for token in ids[6:9]:
        logits.append(reading.step([token, ids[0]])[0])
    if not agree(torch.stack(logits), expected[5:9]):
        return None
    each = max(0, cache_bytes(reading.cache) - first) // 6
    return max(0, first // 2 - 6 * each), each


def _selects(causal: Any, ids: Sequence[int], expected: Tensor) -> bool:
    """Whether rows of the cache go on as themselves when they are copied, change places and leave."""
    reading = Reading(lambda: causal, [_other(ids)[:6], ids[:6]])
    reading.keep([0, 0, 1, 1])
    logits = [reading.logits[3]]
    reading.keep([3, 1, 0])
    logits.append(reading.step([ids[6], ids[0], ids[1]])[0])
    reading.keep([2, 0])
    logits.append(reading.step([ids[2], ids[7]])[1])
    return agree(torch.stack(logits), expected[5:8])


def _pads(causal: Any, ids: Sequence[int], expected: Tensor) -> bool:
    """Whether a row is the same beside longer ones as by itself, while rows are copied, change places and leave."""
    rows, other = Padded(lambda: causal), _other(ids)[:7]
    logits = [rows.read_prompts([ids[:3], ids[:3], other, other])[0]]
    rows.keep([0, 1, 2])
    logits.append(rows.step([ids[3], ids[3], ids[0]])[1])
    rows.keep([0, 2])
    logits.append(rows.step([ids[4], ids[1]])[0])
    return agree(torch.stack(logits), expected[2:5])
