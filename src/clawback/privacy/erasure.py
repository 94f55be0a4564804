"""Deletes data everywhere in the home: the store, checkpoints, searches, the reward model, copies made before a migration, a move to another base that is open.

Not reached, and reported as such: backups and exports that the person made, transcripts that agents keep
themselves, and what a version learned. Versions that learned from deleted data are marked ``stale``:
`clawback data forget --retrain` trains without it, `clawback data prune --stale` deletes such versions.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clawback.errors import Busy, ModelError, NotFound, UsageError
from clawback.paths import Home
from clawback.records import Version
from clawback.release import trial, version_registry
from clawback.release.version_registry import LOCK_SECONDS
from clawback.store import copies

if TYPE_CHECKING:
    from clawback.store import Store


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """What is to be deleted. ``feedback``: feedback alone, without its turns."""

    turns: tuple[int, ...]
    feedback: tuple[int, ...] = ()
    person: str = ""
    kind: str = "turns"


@dataclass(frozen=True, slots=True)
class Erased:
    """What was deleted. ``versions`` learned from it; ``live`` is one of them, or not (None); ``also`` lists what else was deleted."""

    turns: tuple[int, ...]
    feedback: tuple[int, ...]
    versions: tuple[int, ...]
    live: int | None
    also: tuple[str, ...]

    def text(self) -> str:
        lines = [f"{len(self.turns)} turns and {len(self.feedback)} pieces of feedback are deleted."]
        lines += [f"{what} went as well." for what in self.also]
        if self.versions:
            said = ", ".join(map(str, self.versions))
            lines.append(
                f"Versions that learned from it (or may have): {said}. They are marked in `clawback versions`."
            )
        return "\n".join(lines)


def wanted(
    store: Store, *, turns: Collection[int] = (), session: str = "", person: str = ""
) -> ErasureRequest:
    """What these name, looked up. Raises ``NotFound`` for what is not there, ``UsageError`` for nothing."""
    if sum((bool(turns), bool(session), bool(person))) != 1:
        raise UsageError(
            "Name what is to be forgotten: --turn ID (more than once), --session NAME, or --person NAME."
        )
    if turns:
        return ErasureRequest(tuple(sorted({store.turn(number).id for number in turns})))
    if session:
        return ErasureRequest(tuple(store.turns_of_session(session)), kind="session")
    found = ErasureRequest(
        tuple(store.turns_of_person(person)), tuple(store.feedback_of_person(person)), person, "person"
    )
    invited = any(person == one.source for one in store.invited(removed=True))
    if not found.turns and not found.feedback and not invited:
        raise NotFound(f"Nothing is known of {person!r}. `clawback raters` lists who has rated.")
    return found


def erase(store: Store, home: Home, wish: ErasureRequest) -> Erased:
    """Delete it all. Raises ``Busy``, and changes nothing, while a run is under way: it would learn from what is being deleted."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(home.train_lock, timeout=LOCK_SECONDS):
            prompts = [store.turn(number).prompt for number in wish.turns]
            prompts += [f.text for f in store.feedback(active=False, ids=wish.feedback)]
            done = store.forget(wish.turns, wish.feedback, person=wish.person, kind=wish.kind)
            also = _leftovers(store, home, prompts)
            _no_longer_tried(store, done.versions)
    except Timeout:
        raise Busy("A run is training. Wait for it, or stop it first: `clawback runs stop`.") from None
    live = store.live()
    return Erased(done.turns, done.feedback, done.versions, live.number if live.stale else None, tuple(also))


def _leftovers(store: Store, home: Home, prompts: list[str]) -> list[str]:
    """Files of the home that may hold the words, or were made of them; what they were."""
    gone = []
    if (dead := store.active_run()) is not None:  # whoever worked on it would hold the lock
        store.update_run(dead.id, status="failed", error="what it learned from was deleted")
    for folder, what in (
        (home.runs, "Checkpoints of interrupted runs"),
        (home.prompts, "A search for a prompt"),
        (home.move, "A move to another model"),
    ):
        if folder.is_dir() and any(folder.iterdir()):
            shutil.rmtree(folder)
            gone.append(what)
    if _learned(home, prompts):
        shutil.rmtree(home.reward, ignore_errors=True)
        gone.append("The reward model, which learned from it,")
    for copy in [*copies.every(home.database), *copies.remains(home.database)]:
        copy.unlink()
        gone.append(f"The copy {copy.name}")
    return gone


def _learned(home: Home, prompts: list[str]) -> bool:
    """Whether the reward model of this home was trained on answers to one of these prompts."""
    if not (home.reward / "reward.json").exists():
        return False
    from clawback.rewards import reward_model

    try:
        return reward_model.learned_from(home, prompts)
    except (ModelError, NotFound):
        return True


def _no_longer_tried(store: Store, versions: Collection[int]) -> None:
    """A candidate that learned from what is gone goes live no more."""
    if (on := trial.running(store)) is not None and on.candidate in versions:
        trial.stop(store)
    for number in versions:
        if store.version(number).status == "candidate":
            store.reject(number)


def step_back(store: Store, home: Home) -> Version:
    """Where the live version learned from what was deleted: the newest ancestor that did not, and is whole, goes live."""
    live = store.live()
    if not live.stale:
        return live
    for ancestor in version_registry.ancestors(store, live):
        if not ancestor.stale:
            try:
                version_registry.check(ancestor)
            except ModelError:
                continue
            return version_registry.go_live(store, home, ancestor.number)
    return version_registry.go_live(store, home, 0)
