"""The way of an import: shown before it is stored, stored once, whatever happens in between; and out again without a loss."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawback import feedback, store
from clawback.cli import main
from clawback.extensions import importers
from clawback.extensions.data_sets.entries import MOST_NAMES, OTHERS, BoundedCounter
from clawback.extensions.importers import storing
from clawback.extensions.importers.import_plan import merge_problems
from clawback.feedback.implicit import corrected
from clawback.records import Feedback, Turn

from .layouts import TOOL, B, G, Q, chatgpt, lines, message, webui_chat
from .test_formats import answers, opened, opinions

ROWS = [{"prompt": f"p{n}", "response": f"r{n}", "score": 1 + n % 5, "colour": "red"} for n in range(40)]


def test_a_dry_run_shows_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = opened(monkeypatch, tmp_path)
    (tmp_path / "x").write_text(lines(*ROWS))
    assert main(["import", str(tmp_path / "x"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    for words in ("answers         40", "40: 16 good, 16 bad (40 from 1 to 5)", "`score` is read as a score from 1 to 5", "`colour`", "Nothing was stored"):  # fmt: skip
        assert words in shown
    assert main(["import", str(tmp_path / "x"), "--dry-run", "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["files"]
    assert (told["turns"], told["ratings"]) == (40, {"good": 16, "bad": 16, "scales": {"1-5": 40}})
    with store.connect(home) as db:
        assert db.count_turns() == 0


@pytest.mark.parametrize("yes", [True, False])
def test_a_terminal_is_asked_first(
    yes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = opened(monkeypatch, tmp_path)
    (tmp_path / "x").write_text(json.dumps([chatgpt()]))
    asked: list[str] = []

    def confirm(text: str, **_: Any) -> bool:
        asked.append(capsys.readouterr().out)
        with store.connect(home) as db:
            assert db.count_turns() == 0
        return yes

    monkeypatch.setattr("clawback.extensions.importers.commands.confirm", confirm)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(["import", str(tmp_path / "x")]) == 0
    assert "in 1 of 1 regenerations you kept the shorter answer" in asked[0]
    with store.connect(home) as db:
        assert db.count_turns() == (3 if yes else 0)


def test_a_pipe_prints_what_it_always_printed_for_our_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(monkeypatch, tmp_path)
    (tmp_path / "x").write_text(lines({"prompt": "a", "response": "b", "rating": 1}))
    assert main(["import", str(tmp_path / "x")]) == 0
    assert capsys.readouterr().out == "1 turns and 1 pieces of feedback imported; 0 were known already.\n"


def test_a_guess_never_outweighs_a_rating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    (tmp_path / "x").write_text(json.dumps([chatgpt()]))
    main(["import", str(tmp_path / "x")])
    with store.connect(home) as db:
        rewards = {s.response: s.reward for s in feedback.samples(db)}
        assert rewards == {G: 0.125, B: -0.125}
        assert feedback.evidence(feedback.samples(db)) == [], "no version goes live by a guess"
        assert db.count_fresh() == 0, "and no run starts by one"
        liked = next(t for t in db.turns(limit=9) if t.response == B)
        feedback.rate(db, liked.id, 1)
        assert {s.response: s.reward for s in feedback.samples(db)} == {G: 0.125, B: 1.0}


@pytest.mark.parametrize(
    ("words", "is_one"),
    [("No, shorter.", True), ("no. In English", True), ("Nein, kürzer", True), ("No problem, thanks!", False), ("No", False), ("Shorter please", False), ("wrong file, look again", True), ("No, " + "word " * 40, False)],
)  # fmt: skip
def test_a_message_that_corrects(words: str, is_one: bool) -> None:
    assert corrected(words) is is_one


def test_what_the_next_message_says_comes_with_a_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = opened(monkeypatch, tmp_path)
    talk = [(Q, B), (Q + " Please.", G), ("No, shorter.", "Eight minutes."), ("Thanks", "Gladly.")]
    listed = [message(role, text, id=f"{n}{role}") for n, pair in enumerate(talk) for role, text in zip(("user", "assistant"), pair, strict=True)]  # fmt: skip
    (tmp_path / "x").write_text(json.dumps({"id": "t", "title": "t", "messages": listed}))
    assert main(["import", str(tmp_path / "x")]) == 0
    with store.connect(home) as db:
        text = {t.id: t for t in db.turns(limit=9)}
        assert {(text[f.turn_id].response, f.source, f.value, f.text) for f in db.feedback()} == {(B, "asked-again", -1.0, ""), (G, "corrected", -1.0, "No, shorter.")}  # fmt: skip
        assert next(t for t in text.values() if t.response == G).next_state[0]["content"] == "No, shorter."


def state(path: Path) -> tuple[Any, ...]:
    with store.connect(path) as db:
        turns = [(t.event_id, t.messages, t.response) for t in db.turns(limit=999)]
        return turns, [(f.turn_id, f.other_turn_id, f.kind, f.value, f.event_id) for f in db.feedback()]


def test_an_empty_folder_is_said_to_be_empty_and_nothing_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(monkeypatch, tmp_path)
    (tmp_path / "empty").mkdir()
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(
        "clawback.extensions.importers.commands.confirm", lambda *_, **__: pytest.fail("asked")
    )
    assert main(["import", str(tmp_path / "empty")]) == 1
    assert "There is no file to read there." in capsys.readouterr().out


def test_an_import_that_breaks_off_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [{"prompt": f"q{n}", "chosen": f"g{n}", "rejected": f"b{n}"} for n in range(70)]
    (tmp_path / "x").write_text(lines(*ROWS, *pairs))
    with store.connect(tmp_path / "whole.db") as db:
        importers.import_file(db, tmp_path / "x")
    real = storing.Importer.add
    for stop_at in (60, 105):
        left = [stop_at]

        def breaks(self: Any, entry: Any, left: list[int] = left, **more: Any) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            real(self, entry, **more)

        monkeypatch.setattr(storing.Importer, "add", breaks)
        path = tmp_path / f"{stop_at}.db"
        with store.connect(path) as db, pytest.raises(KeyboardInterrupt):
            importers.import_file(db, tmp_path / "x")
        monkeypatch.setattr(storing.Importer, "add", real)
        with store.connect(path) as db:
            importers.import_file(db, tmp_path / "x")
        assert state(path) == state(tmp_path / "whole.db")


def test_a_newer_export_adds_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = opened(monkeypatch, tmp_path)
    (tmp_path / "1.json").write_text(json.dumps([webui_chat()]))
    later = webui_chat(rating=-1)
    later["chat"]["history"]["messages"]["m2"]["content"] = "An edited answer."
    (tmp_path / "2.json").write_text(json.dumps([later]))
    assert main(["import", str(tmp_path / "1.json")]) == 0
    assert main(["import", str(tmp_path / "2.json")]) == 0
    with store.connect(home) as db:
        assert answers(db) == {B: Q, G: Q, "An edited answer.": Q}
        assert ("rating", G, -1.0) in opinions(db)
        assert ("rating", B, -1.0) not in opinions(db)


def test_everything_that_is_known_of_a_turn_goes_out_and_comes_back(tmp_path: Path) -> None:
    talk = ({"role": "system", "content": "s", "tools": [TOOL]}, {"role": "user", "content": Q})
    call = {"id": "c", "name": "get_weather", "arguments": "{}"}
    with store.connect(tmp_path / "a.db") as db:
        one = db.add_turn(
            Turn("s", talk, G, calls=(call,), thinking="hm", cwd="/p", model="m", ending="done")
        )
        two = db.add_turn(Turn("s", talk, B, kind="main", licence="MIT"))
        db.add_turn(Turn("s", talk, "A title", kind="side"))
        db.put_next_state(one.id, [{"role": "user", "content": "Thanks"}])
        db.add_feedback(Feedback(one.id, "implicit", 1.0, other_turn_id=two.id, source="kept-branch"))
        feedback.prefer(db, one.id, two.id, note="shorter")
        feedback.edit(db, two.id, "Edited.")
        feedback.critique(db, two.id, "Too long.")
        importers.export_file(db, tmp_path / "a.jsonl", everything=True)
    with store.connect(tmp_path / "b.db") as db:
        report = importers.import_file(db, tmp_path / "a.jsonl")
        assert (report.turns, report.feedback, report.problems, report.notes) == (3, 4, [], [])
        back = {t.response: t for t in db.turns(limit=9)}
        assert back[G].messages == talk
        assert (back[G].calls, back[G].thinking, back[G].cwd, back[G].next_state) == ((call,), "hm", "/p", ({"role": "user", "content": "Thanks"},))  # fmt: skip
        assert (back["A title"].kind, back[B].licence) == ("side", "MIT")
        kinds = sorted((f.kind, f.author) for f in db.feedback())
        assert kinds == [
            ("critique", "owner"),
            ("edit", "owner"),
            ("implicit", "kept-branch"),
            ("preference", "owner"),
        ]
        importers.export_file(db, tmp_path / "b.jsonl", everything=True)
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()


@pytest.mark.parametrize("kind", ["trl", "openai"])
def test_layouts_of_trainers_come_back(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = opened(monkeypatch, tmp_path)
    talk = ({"role": "user", "content": Q, "tools": [TOOL]},)
    with store.connect(home) as db:
        one, two, three = (db.add_turn(Turn("s", talk, text)).id for text in (G, B, "Boil it."))
        feedback.prefer(db, one, two)
        feedback.edit(db, three, "Boil it for eight minutes.")
        feedback.rate(db, one, 1)
        feedback.rate(db, two, -1)
    assert main(["export", str(tmp_path / "o.jsonl"), "--format", kind]) == 0
    written = {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in tmp_path.glob("o-*.jsonl")}  # fmt: skip
    assert {name: len(rows) for name, rows in written.items()} == {"o-dpo": 2, "o-sft": 2} | ({"o-kto": 2} if kind == "trl" else {})  # fmt: skip
    assert all("tools" in (row["input"] if kind == "openai" and "input" in row else row) for rows in written.values() for row in rows)  # fmt: skip
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path / "other"))
    capsys.readouterr()
    assert main(["import", *(str(tmp_path / f"{name}.jsonl") for name in written)]) == 0
    with store.connect(tmp_path / "other" / "clawback.db") as db:
        found = opinions(db)
        assert ("preference", G, B) in found
        assert ("preference", "Boil it for eight minutes.", "Boil it.") in found
        assert (("rating", B, -1.0) in found) == (kind == "trl")
        assert all(t.messages == talk for t in db.turns(limit=9))
    assert main(["export", str(tmp_path / "o"), "--format", kind, "--layout", "dpo"]) == 0
    assert main(["export", str(tmp_path / "o"), "--layout", "dpo"]) == 2


@pytest.mark.slow
def test_fifty_thousand_lines_in_bounded_memory_and_a_kill(tmp_path: Path) -> None:
    with (tmp_path / "x.jsonl").open("w") as file:
        for n in range(50_000):
            file.write(
                json.dumps({"prompt": f"Question {n}?", "response": f"answer {n} " * 20, "score": 1 + n % 5})
                + "\n"
            )
    code = f"""
import os, pathlib, re, sys
from clawback import store
from clawback.capture import importers
from clawback.extensions.importers import storing
from clawback.extensions.importers.import_plan import merge_problems
from clawback.extensions.data_sets.entries import MOST_NAMES, OTHERS, BoundedCounter
real, count = storing.Importer.add, [0]
def add(self, entry, **more):
    count[0] += 1
    if count[0] == int(sys.argv[1]):
        os._exit(9)
    real(self, entry, **more)
storing.Importer.add = add
with store.connect(pathlib.Path({str(tmp_path / "db")!r})) as db:
    report = importers.import_file(db, pathlib.Path({str(tmp_path / "x.jsonl")!r}))
# Not getrusage: its peak begins with that of the process which forked this one.
peak = re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]
print(report.turns, report.known, peak)
"""
    run = [sys.executable, "-c", code]
    assert subprocess.run([*run, "20000"], check=False).returncode == 9
    turns, known, kilobytes = map(int, subprocess.run([*run, "-1"], check=True, capture_output=True, text=True).stdout.split())  # fmt: skip
    assert (turns, known) == (50_000 - 19_900, 19_900)
    assert kilobytes < 150_000, (
        "the file alone has 13 MB, all of it as objects would take more than twice this"
    )


def test_messages_of_many_conversations_mixed_and_one_of_them_without_an_answer(tmp_path: Path) -> None:
    """One conversation that cannot be read costs no other, and the order of the lines does not matter between conversations."""
    lines = [
        {
            "conversation_id": name,
            "id": f"{name}{place}",
            "role": role,
            "content": f"{role} {place} of {name}",
        }
        for place, role in enumerate(["user", "assistant", "user", "assistant"])
        for name in ("c2", "c1", "empty", "c3")
        if name != "empty" or role == "user"
    ]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with store.connect(tmp_path / "db") as db:
        report = importers.import_file(db, tmp_path / "m.jsonl")
        assert (report.turns, report.problems) == (6, [])
        sessions = [turn.session.rsplit(":", 1)[-1] for turn in reversed(db.turns())]
        assert sessions == ["c2", "c2", "c1", "c1", "c3", "c3"]
        assert [len(turn.messages) for turn in reversed(db.turns())] == [1, 3] * 3


def test_names_are_counted_in_bounded_memory() -> None:
    counts = BoundedCounter()
    for number in range(MOST_NAMES + 50):
        counts[f"n{number}"] += 1
    counts["n3"] += 1
    assert (len(counts), counts["n3"], counts[OTHERS]) == (MOST_NAMES + 1, 2, 50)


def test_a_fault_of_many_lines_is_said_once() -> None:
    problems = [*(f"line {n}: no scale" for n in (1, 2, 5)), "line 3: no prompt", "nothing was read"]
    assert merge_problems(problems) == [
        "line 1 and 2 more: no scale",
        "line 3: no prompt",
        "nothing was read",
    ]
