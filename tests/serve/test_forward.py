"""In front of an upstream: bytes pass, turns are on the disk before the end is seen, and nothing waits before that."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawback import config, feedback, store
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running, Upstream, sse

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hello?"}]}
ANSWER = json.dumps(
    {"model": "m-1", "choices": [{"message": {"role": "assistant", "content": "Hi."}}]}
).encode()


def chunk(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"model": "m-1", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


def turns(home: Home) -> list[Any]:
    with store.connect(home.database) as db:
        return list(reversed(db.turns(limit=1000)))


def test_a_request_and_its_answer_pass_byte_for_byte_and_are_kept(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    upstream.says(ANSWER)
    raw = b' {"model": "m",\n "messages":[{"role":"user","content":"Hello?"}], "odd": [1, null]} '
    sent = {"authorization": "Bearer my-own-key", "content-type": "application/json", "x-other": "kept"}
    answer = httpx.post(f"{proxy.url}/v1/chat/completions?beta=true", content=raw, headers=sent)
    assert (answer.status_code, answer.content) == (200, ANSWER)
    [(method, address, headers, body)] = upstream.got
    assert (method, address, body) == ("POST", "/v1/chat/completions?beta=true", raw)
    assert {name: headers[name] for name in sent} == sent
    [turn] = turns(home)
    assert (turn.prompt, turn.response, turn.model, turn.kind) == ("Hello?", "Hi.", "m-1", "main")
    assert "my-own-key" not in home.database.read_bytes().decode("latin-1")


def test_the_first_token_waits_for_nothing_and_the_end_for_the_disk(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    go_on = threading.Event()
    first, last = sse(chunk("Hi")), sse(chunk(" there.", "stop"), "[DONE]")
    upstream.says(first, go_on, last, kind="text/event-stream")
    with httpx.stream("POST", f"{proxy.url}/v1/chat/completions", json=ASKED | {"stream": True}) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == first, "shown while the upstream has not gone on"
        assert turns(home) == []
        go_on.set()
        seen = b""
        while b"[DONE]" not in seen:
            seen += next(pieces)
        assert [t.response for t in turns(home)] == ["Hi there."], "kept before the end was passed on"
        assert seen + b"".join(pieces) == last


def test_what_broke_off_is_kept_but_never_trained_on(proxy: Running, upstream: Upstream, home: Home) -> None:
    upstream.says(sse(chunk("Half an ans")), kind="text/event-stream")
    httpx.post(f"{proxy.url}/v1/chat/completions", json=ASKED | {"stream": True})
    [turn] = turns(home)
    assert (turn.response, turn.kind, turn.ending) == ("Half an ans", "main", "incomplete")
    with store.connect(home.database) as db:
        feedback.rate(db, turn.id, 1.0)
        assert feedback.samples(db) == []


def test_what_was_heard_is_kept_at_once_when_a_client_leaves_a_silent_upstream(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    never = threading.Event()
    upstream.says(sse(chunk("Half an ans")), never, kind="text/event-stream")
    with httpx.stream("POST", f"{proxy.url}/v1/chat/completions", json=ASKED | {"stream": True}) as answer:
        next(answer.iter_raw())
    deadline = time.monotonic() + 20
    while not turns(home) and time.monotonic() < deadline:
        time.sleep(0.02)  # the server sees that the client has gone
    assert [(t.response, t.ending) for t in turns(home)] == [("Half an ans", "interrupted")]
    never.set()


@pytest.mark.parametrize("begun", [True, False], ids=["in the middle", "before a word"])
def test_no_upstream_works_on_for_a_client_that_has_left(
    begun: bool, home: Home, running: Callable[[Any], Running]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        there.settimeout(20)
        address = f"http://127.0.0.1:{there.getsockname()[1]}"
        server = running(serving.make(home, config.ServeSection(upstream=address)))
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            body = json.dumps(ASKED).encode()
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
            client.sendall(head % len(body) + body)
            upstream, _ = there.accept()
            upstream.settimeout(20)
            asked = b""
            while not asked.endswith(body):
                asked += upstream.recv(65536)
            if begun:
                upstream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
                assert client.recv(65536)
        with upstream:
            assert upstream.recv(65536) == b"", "the connection is closed"


def test_errors_and_other_paths_pass_and_leave_nothing(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    upstream.says(b'{"error": "slow down"}', status=429)
    answer = httpx.post(f"{proxy.url}/v1/messages", json=ASKED)
    assert (answer.status_code, answer.json()) == (429, {"error": "slow down"})
    upstream.says(b"[0.1, 0.2]")
    assert httpx.post(f"{proxy.url}/v1/embeddings", json={"input": "x"}).json() == [0.1, 0.2]
    assert httpx.get(f"{proxy.url}/v1/models").json() == [0.1, 0.2]
    assert turns(home) == []


def test_an_upstream_that_is_not_there_is_said_in_the_clients_own_dialect(
    home: Home, running: Callable[[Any], Running]
) -> None:
    server = running(serving.make(home, config.ServeSection(upstream="http://user:word@127.0.0.1:9")))
    answer = httpx.post(f"{server.url}/v1/messages", json=ASKED)
    assert answer.status_code == 502
    assert answer.json()["type"] == "error"
    assert "127.0.0.1:9" in answer.text
    assert "word" not in answer.text


ANTHROPIC = [
    {"type": "message_start", "message": {"model": "claude-x"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Let me "}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "look."}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"command": '}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '"ls"}'}},
    {"type": "message_stop"},
]  # fmt: skip
RESPONSES = [
    {"type": "response.output_text.delta", "delta": "Let me look."},
    {"type": "response.output_item.done", "item": {"type": "function_call", "call_id": "t1", "name": "Bash", "arguments": '{"command": "ls"}'}},
    {"type": "response.completed", "response": {"object": "response", "status": "completed", "model": "gpt-x", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "Let me look."}]},
        {"type": "function_call", "call_id": "t1", "name": "Bash", "arguments": '{"command": "ls"}'}]}},
]  # fmt: skip
CHAT = [
    chunk("Let me look."),
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "t1", "function": {"name": "Bash", "arguments": ""}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '{"command": "ls"}'}}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    "[DONE]",
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "events", "asked"),
    [
        ("/v1/messages", ANTHROPIC, {"messages": [{"role": "user", "content": [{"type": "text", "text": "List it."}]}]}),
        ("/v1/responses", RESPONSES, {"input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List it."}]}]}),
        ("/v1/chat/completions", CHAT, {"messages": [{"role": "user", "content": "List it."}]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cut", [1, 7, 10_000])
def test_tool_calls_are_read_in_every_dialect_however_the_stream_is_cut(
    proxy: Running, upstream: Upstream, home: Home, path: str, events: list[Any], asked: Any, cut: int
) -> None:
    raw = sse(*events)
    upstream.says(*[raw[i : i + cut * 16] for i in range(0, len(raw), cut * 16)], kind="text/event-stream")
    answer = httpx.post(proxy.url + path, json=asked | {"stream": True, "tools": []})
    assert answer.content == raw
    [turn] = turns(home)
    assert (turn.prompt, turn.response, turn.kind) == ("List it.", "Let me look.", "main")
    assert [dict(c) for c in turn.calls] == [{"id": "t1", "name": "Bash", "arguments": '{"command": "ls"}'}]


def test_what_a_model_writes_about_streams_does_not_end_its_turn(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    words = [
        "say ",
        "[DONE]",
        " and message_stop",
        "\ndata: [DONE]\n",
        "\nevent: response.completed\n",
        "there.",
    ]
    raw = sse(*(chunk(word) for word in words), chunk("", "stop"), "[DONE]")
    upstream.says(*[raw[i : i + 50] for i in range(0, len(raw), 50)], kind="text/event-stream")
    httpx.post(f"{proxy.url}/v1/chat/completions", json=ASKED | {"stream": True})
    assert [(t.response, t.kind) for t in turns(home)] == [("".join(words), "main")]


def test_secrets_are_not_stored_nor_what_is_no_picture(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    key = "sk-ant-" + "a1" * 20
    upstream.says(
        json.dumps({"type": "message", "content": [{"type": "text", "text": f"Your key is {key}."}]}).encode()
    )
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBOR" * 100},
    }
    content = [{"type": "text", "text": f"My key is {key}"}, picture]
    httpx.post(f"{proxy.url}/v1/messages", json={"messages": [{"role": "user", "content": content}]})
    [turn] = turns(home)
    assert key not in str(turn)
    assert "iVBOR" not in str(turn)
    assert json.loads(upstream.got[0][3])["messages"][0]["content"] == content, "the upstream gets all of it"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/v1/messages", "/v1/responses", "/v1/chat/completions", "/v1/x"]),
    asked=st.binary(max_size=80) | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
            st.sampled_from(["messages", "input", "role", "content", "type", "tools", "text", "stream"]), inner, max_size=4),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
    said=st.binary(max_size=120),
    stream=st.booleans(),
)  # fmt: skip
def test_whatever_is_asked_and_answered_passes(
    proxy: Running, upstream: Upstream, path: str, asked: bytes, said: bytes, stream: bool
) -> None:
    upstream.says(*([said] if said else []), kind="text/event-stream" if stream else "application/json")
    answer = httpx.post(proxy.url + path, content=asked)
    assert (answer.status_code, answer.content) == (200, said)


def test_a_full_collection_in_a_running_server_leaves_out_what_was_loaded_before_it(
    proxy: Running, upstream: Upstream
) -> None:
    upstream.says(ANSWER)
    loaded = gc.get_freeze_count()
    httpx.post(proxy.url + "/v1/chat/completions", json=ASKED, timeout=60)
    proxy.close()
    # Some tens of thousands of objects are the imported modules alone; none is exempt any more when the server has ended.
    assert loaded > 10_000
    assert gc.get_freeze_count() == 0
