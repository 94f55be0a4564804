"""Whatever answers is called with messages, gives text, and is counted."""

import pytest

from clawback.errors import UsageError
from clawback.prompts import (
    AnthropicBackend,
    BackendError,
    Example,
    LocalLLMBackend,
    MockLLM,
    OpenAIBackend,
    Price,
    Prompt,
    ScriptedLLM,
    as_backend,
    contains,
    evaluator,
    exact_match,
)

HI = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]


def test_openais_dialect(model_server):
    backend = OpenAIBackend("m", "sk-1", model_server.url, price=Price(sent=1e6, received=2e6))
    assert backend(HI) == "Better."
    path, headers, body = model_server.asked[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer sk-1"
    assert headers["x-turn-type"] == "side"
    assert body["messages"] == HI
    assert (backend.usage.calls, backend.usage.sent, backend.usage.received, backend.usage.money) == (
        1,
        7,
        3,
        13.0,
    )


def test_anthropics_dialect(model_server):
    backend = AnthropicBackend("m", "key", model_server.url)
    assert backend.refine_prompt("Help.").text == "Better."
    backend(HI)
    path, headers, body = model_server.asked[1]
    assert (path, headers["x-api-key"], body["system"]) == ("/v1/messages", "key", "Be kind.")
    assert body["messages"] == HI[1:]
    assert backend.usage.calls == 2


def test_a_local_server_needs_no_key(model_server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert LocalLLMBackend("m", model_server.url).complete("Hi").text == "Better."
    assert "authorization" not in model_server.asked[0][1]


def test_what_may_pass_is_tried_again_and_what_will_not_is_said(model_server):
    backend = OpenAIBackend("m", "k", model_server.url)
    model_server.statuses = [503, 429]
    assert backend(HI) == "Better."
    assert len(model_server.asked) == 3
    model_server.statuses = [401]
    with pytest.raises(BackendError, match="401"):
        backend(HI)
    model_server.reply = {"unheard": "of"}
    with pytest.raises(BackendError, match="does not answer in the form of its API"):
        backend(HI)
    assert backend.usage.calls == 1
    with pytest.raises(UsageError):
        OpenAIBackend("m", "k", "localhost:1")


def test_any_callable_will_do():
    backend = as_backend(lambda messages: messages[-1]["content"].upper())
    assert backend.complete("hi").text == "HI"
    assert backend.usage.calls == 1
    assert backend.usage.sent > 0
    assert as_backend(backend) is backend
    with pytest.raises(UsageError):
        as_backend("gpt")
    with pytest.raises(BackendError, match="not text"):
        as_backend(lambda _: 3).complete("hi")


def test_answers_by_rote():
    assert MockLLM(default_response="Same.").complete("Anything").text == "Same."
    turns = ScriptedLLM(["a", "b"])
    assert [turns(HI) for _ in range(3)] == ["a", "b", "a"]


def test_a_try_is_an_answer_judged():
    evaluate = evaluator(lambda m: f"Paris, says {m[0]['content']}", contains)
    outcome = evaluate(Prompt("Bo"), Example.ask("Capital of France?", reference="paris"))
    assert (outcome.score, outcome.response, outcome.usage.calls) == (1.0, "Paris, says Bo", 1)

    def breaks(_):
        raise ValueError("out of memory")

    assert "out of memory" in evaluator(breaks, contains)(Prompt("x"), Example.ask("y")).feedback


def test_no_answer_is_never_right():
    asked = Example.ask("Which?", reference="Alpha")
    assert [exact_match(asked, text).score for text in ("alpha", "Alpha!", "beta", "", "I do not know")] == [
        1,
        1,
        0,
        0,
        0,
    ]
    assert exact_match(Example.ask("Which?"), "").score == 0.0
    assert contains(Example.ask("Which?", reference="art"), "The party.").score == 0.0
