"""The live prompt in a request: at the end of the agent's own system prompt, once, in every dialect; and not where it has no business."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from typing import Any

import httpx
import pytest

from clawback import release, store
from clawback.dialects import of
from clawback.dialects.system import put
from clawback.gate import prompt_gate as prompt_gate
from clawback.paths import Home
from clawback.release import prompted, trial

from .conftest import Running, Upstream, sse

PROMPT = "Answer in at most two short sentences."
OTHER = "Use metric units."
CHAT = "/v1/chat/completions"
ANSWER = json.dumps(
    {"model": "m-1", "choices": [{"message": {"role": "assistant", "content": "Hi."}}]}
).encode()


def live(home: Home, text: str) -> int:
    """A version with that prompt, put live by hand."""
    with store.connect(home.database) as db:
        version = prompted.propose(db, text, origin={"author": "hand"})
        return prompt_gate.by_hand(db, home, version).number


def texts(value: Any) -> str:
    return json.dumps(value)


BODIES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "chat": (
        CHAT,
        {"messages": [{"role": "system", "content": "You are an agent."}, {"role": "user", "content": "Hello?"}]},
        lambda b: b["messages"][0]["content"] == f"You are an agent.\n\n{PROMPT}",
    ),
    "chat, blocks": (
        CHAT,
        {"messages": [{"role": "developer", "content": [{"type": "text", "text": "Own."}]}, {"role": "user", "content": "Hello?"}]},
        lambda b: b["messages"][0]["content"] == [{"type": "text", "text": "Own."}, {"type": "text", "text": PROMPT}],
    ),
    "chat, none": (
        CHAT,
        {"messages": [{"role": "user", "content": "Hello?"}]},
        lambda b: b["messages"] == [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Hello?"}],
    ),
    "responses": (
        "/v1/responses",
        {"instructions": "Own.", "input": "Hello?"},
        lambda b: b["instructions"] == f"Own.\n\n{PROMPT}",
    ),
    "responses, developer": (
        "/v1/responses",
        {"input": [{"role": "developer", "content": [{"type": "input_text", "text": "Own."}]}, {"role": "user", "content": "Hello?"}]},
        lambda b: b["input"][0]["content"][-1] == {"type": "input_text", "text": PROMPT} and "instructions" not in b,
    ),
    "responses, none": ("/v1/responses", {"input": "Hello?"}, lambda b: b["instructions"] == PROMPT),
    "anthropic": (
        "/v1/messages",
        {"system": "Own.", "messages": [{"role": "user", "content": "Hello?"}]},
        lambda b: b["system"] == f"Own.\n\n{PROMPT}",
    ),
    "anthropic, blocks": (
        "/v1/messages",
        {
            "system": [{"type": "text", "text": "You are Claude Code."}, {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": "Hello?"}],
        },
        lambda b: b["system"][:2] == [{"type": "text", "text": "You are Claude Code."}, {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}]
        and b["system"][2:] == [{"type": "text", "text": PROMPT}],
    ),
    "gemini": (
        "/v1beta/models/g:generateContent",
        {"systemInstruction": {"parts": [{"text": "Own."}]}, "contents": [{"role": "user", "parts": [{"text": "Hello?"}]}]},
        lambda b: b["systemInstruction"]["parts"] == [{"text": "Own."}, {"text": PROMPT}],
    ),
    "gemini, none": (
        "/v1beta/models/g:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "Hello?"}]}]},
        lambda b: b["systemInstruction"]["parts"] == [{"text": PROMPT}],
    ),
    "ollama": (
        "/api/chat",
        {"messages": [{"role": "system", "content": "Own."}, {"role": "user", "content": "Hello?"}], "stream": False},
        lambda b: b["messages"][0]["content"] == f"Own.\n\n{PROMPT}",
    ),
    "ollama, generate": (
        "/api/generate",
        {"system": "Own.", "prompt": "Hello?", "stream": False},
        lambda b: b["system"] == f"Own.\n\n{PROMPT}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_put_adds_once_and_leaves_the_rest(name: str) -> None:
    path, body, right = BODIES[name]
    dialect = of(path)
    assert dialect is not None
    before = json.dumps(body)
    made = put(dialect.name, body, PROMPT)
    assert made is not None
    assert right(made)
    assert json.dumps(body) == before, "the caller's own is not changed"
    assert put(dialect.name, made, PROMPT) is None, "never twice"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "Once upon"}),
        (
            "/v1beta/models/g:generateContent",
            {"cachedContent": "c/1", "contents": [{"parts": [{"text": "a"}]}]},
        ),
        ("/api/generate", {"prompt": "a", "raw": True}),
    ],
)
def test_put_leaves_alone_what_has_no_place(path: str, body: dict[str, Any]) -> None:
    dialect = of(path)
    assert dialect is not None
    assert put(dialect.name, body, PROMPT) is None


def test_the_prompt_stands_at_the_end_of_the_agents_own_and_the_rest_is_as_it_was(
    proxy: Running, upstream: Upstream, home: Home, secret: dict[str, str]
) -> None:
    number = live(home, PROMPT)
    upstream.says(ANSWER)
    for path, body, right in BODIES.values():
        answer = httpx.post(
            proxy.url + path, json=body | {"model": "m", "odd": [1, None, "ü"]}, headers=secret
        )
        assert (answer.status_code, answer.headers["x-clawback-prompt"]) == (200, str(number))
        raw = upstream.got[-1][3]
        sent = json.loads(raw)
        assert right(sent), sent
        assert sent["odd"] == [1, None, "ü"]
        assert raw.count(PROMPT.encode()) == 1


def test_the_turn_is_kept_without_the_prompt_and_knows_which_one_answered(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    number = live(home, PROMPT)
    upstream.says(ANSWER)
    first = [{"role": "system", "content": "Own."}, {"role": "user", "content": "Hello?"}]
    httpx.post(proxy.url + CHAT, json={"messages": first})
    again = [*first, {"role": "assistant", "content": "Hi."}, {"role": "user", "content": "And now?"}]
    httpx.post(proxy.url + CHAT, json={"messages": again})
    with store.connect(home.database) as db:
        second, one = db.turns()
    assert PROMPT not in texts([dict(m) for m in one.messages])
    assert (one.version, second.version) == (number, number)
    assert one.session == second.session, "the conversation goes on"
    assert [dict(m) for m in one.next_state] == [{"role": "user", "content": "And now?"}]


def test_the_same_conversation_is_sent_with_the_same_beginning_each_time(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    live(home, PROMPT)
    upstream.says(ANSWER)
    messages: list[dict[str, str]] = [{"role": "system", "content": "Own."}]
    for i in range(3):
        messages.append({"role": "user", "content": f"Question {i}"})
        httpx.post(proxy.url + CHAT, json={"messages": messages})
        messages.append({"role": "assistant", "content": "Hi."})
    sent = [json.loads(raw)["messages"] for *_, raw in upstream.got]
    for shorter, longer in pairwise(sent):
        assert longer[: len(shorter)] == shorter


ERRANDS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"x-turn-type": "side"}),
    ({}, {"x-claude-code-agent-id": "7"}),
    ({"messages": [{"role": "user", "content": "Generate a concise title for this"}]}, {}),
    ({"max_tokens": 1}, {}),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}}, {}),
]
UNREADABLE = (
    b"",
    b"{",
    b"[1]",
    b'{"messages": 7}',
    b'{"messages": ["a", 1]}',
    b'{"messages": []}',
    b"\xff\xfe",
)


def test_an_agents_errands_and_what_cannot_be_read_pass_byte_for_byte(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    live(home, PROMPT)
    upstream.says(ANSWER)
    for body, headers in ERRANDS:
        raw = json.dumps({"messages": [{"role": "user", "content": "Hello?"}]} | body, indent=3).encode()
        answer = httpx.post(proxy.url + CHAT, content=raw, headers=headers)
        assert upstream.got[-1][3] == raw
        assert "x-clawback-prompt" not in answer.headers
    for raw in UNREADABLE:
        httpx.post(proxy.url + CHAT, content=raw)
        assert upstream.got[-1][3] == raw


def test_without_a_live_prompt_every_byte_is_the_agents(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    live(home, PROMPT)
    with store.connect(home.database) as db:
        release.rollback(db, home)
    upstream.says(ANSWER)
    raw = b' {"messages" : [{"role":"user","content":"H\\u00fc?"}], "model":"m" } '
    answer = httpx.post(proxy.url + CHAT, content=raw)
    assert upstream.got[0][3] == raw
    assert "x-clawback-prompt" not in answer.headers
    with store.connect(home.database) as db:
        assert db.turns()[0].version is None


def test_a_compressed_request_is_sent_plain_with_the_prompt(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    live(home, PROMPT)
    upstream.says(ANSWER)
    raw = gzip.compress(json.dumps({"messages": [{"role": "user", "content": "Hello?"}]}).encode())
    httpx.post(proxy.url + CHAT, content=raw, headers={"content-encoding": "gzip"})
    [(_, _, headers, sent)] = upstream.got
    assert "content-encoding" not in headers
    assert json.loads(sent)["messages"][0] == {"role": "system", "content": PROMPT}
    # Half of a surrogate pair, as a conversation cut in the middle of an emoji has it, becomes the sign for what cannot be read.
    httpx.post(proxy.url + CHAT, content=b'{"messages": [{"role": "user", "content": "x \\ud83d y"}]}')
    assert b"x \\ufffd y" in upstream.got[-1][3]


def test_a_stream_says_its_version_too(proxy: Running, upstream: Upstream, home: Home) -> None:
    number = live(home, PROMPT)
    chunk = {"model": "m", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
    upstream.says(sse(chunk, "[DONE]"), kind="text/event-stream")
    answer = httpx.post(
        proxy.url + CHAT, json={"messages": [{"role": "user", "content": "Hello?"}], "stream": True}
    )
    assert answer.headers["x-clawback-prompt"] == str(number)


def test_in_a_trial_sessions_keep_to_one_side_and_the_turns_say_which(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    with store.connect(home.database) as db:
        version = prompted.propose(db, OTHER, origin={"author": "hand"})
        prompt_gate.by_hand(db, home, version)
        release.rollback(db, home)
        trial.begin(db, version.number, 0.5, 0.05, 0.0)
    upstream.says(ANSWER)
    sides: dict[str, set[str]] = {}
    for i in range(24):
        name = f"s{i % 12}"
        answer = httpx.post(
            proxy.url + CHAT,
            json={"messages": [{"role": "user", "content": f"Hello {i}?"}]},
            headers={"x-session-id": name},
        )
        assert (OTHER.encode() in upstream.got[-1][3]) == (answer.headers["x-clawback-prompt"] != "0")
        sides.setdefault(name, set()).add(answer.headers["x-clawback-prompt"])
    assert all(len(one) == 1 for one in sides.values())
    assert {one for side in sides.values() for one in side} == {"0", str(version.number)}
    with store.connect(home.database) as db:
        assert {t.session: {str(t.version)} for t in db.turns(limit=100)} == sides


@pytest.mark.parametrize("prompt", [False, True])
def test_the_safety_check_of_auto_mode_passes_in_both_directions(
    proxy: Running, upstream: Upstream, home: Home, secret: dict[str, str], prompt: bool
) -> None:
    """Claude Code asks its vendor to check actions (``safeguards``, a beta header), and reads the verdict from the answer (``safeguard_results``)."""
    if prompt:
        live(home, PROMPT)
    asked = {
        "model": "m",
        "max_tokens": 9,
        "system": [{"type": "text", "text": "Own.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Delete it."}],
            }
        ],
        "safeguards": [
            {"type": "dangerous_tool_use", "classifier_context": {"auto_mode": {"soft_deny": ["rule"]}}}
        ],
        "context_management": {"edits": []},
    }
    said = {
        "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn", "usage": {"output_tokens": 1},
        "content": [{"type": "text", "text": "Done."}], "safeguard_results": [{"type": "dangerous_tool_use", "status": {"type": "available", "tool_uses": {"t1": {"type": "skipped"}}}}],
    }  # fmt: skip
    upstream.says(json.dumps(said).encode())
    beta = {
        "anthropic-beta": "dangerous-tool-use-2026-09-03,other-beta",
        "anthropic-version": "2023-06-01",
        "x-claude-code-session-id": "c1",
    }
    answer = httpx.post(f"{proxy.url}/v1/messages?beta=true", json=asked, headers=secret | beta)
    assert answer.json() == said
    _, address, headers, body = upstream.got[-1]
    assert address == "/v1/messages?beta=true"
    assert {name: headers[name] for name in beta} == beta
    sent = json.loads(body)
    assert (PROMPT in str(sent.pop("system"))) is prompt
    assert sent == {key: value for key, value in asked.items() if key != "system"}
