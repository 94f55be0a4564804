"""The work of ``clawback data prune``: deletes old turns by age, count and version, and versions that are neither live nor needed for a rollback."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clawback.paths import Home
from clawback.release import trial

if TYPE_CHECKING:
    from clawback.store import Store

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """``days`` and ``keep_turns`` name turns that are too old *or* too many; ``version``: those that it, or an older one, answered.

    Without ``rated`` a turn with feedback stays whatever its age. ``keep_versions``: so many of the newest stay, beside the live one, its
    ancestors on the way back, candidates and what is on trial; ``stale``: versions that learned from what was deleted go first.
    """

    days: int | None = None
    keep_turns: int | None = None
    version: int | None = None
    rated: bool = False
    keep_versions: int | None = None
    stale: bool = False

    @property
    def empty(self) -> bool:
        return (self.days, self.keep_turns, self.version, self.keep_versions) == (
            None,
        ) * 4 and not self.stale


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What goes: turns and versions, by number."""

    turns: tuple[int, ...]
    versions: tuple[int, ...]


def plan(store: Store, rules: RetentionRules, now: float | None = None) -> ErasurePlan:
    """What the rules name, without deleting anything."""
    turns: set[int] = set()
    if rules.days is not None:
        before = store.trusted_time(rules.days * DAY, now) - rules.days * DAY
        turns |= set(store.turns_to_prune(until=before, rated=rules.rated))
    if rules.keep_turns is not None:
        turns |= set(store.turns_to_prune(keep=rules.keep_turns, rated=rules.rated))
    if rules.version is not None:
        turns |= set(store.turns_to_prune(version=rules.version, rated=rules.rated))
    return ErasurePlan(tuple(sorted(turns)), _versions(store, rules))


def _versions(store: Store, rules: RetentionRules) -> tuple[int, ...]:
    every, live = store.versions(), store.live()
    stay = {0, live.number, live.parent}
    if on := trial.running(store):
        stay |= {on.candidate, on.live}
    stay |= {v.number for v in every if v.status == "candidate"}
    can_go = [v for v in every if v.number not in stay]
    gone = {v.number for v in can_go if v.stale} if rules.stale else set()
    if rules.keep_versions is not None:
        left = [v.number for v in can_go if v.number not in gone]
        gone |= set(left[: max(0, len(left) - rules.keep_versions)])
    return tuple(sorted(gone))


def prune(store: Store, home: Home, chosen: ErasurePlan) -> None:
    """Delete what was planned. Rows first: a folder without a row is no version, and is cleared away at the next start of a run."""
    if chosen.turns:
        store.forget(chosen.turns, kind="pruned", erase=False)
    for number in chosen.versions:
        path = store.version(number).path
        store.delete_version(number)
        shared = {v.path for v in store.versions()}
        if path and path not in shared and Path(path).parent == home.versions:
            shutil.rmtree(path, ignore_errors=True)
