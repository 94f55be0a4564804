"""Thinking that an upstream tells apart is heard apart from the answer."""

from __future__ import annotations

import json

import pytest

from clawback.dialects import anthropic, openai_chat


def events(*data: object) -> bytes:
    return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in data)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_openai_chat(name: str) -> None:
    whole = {"choices": [{"message": {"content": "Four.", name: "Hm."}, "finish_reason": "stop"}]}
    said = openai_chat.hear(json.dumps(whole).encode())
    assert (said.thinking, said.text) == ("Hm.", "Four.")
    parts = [{"delta": {name: "H"}}, {"delta": {name: "m."}}, {"delta": {"content": "Four."}}]
    said = openai_chat.hear(events(*({"choices": [one]} for one in parts)))
    assert (said.thinking, said.text) == ("Hm.", "Four.")


def test_anthropic() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Four."}]
    said = anthropic.hear(json.dumps({"type": "message", "content": blocks}).encode())
    assert (said.thinking, said.text) == ("Hm.", "Four.")
    stream = events(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Four."}},
        {"type": "message_stop"},
    )
    said = anthropic.hear(stream)
    assert (said.thinking, said.text) == ("Hm.", "Four.")
