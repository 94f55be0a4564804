"""A running server on loopback, and an upstream that says what a test tells it to, when it tells it to."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from clawback import config, jobs, paths
from clawback.inference import wire
from clawback.paths import Home
from clawback.serve import app as serving
from clawback.serve import protocol

from .desk import Desk
from .page import CHROMIUM, PATIENCE_MS, QUIET, fill, fits, is_wrong
from .page import sse as sse


class Running:
    """An ASGI app on a port of its own, on a thread of its own; ``call`` runs something on its event loop."""

    def __init__(self, app: Any) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(512)
        self.port = self.socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = uvicorn.Server(
            uvicorn.Config(
                app, http=protocol.Limited, log_level="error", access_log=False, timeout_graceful_shutdown=5
            )
        )
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        for _ in range(600):
            try:
                if httpx.get(self.url + "/healthz", timeout=5).status_code:
                    break
            except httpx.HTTPError:
                self.thread.join(0.1)
        else:
            raise AssertionError("the server did not start")

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join(timeout=30)
        self.socket.close()
        assert not self.thread.is_alive(), "the server did not end"


class Upstream:
    """Plays a script: status, headers and chunks. A chunk that is an event is waited for before the next is sent."""

    def __init__(self) -> None:
        self.script: list[bytes | threading.Event] = []
        self.headers = [(b"content-type", b"application/json")]
        self.status = 200
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []

    def says(
        self, *script: bytes | threading.Event, kind: str = "application/json", status: int = 200
    ) -> None:
        self.script, self.status = list(script), status
        self.headers = [(b"content-type", kind.encode())]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        body = await wire.body(receive)
        if scope["path"] != "/healthz":
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            address = scope["raw_path"].decode() + (
                "?" + scope["query_string"].decode() if scope["query_string"] else ""
            )
            self.got.append((scope["method"], address, headers, body))
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for part in list(self.script):
            if isinstance(part, bytes):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            else:
                assert await asyncio.to_thread(part.wait, 30), "nobody said that it may go on"
        await send({"type": "http.response.body", "body": b"", "more_body": False})


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


@pytest.fixture(scope="session")
def embedded_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("embedded") / "home")
    home.create()
    return home


@pytest.fixture(scope="session")
def embedded_server(embedded_home: Home) -> Iterator[Running]:
    """One server with the embedded model for all tests that only ask it and look at the newest turn: loading takes seconds."""
    running = Running(serving.make(embedded_home))
    yield running
    running.close()


@pytest.fixture
def upstream() -> Upstream:
    return Upstream()


@pytest.fixture
def proxy(home: Home, upstream: Upstream, running: Callable[[Any], Running]) -> Running:
    """The server, in front of the upstream."""
    there = running(upstream)
    return running(serving.make(home, config.ServeSection(upstream=there.url)))


@pytest.fixture
def secret(home: Home) -> dict[str, str]:
    return {"authorization": f"Bearer {paths.secret(home.root / 'token')}"}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens the page of a server; at the end nothing may have gone wrong in the browser."""
    contexts, wrong = [], []

    def open_page(server: Running, home: Home, *, scheme: str = "light", width: int = 1200) -> Any:
        context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda m: wrong.append(m.text) if is_wrong(m) else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(f"{server.url}/#token={paths.secret(home.root / 'token')}")
        page.wait_for_selector("h1")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == [], "nothing went wrong in the browser"


@pytest.fixture(params=[("light", 1200), ("dark", 400)], ids=["desk", "telephone"])
def page(request: Any, home: Home, proxy: Running, upstream: Upstream, opened: Callable[..., Any]) -> Any:
    upstream.says(json.dumps({"data": [{"id": "some-model"}]}).encode())
    fill(home)
    scheme, width = request.param
    return opened(proxy, home, scheme=scheme, width=width)


@pytest.fixture
def desk(
    page: Any, home: Home, upstream: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """A person at the page; at the end nothing sticks out of it."""
    monkeypatch.setattr(jobs, "start", lambda *_, **__: True)  # nothing is trained here
    yield Desk(page, home, upstream, tmp_path)
    assert fits(page)
