"""What a run brought since the person last looked: one sentence from what the store has, and one key to it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from clawback import config, release, store
from clawback.capture import hook
from clawback.cli import conversation, main
from clawback.cli.chat import ask_about_news
from clawback.extensions.agents import status_line
from clawback.extensions.channels.channel import Desk, Heard
from clawback.feedback import command
from clawback.feedback.news import mark_seen, news, when
from clawback.jobs.news_answer import NOT_THE_OWNER, decide, first_mention, reply
from clawback.paths import Home
from clawback.records import Feedback, Run, Turn, Version
from clawback.serve import hooks

EVIDENCE = {
    "candidate": {"length": 77.0},
    "live": {"length": 100.0},
    "rules": [
        {"rule": "Never apologise.", "candidate": 0.9, "live": 0.62},
        {"rule": "Be kind.", "candidate": 0.5, "live": 0.55},
    ],
}


@pytest.fixture
def brought(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Version 1, made from four ratings, live."""
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database) as db:
        for number in range(4):
            turn = db.add_turn(Turn(session="s", messages=(), response=str(number)))
            db.add_feedback(Feedback(turn.id, "rating", 1.0))
        ids = tuple(one.id for one in db.feedback())
        run = db.start_run(Run("embedded", "", "reinforce", {"steps": 1}, 0, 0, train_ids=ids))
        db.add_candidate(
            Version(0, "candidate", "embedded", parent=0, run_id=run.id, report={"evidence": EVIDENCE})
        )
        db.update_run(run.id, status="done")
        db.promote(1)
    return home


def test_it_names_the_ratings_the_version_and_what_was_measured(brought: Home) -> None:
    with store.connect(brought.database) as db:
        current = news(db)
        assert current is not None
        assert current.sentence == (
            "Today: 4 ratings, version 1, answers 23 % shorter, “Never apologise” kept in 90 % of answers (before 62 %). Keep it?"
        )
        assert news(db, datetime.now() + timedelta(days=8)) is None, "nobody calls that news"


def test_a_version_that_waits_asks_for_comparisons_and_not_to_be_kept(brought: Home) -> None:
    with store.connect(brought.database) as db:
        mark_seen(db, 1)
        run = db.start_run(Run("embedded", "", "reinforce", {"steps": 1}, 0, 1, train_ids=(1, 2, 3, 4)))
        report = {"evidence": {}, "again_at": 3}
        db.add_candidate(Version(0, "candidate", "embedded", parent=1, run_id=run.id, report=report))
        current = news(db)
        assert current is not None
        assert (current.version, current.live, current.ratings) == (2, False, 0)
        assert "three pairs to compare before it answers (`clawback inbox --rate`)" in current.sentence
        assert "Keep" not in current.sentence


def typed(text: str) -> bytes:
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s", "prompt": text, "prompt_id": text}
    return json.dumps(event).encode()


def test_keeping_is_the_end_of_it_everywhere(brought: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert "keep? /rl y or /rl n" in str(status_line._read(brought))
    assert main(["status"]) == 0
    assert "News      Today: 4 ratings, version 1" in " ".join(capsys.readouterr().out.split("\n"))
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["news"]["version"] == 1
    with store.connect(brought.database) as db:
        asked = command.run(db, ["status"], None, source="claude-code").text
        assert "Today: 4 ratings, version 1" in asked
        assert "`/rl y` keeps it, `/rl n` goes back" in asked
    text, _ = hooks.answer(brought, "claude-code", typed("/rl keep"))
    assert "Version 1 stays" in text
    with store.connect(brought.database) as db:
        assert news(db) is None
        assert db.live().number == 1
    assert "keep?" not in str(status_line._read(brought))


def test_a_stranger_keeps_nothing(brought: Home) -> None:
    with store.connect(brought.database) as db:
        assert "version 1," not in command.run(db, ["status"], None, source="slack:U1").text
    for source in ("slack:U1", "openclaw", "api"):
        for keep in (True, False):
            assert reply(brought, source, keep) == NOT_THE_OWNER
        with store.connect(brought.database) as db:
            assert first_mention(db, source) == ""
            assert news(db) is not None
            assert db.live().number == 1


@pytest.mark.parametrize("keep", [True, False])
def test_one_key_keeps_it_or_goes_back(brought: Home, keep: bool) -> None:
    with store.connect(brought.database) as db:
        sentence = decide(db, brought, keep)
        assert db.live().number == int(keep)
        assert ("stays" in sentence) == keep
        assert news(db) is None
        assert len(db.feedback()) == 4, "ratings stay"
        assert "nothing new" in decide(db, brought, False)


def test_of_two_keys_that_are_pressed_at_once_the_first_counts(
    brought: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_back, second = release.rollback, []

    def rollback(db: store.Store, home: Home) -> Version:
        with store.connect(home.database) as other:  # the page, while an agent goes back
            second.append(decide(other, home, False) if not second else "")
        return go_back(db, home)

    monkeypatch.setattr(release, "rollback", rollback)
    with store.connect(brought.database) as db:
        assert "Version 0 is live again" in decide(db, brought, False)
    assert second == ["There is nothing new to keep or undo."]


@pytest.mark.parametrize(
    ("made", "now", "name"),
    [
        ((3, 2), (3, 8), "last night"),
        ((2, 22), (3, 8), "last night"),
        ((3, 2), (3, 3), "today"),
        ((2, 13), (3, 8), "yesterday"),
        ((3, 9), (3, 23), "today"),
        ((1, 12), (5, 8), "on Friday"),
    ],
)
def test_times_are_named_as_a_person_does(made: tuple[int, int], now: tuple[int, int], name: str) -> None:
    assert when(datetime(2026, 5, *made), datetime(2026, 5, *now)) == name


@pytest.mark.parametrize(("word", "live"), [("y", 1), ("n", 0)])
def test_one_letter_is_enough_in_an_agent_with_a_server_and_without(
    brought: Home, word: str, live: int
) -> None:
    first = hook.handle(brought, "claude-code", typed(f"/rl {word}"))  # no server runs
    assert ("Version 1 stays" if live else "Version 0 is live again") in str(first)
    again, _ = hooks.answer(brought, "claude-code", typed(f"/rl {word}"))
    assert again == json.dumps(first), "an event that is brought twice is acted on once"
    with store.connect(brought.database) as db:
        assert db.live().number == live


def test_one_letter_is_enough_in_the_chat_of_the_terminal(brought: Home) -> None:
    with store.connect(brought.database) as db:
        assert "Version 0 is live again" in (conversation.reply_to_command(db, "c", "/rl n", None) or "")


def test_a_chat_program_tells_its_owner_once_and_takes_a_letter(brought: Home) -> None:
    desk = Desk(brought, "telegram", config.ChannelSection(owners=("1",), allowed=("2",)), 4000)
    first = desk._news("1")
    assert "Keep it? `/rl y` keeps it, `/rl n` goes back." in first
    assert (desk._news("1"), desk._news("2")) == ("", "")
    assert "for owners" in desk.obey(Heard("telegram:2", "m1", "2", "/rl n", True), ["n"])
    assert "Version 0 is live again" in desk.obey(Heard("telegram:1", "m2", "1", "/rl n", True), ["n"])


def test_one_key_in_the_terminal(brought: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter("xn")
    monkeypatch.setattr("clawback.cli.chat.one_key", lambda _: next(keys))
    with store.connect(brought.database) as db:
        ask_about_news(brought, db)
        assert (db.live().number, news(db) is None) == (1, False), "another key leaves it for later"
        ask_about_news(brought, db)
        assert (db.live().number, news(db)) == (0, None)
