"""docs/security.md, line by line: who may ask, and how much."""

from __future__ import annotations

import contextlib
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from clawback import config, paths
from clawback.capture import server_proof
from clawback.paths import Home
from clawback.serve import app, guard, protocol
from clawback.serve import app as serving

from .conftest import Running, Upstream

API = ["/api/status", "/api/turns", "/api/turns/1", "/api/sessions", "/api/versions", "/api/runs", "/api/learning", "/api/health", "/metrics"]  # fmt: skip
WRITES = [
    "/api/turns/1/feedback",
    "/api/preferences",
    "/api/versions/1/promote",
    "/api/rollback",
    "/api/train",
    "/api/pairs",
]


@pytest.mark.parametrize("path", API)
def test_reading_turns_needs_the_token(proxy: Running, secret: dict[str, str], path: str) -> None:
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic " + secret["authorization"][7:]},
    ):
        assert httpx.get(proxy.url + path, headers=headers).status_code == 401
    assert httpx.get(proxy.url + path, headers=secret).status_code in (200, 404)
    assert httpx.get(proxy.url + path, headers={"x-api-key": secret["authorization"][7:]}).status_code in (
        200,
        404,
    )


@pytest.mark.parametrize("path", WRITES)
def test_changing_anything_needs_the_token(proxy: Running, path: str) -> None:
    assert httpx.post(proxy.url + path, json={}).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.:1"]
)
def test_a_name_that_is_not_ours_is_refused(proxy: Running, secret: dict[str, str], host: str) -> None:
    for path in ("/", "/v1/models", "/api/status", "/healthz"):
        assert httpx.get(proxy.url + path, headers=secret | {"host": host}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_no_other_site_can_make_a_browser_act_here(
    proxy: Running, secret: dict[str, str], upstream: Upstream, headers: dict[str, str]
) -> None:
    assert httpx.post(proxy.url + "/api/rollback", headers=secret | headers, json={}).status_code == 403
    assert httpx.post(proxy.url + "/v1/messages", headers=headers, json={}).status_code == 403
    assert upstream.got == []


def test_our_own_page_may(proxy: Running, secret: dict[str, str]) -> None:
    headers = secret | {"origin": proxy.url, "sec-fetch-site": "same-origin"}
    assert httpx.get(proxy.url + "/api/status", headers=headers).status_code == 200


def test_beyond_loopback_even_a_question_needs_the_token(
    home: Home, upstream: Upstream, running: Callable[[Any], Running], secret: dict[str, str]
) -> None:
    there = running(upstream)
    settings = config.ServeSection(upstream=there.url, host="0.0.0.0", names=("box.local",))
    server = running(serving.make(home, settings))
    assert httpx.post(server.url + "/v1/messages", json={}).status_code == 401
    token = {"x-clawback-token": secret["authorization"][7:], "x-api-key": "the upstream's"}
    assert (
        httpx.post(server.url + "/v1/messages", json={}, headers=token | {"host": "box.local"}).status_code
        == 200
    )
    assert upstream.got[0][2]["x-api-key"] == "the upstream's"
    assert "x-clawback-token" not in upstream.got[0][2]


def test_the_page_runs_nothing_from_elsewhere(proxy: Running) -> None:
    answer = httpx.get(proxy.url + "/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    ours = {path: file for path, (file, _) in app.FILES.items() if "/vendor/" not in path}
    assert {"/", "/app.js", "/style.css"} <= ours.keys()
    for file in ours.values():
        text = file.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert "innerHTML" not in text, "what a model wrote becomes markup through the sanitiser alone"
    for path, (file, _) in app.FILES.items():
        assert httpx.get(proxy.url + path).content == file.read_bytes()
        if path.startswith("/vendor/") and path.endswith(".js"):
            assert "eval(" not in (text := file.read_text("utf-8"))
            assert "new Function(" not in text
            package = path.removeprefix("/vendor/").split("/")[0].removesuffix(".js")
            assert (app.WEB / "vendor" / f"{package}.LICENSE").is_file()


@pytest.mark.parametrize(
    "path",
    ["/../token", "/..%2ftoken", "/%2e%2e/%2e%2e/etc/passwd", "/web/app.js", "/app.js/../../config.py", "//etc/passwd", "/token", "/clawback.db"],
)  # fmt: skip
def test_no_path_reaches_the_file_system(proxy: Running, path: str) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while more := raw.recv(65536):
            answer += more
    assert answer.split(b"\r\n")[0].split()[1] in (b"404", b"400")


def test_a_body_has_a_limit_and_a_time(
    proxy: Running, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "MOST_BYTES", 1000)
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    assert httpx.post(proxy.url + "/v1/messages", content=b"x" * 1001).status_code == 413
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        raw.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nslow")
        assert b" 408 " in raw.recv(4096)
    assert upstream.got == []


def test_headers_without_end_are_cut_off(proxy: Running) -> None:
    def send() -> None:
        for _ in range(10_000):
            raw.sendall(b"X: " + b"a" * 1000 + b"\r\n")

    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError):
            send()


@pytest.mark.parametrize("pieces", [1, 3])
def test_the_limit_of_the_headers_is_exact(proxy: Running, pieces: int) -> None:
    """Address, names, values and four signs a line: 65,536 bytes pass, and one more does not, however they arrive."""
    for extra, status in ((0, b"HTTP/1.1 200"), (1, b"HTTP/1.1 400"), (40_000, b"HTTP/1.1 400")):
        lines = [b"Host: localhost\r\n", b"Connection: close\r\n"]
        room = 64 * 1024 - len(b"/healthz") - sum(map(len, lines)) - 8 * len(b"X: \r\n") + extra
        lines += [b"X: " + b"a" * (room // 8 + (room % 8 if n == 0 else 0)) + b"\r\n" for n in range(8)]
        request = b"GET /healthz HTTP/1.1\r\n" + b"".join(lines) + b"\r\n"
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as raw:
            step = len(request) // pieces + 1
            with contextlib.suppress(OSError):  # it may be closed before all of it is sent
                for begin in range(0, len(request), step):
                    raw.sendall(request[begin : begin + step])
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(65536).startswith(status)


def test_a_request_line_by_line_is_not_held_up(proxy: Running) -> None:
    """As shells write it: each line waits until the one before is acknowledged, which takes 40 ms on a connection that has answered."""
    if not hasattr(socket, "TCP_QUICKACK"):
        pytest.skip("only Linux can be asked to acknowledge at once")
    took = []
    for _ in range(8):
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client:
            for _ in range(2):
                began = time.perf_counter()
                for line in (b"GET /healthz HTTP/1.1\r\n", b"Host: 127.0.0.1\r\n", b"X-A: b\r\n", b"\r\n"):
                    client.send(line)
                assert b"200 OK" in client.recv(65536)
            took.append(time.perf_counter() - began)
    assert min(took) < 0.03


def test_a_connection_that_says_nothing_is_closed(
    home: Home, upstream: Upstream, running: Callable[[Any], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.2)
    server = running(serving.make(home, config.ServeSection(upstream="http://127.0.0.1:9")))
    for begun in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as raw:
            raw.sendall(begun)
            assert raw.recv(4096) == b""


def test_the_token_is_the_owners_alone_and_stays(tmp_path: Path) -> None:
    made = paths.secret(tmp_path / "token")
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert len(made) >= 43
    assert paths.secret(tmp_path / "token") == made
    (tmp_path / "token").write_text("short")
    assert len(paths.secret(tmp_path / "token")) >= 43


def test_the_hooks_token_opens_nothing_else(proxy: Running, home: Home) -> None:
    token = {"x-clawback-token": paths.secret(home.root / "hook-token")}
    for path in API:
        assert httpx.get(proxy.url + path, headers=token).status_code == 401
    for path in WRITES:
        assert httpx.post(proxy.url + path, headers=token, json={}).status_code == 401
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": "/rl status"}
    assert httpx.post(proxy.url + "/api/hooks/claude-code", json=event).status_code == 401
    answer = httpx.post(proxy.url + "/api/hooks/claude-code", headers=token, json=event)
    assert answer.json()["decision"] == "block"
    assert httpx.post(proxy.url + "/api/hooks/status-line", headers=token).text.startswith("clawback v0")
    assert httpx.post(proxy.url + "/api/hooks/emacs", headers=token, json=event).status_code == 404
    assert httpx.post(proxy.url + "/api/hooks/codex", headers=token, content=b"{").status_code == 200


def test_the_server_proves_itself_to_who_asks_without_a_token(proxy: Running, home: Home) -> None:
    def asked(**headers: str) -> httpx.Response:
        return httpx.get(proxy.url + server_proof.PATH, headers=headers)

    word = server_proof.nonce()
    got = asked(**{server_proof.HEADER: word})
    assert server_proof.holds(home, proxy.port, word, got.text)
    assert not server_proof.holds(home, proxy.port + 1, word, got.text), "it is good for this port alone"
    assert not server_proof.holds(home, proxy.port, server_proof.nonce(), got.text), "and for this question"
    assert asked(**{server_proof.HEADER: "short"}).status_code == 404
    assert asked().status_code == 404
    assert not server_proof.holds(home, proxy.port, "", "")
    assert server_proof.proven(home, proxy.port)
