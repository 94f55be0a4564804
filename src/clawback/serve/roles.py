"""Roles: who may do what over HTTP, one line per route. A route that is not listed is for the owner alone.

* **owner**: everything. The token of the home (``$CLAWBACK_HOME/token``), and people who were invited as
  owners.
* **rater**: what they are asked about, and what they themselves say of it; nothing that reveals what others
  said, who wrote an answer, or the results.
* **viewer**: reads turns, versions, runs and results; changes nothing.

Roles are checked after routing, not by the text of the path: writing an address differently does not get
around them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clawback.errors import UsageError
from clawback.store.invitations import PREFIX, Role

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

Who = Role
READS: frozenset[Who] = frozenset({"owner", "viewer"})
RATES: frozenset[Who] = frozenset({"owner", "rater"})
EVERYONE: frozenset[Who] = frozenset({"owner", "rater", "viewer"})
OWNER: frozenset[Who] = frozenset({"owner"})

ALLOWED: dict[tuple[str, str], frozenset[Who]] = {
    ("GET", "/me"): EVERYONE,
    ("GET", "/openapi.json"): EVERYONE,
    ("GET", "/assigned"): RATES,
    ("GET", "/assigned/{id:int}"): RATES,
    ("POST", "/turns/{id:int}/feedback"): RATES,
    ("POST", "/preferences"): RATES,
    ("GET", "/status"): READS,
    ("GET", "/turns"): READS,
    ("GET", "/search"): READS,
    ("GET", "/turns/{id:int}"): READS,
    ("GET", "/sessions"): READS,
    ("GET", "/sessions/{name:path}"): READS,
    ("GET", "/versions"): READS,
    ("GET", "/prompts"): READS,
    ("GET", "/rules"): READS,
    ("GET", "/rules/{id:int}"): READS,
    ("GET", "/runs"): READS,
    ("GET", "/runs/{id:int}"): READS,
    ("GET", "/episodes"): READS,
    ("GET", "/episodes/{id:int}"): READS,
    ("GET", "/learning"): READS,
    ("GET", "/raters"): READS,
}
"""Method, path under ``/api`` → roles."""


@dataclass(frozen=True, slots=True)
class Person:
    """The person whose token a request carries. ``name`` is "" for the token of the home."""

    role: Who
    name: str = ""

    @property
    def source(self) -> str:
        """The source of their feedback; "" where they may name one."""
        return PREFIX + self.name if self.name else ""

    @property
    def blind(self) -> bool:
        """Whether they see only what they are asked about, and nothing that others said of it."""
        return self.role == "rater"


ROOT = Person("owner")


def person(scope: Scope) -> Person:
    """The person that ``guard`` identified."""
    found = scope.get("clawback.person", ROOT)
    assert isinstance(found, Person)
    return found


def admitted(routes: Iterable[Any]) -> list[Any]:
    """The routes under ``/api``, each with its roles asked for before anything of it runs."""
    made = []
    for route in routes:
        route.app = _Admitting(route.app, route.path)
        made.append(route)
    return made


def said_by(whom: Person, named: str) -> str:
    """The source of a request's feedback. Raises ``UsageError`` where it speaks for somebody else."""
    if whom.source:
        return whom.source
    if named.startswith(PREFIX):
        raise UsageError("Feedback of an invited rater must come with that rater's own token.")
    return named[:40]


class _Admitting:
    """An ASGI app around a route's own."""

    def __init__(self, app: Any, path: str) -> None:
        self.app, self.path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whom = person(scope)
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if whom.role in ALLOWED.get((method, self.path), OWNER):
            await self.app(scope, receive, send)
            return
        text = json.dumps({"error": f"This is not for a {whom.role}: ask whoever invited you."}).encode()
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": 403, "headers": head})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else text})
