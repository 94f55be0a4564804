"""One request over real sockets: what is sent, what is followed, and how each failure is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clawback import http_client
from clawback.errors import ClawbackError, UsageError
from clawback.http_client import BadReply, RequestLimits, Retry, StatusError, TransportError, request
from tests.http_server import Reply, http_server


def test_a_body_is_sent_and_an_answer_read() -> None:
    with http_server([Reply(body=b'{"a": 1}', headers={"content-type": "application/json"})]) as server:
        reply = request("POST", server.url + "/x", body=b"hi", headers={"authorization": "Bearer k"})
    assert (reply.json(), reply.content_type) == ({"a": 1}, "application/json")
    [sent] = server.exchanges
    assert (sent.method, sent.path, sent.body) == ("POST", "/x", b"hi")
    assert (sent.headers["authorization"], sent.headers["user-agent"]) == ("Bearer k", "clawback")


def test_requests_to_this_machine_never_go_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server([Reply(503)]) as proxy, http_server([Reply()]) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert request("GET", server.url).body == b"{}"
        with pytest.raises(StatusError, match="503"):
            request("GET", "http://models.invalid/v1/models")
    assert len(proxy.exchanges) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed_only_where_that_is_allowed_and_without_the_key(status: int) -> None:
    with http_server([Reply(body=b"there")]) as target:
        away = Reply(status, headers={"location": target.url + "/y"})
        with http_server([away]) as server:
            known = {"authorization": "k", "x-api-key": "k", "accept": "text/plain"}
            with pytest.raises(StatusError) as refused:
                request("GET", server.url, headers=known)
            with pytest.raises(StatusError):
                request("POST", server.url, body=b"", headers=known, follow=lambda *_: True)
            assert target.exchanges == []
            reply = request("GET", server.url, headers=known, follow=lambda *_: True)
    assert (refused.value.status, reply.body) == (status, b"there")
    headers = target.exchanges[0].headers
    assert "authorization" not in headers
    assert "x-api-key" not in headers
    assert headers["accept"] == "text/plain"


def test_redirects_in_circles_end() -> None:
    with http_server(
        [Reply(302, headers={"location": "/a"}), Reply(302, headers={"location": "/b"})]
    ) as server:
        server.replies = [Reply(302, headers={"location": f"/{n}"}) for n in range(50)]
        with pytest.raises(BadReply, match="circles"):
            request("GET", server.url, follow=lambda *_: True)
    assert len(server.exchanges) == http_client.MOST_REDIRECTS + 1


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    with http_server([Reply(body=b"half", headers={"content-length": "9", "connection": "close"})]) as server:
        with pytest.raises(TransportError, match="IncompleteRead"):
            request("GET", server.url)
        server.replies = [Reply(body=b"", headers={"content-length": "9"})]
        assert request("HEAD", server.url).body == b""


def test_an_answer_has_a_size() -> None:
    with http_server([Reply(body=b"x" * 100)]) as server, pytest.raises(BadReply, match="99 bytes"):
        request("GET", server.url, limits=RequestLimits(largest=99))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no  such model", "type": "t"}}', "no such model"),
        (b'{"detail": "gone"}', "gone"),
        (b'{"error": "busy"}', "busy"),
        (b'{"other": 1}', '{"other": 1}'),
        (b"[1]", "[1]"),
        (b"two\nlines", "two lines"),
        (b"", ""),
        (b"\xff" * 900, "\ufffd" * http_client.SENTENCE),
    ],
)  # fmt: skip
def test_a_refusal_repeats_the_servers_own_words(body: bytes, words: str) -> None:
    with http_server([Reply(418, body)]) as server, pytest.raises(StatusError, match="418") as refused:
        request("GET", server.url)
    assert refused.value.words == words


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "file:///etc/passwd", "127.0.0.1:80", "http://", "http://[::1", "http://x:y"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    assert not http_client.is_address(url)
    with pytest.raises(UsageError, match="no address"):
        request("GET", url)


def test_a_key_that_no_header_can_hold_is_named_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        request("GET", "http://127.0.0.1:9", headers={"authorization": "Bearer sk-secret\n"})
    assert "sk-secret" not in str(refused.value)


def test_whether_anybody_answers() -> None:
    with http_server([Reply(404)]) as server:
        assert http_client.answers(server.url, 5.0)
    assert not http_client.answers(server.url, 0.5)
    assert not http_client.answers("nowhere", 0.5)


def status(code: int, retry_after: float | None = None) -> StatusError:
    return StatusError("http://x", code, retry_after=retry_after)


@pytest.mark.parametrize(
    ("attempt", "error", "fits"),
    [
        (1, status(503), lambda wait: 0.75 <= wait <= 1.25),
        (2, status(429), lambda wait: 1.5 <= wait <= 2.5),
        (2, TransportError("http://x", "reset"), lambda wait: 1.5 <= wait <= 2.5),
        (1, status(429, 7.0), lambda wait: wait == 7.0),
        (1, status(429, 900.0), lambda wait: wait == 30.0),
        (1, status(429, 0.0), lambda wait: 0.75 <= wait <= 1.25),
        (3, status(503), lambda wait: wait is None),
        (1, status(401), lambda wait: wait is None),
    ],
)  # fmt: skip
def test_when_a_request_is_repeated(
    attempt: int, error: ClawbackError, fits: Callable[[float | None], bool]
) -> None:
    assert fits(Retry(tries=3, pause=1.0).seconds(attempt, error))  # type: ignore[arg-type]
