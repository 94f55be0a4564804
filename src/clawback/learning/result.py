"""The result of a run: made of what the loop did, written last, and found again by the same run after it was killed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback.files import replace, sync
from clawback.models import ModelInfo, TrainResult

if TYPE_CHECKING:
    from clawback.learning.loop.trainer import Fitted

ADAPTER = "adapter"
CHECKPOINT = "checkpoint.pt"
RESULT = "result.json"


def result_of(
    info: ModelInfo, fitted: Fitted, out: Path, started: float, *, metrics: Mapping[str, float], **fields: Any
) -> TrainResult:
    """The result of a run of a base.

    Args:
        started: by ``time.perf_counter``.
        metrics: figures of this kind of run, beside those that each has.
        fields: the other fields of ``TrainResult``.
    """
    every = {"seconds": time.perf_counter() - started, "tokens": float(fitted.tokens)}
    return TrainResult(
        path=str(out / ADAPTER),
        base=info.base,
        base_revision=info.revision,
        steps=fitted.steps,
        stopped=fitted.stopped,
        metrics={**last(fitted.history), **every, **metrics},
        history=tuple(fitted.history),
        **fields,
    )


def write_adapter(save: Callable[[Path], None], out: Path) -> None:
    """The adapter, which ``save`` puts into an empty folder, under its name once it is whole."""
    beside, final = out / (ADAPTER + ".new"), out / ADAPTER
    for folder in (beside, final):
        if folder.exists():
            shutil.rmtree(folder)
    beside.mkdir(mode=0o700)
    save(beside)
    beside.rename(final)


def write_result(out: Path, result: TrainResult, identity: str) -> None:
    """The result, which says that the adapter is there, then no more need of the checkpoint."""
    text = json.dumps({"fingerprint": identity, **dataclasses.asdict(result)}, indent=2)
    replace(out / RESULT, text.encode(), mode=0o600)
    sync(out)
    (out / CHECKPOINT).unlink(missing_ok=True)


def finished(out: Path, identity: str) -> TrainResult | None:
    """The result of this very run, where it was finished before its process died."""
    try:
        values = json.loads((out / RESULT).read_text("utf-8"))
        if values.pop("fingerprint") != identity or not (out / ADAPTER).is_dir():
            return None
        values["turn_ids"] = tuple(values["turn_ids"])
        values["history"] = tuple(values["history"])
        values["rewards"] = tuple(values.get("rewards", ()))
        return TrainResult(**values)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def last(history: Sequence[dict[str, float]], count: int = 4) -> dict[str, float]:
    """Means over the last steps, of those that have a figure: a run that was begun by another version may lack one in its first steps."""
    rows = history[-count:]
    return {
        name: statistics.fmean(row[name] for row in rows if name in row)
        for name in (rows[-1] if rows else ())
    }
