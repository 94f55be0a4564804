"""A judge on the network, asked over real sockets: both dialects, and every way in which a server can fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from clawback.errors import JudgeError
from clawback.feedback.endpoint import BudgetExceeded, CallBudget, Endpoint, NoAnswer
from tests.feedback.judge_server import Reply, judge_server


def endpoint(url: str, api: Any = "openai", budget: CallBudget | None = None, **more: Any) -> Endpoint:
    how = {"key": "k", "timeout": 5.0, "pause": 0.001} | more
    return Endpoint(api, url, "m", budget=budget or CallBudget(100, 60, 100_000), **how)


@pytest.mark.parametrize("suffix", ["", "/", "/v1"])
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_both_dialects_are_spoken(api: str, suffix: str) -> None:
    with judge_server(lambda system, user: f"{system}+{user} \\boxed{{1}}") as server:
        asked = endpoint(server.url + suffix, api)
        answer = asked("S", "U")
    assert answer.text == "S+U \\boxed{1}"
    assert (answer.tokens, answer.complete) == (100, True)
    assert (asked.budget.calls, asked.budget.tokens) == (1, 100)
    path, headers, body = server.asked[0]
    assert body["model"] == "m"
    assert headers["x-turn-type"] == "side"
    assert body["max_tokens"] == 512
    if api == "anthropic":
        assert (path, headers["x-api-key"], headers["anthropic-version"]) == (
            "/v1/messages",
            "k",
            "2023-06-01",
        )
    else:
        assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer k")


def in_turn(*replies: Reply) -> Callable[[str, str], Reply]:
    """These replies one after another, then the last one for ever."""
    left = list(replies)
    return lambda *_: left.pop(0) if len(left) > 1 else left[0]


def test_what_may_pass_is_tried_again_and_counted() -> None:
    with judge_server(in_turn(503, (429, {"retry-after": "0.01"}, "slow down"), "\\boxed{-1}")) as server:
        asked = endpoint(server.url)
        assert asked("S", "U").text == "\\boxed{-1}"
        assert asked.budget.calls == 3
    with judge_server(in_turn(500)) as server, pytest.raises(NoAnswer, match="500"):
        endpoint(server.url)("S", "U")
    assert len(server.asked) == 3


def test_the_newer_name_of_a_limit_is_learned_from_the_refusal() -> None:
    refusal = (400, {}, '{"error": "Unsupported parameter: use max_completion_tokens instead"}')
    with judge_server(in_turn(refusal, "\\boxed{0}")) as server:
        assert endpoint(server.url)("S", "U").text == "\\boxed{0}"
    assert server.asked[1][2]["max_completion_tokens"] == 512
    assert "max_tokens" not in server.asked[1][2]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_setup_is_said_at_once(status: int) -> None:
    with judge_server(in_turn(status)) as server, pytest.raises(JudgeError, match=str(status)) as raised:
        endpoint(server.url)("S", "U")
    assert not isinstance(raised.value, NoAnswer)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_the_key_stays_here(status: int) -> None:
    with judge_server(in_turn("\\boxed{1}")) as elsewhere:
        away = (status, {"location": elsewhere.url + "/v1/chat/completions"}, "")
        with judge_server(in_turn(away)) as server, pytest.raises(JudgeError, match=str(status)):
            endpoint(server.url)("S", "U")
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    "broken",
    [b"not json", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"message": {"content": [1]}}]}', b'{"choices": 3}',
     b'{"choices": [{"message": {"content": "x"}}], "usage": {"total_tokens": "many"}}', b"null"],
)  # fmt: skip
def test_a_malformed_reply_is_no_answer(broken: bytes) -> None:
    with judge_server(in_turn(broken)) as server, pytest.raises(NoAnswer):
        endpoint(server.url)("S", "U")
    assert len(server.asked) == 1


def test_an_endless_reply_is_cut() -> None:
    with judge_server(in_turn(b'"' + b"x" * 6_000_000)) as server, pytest.raises(NoAnswer):
        endpoint(server.url)("S", "U")


def test_a_late_reply_is_given_up_in_time() -> None:
    with judge_server(in_turn("\\boxed{1}")) as server:
        server.hold.clear()
        began = time.monotonic()
        with pytest.raises(NoAnswer, match="cannot be reached"):
            endpoint(server.url, timeout=0.1)("S", "U")
        assert time.monotonic() - began < 5
        assert len(server.asked) == 3


def test_nobody_there() -> None:
    with judge_server(in_turn("")) as server:
        gone = server.url
    with pytest.raises(NoAnswer, match="cannot be reached"):
        endpoint(gone)("S", "U")


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "file:///etc/passwd", "127.0.0.1:8000", "http://", "http://[::1", "http://x:y"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(JudgeError, match="url"):
        endpoint(url)


def test_a_server_that_counts_nothing_is_counted_for() -> None:
    plain = b'{"choices": [{"message": {"content": "fine"}, "finish_reason": "length"}]}'
    with judge_server(in_turn(plain)) as server:
        answer = endpoint(server.url)("S" * 300, "U" * 300)
    assert answer.tokens >= 200
    assert not answer.complete


def test_a_budget_is_never_gone_over_even_by_threads() -> None:
    with judge_server(in_turn("\\boxed{1}")) as server:
        budget = CallBudget(7, 60, 10**9)
        asked = endpoint(server.url, budget=budget)
        stopped: list[str] = []

        def many() -> None:
            try:
                for _ in range(10):
                    asked("S", "U")
            except BudgetExceeded as error:
                stopped.append(str(error))

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(server.asked) == 7 == budget.calls
        assert len(stopped) == 4
        assert "max_calls" in stopped[0]


def test_tokens_are_held_before_they_are_used() -> None:
    with judge_server(in_turn("\\boxed{1}")) as server:
        budget = CallBudget(100, 60, 1200)  # a call may take 512 + its own size, and takes 100
        asked = endpoint(server.url, budget=budget)
        for _ in range(6):  # each leaves 100 less: 1200 - 512 - 17 allows for seven
            asked("S", "U")
        asked("S", "U")
        with pytest.raises(BudgetExceeded, match="max_tokens"):
            asked("S", "U")
        assert budget.tokens <= 1200
        assert len(server.asked) == 7


def test_calls_side_by_side_cannot_overrun_the_tokens_together() -> None:
    budget = CallBudget(100, 60, 1000)
    budget.take(600)
    with pytest.raises(BudgetExceeded, match="max_tokens"):
        budget.take(600)
    budget.settle(600, 100)
    budget.take(600)
    assert (budget.calls, budget.tokens) == (2, 100)


def test_the_time_of_a_pass_ends() -> None:
    with pytest.raises(BudgetExceeded, match="max_seconds"):
        CallBudget(10, 0.0, 10**6).take(1)
