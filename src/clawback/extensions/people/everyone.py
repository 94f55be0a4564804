"""One server for several people: each has the whole app on a home of their own, and all share one model.

A request's token identifies its owner; nothing of anybody else can be reached with it, because each app knows
one home alone. A person's invited raters have tokens that begin with that person's name, and reach what
roles.py lists in that home. The model is one copy, and answers to different people are sampled in one batch,
each with its own adapter (``shared_rows.py``). Homes are opened on demand, and closed again
where more than ``[people] open`` are.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clawback import config, jobs
from clawback.dialects import is_model_path
from clawback.errors import ClawbackError
from clawback.extensions.people.fair import FairQueue
from clawback.extensions.people.homes import PersonHomes
from clawback.inference import wire
from clawback.inference.local import LocalEngine
from clawback.inference.server import Server, keep_little, keep_what_is_loaded
from clawback.jobs.control import under_way
from clawback.paths import Home
from clawback.serve import app, guard
from clawback.store.invitations import ADDRESSED

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from clawback.extensions.people.shared_rows import SharedShelf
    from clawback.policy import Policy

log = logging.getLogger("clawback.serve")
LOOK_SECONDS = 5.0
DAY = 86_400.0


@dataclass(eq=False)
class OpenHome:
    """Somebody's app while it is in use."""

    server: Server
    app: Any
    running: Any
    busy: int = 0
    answering: int = 0


class Everyone:
    """An ASGI app."""

    def __init__(self, people: PersonHomes, settings: config.ServeSection | None = None) -> None:
        self.people = people
        house = config.load(people.house.config)
        self.serve, self.limits = settings or house.serve, house.people
        self.model = house.model
        self.local = LocalEngine(people.house, self._shelf_of)
        self.waiting = FairQueue(people.root / "training")
        self.opened: OrderedDict[str, OpenHome] = OrderedDict()
        self.opening = asyncio.Lock()
        self.training: dict[str, float] = {}
        """Whose run is under way → since when."""
        self.public = self._public()

    def _shelf_of(self, policy: Policy) -> SharedShelf | None:
        from clawback.extensions.people.shared_rows import shelf_of

        return shelf_of(policy, self.limits.adapters, self.limits.adapters_memory * 2**20)

    def _public(self) -> Any:
        from starlette.applications import Starlette
        from starlette.routing import Route

        routes = [Route("/healthz", app.Asgi(app.health), methods=["GET", "HEAD"]), *app.page_routes()]
        nobody = secrets.token_urlsafe(32)
        return guard.Guard(
            Starlette(routes=routes),
            token=nobody,
            hook_token=nobody,
            host=self.serve.host,
            names=self.serve.names,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http" or scope["path"] == "/healthz" or scope["path"] in app.FILES:
            await self.public(scope, receive, send)
            return
        tokens = guard.tokens_of(wire.headers(scope))
        name = next(filter(None, map(self.people.whose, tokens)), None)
        if name is None:
            name = await asyncio.to_thread(self._invited_by, tokens)
            # On loopback a person's own app asks nobody for a token under /v1/: here that is the person's alone.
            if name is not None and (is_model_path(scope["path"]) or not scope["path"].startswith("/api/")):
                await wire.refuse(send, scope, 403, "A rater's token is good for rating: it opens no model.")
                return
        if name is None:
            await wire.refuse(send, scope, 401, "A token is needed: Authorization: Bearer NAME.SECRET.")
            return
        try:
            theirs = await self._open(name)
        except ClawbackError as error:
            log.error("the home of %s could not be opened: %s", name, error)
            await wire.refuse(send, scope, 503, str(error))
            return
        try:
            await self._pass(theirs, scope, receive, send)
        finally:
            theirs.busy -= 1

    def _invited_by(self, tokens: list[str]) -> str | None:
        """In whose home one of these is the token of an invited rater (``ada.cbr_…``)."""
        for found in filter(None, map(ADDRESSED.fullmatch, tokens)):
            name = found[1] or ""
            if self.people.has(name) and app.holder(self.people.home(name), found[2]):
                return name
        return None

    async def _pass(self, opened: OpenHome, scope: Scope, receive: Receive, send: Send) -> None:
        """Into somebody's app, within what they may use."""
        if not is_model_path(scope["path"]) or scope["method"] != "POST":
            await opened.app(scope, receive, send)
            return
        if opened.answering >= self.limits.at_once:
            await wire.refuse(
                send, scope, 429, f"{opened.answering} of your requests are being answered: wait for one."
            )
            return
        most, spent = self.limits.tokens_a_day, opened.server.spent_today()
        if most and spent >= most:
            await wire.refuse(
                send,
                scope,
                429,
                f"Your {most} tokens of today are used up; the next day begins at midnight UTC.",
            )
            return
        opened.answering += 1
        try:
            await opened.app(scope, receive, send)
        finally:
            opened.answering -= 1

    async def _open(self, name: str) -> OpenHome:
        """Somebody's app, counted as busy. Raises ``ClawbackError``."""
        async with self.opening:
            theirs = self.opened.get(name)
            if theirs is None:
                home = self.people.home(name)
                mine = config.load(home.config)
                other = mine.model.revision not in (None, self.model.revision)
                if mine.model.base != self.model.base or other:
                    raise ClawbackError(
                        f"The settings of {name} name {mine.model.base}, but this server has {self.model.base}."
                    )
                server = Server(home, config.changed(self.serve, {"upstream": ""}), local=self.local)
                server.train = lambda: self.waiting.ask(name)
                running = server.running()
                await running.__aenter__()
                made = app.around(server)
                made.open = False  # that this machine asks is no proof of who asks
                theirs = self.opened[name] = OpenHome(server, made, running)
            theirs.app.token, theirs.app.hook_token = self.people.secrets(name)
            self.opened.move_to_end(name)
            theirs.busy += 1
            idle = [who for who, one in self.opened.items() if not one.busy]
            for who in idle[: max(0, len(self.opened) - self.limits.open)]:
                await self.opened.pop(who).running.__aexit__(None, None, None)
            return theirs

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            keep_little()
            await asyncio.to_thread(self.local.start)
            keep_what_is_loaded()
        except ClawbackError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        async with self._looking():
            await send({"type": "lifespan.startup.complete"})
            await receive()
        for theirs in self.opened.values():
            await theirs.running.__aexit__(None, None, None)
        self.opened.clear()
        self.local.close()
        gc.unfreeze()
        await send({"type": "lifespan.shutdown.complete"})

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        async def look() -> None:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                try:
                    await asyncio.to_thread(self.train_next)
                except ClawbackError as error:
                    log.error("a look at whose run is next failed: %s", error)

        task = asyncio.create_task(look())
        try:
            yield
        finally:
            task.cancel()

    def train_next(self) -> None:
        """Note what runs that ended took, and begin the next where there is room."""
        for name, began in list(self.training.items()):
            taken = time.time() - began
            # A process takes a moment until it holds its lock.
            if taken > LOOK_SECONDS and not under_way(self.people.home(name)):
                self.waiting.spent(name, taken)
                del self.training[name]
        while len(self.training) < self.limits.runs and (chosen := self.waiting.next()) is not None:
            self.waiting.drop(chosen)
            if chosen not in self.training and jobs.maybe_train(self.people.home(chosen)):
                log.warning("training started for %s", chosen)
                self.training[chosen] = time.time()


def make(home: Home, settings: config.ServeSection | None = None) -> Everyone:
    """The app of everybody under this root."""
    return Everyone(PersonHomes(home.root), settings)


def names(home: Home) -> list[str]:
    """Who there is."""
    return PersonHomes(home.root).names()
