"""Publishers make the live version available to other inference servers.

Each can say what it will do before it does it (``plan``), does it (``publish``), and then proves that the new adapter really answers
(``verify``); where it does not, ``undo`` brings back what was there. Each is an entry point of the group
``clawback.publishers``.
"""

from __future__ import annotations

from clawback import plugins
from clawback.errors import UsageError
from clawback.release.publishers.publisher import NotLoaded, Probe, Publication, Publisher, Target, probe

__all__ = [
    "NotLoaded",
    "Probe",
    "Publication",
    "Publisher",
    "Target",
    "make",
    "names",
    "probe",
]


def names() -> list[str]:
    """Every publisher: those of Clawback, then those of other packages."""
    return [*plugins.built_in(plugins.PUBLISHERS), *sorted(plugins.others(plugins.PUBLISHERS))]


def make(target: Target) -> Publisher:
    """Raises ``UsageError`` for a name that there is not."""
    if target.name not in {*plugins.BUILT_IN[plugins.PUBLISHERS], *names()}:
        raise UsageError(f"There is no publisher {target.name!r}; there are: {', '.join(names())}.")
    publisher: Publisher = plugins.load(plugins.PUBLISHERS, target.name)(target)
    return publisher
