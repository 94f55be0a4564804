"""Pictures in stored turns: once each, back as they went in, and gone with the last turn that shows them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawback import pictures, store
from clawback.extensions import importers
from clawback.paths import Home
from clawback.records import PICTURE, Message, Turn

BEGINNINGS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\x10\0\0\0WEBP")
RED, BLUE = BEGINNINGS[0] + b"red" * 400, BEGINNINGS[1] + b"blue" * 300


def said(*seen: bytes, text: str = "Which colour?", role: str = "user") -> Message:
    return {"role": role, "content": [*map(pictures.part_of, seen), {"type": "text", "text": text}]}


def turn(*messages: Message, session: str = "s", response: str = "Red.") -> Turn:
    return Turn(session, messages, response)


def kept(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as db:
        return [row[0] for row in db.execute("SELECT data FROM pictures ORDER BY id")]


def test_a_conversation_that_repeats_its_pictures_stores_each_once(home: Home) -> None:
    with store.connect(home.database) as db:
        talk: list[Message] = [said(RED, BLUE, RED)]
        numbers = []
        for place in range(40):
            made = db.add_turn(turn(*talk, response=f"Answer {place}."))
            assert made.messages == tuple(talk)
            numbers.append(made.id)
            talk += [{"role": "assistant", "content": f"Answer {place}."}, said(text=f"And {place}?")]
        assert kept(home.database) == [RED, BLUE]
        assert db.turn(numbers[-1]).messages[0] == said(RED, BLUE, RED)
        found = db.turns_by_id(numbers)
        parts = [one.messages[0]["content"][0]["image_url"]["url"] for one in found.values()]
        assert len({id(part) for part in parts}) == 1, "one text in memory, however many turns show it"
        # A list is of words: it has a mark where a picture stands, and so has the prompt.
        [newest] = db.turns(limit=1)
        assert [p.get("text") for p in newest.messages[0]["content"]] == [PICTURE] * 3 + ["Which colour?"]
        assert db.turn(numbers[0]).prompt == "\n".join([PICTURE] * 3 + ["Which colour?"])
        assert db.integrity() == []


PARTS = st.one_of(
    st.binary(max_size=40).map(lambda b: pictures.part_of(BEGINNINGS[len(b) % 4] + b)),
    st.text("abc é\n", max_size=12).map(lambda t: {"type": "text", "text": t}),
    st.sampled_from(
        [
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            {"type": "image_url"},
            {"type": "input_audio"},
        ]
    ),
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant", "tool"]),
        st.one_of(st.text("abc ", max_size=9), st.lists(PARTS, max_size=4)),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(talk=MESSAGES)
def test_whatever_goes_in_comes_back(home: Home, talk: list[Message]) -> None:
    with store.connect(home.database) as db:
        assert list(db.add_turn(turn(*talk)).messages) == talk


def test_a_number_from_outside_names_no_picture(home: Home) -> None:
    forged: Message = {"role": "user", "content": [{"type": "image_url", "number": 0}]}
    with store.connect(home.database) as db:
        db.add_turn(turn(said(RED)))
        made = db.add_turn(turn(forged, said(BLUE)))
        assert made.messages == ({"role": "user", "content": [{"type": "image_url"}]}, said(BLUE))


def test_a_picture_is_no_secret_and_a_secret_is_no_picture(home: Home) -> None:
    key = "ghp" + "_" + "a1B2" * 9
    home.config.write_text('[privacy]\nrules = ["[0-9A-Za-z+/]{20,}"]\n')
    words = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{key}"}}
    with store.connect(home.database) as db:
        made = db.add_turn(turn(said(RED, text=key), {"role": "user", "content": [words]}))
        assert pictures.pictures(made.messages[0]["content"]) == [RED]
    assert key.encode() not in home.database.read_bytes()


def test_what_came_back_keeps_a_mark(home: Home) -> None:
    with store.connect(home.database) as db:
        made = db.add_turn(turn(said(text="Hello?")))
        db.put_next_state(made.id, [said(RED)])
        [came] = db.turn(made.id).next_state
        assert came == {
            "role": "user",
            "content": [{"type": "text", "text": PICTURE}, {"type": "text", "text": "Which colour?"}],
        }
        assert kept(home.database) == []


def test_a_picture_goes_with_the_last_turn_that_shows_it(home: Home) -> None:
    with store.connect(home.database) as db:
        numbers = [db.add_turn(turn(said(RED), session=name)).id for name in "ab"]
        db.forget(numbers[:1])
        assert kept(home.database) == [RED]
        db.forget(numbers[1:])
        assert kept(home.database) == []
    assert b"redred" not in b"".join(f.read_bytes() for f in home.root.iterdir() if f.is_file())


def test_forgetting_a_turn_takes_its_pictures_out_of_the_turns_after_it(home: Home) -> None:
    first = [said(RED, text="")]
    second = [*first, {"role": "assistant", "content": "Red."}, said(BLUE)]
    third = [*second, {"role": "assistant", "content": "Blue."}, said(text="Sure?")]
    with store.connect(home.database) as db:
        numbers = [
            db.add_turn(turn(*talk, response=answer)).id
            for talk, answer in ((first, "Red."), (second, "Blue."), (third, "Yes."))
        ]
        db.forget(numbers[1:2])
        last = db.turn(numbers[2]).messages
        assert pictures.pictures(last[0]["content"]) == [RED], "an earlier question's picture stays"
        assert last[2]["content"] == "[forgotten]"
        db.forget(numbers[:1])
        assert db.turn(numbers[2]).messages[0] == {"role": "user", "content": "[forgotten]"}
        assert kept(home.database) == []


def test_pruning_takes_pictures_along(home: Home) -> None:
    with store.connect(home.database) as db:
        db.add_turn(turn(said(RED)))
        assert db.drop_unrated(2e12) == 1
        assert kept(home.database) == []


def test_exports_and_backups_have_the_pictures(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        db.add_turn(turn(said(RED, BLUE)))
        importers.export_file(db, tmp_path / "all.jsonl", everything=True)
        db.backup(tmp_path / "copy.db")
    [line] = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert pictures.pictures(line["messages"][0]["content"]) == [RED, BLUE]
    with store.connect(tmp_path / "copy.db") as db:
        assert db.turn(1).messages == (said(RED, BLUE),)
    with store.connect(tmp_path / "other.db") as db:
        importers.import_file(db, tmp_path / "all.jsonl")
        assert db.turn(1).messages == (said(RED, BLUE),)


# ------------------------------------------------------------------------------------------------- what one is


@pytest.mark.parametrize("start", BEGINNINGS)
def test_the_bytes_say_what_a_picture_is(start: bytes) -> None:
    part: dict[str, Any] = pictures.part_of(start + b"rest")
    address = part["image_url"]["url"]
    assert pictures.data_of(part) == start + b"rest"
    lied = address.replace(pictures.kind_of(start), "svg+xml")
    assert pictures.part_of(pictures.data_of({**part, "image_url": lied}) or b"") == part


@given(st.binary(max_size=60))
def test_anything_else_is_none(data: bytes) -> None:
    part = {**pictures.part_of(data), "image_url": f"data:image/png;base64,{data.hex()}"}
    found = pictures.data_of(part)
    assert found is None or pictures.kind_of(found)


def test_limits_are_kept_newest_first() -> None:
    talk = [said(RED), said(BLUE, text="And this?"), said(RED, BLUE)]
    sizes = len(RED), len(BLUE)

    def left(each: int, together: int) -> list[list[bytes]]:
        return [pictures.pictures(m["content"]) for m in pictures.limited(talk, each, together)]

    assert left(10**6, 10**6) == [[RED], [BLUE], [RED, BLUE]]
    assert left(10**6, sum(sizes)) == [[], [], [RED, BLUE]]
    assert left(10**6, sum(sizes) + sizes[1]) == [[], [BLUE], [RED, BLUE]]
    assert left(min(sizes), 10**6) == [[RED] if sizes[0] <= sizes[1] else [], [BLUE] if sizes[1] <= sizes[0] else [], [p for p in (RED, BLUE) if len(p) == min(sizes)]]  # fmt: skip
    assert left(0, 10**6) == [[], [], []]
