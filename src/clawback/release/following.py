"""Which servers follow the live version, how far each of them is, and the process that brings them there.

The store remembers for each target of ``[publish]`` which version it has and what went wrong, so that a failure never
holds up a promotion and is tried again. Light: the work itself is in ``publishing.py``.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from clawback import config
from clawback.errors import ClawbackError
from clawback.paths import Home
from clawback.records import Version
from clawback.runs import trigger

if TYPE_CHECKING:
    from clawback.store import Store

KEY = "published"
"""In the store: how far each target is."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a target is."""

    target: config.PublishTarget
    version: int | None
    """The version that it has, as far as is known; 0: the base model."""
    path: str
    """Of that version's adapter."""
    error: str
    """Why the last try failed, "" where it did not."""
    at: float

    def current(self, live: Version) -> bool:
        """Whether it has the live version. One that differs by its prompt alone is the same elsewhere."""
        return not self.error and self.version is not None and self.path == live.path

    def sentence(self, live: Version) -> str:
        """How far it is, in words."""
        name = "the base model" if live.number == 0 else f"version {live.number}"
        if self.current(live):
            return f"{self.target.where} has {name}"
        if self.error:
            return f"{name} is not published to {self.target.where} yet: {self.error}"
        return f"{name} is being published to {self.target.where}"


def key(target: config.PublishTarget) -> str:
    """What a target is called in the store: the same settings, the same key."""
    import msgspec

    return json.dumps(msgspec.to_builtins(target), sort_keys=True)


def standings(store: Store, settings: config.Config) -> list[Standing]:
    held: Mapping[str, Any] = store.get(KEY, {})
    unknown = {"version": None, "path": "", "error": "", "at": 0.0}
    return [Standing(target, **(unknown | held.get(key(target), {}))) for target in settings.publish.targets]


def remember(store: Store, standing: Standing) -> None:
    """Keep how far a target is; what is no longer in the settings stays until it is named again."""
    values = {name: value for name, value in asdict(standing).items() if name != "target"}
    store.set(KEY, store.get(KEY, {}) | {key(standing.target): values})


def start(store: Store, home: Home) -> None:
    """Have a detached process publish the live version wherever the settings say and it is not yet. Never raises: a version is live whatever becomes of this."""
    try:
        settings = config.load(home.config)
        live = store.live()
        if not any(not one.current(live) for one in standings(store, settings)) or under_way(home):
            return
        trigger.start_process(home, "clawback", ["publish"])
    except (ClawbackError, OSError) as error:
        log.warning("the live version is not published: %s", error)


def retry(store: Store, home: Home, settings: config.Config) -> None:
    """Try again what failed, some minutes after it failed."""
    if not settings.publish.targets:
        return
    live, wait = store.live(), settings.schedule.retry_minutes * 60
    waiting = [one for one in standings(store, settings) if not one.current(live)]
    if waiting and all(time.time() - one.at >= wait for one in waiting):
        start(store, home)


def under_way(home: Home) -> bool:
    """Whether a live process is publishing."""
    return trigger.is_held(home.publish_lock)
