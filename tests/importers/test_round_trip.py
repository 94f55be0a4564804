"""What goes out comes back the same: every kind of feedback, of every person, with its words, scores and pairs."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.cli import main
from clawback.extensions import importers
from clawback.extensions.importers.export import LAYOUTS, export_layout
from clawback.feedback.calibrate import standing
from clawback.feedback.give import scored
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.store import Store

TEXTS = st.sampled_from(["too long", "ñ 🦦", "a\nb", "x"])
SOURCES = st.sampled_from(["cli", "claude-code", "mcp", "rater:anna", "slack:U1"])
WORDS = st.one_of(
    st.builds(
        lambda v, t: Feedback(0, "rating", v, t), st.sampled_from([1.0, -1.0, 0.25]), st.just("") | TEXTS
    ),
    st.builds(scored, st.integers(1, 10)),
    st.builds(lambda s: scored(s, "0-100"), st.integers(0, 100)),
    st.builds(lambda t: Feedback(0, "edit", 0.0, t), TEXTS),
    st.builds(lambda t: Feedback(0, "critique", 0.0, t), TEXTS),
    st.builds(lambda v: Feedback(0, "reward", v), st.floats(-1, 1)),
    st.builds(lambda v, t: Feedback(0, "preference", v, t, other_turn_id=-1), st.sampled_from([1.0, 1.0, 0.0]), st.just("") | TEXTS),
)  # fmt: skip


def everything(db: Store) -> list[tuple[Any, ...]]:
    """All that was said, by what was answered and not by number."""
    answers = {t.id: t.response for t in db.turns(limit=99)}
    return sorted(
        (answers[f.turn_id], answers.get(f.other_turn_id or 0, ""), f.kind, f.value, f.text, f.author, f.score or 0.0, f.scale, f.created_at)
        for f in db.feedback()
    )  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 4), WORDS, SOURCES), max_size=12))
def test_a_home_comes_back_whole(tmp_path_factory: pytest.TempPathFactory, words: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("trip")
    with store.connect(folder / "one.db") as db:
        for number in range(4):
            event = "" if number % 2 else f"e{number}"
            db.add_turn(Turn("s", ({"role": "user", "content": "q"},), f"r{number}", event_id=event))
        with db.together():
            for turn, word, source in words:
                other = turn % 4 + 1 if word.other_turn_id else None
                fields = {name: getattr(word, name) for name in ("kind", "value", "text", "score", "scale")}
                db.add_feedback(Feedback(turn, source=source, other_turn_id=other, **fields))
        importers.export_file(db, folder / "one.jsonl", everything=True)
        before, rewards = everything(db), [(s.response, s.reward) for s in feedback.samples(db)]
        again = importers.import_file(db, folder / "one.jsonl")
        assert (again.turns, again.feedback, again.problems) == (0, 0, []), (
            "the home that it is from knows it all"
        )
    with store.connect(folder / "two.db") as db:
        report = importers.import_file(db, folder / "one.jsonl")
        assert (report.turns, report.feedback, report.problems, report.notes) == (4, len(words), [], [])
        assert everything(db) == before
        assert [(s.response, s.reward) for s in feedback.samples(db)] == rewards
        importers.export_file(db, folder / "two.jsonl", everything=True)
    assert (folder / "two.jsonl").read_text("utf-8") == (folder / "one.jsonl").read_text("utf-8")


def by_words(db: Store) -> tuple[set[Any], set[Any], set[Any]]:
    """What a trainer learns from: (better, worse), (answer, liked), answers to learn as they are; each with what was asked."""
    turns = {t.id: t for t in db.turns(limit=99)}
    asked = {number: json.dumps(turn.messages, sort_keys=True) for number, turn in turns.items()}
    said = standing(db.feedback())
    edits = {f.turn_id: f.text for f in said if f.kind == "edit"}
    pairs = {(asked[n], text, turns[n].response) for n, text in edits.items()}
    pairs |= {(asked[f.turn_id], turns[f.turn_id].response, turns[f.other_turn_id].response) for f in said if f.kind == "preference" and f.value and f.other_turn_id}  # fmt: skip
    means = {n: fmean(some) for n in turns if (some := [f.value for f in said if f.kind == "rating" and f.turn_id == n])}  # fmt: skip
    taps = {(asked[n], turns[n].response, mean > 0) for n, mean in means.items() if mean}
    learned = {
        (asked[n], edits.get(n, turns[n].response)) for n in turns if n in edits or means.get(n, 0) > 0
    }
    return pairs, taps, learned


@pytest.mark.parametrize("kind", ["trl", "openai"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.tuples(st.integers(1, 4), WORDS, st.just("cli")), max_size=12))
def test_what_trainers_read_comes_back(
    tmp_path_factory: pytest.TempPathFactory, kind: str, words: list[Any]
) -> None:
    """Of each layout into a home of its own: the same pairs, the same thumbs, the same answers to learn; nothing else."""
    folder = tmp_path_factory.mktemp("layouts")
    talk = ({"role": "system", "content": "s"}, {"role": "user", "content": "q\n🦦"})
    with store.connect(folder / "one.db") as db:
        for number in range(4):
            db.add_turn(Turn("s", talk, f"r{number}"))
        for turn, word, source in words:
            fields = {name: getattr(word, name) for name in ("kind", "value", "text", "score", "scale")}
            db.add_feedback(Feedback(turn, source=source, other_turn_id=turn % 4 + 1 if word.other_turn_id else None, **fields))  # fmt: skip
        expected = dict(zip(("dpo", "kto", "sft"), by_words(db), strict=True))
        for layout in LAYOUTS[kind]:
            export_layout(db, folder / f"{layout}.jsonl", kind, layout)
    for layout in LAYOUTS[kind]:
        with store.connect(folder / f"{layout}.db") as db:
            assert importers.import_file(db, folder / f"{layout}.jsonl").problems == []
            pairs, taps, _ = by_words(db)
            turns = {(json.dumps(t.messages, sort_keys=True), t.response) for t in db.turns(limit=99)}
            found = {"dpo": pairs, "kto": taps, "sft": turns}[layout]
        assert found == expected[layout], layout


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="}}  # fmt: skip
TOOLS = [{"type": "function", "function": {"name": "kettle", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "name": "kettle", "arguments": '{"t": 90}'}


@pytest.mark.parametrize("kind", ["trl", "openai"])
@pytest.mark.parametrize(
    "turn",
    [
        Turn("s", ({"role": "user", "content": [PICTURE, {"type": "text", "text": "What?"}]},), "A cat."),
        Turn("s", ({"role": "user", "content": "Boil", "tools": TOOLS},), "", calls=(CALL,)),
        Turn("s", ({"role": "user", "content": "Boil", "tools": TOOLS},), "Wait.", calls=(CALL,)),
        Turn("s", ({"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "kettle", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c1", "content": "hot"}), " Hot.\n"),
        Turn("s", ({"role": "user", "content": "\n\nHuman: a\n\nAssistant: b"},), '[{"role": "user"}]'),
    ],
    ids=["picture", "call", "words and call", "result", "transcript"],
)  # fmt: skip
def test_pictures_and_calls_come_back(turn: Turn, kind: str, tmp_path: Path) -> None:
    with store.connect(tmp_path / "one.db") as db:
        better = db.add_turn(turn).id
        worse = db.add_turn(Turn("s", turn.messages, "worse")).id
        for one in (
            Feedback(better, "preference", 1.0, other_turn_id=worse),
            Feedback(better, "rating", 1.0),
        ):
            db.add_feedback(one)
        turns = {
            number: (t.messages, t.response, t.calls) for number in (better, worse) if (t := db.turn(number))
        }
        for layout in LAYOUTS[kind]:
            assert export_layout(db, tmp_path / f"{layout}.jsonl", kind, layout) == 1
        importers.export_file(db, tmp_path / "own.jsonl", everything=True)
    for layout in (*LAYOUTS[kind], "own"):
        with store.connect(tmp_path / f"{layout}.db") as db:
            assert importers.import_file(db, tmp_path / f"{layout}.jsonl").problems == []
            listed = [db.turn(t.id) for t in db.turns(limit=9)]  # with pictures
            found = {t.id: (t.messages, t.response, t.calls) for t in listed}
            names = (better, worse) if layout in ("dpo", "own") else (better,)
            assert sorted(found.values(), key=repr) == sorted((turns[n] for n in names), key=repr), layout
            pairs = [(found[f.turn_id], found[f.other_turn_id]) for f in db.feedback() if f.other_turn_id]
            assert pairs == [(turns[better], turns[worse])] * (len(names) - 1)


def test_a_preference_from_the_command_line_comes_back(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.connect(home.database) as db:
        for number in range(2):
            db.add_turn(Turn("s", ({"role": "user", "content": "q"},), f"r{number}"))
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    assert main(["prefer", "2", "1", "--note", "shorter"]) == 0
    assert main(["export", str(tmp_path / "out.jsonl")]) == 0
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path / "other"))
    assert main(["import", str(tmp_path / "out.jsonl")]) == 0
    with store.connect(tmp_path / "other" / "clawback.db") as db:
        [pair] = db.feedback()
        assert pair.other_turn_id is not None
        assert (db.turn(pair.turn_id).response, db.turn(pair.other_turn_id).response, pair.text) == (
            "r1",
            "r0",
            "shorter",
        )


@pytest.mark.parametrize(
    "line",
    [
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "good"}], "rejected": [{"role": "assistant", "content": "bad"}]},
        {"prompt": "q", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}], "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}]},
        {"chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "good"}], "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bad"}]},
    ],
)  # fmt: skip
def test_a_pair_is_two_turns_and_a_preference(home: Home, tmp_path: Path, line: dict[str, Any]) -> None:
    (tmp_path / "f").write_text(json.dumps(line) + "\n")
    with store.connect(home.database) as db:
        for expected in ((2, 1), (0, 0)):
            report = importers.import_file(db, tmp_path / "f")
            assert (report.turns, report.feedback, report.problems) == (*expected, [])
        assert {s.response: s.reward for s in feedback.samples(db)} == {"good": 0.5, "bad": -0.5}
        assert {t.prompt for t in db.turns(limit=9)} == {"q"}


def test_pairs_that_are_none_are_named(home: Home, tmp_path: Path) -> None:
    lines = [
        {"prompt": "q", "chosen": "a", "rejected": "a"},
        {"prompt": "q", "chosen": "a"},
        {"chosen": "a", "rejected": "b"},
    ]
    (tmp_path / "f").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with store.connect(home.database) as db:
        report = importers.import_file(db, tmp_path / "f")
        assert db.count_turns() == 0
    assert len(report.problems) == 3


def test_two_homes_do_not_take_each_others_turns_for_their_own(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with store.connect(tmp_path / f"{name}.db") as db:
            feedback.rate(db, db.add_turn(Turn("s", ({"role": "user", "content": name},), name)).id, 1)
            importers.export_file(db, tmp_path / f"{name}.jsonl")
    with store.connect(tmp_path / "three.db") as db:
        for name in ("one", "two"):
            importers.import_file(db, tmp_path / f"{name}.jsonl")
        assert {t.response for t in db.turns(limit=9)} == {"one", "two"}
        assert len(db.feedback()) == 2
