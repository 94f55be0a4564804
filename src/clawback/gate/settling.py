"""Does as a report says: a version goes live, on trial, away, or waits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from clawback import config
from clawback.gate.report import Report
from clawback.paths import Home
from clawback.records import Version
from clawback.release import prompted, trial, version_registry

if TYPE_CHECKING:
    from clawback.store import Store


def settle(store: Store, home: Home, report: Report, tried: config.TrialSection | None = None) -> Version:
    """Do as the report says: live, rejected, or still a candidate that waits for answers or for the person's yes: to its new sentences, to an adapter that was adopted. ``tried``: with a
    share above 0 what is accepted answers that share of the sessions first."""
    version = store.version(report.version)
    if version.status != "candidate":
        return version
    if report.accepted:
        if prompted.unseen(store, version) or version_registry.FOREIGN in version.origin:
            return version
        if tried is not None and tried.share > 0 and trial.running(store) is None:
            trial.begin(store, version.number, tried.share, tried.alpha, time.time())
            return version
        return version_registry.promote(store, home, version.number)
    if not report.again_at:
        store.reject(version.number)
    return store.version(version.number)
