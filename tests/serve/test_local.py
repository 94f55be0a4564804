"""The embedded engine behind the three dialects, as the official clients see it."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import httpx
import openai
import pytest

from clawback import engine, release, store
from clawback.dialects import parsing, shapes
from clawback.environments.tools.calls import in_words
from clawback.inference import tools
from clawback.inference.local import LocalEngine
from clawback.paths import Home
from clawback.serve import app as serving

from .conftest import Running

ASK = [{"role": "user", "content": "Tell me about the otter."}]


@pytest.fixture
def server(trained: Home, running: Callable[[Any], Running]) -> Running:
    return running(serving.make(trained))


SWAP_SECONDS = float(os.environ.get("CLAWBACK_SWAP_SECONDS", "15"))


@pytest.fixture
def chat(server: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_the_next_turn_reads_only_what_is_new_and_says_so(server: Running, chat: openai.OpenAI) -> None:
    said = [{"role": "user", "content": "Tell me about the otter. " * 6}]
    first = chat.chat.completions.create(model="clawback", messages=said, max_tokens=4)  # type: ignore[arg-type]
    assert first.usage
    assert first.usage.prompt_tokens_details
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    said += [
        {"role": "assistant", "content": first.choices[0].message.content or ""},
        {"role": "user", "content": "And?"},
    ]
    then = chat.chat.completions.create(model="clawback", messages=said, max_tokens=4)  # type: ignore[arg-type]
    assert then.usage
    assert then.usage.prompt_tokens_details
    known = then.usage.prompt_tokens_details.cached_tokens or 0
    assert first.usage.prompt_tokens - 5 <= known < then.usage.prompt_tokens
    more = [*said, {"role": "assistant", "content": "No."}, {"role": "user", "content": "Why?"}]
    answers = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0).messages
    seen = answers.create(model="clawback", messages=more, max_tokens=4).usage  # type: ignore[arg-type]
    assert (seen.cache_read_input_tokens or 0) > known
    assert seen.input_tokens > 0
    with answers.stream(model="clawback", messages=more, max_tokens=4) as stream:  # type: ignore[arg-type]
        again = stream.get_final_message().usage
    assert again.input_tokens == 1  # all but the last token, which says what follows
    response = openai.OpenAI(base_url=server.url + "/v1", api_key="none").responses.create(
        model="clawback",
        input=more,  # type: ignore[arg-type]
        max_output_tokens=16,
    )
    assert response.usage
    assert response.usage.input_tokens_details.cached_tokens == response.usage.input_tokens - 1


def newest(home: Home) -> Any:
    with store.connect(home.database) as db:
        return db.turns(limit=1)[0]


def test_chat_completions_whole_and_streamed_say_the_same_and_are_kept_token_by_token(
    chat: openai.OpenAI, trained: Home
) -> None:
    whole = chat.chat.completions.create(model="clawback", messages=ASK, seed=3)  # type: ignore[arg-type]
    pieces, usage = [], None
    for event in chat.chat.completions.create(
        model="clawback",
        messages=ASK,
        seed=3,
        stream=True,
        stream_options={"include_usage": True},  # type: ignore[arg-type]
    ):
        pieces += [choice.delta.content or "" for choice in event.choices]
        usage = event.usage or usage
    assert whole.choices[0].message.content == "".join(pieces)
    assert len([p for p in pieces if p]) > 3, "it came piece by piece"
    assert usage
    assert whole.usage
    assert usage.prompt_tokens == whole.usage.prompt_tokens
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details, "the prompt was known the second time"
    assert usage.prompt_tokens_details.cached_tokens
    turn = newest(trained)
    assert (turn.version, turn.response) == (1, "".join(pieces))
    assert len(turn.response_ids) == len(turn.response_logprobs) == whole.usage.completion_tokens


def test_recorded_logprobs_are_those_of_the_version_that_answered(chat: openai.OpenAI, trained: Home) -> None:
    chat.chat.completions.create(model="clawback", messages=ASK, seed=4)  # type: ignore[arg-type]
    turn = newest(trained)
    with store.connect(trained.database) as db:
        policy = release.load(trained, db.version(1))
    [again] = policy.logprobs([turn.messages], [list(turn.response_ids)])
    assert again.tolist() == pytest.approx(turn.response_logprobs, abs=2e-4)


def test_responses_and_messages(server: Running, chat: openai.OpenAI, trained: Home) -> None:
    answer = chat.responses.create(model="clawback", input="Tell me about the fig.")
    assert answer.output_text == newest(trained).response
    with chat.responses.stream(
        model="clawback", input="Tell me about the fig.", max_output_tokens=150
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == newest(trained).response
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    said = claude.messages.create(model="clawback", max_tokens=5, system="Be brief.", messages=ASK)  # type: ignore[arg-type]
    assert (said.stop_reason, said.usage.output_tokens) == ("max_tokens", 5)
    with claude.messages.stream(model="clawback-base", max_tokens=90, messages=ASK) as events:  # type: ignore[arg-type]
        text = "".join(events.text_stream)
        assert events.get_final_message().stop_reason == "end_turn"
    assert (newest(trained).response, newest(trained).version) == (text, 0)
    assert claude.messages.count_tokens(model="clawback", messages=ASK).input_tokens == 9  # type: ignore[arg-type]
    assert [model.id for model in chat.models.list()] == ["clawback", "clawback-base", "clawback-v1"]


def test_stop_strings_seeds_and_limits(chat: openai.OpenAI) -> None:
    def ask(**options: Any) -> Any:
        return chat.chat.completions.create(model="clawback-base", messages=ASK, **options).choices[0]  # type: ignore[call-overload]

    text = ask(seed=1).message.content
    assert ask(seed=1).message.content == text
    assert len({ask(seed=n).message.content for n in range(6)}) > 1
    word = text.split()[2]
    cut = ask(seed=1, stop=[word])
    assert (cut.message.content, cut.finish_reason) == (text[: text.index(word)], "stop")
    assert ask(seed=1, max_tokens=2).finish_reason == "length"
    assert ask(temperature=0).message.content == ask(temperature=0, seed=5).message.content


def test_the_stop_string_that_ended_a_message_is_named(server: Running) -> None:
    body = {"model": "clawback-base", "messages": ASK, "max_tokens": 60, "temperature": 0}
    url = f"{server.url}/v1/messages"
    word = httpx.post(url, json=body, timeout=60).json()["content"][0]["text"].split()[2]
    body["stop_sequences"] = [word, "not in it at all"]
    whole = httpx.post(url, json=body, timeout=60).json()
    streamed = httpx.post(url, json=body | {"stream": True}, timeout=60)
    ended = next(e["delta"] for e in parsing.events(streamed.content) if e["type"] == "message_delta")
    for told in (whole, ended):
        assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", word)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", b"{", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/v1/chat/completions", b'{"messages": []}', 400),
        ("/v1/messages", b'{"messages": "no"}', 400),
        ("/v1/messages", b'{"messages": [{}]}', 400),
        ("/v1/messages", b'{"messages": [{"role": {}}]}', 400),
        ("/v1/messages", b'{"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}', 400),
        ("/v1/responses", b'{"input": 3}', 400),
        ("/v1/responses", b"[" * 100_000, 400),
        (
            "/v1/chat/completions",
            b'{"model": "clawback-v9", "messages": [{"role": "user", "content": "x"}]}',
            404,
        ),
        ("/v1/nothing", b"{}", 404),
    ],
)
def test_what_cannot_be_answered_is_said_in_the_dialect(
    server: Running, path: str, body: bytes, status: int
) -> None:
    answer = httpx.post(server.url + path, content=body)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_a_conversation_beyond_the_context_is_refused_in_a_sentence(server: Running) -> None:
    long = [{"role": "user", "content": "otter " * 50_000}]
    answer = httpx.post(server.url + "/v1/chat/completions", json={"messages": long}, timeout=60)
    assert answer.status_code in (200, 400)  # an older part may be left out where the model reads that much
    assert answer.json()


@pytest.mark.parametrize(
    ("seconds", "every"), [(1.5, 0.02), pytest.param(SWAP_SECONDS, 1.0, marks=pytest.mark.slow)]
)
def test_swapping_versions_under_load_loses_and_mixes_nothing(
    server: Running, trained: Home, seconds: float, every: float
) -> None:
    """What each version says to a seed is known; every answer must be exactly that of the version it names."""

    def ask(seed: int, model: str = "clawback") -> tuple[int, str]:
        body = {"model": model, "messages": ASK, "seed": seed}
        answer = httpx.post(server.url + "/v1/chat/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        return int(answer.headers["x-clawback-version"]), answer.json()["choices"][0]["message"]["content"]

    wanted = {
        (number, seed): ask(seed, name)[1]
        for seed in range(4)
        for number, name in ((0, "clawback-base"), (1, "clawback-v1"))
    }
    assert any(wanted[0, seed] != wanted[1, seed] for seed in range(4))
    over, swaps, until, said = threading.Event(), 0, time.monotonic() + seconds, set[int]()

    def swap() -> None:
        nonlocal swaps
        with store.connect(trained.database) as db:
            while not over.is_set():
                release.rollback(db, trained, swaps % 2)
                swaps += 1
                over.wait(every)

    def person(first: int) -> list[tuple[int, int, str]]:
        answers = []
        # A busy machine answers once in that time: then until both versions have had their say.
        while not answers or time.monotonic() < until or len(said) < 2:
            seed = (first + len(answers)) % 4
            answers.append((seed, *ask(seed)))
            said.add(answers[-1][1])
        return answers

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        with ThreadPoolExecutor(8) as people:
            answers = [one for some in people.map(person, range(8)) for one in some]
    finally:
        over.set()
        swapper.join()
    print(f"{len(answers)} answers, {swaps} swaps")
    assert swaps > 1
    assert {version for _, version, _ in answers} == {0, 1}
    for seed, version, text in answers:
        assert text == wanted[version, seed]


def test_a_damaged_version_is_never_answered_by(server: Running, trained: Home) -> None:
    (trained.version(1) / "adapter_model.safetensors").write_bytes(b"not an adapter")
    answer = httpx.post(server.url + "/v1/chat/completions", json={"model": "clawback-v1", "messages": ASK})
    assert answer.status_code == 503
    assert "version 1" in answer.json()["error"]["message"].lower()


def test_a_model_whose_template_knows_no_tools_hears_of_them_as_in_training(trained: Home) -> None:
    look = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
    tool = {"type": "function", "function": look}
    local = LocalEngine(trained)
    local.policy = engine.load("embedded")
    result = {"role": "tool", "tool_call_id": "1", "content": "wet"}
    called = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}  # fmt: skip
    said = (*ASK, called, result)

    def heard(**more: Any) -> str:
        return local.policy.tokenizer.decode(local.prompt(shapes.Asked(said, **more)))  # type: ignore[union-attr]

    assert heard(tools=(tool,)) == local.policy.tokenizer.decode(
        local.policy.chat.prompt(in_words(said, [tool]), 2**31)
    )
    assert "look(at?: string)" in heard(tools=(tool,))
    assert "<tool_response>wet</tool_response>" in heard(tools=(tool,))
    many = tuple({"type": "function", "function": look | {"description": "x " * 50}} for _ in range(40))
    assert heard(tools=many) == heard(), "more than there is room for"
    deep: Any = {}
    for _ in range(5000):
        deep = {"items": deep}
    odd = {"type": "function", "function": {"name": "look", "parameters": {"properties": {"at": deep}}}}
    assert heard(tools=(odd,)) == heard(), "nobody writes that out"


def test_tool_calls_in_the_text_of_a_model() -> None:
    text = 'Let me look.\n<tool_call>\n{"name": "ls", "arguments": {"path": "/"}}\n</tool_call>'
    rest, [call] = tools.find(text)
    assert (rest, call["name"], call["arguments"]) == ("Let me look.", "ls", '{"path": "/"}')
    for odd in (
        "<tool_call>{}</tool_call>",
        "<tool_call>{x</tool_call>",
        '<tool_call>{"name": 1}</tool_call>',
        "plain",
    ):
        assert tools.find(odd) == (odd, ())
    rest, [call] = tools.find(f"<tool_call>{{x</tool_call>{text}")
    assert (rest, call["name"]) == ("<tool_call>{x</tool_call>Let me look.", "ls")


LS = {"type": "function", "function": {"name": "ls"}}
PATH = '"path": "/"'


@pytest.mark.parametrize(
    "text",
    [
        f'<tool_call>{{"name": "ls", "arguments": {{{PATH}}}}}</tool_call>',
        f'<tool_call>{{"name": "ls", "arguments": {{{PATH}}}}}',
        f'Between <tool_call> and its end: <tool_call>{{"name": "ls", "arguments": {{{PATH}}}}}</tool_call>',
        f'[TOOL_CALLS] [{{"name": "ls", "arguments": {{{PATH}}}}}]',
        f'{{"name": "ls", "parameters": {{{PATH}}}}}',
        f'<|python_tag|>{{"name": "ls", "parameters": {{{PATH}}}}}',
        f'```json\n{{"name": "ls", "arguments": {{{PATH}}}}}\n```',
        "[ls(path='/')]",
    ],
)
def test_every_format_of_the_environments_is_read(text: str) -> None:
    """And nothing of a call is shown before the call is known."""
    _, [call] = tools.find(text, [LS])
    assert (call["name"], json.loads(call["arguments"])) == ("ls", {"path": "/"})
    shown = {text[: tools.certain(text[:n], [LS])] for n in range(len(text) + 1)}
    assert all(text[: len(part)] == part and "ls" not in part for part in shown)
    assert max(shown, key=len) in ("", "Between ")


def test_json_is_a_call_only_of_a_tool_that_there_is() -> None:
    person = '{"name": "Otter", "arguments": {"a": 1}}'
    for given in ((), [LS]):
        assert tools.find(person, given) == (person, ())
    assert tools.certain(person) == len(person)
    assert tools.certain("x < 3", [LS]) == 5
    assert tools.certain("x <tool", [LS]) == 2


def test_a_session_stays_with_its_side_of_a_trial(server: Running, trained: Home) -> None:
    with store.connect(trained.database) as db:
        db.promote(0)
        made = release.trial.begin(db, 1, 0.5, 0.05, now=1000.0)
    versions: dict[str, set[int]] = {}
    messages: list[dict[str, str]] = list(ASK)
    for name in ("a", "b", "c", "d", "e", "f"):
        for _ in range(2):
            answer = httpx.post(
                server.url + "/v1/chat/completions",
                json={"messages": ASK, "max_tokens": 5},
                headers={"x-session-id": name},
            )
            versions.setdefault(name, set()).add(int(answer.headers["x-clawback-version"]))
    assert versions == {name: {release.trial.side(made, name)} for name in versions}
    assert {0, 1} == {number for of in versions.values() for number in of}
    seen = set()
    for _ in range(3):  # nobody names the session: it is known by what was said
        answer = httpx.post(server.url + "/v1/chat/completions", json={"messages": messages, "max_tokens": 5})
        seen.add(answer.headers["x-clawback-version"])
        messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": "And then?"}]
    assert len(seen) == 1


def test_an_answer_whose_reader_has_left_is_not_made_to_its_end(
    server: Running, chat: openai.OpenAI, trained: Home
) -> None:
    """What it had come to is kept, and marked; and the room that it took is free again."""
    whole = chat.chat.completions.create(model="clawback", messages=ASK, seed=3)  # type: ignore[arg-type]
    with httpx.stream(
        "POST",
        server.url + "/v1/chat/completions",
        json={"model": "clawback", "messages": ASK, "seed": 3, "stream": True},
    ) as response:
        for _ in zip(response.iter_lines(), range(4), strict=False):
            pass
    for _ in range(200):
        if newest(trained).ending == "interrupted":
            break
        threading.Event().wait(0.05)
    turn = newest(trained)
    assert (turn.kind, turn.ending) == ("main", "interrupted")
    assert len(turn.response_ids) < whole.usage.completion_tokens  # type: ignore[union-attr]


def test_a_long_prompt_is_read_apart_and_the_same(server: Running, trained: Home) -> None:
    text = "word " * 20_000
    answer = httpx.post(
        server.url + "/v1/messages/count_tokens", json={"messages": [{"role": "user", "content": text}]}
    )
    assert answer.status_code == 200
    assert answer.json()["input_tokens"] > 1000
