"""One Chromium for all episodes of a set: started when first needed, each episode in a context of its own.

Pages are files, and the browser has no network. On Linux the kernel refuses it every socket that leaves the machine
(``extensions/sandbox/offline.py``): WebSockets, WebRTC and WebTransport are seen by no request handler. On other systems flags
and handlers close them. Every request but ``file:`` and ``data:`` is refused in the context, everywhere.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from clawback.environments.core import EnvironmentFailure
from clawback.environments.world_helpers import needed
from clawback.errors import MissingExtra
from clawback.extensions.sandbox import seccomp

T = TypeVar("T")
OFFLINE = Path(seccomp.__file__).with_name("offline.py")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--mute-audio", "--force-device-scale-factor=1",
    "--disable-features=WebTransport,MediaRouter,DialMediaRouteProvider", "--disable-blink-features=WebTransport,DirectSockets",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=http://127.0.0.1:9", "--proxy-bypass-list=<-loopback>",
)  # fmt: skip
"""The second wall on Linux, and the only one elsewhere: names are not resolved, and every connection goes to a proxy that is not there."""
NO_WEBRTC = "for (const name of ['RTCPeerConnection', 'webkitRTCPeerConnection', 'WebTransport']) delete globalThis[name];"


def program() -> str | None:
    """The Chromium of this machine (``$CLAWBACK_CHROMIUM``, else on the path); None: whatever Playwright installed."""
    named = os.environ.get("CLAWBACK_CHROMIUM")
    return named or next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Chromium:
    """A browser in a thread with an event loop of its own, so that whoever plays may come with any loop, or with several in turn.

    ``aclose`` ends it; work that is given to it after that starts another.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._guard = threading.Lock()
        self._starting = asyncio.Lock()
        self._play: Any = None
        self._browser: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something with pages, in the browser's loop."""
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._starting = asyncio.Lock()
                threading.Thread(target=_turn, args=(self._loop,), name="chromium", daemon=True).start()
            loop = self._loop
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def page(self, width: int, height: int, root: Path) -> Any:
        """A fresh page in a context of its own, which can read files below ``root`` and nothing else. Close its context after use.

        To be called in the browser's loop.
        """
        browser = await self._started()
        context = await browser.new_context(
            viewport={"width": width, "height": height}, accept_downloads=False, service_workers="block"
        )

        await self._shut(context, root)
        page = await context.new_page()
        page.set_default_timeout(10_000)
        return page

    async def _shut(self, context: Any, root: Path) -> None:
        """Refuse a context's requests, but for files below ``root``, and its sockets."""

        async def gate(route: Any) -> None:
            url = route.request.url
            allowed = url.startswith((f"{root.as_uri()}/", "data:", "about:"))
            await (route.continue_() if allowed else route.abort())

        async def refuse(socket: Any) -> None:
            await socket.close()

        await context.route("**/*", gate)
        await context.route_web_socket("**/*", refuse)
        await context.add_init_script(NO_WEBRTC)

    async def aclose(self) -> None:
        """End the browser and its thread, where there are any."""
        if self._loop is None:
            return
        await self.run(self._stop())
        with self._guard:
            loop, self._loop = self._loop, None
        assert loop
        loop.call_soon_threadsafe(loop.stop)

    async def _stop(self) -> None:
        browser, play, self._browser, self._play = self._browser, self._play, None, None
        if browser is not None:
            await browser.close()
        if play is not None:
            await play.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def _started(self) -> Any:
        async with self._starting:
            if self._browser is None or not self._browser.is_connected():
                await self._start()
            return self._browser

    async def _start(self) -> None:
        needed("playwright", "The browser agent", "browser")
        from playwright.async_api import Error, async_playwright

        if self._play is None:
            self._play = await async_playwright().start()
        found = program()
        # Chromium's own walls need user namespaces that root is refused.
        as_root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
        missing = MissingExtra(
            "There is no Chromium on this machine. Install it (Debian: apt-get install chromium; else: playwright install "
            "chromium), or name one in $CLAWBACK_CHROMIUM."
        )
        path = found or self._play.chromium.executable_path
        if not Path(path).exists():
            raise missing
        try:
            self._browser = await self._play.chromium.launch(
                executable_path=self._offline(path), args=[*FLAGS, *as_root]
            )
        except Error as error:
            raise EnvironmentFailure(
                f"{path} does not start without a network: {str(error).splitlines()[0]} One that is installed as a snap cannot: "
                "install another (playwright install chromium) and name it in $CLAWBACK_CHROMIUM."
            ) from error

    def _offline(self, path: str) -> str:
        """A program that starts this Chromium without a network, where the kernel can be told; else the Chromium itself.

        Playwright speaks to it through pipes that it inherits, so it needs no socket.
        """
        machine = os.uname().machine if sys.platform == "linux" else ""
        if machine not in seccomp.ARCHITECTURES:
            return path
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="clawback-chromium-")
        words = [sys.executable, "-I", "-S", str(OFFLINE), seccomp.offline(machine).hex(), path]
        starter = Path(self._folder.name) / "chromium"
        starter.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        starter.chmod(0o700)
        return str(starter)


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    """The thread: turn the loop until it is stopped."""
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
