"""Pages with scripts that mean harm, in a real Chromium: nothing arrives at listeners on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")

from clawback.extensions.browser import chromium

pytestmark = pytest.mark.skipif(not chromium.program(), reason="Chromium is not here")

WAYS = {
    "a WebSocket": "const s = new WebSocket('ws://127.0.0.1:$tcp'); await new Promise(r => { s.onopen = r; s.onerror = r; s.onclose = r; })",
    "a WebSocket of a worker": "const w = new Worker(URL.createObjectURL(new Blob(['const s = new WebSocket(\"ws://127.0.0.1:$tcp\"); s.onopen = s.onerror = s.onclose = () => postMessage(1)'])));"
    "await new Promise(r => { w.onmessage = r; w.onerror = r; })",
    "a WebSocket of a frame": "const f = document.createElement('iframe'); f.srcdoc = '<script>new WebSocket(\"ws://127.0.0.1:$tcp\")</' + 'script>'; document.body.append(f)",
    "a WebSocket by a name": "const s = new WebSocket('ws://localhost:$tcp'); await new Promise(r => { s.onopen = r; s.onerror = r; s.onclose = r; })",
    "STUN": "const p = new RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:$udp'}]}); globalThis.p = p; p.createDataChannel('x'); await p.setLocalDescription(await p.createOffer())",
    "TURN over TCP": "const p = new RTCPeerConnection({iceServers: [{urls: 'turn:127.0.0.1:$tcp?transport=tcp', username: 'u', credential: 'c'}]});"
    "globalThis.p = p; p.createDataChannel('x'); await p.setLocalDescription(await p.createOffer())",
    "TURN over UDP": "const p = new RTCPeerConnection({iceTransportPolicy: 'relay', iceServers: [{urls: 'turn:127.0.0.1:$udp', username: 'u', credential: 'c'}]});"
    "globalThis.p = p; p.createDataChannel('x'); await p.setLocalDescription(await p.createOffer())",
    "WebRTC of a frame": "const f = document.createElement('iframe'); document.body.append(f); const p = new f.contentWindow.RTCPeerConnection({iceServers: [{urls: 'stun:127.0.0.1:$udp'}]});"
    "globalThis.p = p; p.createDataChannel('x'); await p.setLocalDescription(await p.createOffer())",
    "WebTransport": "const t = new WebTransport('https://127.0.0.1:$udp/'); await t.ready",
    "WebTransport of a worker": "const w = new Worker(URL.createObjectURL(new Blob(['new WebTransport(\"https://127.0.0.1:$udp/\").ready.catch(() => 0).then(() => postMessage(1))'])));"
    "await new Promise(r => { w.onmessage = r; w.onerror = r; })",
    "fetch": "await fetch('http://127.0.0.1:$tcp/')",
    "a beacon": "navigator.sendBeacon('http://127.0.0.1:$tcp/', 'x')",
    "events": "const e = new EventSource('http://127.0.0.1:$tcp/'); await new Promise(r => { e.onerror = r; e.onopen = r; })",
    "hints": "for (const rel of ['dns-prefetch', 'preconnect', 'prefetch', 'preload', 'prerender']) { const l = document.createElement('link'); l.rel = rel; l.href = 'http://127.0.0.1:$tcp/'; document.head.append(l); }",
    "rules of speculation": "const s = document.createElement('script'); s.type = 'speculationrules'; s.textContent = '{\"prefetch\": [{\"source\": \"list\", \"urls\": [\"http://127.0.0.1:$tcp/\"]}]}'; document.head.append(s)",
    "a ping": "const a = document.createElement('a'); a.href = '#x'; a.ping = 'http://127.0.0.1:$tcp/'; document.body.append(a); a.click()",
    "a window": "window.open('http://127.0.0.1:$tcp/')",
}  # fmt: skip


@pytest.fixture
def listeners() -> Iterator[dict[str, socket.socket]]:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        for it in (tcp, udp):
            it.bind(("127.0.0.1", 0))
            it.setblocking(False)
        tcp.listen(64)
        yield {"$tcp": tcp, "$udp": udp}


def arrivals(listeners: dict[str, socket.socket]) -> list[str]:
    found = []
    for name, it in listeners.items():
        with contextlib.suppress(BlockingIOError):
            it.accept() if name == "$tcp" else it.recv(2000)
            found.append(name)
    return found


async def visit(page: Any, code: str, listeners: dict[str, socket.socket]) -> None:
    for name, it in listeners.items():
        code = code.replace(name, str(it.getsockname()[1]))
    with contextlib.suppress(Exception):  # what is refused throws
        await page.evaluate(
            f"async () => {{ await Promise.race([(async () => {{ {code} }})(), new Promise(r => setTimeout(r, 700))]); }}"
        )
    await page.wait_for_timeout(2500 if "RTC" in code else 300)


def browse(tmp_path: Path, listeners: dict[str, socket.socket], ways: dict[str, str] = WAYS) -> list[str]:
    """Those of the ways by which something arrived."""
    (tmp_path / "page.html").write_text("<!doctype html><title>ready</title><body>")
    browser = chromium.Chromium()
    found = []

    async def scene() -> None:
        for name, code in ways.items():
            page = await browser.page(400, 300, tmp_path)
            await page.goto((tmp_path / "page.html").as_uri())
            assert await page.title() == "ready"
            await visit(page, code, listeners)
            await page.context.close()
            found.extend(f"{name}: {kind}" for kind in arrivals(listeners))

    async def complete() -> None:
        async with asyncio.timeout(240):
            try:
                await browser.run(scene())
            finally:
                await browser.aclose()

    asyncio.run(complete())
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's wall is Linux's")
def test_what_no_handler_sees_is_refused_by_the_kernel(
    tmp_path: Path, listeners: dict[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "FLAGS", ("--disable-gpu",))
    monkeypatch.setattr(chromium.Chromium, "_shut", _open)
    names = ("a WebSocket of a worker", "STUN", "WebTransport")
    assert browse(tmp_path, listeners, {name: WAYS[name] for name in names}) == []


@pytest.mark.slow
def test_nothing_of_a_page_reaches_the_machine(tmp_path: Path, listeners: dict[str, socket.socket]) -> None:
    assert browse(tmp_path, listeners) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's wall is Linux's")
def test_the_kernel_alone_holds_it(
    tmp_path: Path, listeners: dict[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the flags and handlers, which a new version of Chromium may read otherwise."""
    monkeypatch.setattr(chromium, "FLAGS", ("--disable-gpu",))
    monkeypatch.setattr(chromium, "NO_WEBRTC", "")
    monkeypatch.setattr(chromium.Chromium, "_shut", _open)
    assert browse(tmp_path, listeners) == []


@pytest.mark.slow
def test_flags_alone_hold_it(
    tmp_path: Path, listeners: dict[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What other systems have."""
    monkeypatch.setattr(chromium.Chromium, "_offline", lambda _, path: path)
    assert browse(tmp_path, listeners) == []


async def _open(*_: Any) -> None:
    """No handler at all."""
