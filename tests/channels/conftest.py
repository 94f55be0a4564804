"""A scene: a bot on a fake platform that speaks the real protocol, and behind it the real server in front of a scripted model."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from clawback import config, store
from clawback.extensions import channels
from clawback.extensions.channels.channel import Desk
from clawback.inference import wire
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.serve import app as serving
from tests.channels.world import World
from tests.serve.conftest import Running

SECONDS = 120


class Model:
    """An upstream that answers ``Answer to: …``, or what it is told to; ``hold`` keeps it from answering."""

    def __init__(self) -> None:
        self.says: str | None = None
        self.status = 200
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = threading.Event()
        self.got: list[dict[str, Any]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        raw = await wire.body(receive)
        if scope["path"] == "/healthz":
            await wire.respond(send, 200, b"{}")
            return
        body = json.loads(raw)
        self.got.append(body)
        self.asked.set()
        assert await asyncio.to_thread(self.go_on.wait, SECONDS)
        said = self.says if self.says is not None else f"Answer to: {body['messages'][-1]['content']}"
        message = {"role": "assistant", "content": said}
        data = {"id": "x", "object": "chat.completion", "created": 1, "model": "scripted"}
        data["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        await wire.respond(send, self.status, json.dumps(data).encode())


class Scene:
    """What a test plays with."""

    def __init__(self, home: Home, world: World, desk: Desk, model: Model, server: Callable[[], Running]):
        self.home, self.world, self.desk, self.model = home, world, desk, model
        self._start = server
        self.server: Running | None = None

    def serve(self) -> None:
        self.server = self._start()
        (self.home.root / "server.port").write_text(f"{self.server.port}\n")

    async def idle(self) -> None:
        """Everything said so far has been acted on: a question of the owner's that came last is answered."""
        await self.world.says(self.world.OWNER, "/rl status")
        while "ratings" not in (await self.world.next()).text:
            pass
        await self.settled()

    async def settled(self) -> None:
        while self.desk.working:
            await asyncio.wait(set(self.desk.working))

    async def asks(self, text: str, **where: Any) -> Any:
        """The owner asks; the last message of the answer, when all is stored."""
        self.world.look_away()
        before = len(self.world.sent)
        await self.world.says(self.world.OWNER, text, **where)
        await self.world.next()
        await self.settled()
        self.world.look_away()
        return self.world.sent[before:][-1]

    def turns(self) -> list[Turn]:
        """Oldest first."""
        with store.connect(self.home.database) as db:
            return list(reversed(db.turns(limit=1000)))

    def said(self) -> dict[str, list[float]]:
        """Prompt → the values of what was said about its answer, without what was taken back."""
        with store.connect(self.home.database) as db:
            found: dict[str, list[float]] = {}
            for given in db.feedback():
                found.setdefault(db.turn(given.turn_id).prompt, []).append(given.value)
            return found

    def feedback(self) -> list[Feedback]:
        with store.connect(self.home.database) as db:
            return db.feedback(active=False)


Play = Callable[..., None]


@pytest.fixture
def running() -> Iterator[Callable[[Any], Running]]:
    started: list[Running] = []

    def start(app: Any) -> Running:
        started.append(Running(app))
        return started[-1]

    yield start
    for one in reversed(started):
        if one.thread.is_alive():
            one.close()


@pytest.fixture(params=channels.NAMES)
def platform(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def play(
    platform: str, home: Home, running: Callable[[Any], Running], monkeypatch: pytest.MonkeyPatch
) -> Play:
    """``play(scene)``: the bot of the platform runs, and the scene is played. ``settings`` go into config.toml."""
    module = channels.find(platform)
    pytest.importorskip(module.LIBRARY)
    kind = importlib.import_module(f"tests.channels.fake_{platform}")

    @asynccontextmanager
    async def set_up(served: bool, settings: str) -> AsyncIterator[Scene]:
        async with kind.world(monkeypatch) as world:
            owners = json.dumps([world.OWNER])
            friends = json.dumps([world.FRIEND])
            home.config.write_text(
                "[training]\nbackground = false\n"
                f"[{platform}]\nowners = {owners}\nallowed = {friends}\n{world.settings()}{settings}"
            )
            model = Model()
            there = running(model)
            desk = Desk(home, platform, channels.settings_of(home, platform), module.LIMIT)
            scene = Scene(
                home,
                world,
                desk,
                model,
                lambda: running(serving.make(home, config.ServeSection(upstream=there.url))),
            )
            (home.root / "server.port").write_text("9\n")
            if served:
                scene.serve()
            bot = asyncio.create_task(module.run(desk, desk.settings, world.TOKENS))
            ready = asyncio.create_task(world.ready.wait())
            await asyncio.wait({bot, ready}, return_when=asyncio.FIRST_COMPLETED)
            if bot.done():
                bot.result()
            try:
                yield scene
                assert not bot.done(), "the bot ended by itself"
            finally:
                bot.cancel()
                try:
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait_for(bot, SECONDS / 2)
                finally:
                    model.go_on.set()

    def start(scene: Callable[[Scene], Awaitable[None]], *, served: bool = True, settings: str = "") -> None:
        async def whole() -> None:
            async with asyncio.timeout(SECONDS), set_up(served, settings) as made:
                await scene(made)

        asyncio.run(whole())

    return start
