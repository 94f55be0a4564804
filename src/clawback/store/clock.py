"""By which time things may be deleted: a clock that is set ahead deletes nothing.

What a home deletes by age it deletes by time that has really passed, as far as anything shows it. On one boot the
machine's own counter shows it exactly, sleep included. Over a restart the clock is believed for a week; what it says
to have passed beyond that counts only after one more period of the same length has been seen to pass.
"""

from __future__ import annotations

import time
from typing import Any

from clawback.processes import boot_identity
from clawback.store.base import Base, now

CLOCK = "clock"
"""Where the store keeps it: wall clock, boot, counter, the time that is trusted, and what was seen to pass since the last jump."""
BELIEVED = 7 * 86_400.0
"""Seconds that may pass unseen while the machine is off."""
ADJUSTED = 3600.0
"""A difference that small is the clock being set right."""


class Clock(Base):
    def deletion_time(self, period: float, moment: float | None = None) -> float:
        """The time to count the age of things from that are deleted after ``period`` seconds; never later than the clock's.

        ``moment``: the clock, in place of the machine's (tests).
        """
        seen = self._look_at_clock(moment)
        self.set(CLOCK, seen)
        return self._trusted(seen, period)

    def trusted_time(self, period: float, moment: float | None = None) -> float:
        """The same, for who only looks."""
        return self._trusted(self._look_at_clock(moment), period)

    def clock_ahead(self) -> float:
        """Seconds that the clock says to have passed and nothing has shown."""
        return float(self._look_at_clock(None)["ahead"])

    def trust_clock(self) -> None:
        """The person says that the clock is right."""
        seen = self._look_at_clock(None)
        self.set(CLOCK, seen | {"trusted": seen["wall"], "ahead": 0.0})

    def _look_at_clock(self, moment: float | None) -> dict[str, Any]:
        wall = now() if moment is None else moment
        boot, counter = (boot_identity(), _counter()) if moment is None else ("", 0.0)
        known = self.get(CLOCK) or self._first_clock(wall)
        passed = wall - known["wall"]
        if boot and boot == known["boot"]:
            passed = counter - known["counter"]
        elif not 0 <= passed <= BELIEVED:
            passed = 0.0
        trusted, seen = known["trusted"] + passed, known["seen"] + passed
        ahead = wall - trusted
        if ahead <= ADJUSTED:
            trusted, ahead = wall, 0.0
        elif ahead > known["ahead"] + ADJUSTED:
            seen = 0.0  # it has jumped
        return {
            "wall": wall,
            "boot": boot,
            "counter": counter,
            "trusted": trusted,
            "seen": seen,
            "ahead": ahead,
        }

    @staticmethod
    def _trusted(seen: dict[str, Any], period: float) -> float:
        return float(seen["wall"] if seen["seen"] >= period else seen["trusted"])

    def _first_clock(self, wall: float) -> dict[str, Any]:
        """Of a home that has not looked before: its newest turn is the last that is known."""
        newest = self._read("SELECT max(created_at) AS at FROM turns")[0]["at"]
        last = wall if newest is None else min(float(newest), wall)
        return {"wall": last, "boot": "", "counter": 0.0, "trusted": last, "seen": 0.0, "ahead": 0.0}


def _counter() -> float:
    """Seconds since the machine started, sleep included; nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
