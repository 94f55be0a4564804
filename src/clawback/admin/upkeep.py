"""What the server does for a home now and then, and what mends a damaged database."""

from __future__ import annotations

from clawback import config, store
from clawback.admin import rating_inbox
from clawback.errors import Busy, StoreBusy, StoreError
from clawback.paths import Home
from clawback.release.version_registry import LOCK_SECONDS
from clawback.salvage import copies, damaged_database
from clawback.salvage.salvage_rows import SalvageReport
from clawback.store.connection import DAMAGED


def upkeep(home: Home) -> None:
    """Make the day's copy of the database, and let turns fade that nobody rated, if the settings say so. Raises ``StoreError``."""
    with store.connect(home.database) as db:
        copies.copy_if_due(db, config.load(home.config).privacy.copies)
    rating_inbox.fade(home)


def save_what_can_be_read(home: Home) -> SalvageReport | None:
    """Salvage the database; None for one that is intact, which stays as it is. Raises ``Busy`` while a run or a server has it open."""
    from filelock import FileLock, Timeout

    from clawback.capture import script, server_proof

    if (announced := script.announced(home)) and server_proof.proven(home, announced[0]):
        raise Busy(f"The server on port {announced[0]} has the database open: stop it first, then salvage.")
    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS):
            return None if _is_intact(home) else damaged_database.salvage(home.database)
    except Timeout:
        raise Busy("A run is training. Wait for it, or stop it first: `clawback runs stop`.") from None


def _is_intact(home: Home) -> bool:
    """Whether SQLite finds nothing wrong with the database, and the content of every row can be read. Raises ``StoreBusy``."""
    try:
        with store.connect(home.database) as db:
            return not db.integrity() and next(damaged_database.unreadable(db), None) is None
    except StoreBusy:
        raise
    except (StoreError, *DAMAGED):
        return False
