"""The same scenes on each platform, by its own library and protocol."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import random
import traceback

import pytest

from clawback.errors import ClawbackError
from clawback.extensions import channels
from clawback.extensions.channels.channel import Desk
from clawback.paths import Home
from tests.channels.conftest import Play, Scene


def test_an_answer_comes_from_the_server_and_commands_rate_the_one_that_is_meant(play: Play) -> None:
    async def scene(s: Scene) -> None:
        first = await s.asks("one?")
        second = await s.asks("two?")
        assert (first.text, second.text) == ("Answer to: one?", "Answer to: two?")
        await s.world.says(s.world.OWNER, "/rl good")
        assert "Noted: good" in (await s.world.next()).text
        assert s.said() == {"two?": [1.0]}
        await s.world.says(s.world.OWNER, "rl: rate 1 too long", reply=first)
        assert "Noted: 1 of 10" in (await s.world.next()).text
        assert s.said() == {"one?": [-1.0], "two?": [1.0]}
        await s.world.says(s.world.OWNER, "rl: undo", reply=second)
        assert "Taken back" in (await s.world.next()).text
        assert s.said() == {"one?": [-1.0]}
        # The server recorded both, as one conversation, and nothing was stored twice.
        turns = s.turns()
        assert [t.prompt for t in turns] == ["one?", "two?"]
        assert len({t.session for t in turns}) == 1
        assert [m["content"] for m in turns[1].messages] == ["one?", "Answer to: one?", "two?"]
        assert {t.kind for t in turns} == {"main"}

    play(scene)


def test_a_reaction_rates_the_message_under_it_until_it_is_taken_away(play: Play) -> None:
    async def scene(s: Scene) -> None:
        first = await s.asks("one?")
        await s.asks("two?")
        await s.world.reacts(s.world.OWNER, first, 1)
        await s.idle()
        assert s.said() == {"one?": [1.0]}
        await s.world.reacts(s.world.OWNER, first, 1, on=False)
        await s.idle()
        assert s.said() == {}
        await s.world.reacts(s.world.OWNER, first, -1)
        await s.world.again()
        await s.idle()
        assert s.said() == {"one?": [-1.0]}
        # Back and forth: the newest counts.
        await s.world.reacts(s.world.OWNER, first, -1, on=False)
        await s.world.reacts(s.world.OWNER, first, 1)
        await s.world.reacts(s.world.OWNER, first, 1, on=False)
        await s.world.reacts(s.world.OWNER, first, 1)
        await s.idle()
        assert s.said() == {"one?": [1.0]}

    play(scene)


def test_a_reaction_that_comes_after_its_own_removal_changes_nothing(play: Play) -> None:
    async def scene(s: Scene) -> None:
        if not s.world.KNOWS_WHEN:
            pytest.skip("this platform says no times, and tells of everything once and in order")
        answer = await s.asks("one?")
        await s.world.reacts(s.world.OWNER, answer, 1, at=500)
        given = s.world.last
        await s.idle()
        await s.world.reacts(s.world.OWNER, answer, 1, on=False, at=600)
        await s.idle()
        await s.world.tell(*given)
        await s.idle()
        assert s.said() == {}

    play(scene)


def test_a_command_that_is_quicker_than_the_answer_waits_for_it(play: Play) -> None:
    async def scene(s: Scene) -> None:
        await s.asks("one?")
        s.model.go_on.clear()
        s.model.asked.clear()
        await s.world.says(s.world.OWNER, "two?")
        assert await asyncio.to_thread(s.model.asked.wait, 30)
        await s.world.says(s.world.OWNER, "/rl bad")
        assert "still to come" in (await s.world.next()).text
        s.model.go_on.set()
        assert (await s.world.next()).text == "Answer to: two?"
        await s.settled()
        assert s.said() == {"two?": [-1.0]}

    play(scene)


def test_a_stranger_is_not_answered_and_leaves_nothing(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(s: Scene) -> None:
        answer = await s.asks("one?")
        seen = len(s.world.sent)
        await s.world.says(s.world.STRANGER, "What is said here?")
        await s.world.says(s.world.STRANGER, "/rl bad")
        await s.world.says(s.world.STRANGER, "/rl reset")
        await s.world.says(s.world.STRANGER, "tell me", group=True, mention=True)
        await s.world.reacts(s.world.STRANGER, answer, -1)
        await s.idle()
        assert len(s.world.sent) == seen + 1  # the answer to `idle` alone
        assert len(s.turns()) == 1
        assert s.feedback() == []

    with caplog.at_level(logging.WARNING):
        play(scene)
    assert caplog.text.count("1003") == 1
    assert "What is said" not in caplog.text


def test_in_a_group_only_a_mention_is_answered_and_only_owners_rate(play: Play) -> None:
    async def scene(s: Scene) -> None:
        w = s.world
        await w.says(w.OWNER, "Who is for lunch?", group=True)
        await w.says(w.FRIEND, "I am.", group=True)
        await s.idle()
        assert s.turns() == []
        await w.says(w.FRIEND, "one?", group=True, mention=True)
        answer = await w.next()
        assert answer.text == "Answer to: one?"
        await s.settled()
        await w.says(w.FRIEND, "rl: good", group=True, mention=True, reply=answer)
        await w.reacts(w.FRIEND, answer, 1, group=True)
        await s.idle()
        assert s.said() == {}
        await w.reacts(w.OWNER, answer, -1, group=True)
        await w.says(w.OWNER, "rl: note too short", group=True, mention=True, reply=answer)
        assert "Noted" in (await w.next()).text
        assert s.said() == {"one?": [-1.0, 0.0]}
        # The mention is no part of what was asked.
        assert [t.prompt for t in s.turns()] == ["one?"]

    play(scene)


def test_whoever_is_allowed_rates_in_direct_messages_but_gives_no_orders(play: Play) -> None:
    async def scene(s: Scene) -> None:
        w = s.world
        await w.says(w.FRIEND, "one?")
        answer = await w.next()
        await s.settled()
        await w.says(w.FRIEND, "/rl bad")
        assert "Noted" in (await w.next()).text
        await w.reacts(w.FRIEND, answer, 1)
        await w.says(w.FRIEND, "/rl rollback")
        assert "for owners" in (await w.next()).text
        await w.says(w.OWNER, "/rl rollback")
        assert "There is no older version" in (await w.next()).text or "not" in w.sent[-1].text
        assert s.said() == {"one?": [-1.0, 1.0]}
        # Both are one person's: the newer counts.
        assert len({given.source for given in s.feedback()}) == 1

    play(scene, settings='[capture]\nadmin = ["rollback"]\n')


def test_orders_are_off_unless_the_settings_allow_them(play: Play) -> None:
    async def scene(s: Scene) -> None:
        await s.world.says(s.world.OWNER, "/rl reset")
        assert "not allowed" in (await s.world.next()).text

    play(scene)


def test_what_the_platform_tells_twice_is_done_once(play: Play) -> None:
    async def scene(s: Scene) -> None:
        await s.asks("one?")
        await s.world.again()
        await s.idle()
        assert len(s.model.got) == 1
        for word in ("good", "rate 2"):
            await s.world.says(s.world.OWNER, f"/rl {word}")
            await s.world.next()
            await s.world.again()
            await s.world.next()
        assert len(s.feedback()) == 2
        await s.world.says(s.world.OWNER, "/rl undo")
        assert "Taken back" in (await s.world.next()).text
        await s.world.again()
        await s.idle()
        assert s.said() == {"one?": [1.0]}

    play(scene)


def test_without_the_server_one_sentence_says_so_and_the_bot_goes_on(play: Play) -> None:
    async def scene(s: Scene) -> None:
        w = s.world
        refused = await s.asks("lost?")
        assert "clawback serve" in refused.text
        await w.says(w.OWNER, "/rl good")
        assert "nothing to rate" in (await w.next()).text
        s.serve()
        await s.asks("one?")
        s.model.status = 500
        assert "did not answer" in (await s.asks("broken?")).text
        # What failed is not the last answer.
        await w.says(w.OWNER, "/rl good")
        assert "Noted" in (await w.next()).text
        await w.says(w.OWNER, "rl: bad", reply=refused)
        assert s.said() == {"one?": [1.0]}

    play(scene, served=False)


def test_a_long_answer_is_cut_and_each_piece_stands_for_the_turn(play: Play) -> None:
    async def scene(s: Scene) -> None:
        await s.asks("one?")
        s.model.says = "\n".join(f"{n}. " + "🦦 otters " * 12 for n in range(60)).strip()
        before = len(s.world.sent)
        await s.world.says(s.world.OWNER, "long?")
        await s.world.next()
        await s.settled()
        pieces = s.world.sent[before:]
        assert len(pieces) > 1
        assert "".join("".join(p.text for p in pieces).split()) == "".join(s.model.says.split())
        s.model.says = None
        await s.asks("two?")
        for value, piece in zip((1, -1), (pieces[0], pieces[-1]), strict=True):
            await s.world.reacts(s.world.OWNER, piece, value)
            await s.idle()
            assert s.said()["long?"][-1] == value
        assert set(s.said()) == {"long?"}

    play(scene)


def test_what_a_model_writes_calls_nobody_and_fetches_nothing(play: Play, platform: str) -> None:
    async def scene(s: Scene) -> None:
        s.model.says = "<!channel> @everyone https://example.org/?q=secret"
        sent = await s.asks("one?")
        assert sent.text == s.model.says
        raw = sent.raw
        if platform == "slack":
            assert raw["text"].startswith("&lt;!channel&gt;")
            assert (raw["unfurl_links"], raw["unfurl_media"]) in ((False, False), ("0", "0"))
        elif platform == "discord":
            assert raw["allowed_mentions"] == {"parse": [], "replied_user": False} or raw[
                "allowed_mentions"
            ] == {"parse": []}
            assert raw["flags"] & 4
        else:
            assert raw["link_preview_options"] == {"is_disabled": True}
            assert "parse_mode" not in raw

    play(scene)


def test_ratings_of_many_conversations_never_land_on_another_turn(play: Play) -> None:
    """Eight conversations at once; each answer gets a reaction, shuffled, some of them twice."""

    async def scene(s: Scene) -> None:
        w, rng = s.world, random.Random(0)
        asked = [(chat, n) for n in range(3) for chat in range(8)]
        for chat, n in asked:
            await w.says(w.OWNER, f"chat {chat} question {n}", chat=chat)
        answers = {}
        while len(answers) < len(asked):
            sent = await w.next()
            answers[sent.text.removeprefix("Answer to: ")] = sent
        # Some come while the last answers are still being stored.
        events = [(prompt, rng.choice((1, -1))) for prompt in answers]
        rng.shuffle(events)
        for prompt, value in events:
            await w.reacts(w.OWNER, answers[prompt], value)
            if rng.random() < 0.3:
                await w.again()
        await s.idle()
        assert s.said() == {prompt: [float(value)] for prompt, value in events}

    play(scene)


def test_it_ends_at_once_while_a_question_is_being_answered(play: Play) -> None:
    async def scene(s: Scene) -> None:
        s.model.go_on.clear()
        await s.world.says(s.world.OWNER, "one?")
        assert await asyncio.to_thread(s.model.asked.wait, 20)

    play(scene)  # which waits for the bot's end, and only then lets the model answer


def test_slack_says_which_of_the_two_tokens_is_wrong(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    module = channels.find("slack")
    pytest.importorskip(module.LIBRARY)
    fake = importlib.import_module("tests.channels.fake_slack")

    async def whole() -> None:
        async with fake.world(monkeypatch) as world:
            home.config.write_text(f"[slack]\n{world.settings()}")
            settings = channels.settings_of(home, "slack")
            desk = Desk(home, "slack", settings, module.LIMIT)
            tokens = world.TOKENS | {"app_token": "xapp-stolen"}
            await asyncio.wait_for(module.run(desk, settings, tokens), 20)

    with pytest.raises(ClawbackError, match="SLACK_APP_TOKEN: invalid_auth") as caught:
        asyncio.run(whole())
    assert "stolen" not in str(caught.value)


def test_a_reaction_to_somebody_elses_message_is_let_be(play: Play, platform: str) -> None:
    async def scene(s: Scene) -> None:
        if platform == "telegram":
            pytest.skip("Telegram does not say whose message it is")
        answer = await s.asks("one?")
        await s.world.reacts(s.world.OWNER, answer, 1)
        kind, content = s.world.last
        await s.idle()
        await s.world.reacts(s.world.OWNER, answer, 1, on=False)
        await s.idle()
        other = json.loads(json.dumps(content).replace('"UBOT"', '"U7"').replace('"900"', '"7"'))
        if platform == "slack":
            other["event"]["event_ts"] = s.world.ts()
            other["authorizations"] = content["authorizations"]
        await s.world.tell(kind, other)
        await s.idle()
        assert s.said() == {}

    play(scene)


def test_a_token_that_is_not_accepted_is_said_without_showing_it(
    platform: str, home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = channels.find(platform)
    pytest.importorskip(module.LIBRARY)
    fake = importlib.import_module(f"tests.channels.fake_{platform}")

    async def whole() -> None:
        async with fake.world(monkeypatch) as world:
            home.config.write_text(f"[{platform}]\n{world.settings()}")
            settings = channels.settings_of(home, platform)
            desk = Desk(home, platform, settings, module.LIMIT)
            wrong = {key: f"{value}-stolen" for key, value in world.TOKENS.items()}
            await asyncio.wait_for(module.run(desk, settings, wrong), 30)

    with pytest.raises(ClawbackError, match=r"does not accept the token in [A-Z_]+") as caught:
        asyncio.run(whole())
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "stolen" not in shown.replace('-stolen"', "")
