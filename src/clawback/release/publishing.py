"""Publishes a version to a server, and the live version to every server that follows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clawback import config, plugins, store
from clawback.errors import ClawbackError, UsageError
from clawback.paths import Home
from clawback.records import Version
from clawback.release import following, version_registry
from clawback.release.following import Standing
from clawback.release.publishers import (
    NotLoaded,
    Publication,
    Publisher,
    Target,
    make,
    probe,
)
from clawback.release.version_registry import load

if TYPE_CHECKING:
    from clawback.store import Store

MOST_ROUNDS = 8
"""Times that one process looks again whether another version went live meanwhile."""
WAIT_SECONDS = 60.0


def target_of(settings: config.PublishTarget) -> Target:
    """A target of the settings, whose folder may be replaced by the next version."""
    return Target(
        settings.where,
        url=settings.url,
        out=Path(settings.output) if settings.output else None,
        base=settings.base,
        model=settings.name,
        presets=Path(settings.presets) if settings.presets else None,
        renew=True,
    )


def check(version: Version, where: str) -> None:
    """Raises ``UsageError`` for a version that cannot be handed to this publisher."""
    version_registry.passed(version)
    if version_registry.weights_of(Path(version.path)).name == version_registry.DELTA and getattr(
        plugins.load(plugins.PUBLISHERS, where), "adapter_alone", False
    ):
        raise UsageError(
            f"Version {version.number} changes all weights, so there is no adapter to hand over. "
            "`clawback versions publish merged --output FOLDER` writes a whole model, `publish gguf` one in a GGUF file."
        )


def publication_of(home: Home, version: Version, settings: config.Config) -> Publication:
    """What is published of a version, with a prompt that tells it from its base. Loads the model."""
    policy = load(home, version, settings)
    return Publication(
        version.number,
        Path(version.path),
        policy.info.base,
        policy.info.revision,
        probe(policy),
        policy.config,
        settings.publish.converter,
    )


def bring(publisher: Publisher, publication: Publication) -> str:
    """Publish, and ask the new model one question; where it does not answer as the version does, undo it. The proof, in a sentence.

    Raises ``ClawbackError`` with what is there now.
    """
    publisher.publish(publication)
    try:
        return publisher.verify(publication)
    except NotLoaded:
        raise
    except ClawbackError as problem:
        if not hasattr(publisher, "undo"):  # a plugin of an earlier release
            raise
        try:
            undone = publisher.undo(publication)
        except (ClawbackError, OSError) as error:
            raise ClawbackError(f"{problem} Undoing it failed as well: {error}") from problem
        if not undone:
            raise
        raise ClawbackError(f"{problem} It was undone: {undone}.") from problem


def publish_live(home: Home, tell: Callable[[str], None] = lambda _: None) -> list[Standing]:
    """Bring every target of the settings to the live version. Failures are remembered, told in a sentence each, and stop no other target.

    Raises ``Busy`` while another process is at it.
    """
    from filelock import FileLock, Timeout

    from clawback.errors import Busy

    try:
        with FileLock(home.publish_lock, timeout=WAIT_SECONDS), store.connect(home.database) as db:
            tried: set[tuple[str, int]] = set()
            for _ in range(MOST_ROUNDS):
                settings, live = config.load(home.config), db.live()
                waiting = [
                    one
                    for one in following.standings(db, settings)
                    if not one.current(live) and (following.key(one.target), live.number) not in tried
                ]
                if not waiting:
                    break
                tried |= {(following.key(one.target), live.number) for one in waiting}
                _bring(db, home, settings, live, [one.target for one in waiting], tell)
            return following.standings(db, config.load(home.config))
    except Timeout:
        raise Busy("Another process is publishing. `clawback status` shows how far it is.") from None


def _bring(
    db: Store,
    home: Home,
    settings: config.Config,
    live: Version,
    targets: list[config.PublishTarget],
    tell: Callable[[str], None],
) -> None:
    publication: Publication | None = None
    for target in targets:
        version, error = live.number, ""
        try:
            publisher = make(target_of(target))
            if not live.path:
                if not hasattr(publisher, "withdraw"):
                    raise UsageError(f"The publisher {target.where} cannot take a version back.")
                done = publisher.withdraw()
            else:
                check(live, target.where)
                publication = publication or publication_of(home, live, settings)
                done = bring(publisher, publication)
            tell(f"{target.where}: {done}.")
        except (ClawbackError, OSError) as problem:
            error = str(problem)
            tell(f"{target.where}: {error}")
        following.remember(db, Standing(target, version, live.path, error, time.time()))
