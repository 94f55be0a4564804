"""What the channels share, without a platform."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import config, store
from clawback.capture import ingest, server_proof
from clawback.capture.events import AnswerEvent, DisplayEvent, PromptEvent, ReactionEvent
from clawback.errors import ConfigError
from clawback.extensions import channels
from clawback.extensions.channels import bot_runner
from clawback.extensions.channels.bot_runner import Masked
from clawback.extensions.channels.channel import NOT_RUNNING, Desk, Heard, address, cut, sign_of
from clawback.inference import wire
from clawback.paths import Home
from clawback.serve import app as serving
from tests.serve.conftest import Running


@given(st.text(alphabet=st.sampled_from("ab🦦é \n"), max_size=300), st.integers(2, 40))
def test_pieces_fit_and_lose_nothing_but_white_space(text: str, limit: int) -> None:
    pieces = cut(text, limit)
    assert all(0 < len(piece.encode("utf-16-le")) // 2 <= limit for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_text_is_cut_between_paragraphs_before_lines_before_words() -> None:
    assert cut("one two\n\nthree four", 12) == ["one two", "three four"]
    assert cut("one two\nthree four", 12) == ["one two", "three four"]
    assert cut("one two three", 8) == ["one two", "three"]
    assert cut("short", 100) == ["short"]
    assert cut(" \n ", 100) == []


def test_reactions_rate_whatever_the_colour_of_the_hand() -> None:
    assert [sign_of(r) for r in ("👍", "👍🏿", "+1::skin-tone-2", "thumbsup", "❤️")] == [1] * 5
    assert [sign_of(r) for r in ("👎", "👎🏻", "-1", "thumbsdown")] == [-1] * 4
    assert [sign_of(r) for r in ("👀", "", "tada_not", "1")] == [0] * 4


def test_what_is_missing_is_named_and_no_token_shown(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_BOT_TOKEN", raising=False)
    monkeypatch.setenv("MY_APP", "xoxb-of-the-other-kind")
    home.config.write_text('[slack]\napp_token = "MY_APP"\n')
    said = " ".join(channels.missing(home, "slack"))
    assert "SLACK_BOT_TOKEN is not set" in said
    assert "MY_APP does not begin with xapp-" in said
    assert "owners" in said
    assert "of-the-other-kind" not in said
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    monkeypatch.setenv("MY_APP", "xapp-1")
    home.config.write_text('[slack]\napp_token = "MY_APP"\nowners = ["U1"]\n')
    pytest.importorskip("slack_bolt")
    assert channels.missing(home, "slack") == []


def test_a_token_in_place_of_its_variables_name_is_refused_unshown(home: Home) -> None:
    home.config.write_text('[telegram]\ntoken = "12345678:AAsecret"\n')
    with pytest.raises(ConfigError) as caught:
        channels.settings_of(home, "telegram")
    assert "AAsecret" not in str(caught.value)


def test_a_log_line_never_holds_a_token() -> None:
    record = logging.LogRecord("x", logging.ERROR, "", 1, "GET https://h/bot%s/getMe", ("12:abc",), None)
    assert Masked(["12:abc", ""]).format(record).endswith("GET https://h/bot[token]/getMe")


def test_the_server_is_asked_where_it_says_it_is(home: Home) -> None:
    assert address(home) == ("http://127.0.0.1:8742", {})
    (home.root / "server.port").write_text("9123\n")
    assert address(home)[0] == "http://127.0.0.1:9123"
    # Beyond loopback it wants its token.
    home.config.write_text('[serve]\nhost = "0.0.0.0"\n')
    url, headers = address(home)
    assert url == "http://127.0.0.1:9123"
    assert headers == {"X-Clawback-Token": (home.root / "token").read_text().strip()}


def test_who_took_the_servers_port_hears_no_question_and_no_token(
    home: Home, running: Callable[[Any], Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server has died, and somebody answers there who lets another server of ours prove itself in its place."""
    real = running(serving.make(home, config.ServeSection(upstream="http://127.0.0.1:9")))
    heard: list[tuple[str, bytes, bytes]] = []

    async def squatter(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        heard.append((scope["path"], str(scope["headers"]).encode(), await wire.body(receive)))
        asked = dict(scope["headers"]).get(server_proof.HEADER.lower().encode(), b"").decode()
        if not asked:
            await wire.respond(send, 200, b'{"status": "ok"}')
            return
        import httpx

        async with httpx.AsyncClient() as client:
            got = await client.get(f"{real.url}{server_proof.PATH}", headers={server_proof.HEADER: asked})
        await wire.respond(send, 200, got.content)

    there = running(squatter)
    (home.root / "server.port").write_text(f"{there.port}\n")
    home.config.write_text('[serve]\nhost = "0.0.0.0"\n')
    monkeypatch.setattr(
        "clawback.extensions.channels.channel.address",
        lambda _: (there.url, {"X-Clawback-Token": "own token"}),
    )
    desk, posted = Desk(home, "x", config.ChannelSection(owners=(1,)), 1000), []

    async def send(text: str) -> str:
        posted.append(text)
        return "m"

    heard.clear()
    asyncio.run(desk.hear(Heard("x:1", "q1", "1", "my own words", direct=True), send))
    assert posted == [NOT_RUNNING]
    assert [path for path, _, _ in heard] == [server_proof.PATH]
    assert b"own" not in b"".join(part for _, headers, body in heard for part in (headers, body))
    monkeypatch.undo()
    assert not bot_runner.server_answers(home)
    (home.root / "server.port").write_text(f"{real.port}\n")
    assert bot_runner.server_answers(home)


@pytest.mark.slow
def test_the_live_version_answers_and_its_own_tokens_are_rated(
    trained: Home, running: Callable[[Any], Running]
) -> None:
    (trained.root / "server.port").write_text(f"{running(serving.make(trained)).port}\n")
    desk = Desk(trained, "x", config.ChannelSection(owners=(1,)), 1000)
    posted: list[str] = []

    async def send(text: str) -> str:
        posted.append(text)
        return f"m{len(posted)}"

    async def scene() -> None:
        await desk.hear(Heard("x:1", "q1", "1", "Tell me about the otter.", direct=True), send)
        await desk.react("m1", "1", -1, True, direct=True, at=1.0)

    asyncio.run(scene())
    with store.connect(trained.database) as db:
        [turn] = db.turns(limit=1)
        given = db.last_feedback(turn.id)
    assert (turn.session, turn.version, turn.kind) == ("x:1", 1, "main")
    assert turn.response_ids
    assert posted == [turn.response.strip()]
    assert given
    assert given.value == -1.0


# ------------------------------------------------------------------------------------------------- the door


def said(home: Home) -> dict[str, list[float]]:
    with store.connect(home.database) as db:
        found: dict[str, list[float]] = {}
        for one in db.feedback():
            found.setdefault(db.turn(one.turn_id).prompt, []).append(one.value)
        return found


def test_a_reaction_before_its_message_is_known_waits_and_can_be_taken_back(home: Home) -> None:
    ingest.take(home, "x", PromptEvent("s", "one?", "q1"))
    ingest.take(home, "x", ReactionEvent("", "m1", 1, "u", "m1:u:+1", at=1.0))
    ingest.take(home, "x", ReactionEvent("", "m2", -1, "u", "m2:u:-1", at=1.0))
    ingest.take(home, "x", ReactionEvent("", "m2", 0, "u", "m2:u:-1", at=2.0))
    ingest.take(home, "x", AnswerEvent("s", "One.", "q1"))
    assert said(home) == {}
    for message in ("m1", "m2"):
        ingest.take(home, "x", DisplayEvent("s", "q1", message))
    assert said(home) == {"one?": [1.0]}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1), (0, 1, 2, 0, 1, 2)])
def test_in_whatever_order_reactions_come_the_newest_stands(home: Home, order: tuple[int, ...]) -> None:
    """Given at 1, taken away at 2, given again at 3."""
    ingest.take(home, "x", PromptEvent("s", "one?", "q1"))
    ingest.take(home, "x", AnswerEvent("s", "One.", "q1", message="m1"))
    events = [
        ReactionEvent("", "m1", value, "u", "m1:u:+1", at) for value, at in ((1, 1.0), (0, 2.0), (1, 3.0))
    ]
    for index in order:
        ingest.take(home, "x", events[index])
    assert said(home) == {"one?": [1.0]}


def test_a_reply_to_what_is_no_answer_rates_nothing(home: Home) -> None:
    ingest.take(home, "x", PromptEvent("s", "one?", "q1"))
    ingest.take(home, "x", AnswerEvent("s", "One.", "q1", message="m1"))
    assert "no answer" in (ingest.take(home, "x", PromptEvent("s", "/rl bad", "c1", about="elsewhere")) or "")
    assert said(home) == {}
    # A reply to the question means the answer to it.
    ingest.take(home, "x", PromptEvent("s", "two?", "q2"))
    ingest.take(home, "x", AnswerEvent("s", "Two.", "q2", message="m2"))
    assert "Noted" in (ingest.take(home, "x", PromptEvent("s", "/rl bad", "c2", about="q1")) or "")
    assert said(home) == {"one?": [-1.0]}
