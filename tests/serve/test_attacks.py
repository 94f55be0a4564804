"""What an attacker tried, request by request: tokens, paths, pages under a model's paths, and who vouches for a turn."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from clawback import config, paths, store
from clawback.capture import ingest
from clawback.capture.events import AnswerEvent, PromptEvent
from clawback.dialects import parsing
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running, Upstream, sse

ASKED = {"model": "m", "messages": [{"role": "user", "content": "How do I boil rice?"}]}


def answer(text: str) -> bytes:
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode()


def turns(home: Home) -> list[Any]:
    with store.connect(home.database) as db:
        return list(reversed(db.turns(limit=1000)))


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-goog-api-key", "x-clawback-token"])
@pytest.mark.parametrize("which", ["token", "hook-token"])
@pytest.mark.parametrize("path", ["/v1/models", "/v1beta/models", "/api/tags"])
def test_our_tokens_never_reach_the_upstream(
    home: Home, proxy: Running, upstream: Upstream, name: str, which: str, path: str
) -> None:
    token = paths.secret(home.root / which)
    upstream.says(b"{}")
    value = f"Bearer {token}" if name == "authorization" else token
    assert httpx.get(f"{proxy.url}{path}", headers={name: value, "x-other": "kept"}).status_code == 200
    [(_, _, headers, _)] = upstream.got
    assert headers["x-other"] == "kept"
    assert token not in str(headers)


def test_a_token_in_the_address_goes_nowhere(home: Home, proxy: Running, upstream: Upstream) -> None:
    token = paths.secret(home.root / "token")
    assert httpx.get(f"{proxy.url}/v1/models?key={token}").status_code == 400
    assert upstream.got == []


@pytest.mark.parametrize(
    "path", ["/v1/../api/tags", "/v1/%2e%2e/api/tags", "/v1/..%2fapi/tags", "/v1/%252e%252e/x", "/v1/..\\x"]
)
def test_no_path_climbs_out_of_the_upstreams_api(proxy: Running, upstream: Upstream, path: str) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        assert raw.recv(4096).startswith(b"HTTP/1.1 400")
    assert upstream.got == []


def test_what_an_upstream_serves_is_no_page(proxy: Running, upstream: Upstream) -> None:
    upstream.says(b"<script>steal()</script>", kind="text/html")
    upstream.headers += [(b"service-worker-allowed", b"/"), (b"content-security-policy", b"script-src *")]
    got = httpx.get(f"{proxy.url}/v1/evil.html")
    assert got.content == b"<script>steal()</script>", "the bytes pass, as an error page of a gateway does"
    assert got.headers["content-type"] == "text/plain; charset=utf-8"
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-security-policy"].startswith("sandbox;")
    assert "service-worker-allowed" not in got.headers
    upstream.says(b"steal()", kind="application/javascript")
    assert httpx.get(f"{proxy.url}/v1/sw.js").headers["content-type"] == "application/octet-stream"
    upstream.says(b"{}", kind="application/json; charset=utf-8")
    assert httpx.get(f"{proxy.url}/v1/x").headers["content-type"] == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    "headers",
    [{"sec-fetch-dest": "document"}, {"sec-fetch-dest": "script"}, {"sec-fetch-dest": "serviceworker"}, {"service-worker": "script"}],
)  # fmt: skip
def test_a_browser_gets_it_by_fetch_alone(
    proxy: Running, upstream: Upstream, headers: dict[str, str]
) -> None:
    assert httpx.get(f"{proxy.url}/v1/evil.html", headers=headers).status_code == 403
    assert upstream.got == []
    upstream.says(b"{}")
    assert httpx.get(f"{proxy.url}/v1/models", headers={"sec-fetch-dest": "empty"}).status_code == 200


def test_nobody_makes_guesses_or_the_last_answer_without_a_token_or_a_hook(
    home: Home, proxy: Running, upstream: Upstream, secret: dict[str, str]
) -> None:
    def asks(text: str, headers: dict[str, str], session: str) -> None:
        said: list[dict[str, str]] = [{"role": "user", "content": f"How do I boil {text}?"}]
        for words in ("Slowly.", "As I said."):
            upstream.says(answer(words))
            sent = headers | {"x-session-id": session}
            httpx.post(f"{proxy.url}/v1/chat/completions", json={"messages": said}, headers=sent)
            said += [{"role": "assistant", "content": words}, said[0]]

    asks("rice", {}, "a")
    with store.connect(home.database) as db:
        assert db.last_turn() is None, "`clawback good` rates nothing that just anybody put there"
        assert db.feedback() == []
        assert db.followed_turns("judge", 10) == []
    asks("eggs", secret, "b")
    with store.connect(home.database) as db:
        assert [f.source for f in db.feedback()] == ["asked-again"]
        last = db.last_turn()
        assert last
        assert (last.session, last.response) == ("b", "As I said.")


def test_a_hook_vouches_for_what_the_server_recorded(home: Home, proxy: Running, upstream: Upstream) -> None:
    upstream.says(answer("Slowly."))
    httpx.post(f"{proxy.url}/v1/chat/completions", json=ASKED, headers={"x-session-id": "s"})
    assert [t.vouched for t in turns(home)] == [False]
    ingest.take(home, "claude-code", PromptEvent("s", "How do I boil rice?", "p"))
    ingest.take(home, "claude-code", AnswerEvent("s", "Slowly.", "p"))
    assert [(t.vouched, t.response) for t in turns(home)] == [(True, "Slowly.")]


def test_a_packed_request_is_recorded(home: Home, proxy: Running, upstream: Upstream) -> None:
    upstream.says(answer("Slowly."))
    raw = gzip.compress(json.dumps(ASKED).encode())
    httpx.post(f"{proxy.url}/v1/chat/completions", content=raw, headers={"content-encoding": "gzip"})
    assert upstream.got[0][3] == raw
    assert [t.response for t in turns(home)] == ["Slowly."]


def test_half_a_character_is_stored_as_a_sign_and_two_halves_as_one(
    home: Home, proxy: Running, upstream: Upstream
) -> None:
    """Both are valid JSON: what a client cuts in two, and what a model's server sends in two pieces."""
    pieces = ("It ", "\ud83e", "\udda6", " swims \udda6.")
    deltas = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    upstream.says(
        sse(*deltas, {"choices": [{"delta": {}, "finish_reason": "stop"}]}, "[DONE]"),
        kind="text/event-stream",
    )
    asked = {
        "messages": [{"role": "user", "content": "An otter \ud83e\udda6 or half \ud83e?"}],
        "stream": True,
    }
    assert (
        httpx.post(f"{proxy.url}/v1/chat/completions", content=json.dumps(asked).encode()).status_code == 200
    )
    assert [(t.prompt, t.response) for t in turns(home)] == [
        ("An otter 🦦 or half \ufffd?", "It 🦦 swims \ufffd.")
    ]


def test_a_bomb_is_not_unpacked_and_a_million_parts_are_not_read() -> None:
    with pytest.raises(ValueError, match="larger than"):
        parsing.request_body(gzip.compress(b" " * (parsing.MOST_UNPACKED + 1)), "gzip")
    with pytest.raises(ValueError, match="parts"):
        parsing.request_body(b'{"messages": [' + b"{}," * parsing.MOST_PARTS + b"{}]}")
    with pytest.raises(ValueError, match="messages: more than"):
        parsing.request_body(json.dumps({"messages": [{}] * (parsing.MOST_MESSAGES + 1)}).encode())


def test_a_client_that_leaves_after_the_reason_has_had_all_of_it(
    home: Home, proxy: Running, upstream: Upstream
) -> None:
    events = [
        {"type": "message_start", "message": {"model": "c"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Slowly."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    ]
    upstream.says(sse(*events), kind="text/event-stream")
    httpx.post(f"{proxy.url}/v1/messages", json=ASKED | {"stream": True})
    assert [(t.response, t.kind) for t in turns(home)] == [("Slowly.", "main")]


def test_an_upstream_that_breaks_off_costs_one_line(
    home: Home, running: Callable[[Any], Running], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        server = running(
            serving.make(home, config.ServeSection(upstream=f"http://127.0.0.1:{there.getsockname()[1]}"))
        )
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            body = json.dumps(ASKED | {"stream": True}).encode()
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            upstream, _ = there.accept()
            with upstream:
                upstream.recv(65536)
                upstream.sendall(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n"
                )
            got = b""
            while piece := client.recv(65536):
                got += piece
    assert b"data:" in got
    assert not got.endswith(b"0\r\n\r\n"), "what was cut off must not look whole"
    assert [r.getMessage()[:23] for r in caplog.records if r.levelname != "DEBUG"] == [
        "the upstream broke off:"
    ]
    assert not any(r.exc_info for r in caplog.records)


GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Slowly."}]}, "finishReason": "STOP"}],
    "modelVersion": "g",
}
OLLAMA = [
    {"model": "o", "message": {"role": "assistant", "content": "Slow"}, "done": False},
    {"model": "o", "message": {"role": "assistant", "content": "ly."}, "done": False},
    {"model": "o", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"},
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "asked", "said", "kind"),
    [
        ("/v1beta/models/g:generateContent", {"contents": [{"parts": [{"text": "How?"}]}]}, json.dumps(GEMINI).encode(), "application/json"),
        ("/v1beta/models/g:streamGenerateContent?alt=sse", {"contents": [{"role": "user", "parts": [{"text": "How?"}]}]}, sse(GEMINI), "text/event-stream"),
        ("/v1beta/models/g:streamGenerateContent", {"contents": [{"parts": [{"text": "How?"}]}]}, json.dumps([GEMINI]).encode(), "application/json"),
        ("/api/chat", {"model": "o", "messages": [{"role": "user", "content": "How?"}]}, b"".join(json.dumps(o).encode() + b"\n" for o in OLLAMA), "application/x-ndjson"),
        ("/api/generate", {"model": "o", "prompt": "How?", "stream": False}, b'{"model": "o", "response": "Slowly.", "done": true}', "application/json"),
    ],
)  # fmt: skip
def test_gemini_and_ollama_pass_and_are_recorded(
    home: Home, proxy: Running, upstream: Upstream, path: str, asked: Any, said: bytes, kind: str
) -> None:
    upstream.says(said[:20], said[20:], kind=kind)
    assert httpx.post(proxy.url + path, json=asked).content == said
    assert upstream.got[0][1] == path
    [turn] = turns(home)
    assert (turn.prompt, turn.response, turn.kind) == ("How?", "Slowly.", "main")
    assert turn.model in ("g", "o")


def test_ollamas_tools_and_ours_do_not_meet(proxy: Running, upstream: Upstream) -> None:
    upstream.says(b'{"models": []}')
    assert httpx.get(f"{proxy.url}/api/tags").json() == {"models": []}
    assert httpx.get(f"{proxy.url}/api/turns").status_code == 401
    assert httpx.request("DELETE", f"{proxy.url}/api/delete", json={"model": "o"}).status_code == 401
    assert len(upstream.got) == 1
