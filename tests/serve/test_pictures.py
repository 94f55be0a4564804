"""Pictures that pass the proxy, in every dialect: stored as what their bytes say they are, within limits, and never fetched."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from clawback import config, pictures, store
from clawback.paths import Home
from clawback.records import PICTURE
from clawback.serve import app as serving

from .conftest import Running, Upstream

PNG, JPEG = b"\x89PNG\r\n\x1a\n" + b"red" * 40, b"\xff\xd8\xff" + b"blue" * 30
TEXT = "Which colour?"


def base64(data: bytes) -> str:
    return b64encode(data).decode()


def openai(*seen: bytes) -> tuple[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64(d)}", "detail": "high"}} for d in seen]  # fmt: skip
    content = [{"type": "text", "text": TEXT}, *parts]
    return "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": content}]}


def responses(*seen: bytes) -> tuple[str, Any]:
    parts = [{"type": "input_image", "image_url": f"data:image/png;base64,{base64(d)}"} for d in seen]
    content = [{"type": "input_text", "text": TEXT}, *parts]
    return "/v1/responses", {"model": "m", "input": [{"role": "user", "content": content}]}


def anthropic(*seen: bytes) -> tuple[str, Any]:
    sources = [{"type": "base64", "media_type": "image/png", "data": base64(d)} for d in seen]
    content = [{"type": "text", "text": TEXT}, *({"type": "image", "source": s} for s in sources)]
    return "/v1/messages", {
        "model": "m",
        "max_tokens": 99,
        "messages": [{"role": "user", "content": content}],
    }


def gemini(*seen: bytes) -> tuple[str, Any]:
    parts = [{"inlineData": {"mimeType": "image/png", "data": base64(d)}} for d in seen]
    return "/v1beta/models/m:generateContent", {
        "contents": [{"role": "user", "parts": [{"text": TEXT}, *parts]}]
    }


def ollama(*seen: bytes) -> tuple[str, Any]:
    message = {"role": "user", "content": TEXT, "images": [base64(d) for d in seen]}
    return "/api/chat", {"model": "m", "messages": [message]}


def generate(*seen: bytes) -> tuple[str, Any]:
    return "/api/generate", {"model": "m", "prompt": TEXT, "images": [base64(d) for d in seen]}


ANSWERS: dict[Callable[..., tuple[str, Any]], Any] = {
    openai: {"choices": [{"message": {"content": "Red."}}]},
    responses: {
        "object": "response",
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Red."}]}],
    },
    anthropic: {"type": "message", "content": [{"type": "text", "text": "Red."}]},
    gemini: {"candidates": [{"content": {"parts": [{"text": "Red."}]}, "finishReason": "STOP"}]},
    ollama: {"message": {"role": "assistant", "content": "Red."}, "done": True},
    generate: {"response": "Red.", "done": True},
}


def stored(home: Home) -> list[Any]:
    with store.connect(home.database) as db:
        return [db.turn(one.id) for one in reversed(db.turns(limit=100))]


def sizes(home: Home) -> list[int]:
    with store.connect(home.database) as db:
        return [int(row[0]) for row in db._read("SELECT length(data) FROM pictures ORDER BY id")]


@pytest.mark.parametrize("ask", ANSWERS)
def test_a_picture_is_kept_with_its_turn(
    ask: Callable[..., tuple[str, Any]], proxy: Running, upstream: Upstream, home: Home
) -> None:
    path, body = ask(PNG, JPEG)
    upstream.says(json.dumps(ANSWERS[ask]).encode())
    raw = json.dumps(body).encode()
    assert httpx.post(proxy.url + path, content=raw).status_code == 200
    assert upstream.got[-1][3] == raw, "the upstream gets what the client sent"
    [turn] = stored(home)
    [message] = turn.messages
    assert (turn.response, turn.kind) == ("Red.", "main")
    # Whatever the request called them: a PNG and a JPEG.
    assert message["content"] == [
        {"type": "text", "text": TEXT},
        pictures.part_of(PNG),
        pictures.part_of(JPEG),
    ]
    assert turn.prompt == f"{TEXT}\n{PICTURE}\n{PICTURE}"


@pytest.mark.parametrize("ask", ANSWERS)
@pytest.mark.parametrize("data", [b"", b"<svg onload=alert(1)>", b"%PDF-1.7", b"\x89PNG", b"\0" * 64])
def test_what_is_no_picture_leaves_a_mark(
    ask: Callable[..., tuple[str, Any]], data: bytes, proxy: Running, upstream: Upstream, home: Home
) -> None:
    path, body = ask(data)
    upstream.says(json.dumps(ANSWERS[ask]).encode())
    httpx.post(proxy.url + path, json=body)
    [turn] = stored(home)
    assert turn.prompt == f"{TEXT}\n{PICTURE}"
    assert sizes(home) == []


@pytest.mark.parametrize("address", ["https://example.org/a.png", "file:///etc/hostname", "/etc/hostname", "data:image/png;base64,%", 7, None, []])  # fmt: skip
def test_nothing_is_fetched_for_one(address: Any, proxy: Running, upstream: Upstream, home: Home) -> None:
    path, body = openai(PNG)
    body["messages"][0]["content"][1]["image_url"] = {"url": address}
    upstream.says(json.dumps(ANSWERS[openai]).encode())
    httpx.post(proxy.url + path, json=body)
    [turn] = stored(home)
    assert turn.messages[0]["content"][1] == {"type": "text", "text": PICTURE}
    assert len(upstream.got) == 1


def test_a_long_conversation_does_not_grow_with_its_pictures(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    path, body = openai(PNG, JPEG)
    for place in range(12):
        upstream.says(json.dumps({"choices": [{"message": {"content": f"Answer {place}."}}]}).encode())
        httpx.post(proxy.url + path, json=body)
        body["messages"] += [
            {"role": "assistant", "content": f"Answer {place}."},
            {"role": "user", "content": f"And {place}?"},
        ]
    found = stored(home)
    assert len(found) == 12
    assert len({turn.session for turn in found}) == 1
    assert all(pictures.pictures(turn.messages[0]["content"]) == [PNG, JPEG] for turn in found)
    assert sizes(home) == [len(PNG), len(JPEG)]


def test_a_tools_picture_is_kept(proxy: Running, upstream: Upstream, home: Home) -> None:
    """What an agent's tool sees of the screen comes back as the tool's result."""
    path, body = anthropic()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64(PNG)}}
    came = {
        "type": "tool_result",
        "tool_use_id": "1",
        "content": [{"type": "text", "text": "The screen:"}, image],
    }
    call = {"type": "tool_use", "id": "1", "name": "look", "input": {}}
    body["messages"] += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [came]}]
    upstream.says(json.dumps(ANSWERS[anthropic]).encode())
    httpx.post(proxy.url + path, json=body)
    [turn] = stored(home)
    assert turn.messages[-1] == {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "The screen:"}, pictures.part_of(PNG)],
    }


@pytest.mark.parametrize(
    ("each", "together", "kept"),
    [(0, 10**6, []), (len(PNG), 10**6, [PNG, JPEG]), (len(JPEG), 10**6, [PNG, JPEG] if len(PNG) <= len(JPEG) else [JPEG]), (10**6, len(JPEG), [JPEG])],
)  # fmt: skip
def test_settings_limit_what_is_kept(
    each: int,
    together: int,
    kept: list[bytes],
    home: Home,
    upstream: Upstream,
    running: Callable[[Any], Running],
) -> None:
    home.config.write_text(
        f"[privacy]\nmax_picture_bytes = {each}\nmax_turn_picture_bytes = {together}\nmax_turn_bytes = 400\n"
    )
    there = running(upstream)
    server = running(serving.make(home, config.ServeSection(upstream=there.url)))
    path, body = openai(PNG, JPEG)
    upstream.says(json.dumps(ANSWERS[openai]).encode())
    httpx.post(server.url + path, json=body)
    [turn] = stored(home)
    assert pictures.pictures(turn.messages[0]["content"]) == kept
    assert turn.prompt == f"{TEXT}\n{PICTURE}\n{PICTURE}"
