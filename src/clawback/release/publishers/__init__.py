"""Publishers make the live version available to other inference servers.

Each can say what it will do before it does it (``plan``), does it (``publish``), and then proves that the new adapter really answers
(``verify``); where it does not, ``undo`` brings back what was there. Others are found by the entry point ``clawback.publishers``.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from clawback.errors import UsageError
from clawback.release.publishers.base import NotLoaded, Probe, Publication, Publisher, Target, probe

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ADAPTERS_ALONE",
    "NAMES",
    "NotLoaded",
    "Probe",
    "Publication",
    "Publisher",
    "Target",
    "make",
    "probe",
]

NAMES = ("merged", "gguf", "vllm", "ollama", "llama-cpp", "lm-studio", "mlx")
ADAPTERS_ALONE = ("vllm", "mlx")
"""Publishers that hand over an adapter and nothing else."""


def make(target: Target) -> Publisher:
    """Raises ``UsageError`` for a name that there is not."""
    from clawback.release.publishers import llama_cpp, lm_studio, merged, merged_gguf, mlx, ollama, vllm

    ours: dict[str, Callable[[Target], Publisher]] = {
        "merged": merged.Merged,
        "gguf": merged_gguf.Gguf,
        "vllm": vllm.Vllm,
        "ollama": ollama.Ollama,
        "llama-cpp": llama_cpp.LlamaCpp,
        "lm-studio": lm_studio.LmStudio,
        "mlx": mlx.Mlx,
    }
    if target.name in ours:
        return ours[target.name](target)
    for found in entry_points(group="clawback.publishers", name=target.name):
        made: Publisher = found.load()(target)
        return made
    raise UsageError(f"There is no publisher {target.name!r}; there are: {', '.join(NAMES)}.")
