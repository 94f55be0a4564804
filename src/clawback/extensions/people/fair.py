"""Fair scheduling of training runs where many people share a machine: the next run goes to whoever has used the least lately.

Ties go to whoever has waited longest. Each waiting person is a file, so a restart forgets nobody and asking
again changes nothing. Use is counted in seconds and halves with every day, so whoever rated much last week is
not at a disadvantage for ever.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from clawback.files import replace

HALVED = 86_400.0
"""Seconds in which what somebody has had counts half."""


class FairQueue:
    """The queue. ``folder``: where it is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = folder / "had.json"

    def ask(self, name: str) -> None:
        """Join the queue; somebody who asks again keeps their place."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.waits(name):
            # When they asked is written down: files' times come in ticks.
            replace(self.folder / f"{name}.waits", str(time.time_ns()).encode(), mode=0o600)

    def waits(self, name: str) -> bool:
        return (self.folder / f"{name}.waits").exists()

    def drop(self, name: str) -> None:
        (self.folder / f"{name}.waits").unlink(missing_ok=True)

    def next(self, now: float | None = None) -> str | None:
        """The person to be served now; they stay in the queue until ``drop``."""
        had = self._had()
        asked = [(path.read_bytes().rjust(20), path.stem) for path in self.folder.glob("*.waits")]
        moment = time.time() if now is None else now
        return min(asked, key=lambda one: (_left(had.get(one[1]), moment), one), default=(b"", None))[1]

    def spent(self, name: str, seconds: float, now: float | None = None) -> None:
        """Record how long a run of theirs took."""
        had, moment = self._had(), time.time() if now is None else now
        had[name] = (_left(had.get(name), moment) + seconds, moment)
        # Less than a second is nothing that anybody would wait for.
        kept = {who: one for who, one in had.items() if _left(one, moment) >= 1}
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(self.ledger, json.dumps(kept).encode(), mode=0o600)

    def _had(self) -> dict[str, tuple[float, float]]:
        try:
            return {
                who: (float(s), float(at)) for who, (s, at) in json.loads(self.ledger.read_bytes()).items()
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def _left(had: tuple[float, float] | None, now: float) -> float:
    """Seconds, as they count now."""
    return 0.0 if had is None else float(had[0] * 0.5 ** (max(now - had[1], 0.0) / HALVED))
