"""Forgetting as one job: measure how well versions remember the data, delete it, train without it, measure again.

During the job the text is in this process's memory alone; only figures are left afterwards.
"""

from __future__ import annotations

import gc
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from clawback import jobs, store
from clawback.errors import ClawbackError, UsageError
from clawback.paths import Home
from clawback.privacy import erasure
from clawback.privacy.erasure import Erased, ErasureRequest
from clawback.progress import OnProgress
from clawback.records import JsonObject, Message, Version, with_keys

if TYPE_CHECKING:
    from clawback.store import Store

Texts = list[tuple[tuple[Message, ...], str]]


@dataclass(frozen=True, slots=True)
class Memory:
    """How probable the deleted answers are, in nats a token (higher: better remembered), under each version."""

    tokens: int
    base: float
    live: float | None
    """Under the version that was live; None where that was the base."""
    retrained: float | None = None
    """Under the one that was trained without them."""

    def text(self) -> str:
        lines = ["Mean log-probability of the deleted answers, nats a token:"]
        lines.append(f"  {self.base:8.3f}  the base model, which never saw them")
        if self.live is not None:
            lines.append(f"  {self.live:8.3f}  the version that was live ({self.live - self.base:+.3f})")
        if self.retrained is not None:
            lines.append(f"  {self.retrained:8.3f}  trained without them ({self.retrained - self.base:+.3f})")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ForgettingOutcome:
    """The result. ``why``: why no version was made."""

    erased: Erased
    memory: Memory | None
    version: Version | None
    why: str = ""

    def to_dict(self) -> JsonObject:
        memory = (
            with_keys(asdict(self.memory), {"live": "before", "retrained": "after"}) if self.memory else None
        )
        return asdict(self) | {"memory": memory}


def forget(
    home: Home,
    wish: ErasureRequest,
    *,
    retrain: bool = False,
    seed: int | None = None,
    on_progress: OnProgress | None = None,
) -> ForgettingOutcome:
    """Delete the data; with ``retrain`` go back to the newest version that had not learned from it, train anew on what is left, and measure.

    What is deleted stays deleted even if training fails. Raises ``Busy`` before anything was deleted.
    """
    tell = on_progress or (lambda _: None)
    with store.connect(home.database) as db:
        texts = _texts(db, wish)
        was = db.live()
        memory = None
        if retrain and texts:
            tell({"phase": "measure"})
            memory = _measured(home, db, was, texts)
        erased = erasure.erase(db, home, wish)
    if not retrain:
        return ForgettingOutcome(erased, None, None)
    version, why = train_without(home, seed=seed, on_progress=on_progress)
    if memory is not None and version is not None:
        with store.connect(home.database) as db:
            mean, _ = _mean(home, version, texts)
        memory = Memory(memory.tokens, memory.base, memory.live, mean)
    return ForgettingOutcome(erased, memory, version, why)


def train_without(
    home: Home, *, seed: int | None = None, on_progress: OnProgress | None = None
) -> tuple[Version | None, str]:
    """Go back to the newest version that learned from nothing deleted, and train from what is left. The version, or None and why not."""
    with store.connect(home.database) as db:
        erasure.step_back(db, home)
    try:
        return jobs.train_once(home, seed=seed, on_progress=on_progress).version, ""
    except ClawbackError as error:
        return None, str(error)


def needs_training(db: Store) -> None:
    """Raises ``UsageError`` where no version that answers learned from what was deleted."""
    if not db.live().stale:
        raise UsageError(
            "The live version learned from nothing that was deleted, so there is nothing to retrain."
        )


def _texts(db: Store, wish: ErasureRequest) -> Texts:
    """The answers that go, edits among them, each with what led to it."""
    made: Texts = [(turn.messages, turn.response) for turn in map(db.turn, wish.turns) if turn.response]
    known = set(wish.turns)
    for given in db.feedback(active=False):
        if given.kind == "edit" and given.text and (given.turn_id in known or given.id in set(wish.feedback)):
            made.append((db.turn(given.turn_id).messages, given.text))
    return made


def _measured(home: Home, db: Store, was: Version, texts: Texts) -> Memory:
    base, tokens = _mean(home, db.version(0), texts)
    before = _mean(home, was, texts)[0] if was.number else None
    return Memory(tokens, base, before)


def _mean(home: Home, version: Version, texts: Texts) -> tuple[float, int]:
    """Mean log-prob a token, and tokens. One model in memory at a time."""
    from clawback import release

    policy = release.load(home, version)
    found = policy.logprobs([messages for messages, _ in texts], [response for _, response in texts])
    tokens = sum(len(one) for one in found)
    total = sum(float(one.sum()) for one in found)
    del policy
    gc.collect()
    return total / max(tokens, 1), tokens
