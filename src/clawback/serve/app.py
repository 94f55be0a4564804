"""The ASGI app: who answers which path."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from clawback import config, jobs, release, store
from clawback.capture.redact import redact
from clawback.errors import ClawbackError, NotFound, UsageError
from clawback.jobs import inbox
from clawback.paths import Home, secret
from clawback.records import Turn, Version
from clawback.serve import guard, wire
from clawback.serve.dialects import BY_PATH, Dialect
from clawback.serve.forward import Forward
from clawback.serve.local import BASE, LIVE, Answer, Local, named
from clawback.serve.recorder import Exchange, Recorder, placed
from clawback.serve.talk import Talk

log = logging.getLogger("clawback.serve")
SETTLE_SECONDS = 30.0


class Server:
    """What the parts of a running server share. Without an upstream, the embedded engine answers."""

    def __init__(self, home: Home, settings: config.Serve | None = None) -> None:
        self.home = home
        self.settings = config.load(home.config)
        self.recorder = Recorder(home, self.settings.privacy)
        self.serve = settings or self.settings.serve
        upstream = self.serve.upstream
        self.forward = Forward(upstream, self.recorder) if upstream else None
        self.local = Local(home)
        self.db: store.Store
        self.checked: dict[int, tuple[tuple[str, int, int], ...]] = {}

    @asynccontextmanager
    async def running(self, _: Any = None) -> AsyncIterator[None]:
        """From the first request to the last: what was recorded is on the disk at the end."""
        self.db = store.connect(self.home.database)
        release.heal(self.db, self.home)
        self.recorder.start()
        try:
            if self.forward:
                await self.forward.start()
            else:
                await asyncio.to_thread(self.local.start)
            settling = asyncio.create_task(self._settle())
            yield
            settling.cancel()
        finally:
            if self.forward:
                await self.forward.close()
            self.local.close()
            self.recorder.close()
            self.db.close()

    async def _settle(self) -> None:
        """Look now and then whether a trial has decided, and whether a run is due."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                await asyncio.to_thread(self._look)
            except ClawbackError as error:
                log.error("a look at trial and schedule failed: %s", error)

    def _look(self) -> None:
        """Off the event loop, with a connection of its own: adding a trial up reads every session of it."""
        with store.connect(self.home.database) as db:
            if ended := release.trial.settle(db, self.home, time.time()):
                log.warning("the trial is over: version %s is live", ended[1].number)
        inbox.fade(self.home)
        # What came together in quiet hours, or while the machine was busy, is trained on when they are over.
        if jobs.maybe_train(self.home):
            log.warning("training started in the background")

    # ------------------------------------------------------------------------------------------- the model

    async def model(self, scope: Any, receive: Any, send: Any) -> None:
        """``/v1/…`` and what agents ask of a server of models besides."""
        path, method = scope["path"], scope["method"]
        if self.forward:
            await self.forward(scope, receive, send)
        elif path in BY_PATH and method == "POST":
            await self._answer(scope, receive, send, BY_PATH[path])
        elif path == "/v1/models" and method in ("GET", "HEAD"):
            await wire.respond(send, 200, json.dumps(self._models()).encode())
        elif path == "/v1/messages/count_tokens" and method == "POST":
            await self._count(scope, receive, send)
        elif path in BY_PATH or path == "/v1/models":
            await wire.refuse(send, scope, 405, f"{method} is not answered here.")
        else:
            await wire.refuse(send, scope, 404, f"There is nothing at {path}.")

    def _models(self) -> dict[str, Any]:
        names = [LIVE, BASE, *(f"clawback-v{v.number}" for v in self.db.versions() if v.path)]
        models = [{"id": n, "object": "model", "created": 0, "owned_by": "clawback"} for n in names]
        return {"object": "list", "data": models}

    async def _count(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            asked = BY_PATH["/v1/messages"].read(_object(await wire.body(receive)))
            count = len(await self.local.read(asked))
        except (ValueError, UsageError) as error:
            await wire.refuse(send, scope, 400, str(error))
            return
        await wire.respond(send, 200, json.dumps({"input_tokens": count}).encode())

    def version_for(self, model: str, session: str) -> Version:
        """Raises ``NotFound`` for a version that there is not, and ``ModelError`` for one that is damaged."""
        number = named(model)
        version = (
            self.db.version(number)
            if number is not None
            else release.trial.version_for(self.db, session, self.check)
        )
        self.check(version)
        return version

    def check(self, version: Version) -> None:
        """``release.check``, which reads the whole adapter, only where its files are not those that were checked before."""
        if not version.path:
            return
        files = sorted(Path(version.path).glob("*"))
        seen = tuple((file.name, *_stamp(file)) for file in files)
        if self.checked.get(version.number) != seen:
            release.check(version)
            self.checked[version.number] = seen

    async def _answer(self, scope: Any, receive: Any, send: Any, dialect: Dialect) -> None:
        try:
            body = _object(await wire.body(receive))
            asked = dialect.read(body)
            headers = wire.headers(scope)
            session, _ = placed(self.db, asked.messages, headers, body)
            version = self.version_for(asked.model, session)
            pieces = self.local.answer(asked, version)
            answer, first = await anext(pieces)
        except (ValueError, UsageError, NotFound) as error:
            status = 404 if isinstance(error, NotFound) else 400
            await wire.refuse(send, scope, status, str(error))
            return
        except ClawbackError as error:
            log.error("an answer failed: %s", redact(str(error)))
            await wire.refuse(send, scope, 503, str(error))
            return
        marks = [(b"x-clawback-version", str(version.number).encode())]

        async def record() -> None:
            number = await self.recorder.record(
                Exchange(
                    dialect,
                    body,
                    headers,
                    session=session,
                    said=answer.said(),
                    version=version.number,
                    response_ids=tuple(answer.ids),
                    response_logprobs=tuple(answer.logprobs),
                )
            )
            log.debug("turn %s by version %s", number, version.number)

        gone = asyncio.create_task(wire.gone(receive))
        talk = Talk(scope, send, dialect, asked, pieces, answer, record, marks, gone)
        try:
            await (talk.stream(first) if asked.stream else talk.whole())
        finally:
            gone.cancel()

    # -------------------------------------------------------------------------------------------- the rest

    def keep(self, like: Turn, answer: Answer) -> int:
        """Enter an answer to the prompt of another turn as a turn of its own."""
        turn = Turn(
            session=f"web:{like.id}",
            messages=like.messages,
            response=answer.text,
            agent="clawback",
            version=answer.version,
            response_ids=tuple(answer.ids),
            response_logprobs=tuple(answer.logprobs),
        )
        return self.db.add_turn(turn).id

    async def health(self, _: Any, receive: Any, send: Any) -> None:  # noqa: ARG002
        await wire.respond(send, 200, b'{"status": "ok"}')

    async def greet(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002
        """Agents knock before they come in (``HEAD /``, ``HEAD /api/hello``)."""
        await wire.respond(send, 200, b"")


def _stamp(file: Path) -> tuple[int, int]:
    seen = file.stat()
    return seen.st_mtime_ns, seen.st_size


def _object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("The body is not JSON.") from None
    if not isinstance(body, dict):
        raise ValueError("The body is not a JSON object.")
    return body


def make(home: Home, settings: config.Serve | None = None) -> Any:
    """The whole app, guarded. ``settings`` in place of the file's."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route

    from clawback.serve import api, hooks, page

    server = Server(home, settings)
    app = Starlette(
        routes=[
            Route("/healthz", _Asgi(server.health), methods=["GET", "HEAD"]),
            Route("/api/hello", _Asgi(server.greet), methods=["HEAD", "GET"]),
            Mount("/api", routes=[*api.routes(server), *hooks.routes(server)]),
            Route("/metrics", api.metrics(server)),
            Route("/v1/{rest:path}", _Asgi(server.model)),
            *page.routes(),
        ],
        lifespan=server.running,
    )
    return guard.Guard(
        app,
        token=secret(home.root / "token"),
        hook_token=secret(home.root / "hook-token"),
        host=server.serve.host,
        names=server.serve.names,
    )


class _Asgi:
    """An ASGI function that starlette takes for an app (it takes functions for something else)."""

    def __init__(self, function: Any) -> None:
        self.function = function

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.function(scope, receive, send)
