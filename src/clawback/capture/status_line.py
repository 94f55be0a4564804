"""One line for an agent's status bar: the version that answers, and the number of ratings until the next run."""

from __future__ import annotations

from clawback import config, store
from clawback.paths import Home


def text(home: Home) -> str:
    """A line such as ``clawback v3 · 12/32 ratings``. Never raises: errors do not belong in a status bar."""
    try:
        with store.connect(home.database, busy_seconds=0.2) as db:
            threshold = config.load(home.config).training.threshold
            live, fresh, run = db.live().number, db.count_fresh(threshold), db.active_run()
    except Exception:
        return "clawback ?"
    if run:
        steps = run.progress.get("steps") or 0
        done = f" {100 * int(run.progress.get('step') or 0) // int(steps)} %" if steps else ""
        return f"clawback v{live} · training{done}"
    return f"clawback v{live} · {fresh}/{threshold} ratings"
