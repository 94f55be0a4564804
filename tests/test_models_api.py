"""The client of other people's models: the form of requests and answers, and waiting without holding up an event loop."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from clawback.errors import UsageError
from clawback.http_client import BadReply, Retry, StatusError
from clawback.models_api import ModelRequest, ModelServer, in_thread
from tests.http_server import HttpServer, Reply, http_server

MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
]
TOOLS = [{"type": "function", "function": {"name": "order"}}]
FAST = Retry(pause=0.001)


def openai(content: object = "Hello.", **more: object) -> Reply:
    choice = {"message": {"role": "assistant", "content": content, **more}, "finish_reason": "stop"}
    return Reply(
        body=json.dumps({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}).encode()
    )


def body(server: HttpServer, number: int = -1) -> dict[str, object]:
    sent: dict[str, object] = json.loads(server.exchanges[number].body)
    return sent


def test_a_request_of_openai_holds_what_is_set_and_nothing_else() -> None:
    with http_server([openai()]) as server:
        model = ModelServer("openai", server.url + "/v1/", "m", "k")
        answer = model.complete(ModelRequest("m", MESSAGES))
        assert (answer.text, answer.sent, answer.received, answer.tokens, answer.complete) == (
            "Hello.",
            7,
            3,
            10,
            True,
        )
        assert body(server) == {"model": "m", "messages": MESSAGES}
        model.complete(ModelRequest("m", MESSAGES, 9, 0.5, TOOLS, 4), {"x-session-id": "s"})
        assert body(server) == {
            "model": "m", "messages": MESSAGES, "max_tokens": 9, "temperature": 0.5, "tools": TOOLS, "seed": 4,
        }  # fmt: skip
        headers = server.exchanges[-1].headers
        assert (headers["authorization"], headers["x-session-id"], headers["x-turn-type"]) == (
            "Bearer k",
            "s",
            "side",
        )


def test_tool_calls_come_with_the_message() -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "order", "arguments": "{}"}}]
    with http_server([openai(None, tool_calls=calls)]) as server:
        answer = ModelServer("openai", server.url, "m").complete(ModelRequest("m", MESSAGES))
    assert (answer.text, answer.message["tool_calls"]) == ("", calls)


def test_anthropics_form() -> None:
    reply = {
        "content": [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "He"}, {"type": "text", "text": "llo."}],
        "stop_reason": "max_tokens", "usage": {"input_tokens": 5, "output_tokens": 2},
    }  # fmt: skip
    with http_server([Reply(body=json.dumps(reply).encode())]) as server:
        answer = ModelServer("anthropic", server.url, "m", "k").complete(ModelRequest("m", MESSAGES, 8))
    assert (answer.text, answer.tokens, answer.complete) == ("Hello.", 7, False)
    assert body(server) == {"model": "m", "max_tokens": 8, "system": "Be kind.", "messages": MESSAGES[1:]}


def test_openais_own_server_gets_the_newer_name_of_the_limit_at_once() -> None:
    own = ModelServer("openai", "https://api.openai.com/v1", "m")
    assert own._prepared(ModelRequest("m", MESSAGES, 5)).limit == "max_completion_tokens"
    refusal = Reply(400, b'{"error": {"message": "use max_completion_tokens"}}')
    with http_server([refusal, openai()]) as server:
        ModelServer("openai", server.url, "m").complete(ModelRequest("m", MESSAGES, 5))
    assert (body(server, 0)["max_tokens"], body(server, 1)["max_completion_tokens"]) == (5, 5)


@pytest.mark.parametrize(
    "broken", [b"no json", b"[]", b'{"choices": []}', b'{"choices": [{"message": {"content": [1]}}]}']
)
def test_another_form_is_no_answer(broken: bytes) -> None:
    with http_server([Reply(body=broken)]) as server, pytest.raises(BadReply, match="form of its API"):
        ModelServer("openai", server.url, "m", retry=FAST).complete(ModelRequest("m", MESSAGES))
    assert len(server.exchanges) == 1


def test_models_are_listed() -> None:
    with http_server([Reply(body=b'{"data": [{"id": "a"}, {"id": "b"}]}'), Reply(body=b"{}")]) as server:
        model = ModelServer("openai", server.url, "", "k")
        assert model.models() == ["a", "b"]
        with pytest.raises(BadReply):
            model.models()
    assert server.exchanges[0].path == "/v1/models"


def test_an_address_is_checked_before_anything_is_sent() -> None:
    with pytest.raises(UsageError, match="localhost:1"):
        ModelServer("openai", "localhost:1", "m")


def test_a_coroutine_waits_for_its_answer_and_repeats() -> None:
    async def scene(model: ModelServer) -> list[str]:
        answers = await asyncio.gather(*(model.complete_async(ModelRequest("m", MESSAGES)) for _ in range(3)))
        return [answer.text for answer in answers]

    with http_server([Reply(503), openai()]) as server:
        model = ModelServer("openai", server.url, "m", retry=FAST)
        assert asyncio.run(scene(model)) == ["Hello."] * 3
        assert len(server.exchanges) == 4
        server.replies = [Reply(401)]
        with pytest.raises(StatusError):
            asyncio.run(scene(model))


def test_work_on_threads_goes_on_side_by_side_and_does_not_outlive_its_loop() -> None:
    together = threading.Barrier(40, timeout=20)

    async def scene() -> None:
        await asyncio.gather(*(in_thread(together.wait) for _ in range(40)))
        with pytest.raises(ZeroDivisionError):
            await in_thread(lambda: 1 / 0)
        late = threading.Event()
        waiting = asyncio.create_task(in_thread(lambda: late.wait(20)))
        await asyncio.sleep(0)
        waiting.cancel()
        late.set()

    asyncio.run(scene())
