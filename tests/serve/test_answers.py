"""What providers really send: each answer passes byte for byte, and is recorded with its words, thoughts, calls, and why it ended."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import store
from clawback.dialects import anthropic, gemini, ollama, openai_chat, openai_responses
from clawback.dialects.parsing import AnswerAssembler
from clawback.paths import Home

from .conftest import Running, Upstream

OTTER = "The otter eats fish."
SSE, JSON, LINES = "text/event-stream", "application/json", "application/x-ndjson"
CHAT, MESSAGES, RESPONSES, OLLAMA = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"
GEMINI = "/v1beta/models/g:generateContent"


def events(*items: Any, done: bool = True, gap: str = "\n\n") -> bytes:
    written = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items]
    return "".join(f"data: {text}{gap}" for text in [*written, *(["[DONE]"] if done else [])]).encode()


def piece(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason, **more}]}


def streamed(*deltas: dict[str, Any], reason: str | None = "stop", **how: Any) -> tuple[str, bytes]:
    return SSE, events(*map(piece, deltas), *([piece({}, reason)] if reason else []), **how)


def whole(message: dict[str, Any], reason: str | None = "stop", **more: Any) -> tuple[str, bytes]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return JSON, json.dumps({"model": "m", "choices": [choice], **more}, ensure_ascii=False).encode()


def called(name: str, arguments: str, identifier: str = "", **more: Any) -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def calls(*deltas: list[dict[str, Any]]) -> tuple[str, bytes]:
    return streamed(*({"tool_calls": delta} for delta in deltas), reason="tool_calls")


def blocks(
    *items: tuple[dict[str, Any], Iterable[dict[str, Any]]], stop: str = "end_turn"
) -> tuple[str, bytes]:
    made: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"model": "c", "content": []}},
        {"type": "ping"},
    ]
    for i, (block, deltas) in enumerate(items):
        made.append({"type": "content_block_start", "index": i, "content_block": block})
        made += [{"type": "content_block_delta", "index": i, "delta": delta} for delta in deltas]
        made.append({"type": "content_block_stop", "index": i})
    made += [{"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"}]
    return SSE, "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in made).encode()


def words(text: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]


def response(
    *items: dict[str, Any], status: str = "completed", reason: str = "", before: Any = ()
) -> tuple[str, bytes]:
    body = {"object": "response", "model": "m", "status": status, "output": list(items)}
    body["incomplete_details"] = {"reason": reason} if reason else None
    return SSE, events(*before, {"type": f"response.{status}", "response": body}, done=False)


def spoken(text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
        **more,
    }


def listed(*items: dict[str, Any]) -> tuple[str, bytes]:
    return LINES, b"".join(json.dumps(item).encode() + b"\n" for item in items)


def candidate(*parts: dict[str, Any], reason: str | None = "STOP", **more: Any) -> tuple[str, bytes]:
    made = {"content": {"parts": list(parts)}, "finishReason": reason, **more}
    return JSON, json.dumps({"modelVersion": "g", "candidates": [made]}).encode()


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
SAID = {"type": "text", "text": OTTER}
CUT = OTTER + " And then"
ONE, TWO = ("a", '{"x":1}'), ("b", '{"y":2}')

#  name: (path, (content type, body), (response, thinking, calls by name and arguments, ending) or None)
CASES: dict[str, tuple[str, tuple[str, bytes], Any]] = {
    "plain": (CHAT, streamed({"role": "assistant", "content": ""}, {"content": OTTER}), (OTTER, "", (), "done")),
    "no end mark": (CHAT, streamed({"content": OTTER}, done=False), (OTTER, "", (), "done")),
    "no reason": (CHAT, streamed({"content": OTTER}, reason=None), (OTTER, "", (), "")),
    "reason as the word null": (
        CHAT,
        (SSE, events(piece({"content": OTTER}, "null"), piece({}, "length"))),
        (OTTER, "", (), "length"),
    ),
    "carriage returns": (CHAT, streamed({"content": OTTER}, gap="\r\n\r\n"), (OTTER, "", (), "done")),
    "no empty lines": (CHAT, streamed({"content": "The otter "}, {"content": "eats fish."}, gap="\n"), (OTTER, "", (), "done")),
    "comments": (CHAT, (SSE, b": PROCESSING\n\n" + streamed({"content": OTTER})[1]), (OTTER, "", (), "done")),
    "list of parts, streamed": (CHAT, streamed({"content": [THOUGHT]}, {"content": [SAID]}), (OTTER, "hm", (), "done")),
    "list, then text": (CHAT, streamed({"content": [THOUGHT]}, {"content": OTTER}), (OTTER, "hm", (), "done")),
    "list of parts, whole": (CHAT, whole({"content": [THOUGHT, SAID]}), (OTTER, "hm", (), "done")),
    "reasoning in a part": (
        CHAT,
        whole({"content": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, SAID]}),
        (OTTER, "hm", (), "done"),
    ),
    "reasoning_content": (CHAT, streamed({"reasoning_content": "hm"}, {"content": OTTER}), (OTTER, "hm", (), "done")),
    "reasoning_details": (
        CHAT,
        streamed({"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}, {"content": OTTER}),
        (OTTER, "hm", (), "done"),
    ),
    "thought in tags": (CHAT, streamed({"content": "<think>hm"}, {"content": "</think>\n\n" + OTTER}), (OTTER, "hm", (), "done")),
    "thought that only closes": (CHAT, streamed({"content": "hm hm"}, {"content": "</think>\n\n" + OTTER}), (OTTER, "hm hm", (), "done")),
    "thought that closes on a line of its own": (CHAT, whole({"content": f"hm, `a </think> b`?\n</think>{OTTER}"}), (OTTER, "hm, `a </think> b`?", (), "done")),
    "closing mark of another family": (CHAT, whole({"content": f"hm[/THINK]{OTTER}"}), (OTTER, "hm", (), "done")),
    "thought in tags of capitals": (CHAT, whole({"content": f"<THINK>hm</THINK>{OTTER}"}), (OTTER, "hm", (), "done")),
    "two thoughts": (CHAT, whole({"content": f"<think>hm</think>\n<think>oh</think>\n{OTTER}"}), (OTTER, "hm\n\noh", (), "done")),
    "answer between marks": (CHAT, whole({"content": f"<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>{OTTER}<|END_RESPONSE|>"}), (OTTER, "hm", (), "done")),
    "solution between marks": (CHAT, whole({"content": f"<|begin_of_thought|>hm<|end_of_thought|>\n<|begin_of_solution|>{OTTER}<|end_of_solution|>"}), (OTTER, "hm", (), "done")),
    "channels without the first mark": (CHAT, whole({"content": f"analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{OTTER}<|return|>"}), (OTTER, "hm", (), "done")),
    "a mark that is spoken of": (CHAT, whole({"content": "Say </think> aloud."}), ("Say </think> aloud.", "", (), "done")),
    "channels": (
        CHAT,
        whole({"content": f"<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{OTTER}"}),
        (OTTER, "hm", (), "done"),
    ),
    "calls without an index": (CHAT, calls([called(*ONE, "1")], [called(*TWO, "2")]), ("", "", (ONE, TWO), "done")),
    "calls without index and id": (CHAT, calls([called(*ONE), called(*TWO)]), ("", "", (ONE, TWO), "done")),
    "calls that all have index 0": (CHAT, calls([called(*ONE, "1", index=0)], [called(*TWO, "2", index=0)]), ("", "", (ONE, TWO), "done")),
    "a name in every piece": (
        CHAT,
        calls([called("get", '{"x"', "1", index=0)], [called("get", ":1}", "1", index=0)]),
        ("", "", (("get", '{"x":1}'),), "done"),
    ),
    "an id of its own for every piece": (
        CHAT,
        calls([called("get", "", "1", index=0)], [called("", '{"x":', "2", index=0)], [called("", "1}", "3", index=0)]),
        ("", "", (("get", '{"x":1}'),), "done"),
    ),
    "arguments as an object": (CHAT, whole({"content": None, "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": {"x": 1}}}]}, "tool_calls"), ("", "", (("a", '{"x": 1}'),), "done")),
    "the older function call": (CHAT, streamed({"function_call": {"name": "a", "arguments": '{"x"'}}, {"function_call": {"arguments": ":1}"}}, reason="function_call"), ("", "", (ONE,), "done")),
    "choices out of order": (
        CHAT,
        (SSE, events(piece({"content": "Other."}, "stop", index=1), piece({"content": OTTER}), piece({}, "stop"))),
        (OTTER, "", (), "done"),
    ),
    "error in the stream": (CHAT, (SSE, events(piece({"content": OTTER}), {"error": {"message": "gone"}}, done=False)), (OTTER, "", (), "error")),
    "error beside a choice": (CHAT, (SSE, events(piece({"content": OTTER}), piece({}, "error") | {"error": {"code": 502}})), (OTTER, "", (), "error")),
    "filter": (CHAT, streamed({"content": "I can"}, reason="content_filter"), ("I can", "", (), "filter")),
    "filter of another provider": (CHAT, streamed({"content": "I can"}, reason="sensitive"), ("I can", "", (), "filter")),
    "length": (CHAT, streamed({"content": CUT}, reason="length"), (CUT, "", (), "length")),
    "length, whole": (CHAT, whole({"content": CUT}, "length"), (CUT, "", (), "length")),
    "length of another provider": (CHAT, whole({"content": CUT}, "model_length"), (CUT, "", (), "length")),
    "stop string": (CHAT, (SSE, events(piece({"content": OTTER}), piece({}, "stop", stop_reason="\n"))), (OTTER, "", (), "stop")),
    "unknown reason": (CHAT, whole({"content": OTTER}, "because"), (OTTER, "", (), "")),
    "refusal": (CHAT, whole({"content": None, "refusal": "I cannot help."}), ("I cannot help.", "", (), "refusal")),
    "mark of the byte order": (CHAT, (JSON, b"\xef\xbb\xbf" + whole({"content": OTTER})[1]), (OTTER, "", (), "done")),
    "empty lines first": (CHAT, (JSON, b"\n\n   " + whole({"content": OTTER})[1]), (OTTER, "", (), "done")),
    "events labelled as JSON": (CHAT, (JSON, streamed({"content": OTTER})[1]), (OTTER, "", (), "done")),
    "JSON labelled as events": (CHAT, (SSE, whole({"content": OTTER})[1]), (OTTER, "", (), "done")),
    "Latin-1 without a label": (CHAT, (JSON, whole({"content": "Déjà vu."})[1].decode().encode("latin-1")), ("Déjà vu.", "", (), "done")),
    "another character set": (CHAT, ("application/json; charset=gb18030", whole({"content": "水獭吃鱼。"})[1].decode().encode("gb18030")), ("水獭吃鱼。", "", (), "done")),
    "nothing": (CHAT, whole({"content": ""}), None),
    "blocks": (MESSAGES, blocks(words(OTTER)), (OTTER, "", (), "done")),
    "thinking block": (
        MESSAGES,
        blocks(({"type": "thinking", "thinking": ""}, [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "x"}]), words(OTTER)),
        (OTTER, "hm", (), "done"),
    ),
    "a tool of the server": (
        MESSAGES,
        blocks(
            words("I will look."),
            ({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, [{"type": "input_json_delta", "partial_json": "{}"}]),
            ({"type": "web_search_tool_result", "tool_use_id": "s", "content": []}, []),
            words(OTTER),
        ),
        (f"I will look.\n{OTTER}", "", (), "done"),
    ),
    "tool of the client": (
        MESSAGES,
        blocks(({"type": "tool_use", "id": "1", "name": "a", "input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in ('{"x"', ":1}")]), stop="tool_use"),
        ("", "", (ONE,), "done"),
    ),
    "refusal of the provider": (MESSAGES, blocks(words("I can"), stop="refusal"), ("I can", "", (), "refusal")),
    "most tokens": (MESSAGES, blocks(words(CUT), stop="max_tokens"), (CUT, "", (), "length")),
    "the context is full": (MESSAGES, blocks(words(CUT), stop="model_context_window_exceeded"), (CUT, "", (), "length")),
    "pause": (MESSAGES, blocks(words(CUT), stop="pause_turn"), (CUT, "", (), "pause")),
    "stop sequence": (MESSAGES, blocks(words(OTTER), stop="stop_sequence"), (OTTER, "", (), "stop")),
    "overloaded": (
        MESSAGES,
        (SSE, events({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "The otter"}}, {"type": "error", "error": {"type": "overloaded_error"}}, done=False)),
        ("The otter", "", (), "error"),
    ),
    "message, cut": (MESSAGES, (JSON, json.dumps({"type": "message", "model": "c", "content": [SAID], "stop_reason": "max_tokens"}).encode()), (OTTER, "", (), "length")),
    "response": (RESPONSES, response(spoken(OTTER), before=[{"type": "response.output_item.done", "item": spoken(OTTER)}]), (OTTER, "", (), "done")),
    "response without its items": (RESPONSES, response(before=[{"type": "response.output_item.done", "item": spoken(OTTER)}]), (OTTER, "", (), "done")),
    "call in pieces alone": (
        RESPONSES,
        response(before=[
            {"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "call_id": "1", "name": "a", "arguments": ""}},
            *({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": p} for p in ('{"x"', ":1}")),
        ]),
        ("", "", (ONE,), "done"),
    ),
    "reasoning summary": (RESPONSES, response({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, spoken(OTTER)), (OTTER, "hm", (), "done")),
    "commentary": (RESPONSES, response(spoken("I will look.", phase="commentary"), spoken(OTTER)), (f"I will look.\n{OTTER}", "", (), "done")),
    "freeform tool": (
        RESPONSES,
        response({"type": "custom_tool_call", "call_id": "1", "name": "apply_patch", "input": "*** Begin Patch"}),
        ("", "", (("apply_patch", '{"input": "*** Begin Patch"}'),), "done"),
    ),
    "shell": (
        RESPONSES,
        response({"type": "local_shell_call", "call_id": "1", "action": {"type": "exec", "command": ["ls"]}}),
        ("", "", (("local_shell", '{"action": {"type": "exec", "command": ["ls"]}}'),), "done"),
    ),
    "incomplete": (RESPONSES, response(spoken(CUT), status="incomplete", reason="max_output_tokens"), (CUT, "", (), "length")),
    "incomplete by a filter": (RESPONSES, response(spoken(CUT), status="incomplete", reason="content_filter"), (CUT, "", (), "filter")),
    "failed": (RESPONSES, response(status="failed", before=[{"type": "response.output_text.delta", "delta": "The otter"}]), ("The otter", "", (), "error")),
    "broken off": (RESPONSES, (SSE, events({"type": "response.output_text.delta", "delta": "The otter"}, done=False)), ("The otter", "", (), "incomplete")),
    "refused": (RESPONSES, response({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}), ("No.", "", (), "refusal")),
    "lines": (OLLAMA, listed({"message": {"content": "", "thinking": "hm"}, "done": False}, {"message": {"content": OTTER}, "done": False}, {"message": {"content": ""}, "done": True, "done_reason": "stop"}), (OTTER, "hm", (), "done")),
    "lines, cut": (OLLAMA, listed({"message": {"content": CUT}, "done": False}, {"message": {"content": ""}, "done": True, "done_reason": "length"}), (CUT, "", (), "length")),
    "lines, error": (OLLAMA, listed({"message": {"content": "The otter"}, "done": False}, {"error": "out of memory"}), ("The otter", "", (), "error")),
    "candidate": (GEMINI, candidate({"text": "hm", "thought": True}, {"text": OTTER}), (OTTER, "hm", (), "done")),
    "candidate, cut": (GEMINI, candidate({"text": CUT}, reason="MAX_TOKENS"), (CUT, "", (), "length")),
    "candidate, safety": (GEMINI, candidate({"text": "I can"}, reason="PROHIBITED_CONTENT"), ("I can", "", (), "filter")),
    "candidate, call": (GEMINI, candidate({"functionCall": {"name": "a", "args": {"x": 1}}}, {"functionCall": {"name": "a", "args": {"x": 1}}}), ("", "", (("a", '{"x": 1}'),) * 2, "done")),
}  # fmt: skip


def request(path: str, name: str) -> dict[str, Any]:
    asked = {"role": "user", "content": f"Tell me of {name}."}
    if path == RESPONSES:
        return {"model": "m", "input": [asked], "stream": True}
    if path == GEMINI:
        return {"contents": [{"role": "user", "parts": [{"text": asked["content"]}]}]}
    return {"model": "m", "messages": [asked], "stream": path != OLLAMA, "max_tokens": 100}


def recorded(home: Home) -> dict[str, Any]:
    with store.connect(home.database) as db:
        return {
            turn.prompt.removeprefix("Tell me of ").removesuffix("."): (
                turn.response,
                turn.thinking,
                tuple((call["name"], call["arguments"]) for call in turn.calls),
                turn.ending,
            )
            for turn in db.turns(limit=1000)
            if turn.kind == "main"
        }


def test_what_providers_send_passes_unchanged_and_is_recorded_as_what_it_is(
    proxy: Running, upstream: Upstream, home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    with httpx.Client(timeout=60) as client:
        for number, (name, (path, (kind, body), _)) in enumerate(CASES.items()):
            upstream.says(body, kind=kind, status=201 if number % 7 == 3 else 200)
            answer = client.post(proxy.url + path, json=request(path, name))
            assert answer.content == body, name
        for _ in range(2):
            upstream.says(CASES["nothing"][1][1])
            client.post(proxy.url + CHAT, json=request(CHAT, "nothing"))
    wanted = {name: answer for name, (_, _, answer) in CASES.items() if answer is not None}
    assert recorded(home) == wanted
    said = [entry.getMessage() for entry in caplog.records if "openai-chat" in entry.getMessage()]
    assert len(said) == 2, "one sentence on what held nothing, one on a reason that nobody knows"
    assert any("'because'" in text for text in said)
    assert any("nothing that can be recorded" in text for text in said)


def test_an_answer_that_the_upstream_packs_is_recorded(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    upstream.says(gzip.compress(whole({"content": OTTER})[1]))
    upstream.headers.append((b"content-encoding", b"gzip"))
    answer = httpx.post(proxy.url + CHAT, json=request(CHAT, "packed"))
    assert answer.json()["choices"][0]["message"]["content"] == OTTER
    assert recorded(home)["packed"] == (OTTER, "", (), "done")


def test_a_conversation_goes_on_after_every_kind_of_item(
    proxy: Running, upstream: Upstream, home: Home
) -> None:
    """What was answered comes back as items of the next request: it is the same conversation, and nothing of it is lost."""
    items = [
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {
            "type": "web_search_call",
            "id": "ws",
            "status": "completed",
            "action": {"type": "search", "query": "otter"},
        },
        spoken("I will change it."),
        {"type": "custom_tool_call", "call_id": "1", "name": "apply_patch", "input": "*** Begin Patch"},
    ]
    upstream.says(response(*items)[1], kind=SSE)
    asked: list[dict[str, Any]] = [{"role": "user", "content": "Change it."}]
    httpx.post(proxy.url + RESPONSES, json={"model": "m", "input": asked, "stream": True})
    upstream.says(response(spoken("Done."))[1], kind=SSE)
    output = {"type": "custom_tool_call_output", "call_id": "1", "output": "patched"}
    httpx.post(proxy.url + RESPONSES, json={"model": "m", "input": [*asked, *items, output], "stream": True})
    with store.connect(home.database) as db:
        second, first = (db.turn(turn.id) for turn in db.turns(limit=2))
    assert first.session == second.session
    assert [call["name"] for call in first.calls] == ["web_search", "apply_patch"]
    assert [m["content"] for m in first.next_state] == ["patched"]
    [_, answer, result] = second.messages
    assert answer["content"] == "I will change it."
    assert "*** Begin Patch" in answer["tool_calls"][1]["function"]["arguments"]
    assert (result["role"], result["content"]) == ("tool", "patched")


PLACES = [
    ("", CHAT, CHAT),
    ("/v1", CHAT, CHAT),
    ("/v1/", CHAT, CHAT),
    ("/v1", "/api/chat", "/api/chat"),
    ("/api/paas/v4", CHAT, "/api/paas/v4/chat/completions"),
    ("/api/v3", RESPONSES, "/api/v3/responses"),
    ("/v1beta/openai", CHAT, "/v1beta/openai/chat/completions"),
    ("/openai/v1beta", "/v1/models", "/openai/v1beta/models"),
    ("/v1beta", GEMINI, GEMINI),
    ("/openai", CHAT, "/openai/v1/chat/completions"),
    ("/api/anthropic", MESSAGES, "/api/anthropic/v1/messages"),
    ("/v1/account/gateway/anthropic", MESSAGES, "/v1/account/gateway/anthropic/v1/messages"),
    ("/v1/account/gateway/openai", CHAT, "/v1/account/gateway/openai/chat/completions"),
]


@pytest.mark.parametrize(("base", "path", "address"), PLACES)
def test_an_upstream_may_have_its_api_under_any_path(base: str, path: str, address: str) -> None:
    from clawback.inference.forward import upstream_url

    assert (
        upstream_url(f"https://api.example.com{base}".rstrip("/"), path)
        == f"https://api.example.com{address}"
    )


@given(st.text(max_size=60), st.text(max_size=60), st.lists(st.integers(0, 60), max_size=6), st.booleans())
def test_how_an_answer_is_cut_into_pieces_makes_no_difference(
    text: str, value: str, cuts: list[int], numbered: bool
) -> None:
    """Text, a thought and two calls, in pieces anywhere: the same answer as in one piece."""
    arguments = json.dumps({"x": value})
    index = {"index": 0} if numbered else {}
    other = {"index": 1} if numbered else {}
    deltas: list[dict[str, Any]] = [{"reasoning_content": part} for part in pieces(text, cuts)]
    deltas += [{"content": part} for part in pieces(text, cuts)]
    first, *rest = pieces(arguments, cuts)
    deltas += [{"tool_calls": [called("a", first, "1", **index)]}]
    deltas += [{"tool_calls": [{**index, "function": {"arguments": part}}]} for part in rest]
    deltas += [{"tool_calls": [called("b", arguments, "2", **other)]}]
    said = openai_chat.hear(streamed(*deltas, reason="tool_calls")[1])
    assert (said.text, said.thinking, said.ending) == (text, text, "done")
    assert [(c["id"], c["name"], c["arguments"]) for c in said.calls] == [
        ("1", "a", arguments),
        ("2", "b", arguments),
    ]


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["stop", "text", "message", "0"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["type", "choices", "delta", "message", "content", "tool_calls", "function", "index", "output", "item", "text", "thinking", "response", "candidates", "parts", "error", "summary"]),
        inner,
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(ANYTHING, max_size=4), st.booleans())
def test_whatever_a_provider_sends_raises_nothing(items: list[Any], as_events: bool) -> None:
    raw = events(*(json.dumps(item) for item in items)) if as_events else json.dumps(items[:1] or {}).encode()
    for dialect in (openai_chat, anthropic, openai_responses, ollama, gemini):
        said = dialect.hear(raw)
        assert isinstance(said.text, str)
        assert all(isinstance(call["name"], str) for call in said.calls)


def test_a_cut_is_not_undone_by_a_later_word() -> None:
    answer = AnswerAssembler()
    answer.text("I can")
    answer.end("content_filter")
    answer.end("stop")
    answer.close()
    assert answer.answer().ending == "filter"
