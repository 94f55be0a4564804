"""What is worth a rating, and what becomes of what nobody rates."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time

import pytest

from clawback import config, feedback, store
from clawback.admin import rating_inbox
from clawback.cli import main
from clawback.cli.chat import KEYS, UNKNOWN
from clawback.cli.inbox import SIDES, _compare, steps_line
from clawback.paths import Home
from clawback.records import Turn

TERSE, LONG = (
    "Otters eat fish.",
    "Sorry for the wait! - It eats fish. - It lives in rivers. - It weighs 9 kg. Want more?",
)


def fill(home: Home, *responses: str, start: int = 0, age_days: float = 0) -> list[int]:
    with store.connect(home.database) as db:
        return [
            db.add_turn(
                Turn(
                    f"s{start + i}",
                    ({"role": "user", "content": f"Tell me about animal {start + i}."},),
                    said,
                    created_at=time.time() - 86_400 * age_days,
                )
            ).id
            for i, said in enumerate(responses)
        ]


def test_newest_first_where_nothing_is_known_yet_and_what_is_rated_or_old_is_not_listed(home: Home) -> None:
    old = fill(home, LONG + " old", age_days=40)
    first, second, third = fill(home, LONG + " 1", LONG + " 2", LONG + " 3", start=1)
    with store.connect(home.database) as db:
        feedback.rate(db, second, 1)
    found = [w.turn.id for w in rating_inbox.waiting(home, 10)]
    assert found == [third, first]
    assert old[0] not in found


def test_what_would_teach_most_comes_first(home: Home) -> None:
    """Terse answers are rated many times over, long ones never: it is a long one that is asked about."""
    rated = fill(home, *[f"{TERSE} {i}" for i in range(32)])
    with store.connect(home.database) as db:
        for i, number in enumerate(rated):
            feedback.rate(db, number, 1 if i % 2 else -1)
    unknown = fill(home, *[f"{LONG} {i}" for i in range(4)], start=100)
    known = fill(home, *[f"{TERSE} Yes they do {i}." for i in range(4)], start=200)
    found = rating_inbox.waiting(home, 8)
    assert {w.turn.id for w in found} == {*unknown, *known}
    assert found[0].turn.id in unknown, "although the terse ones are newer"
    assert found[0].gain > 0


def test_what_is_kept_for_the_gate_has_no_say_in_what_is_asked_about(home: Home) -> None:
    """Otherwise what the gate takes for independent would have chosen what was learned from."""
    rated = fill(home, *[f"{TERSE if i % 2 else LONG} {i}" for i in range(24)])
    fill(
        home,
        *[f"{TERSE} {LONG} {i}" for i in range(6)],
        *[f"- fish\n- frogs {i}" for i in range(6)],
        start=50,
    )

    def asked(flipped: bool) -> list[tuple[int, float]]:
        with store.connect(home.database) as db:
            for number in rated:
                sign = 1 if number % 2 else -1
                feedback.rate(db, number, -sign if flipped and number in kept else sign)
        return [(w.turn.id, w.gain) for w in rating_inbox.Inbox(home).next(6)]

    with store.connect(home.database) as db:
        for number in rated:
            feedback.rate(db, number, 1)
        kept = feedback.kept_out(feedback.samples(db), 0.125)
    assert 2 <= len(kept) <= 4
    before = asked(False)
    assert before[0][1] > 0, "something is known by now"
    assert asked(True) == before
    assert not {number for number, _ in before} & set(rated), "they are rated all the same"


def test_fading_drops_only_where_it_is_asked_to_and_never_what_somebody_spoke_of(home: Home) -> None:
    kept, undone, gone = fill(home, "a", "b", "c", age_days=40)
    [young] = fill(home, "d", start=9)
    with store.connect(home.database) as db:
        feedback.rate(db, kept, -1)
        feedback.undo(db) if feedback.rate(db, undone, 1) else None
    assert rating_inbox.fade(home) == 0
    config.save(home.config, {"capture": {"unrated": "drop"}})
    assert rating_inbox.fade(home) == 1
    with store.connect(home.database) as db:
        assert {t.id for t in db.turns()} == {kept, undone, young}
        assert db.integrity() == []
        assert [f.value for f in db.feedback()] == [-1.0], "to be ignored is no rating"
    assert gone not in (kept, undone, young)


def test_after_each_rating_it_is_chosen_anew(home: Home) -> None:
    """Until something is liked, answers of another kind are asked about; what is known by then is not."""
    fill(home, *[f"{TERSE} {i}" for i in range(20)], *[f"{LONG} {i}" for i in range(20)])
    found, asked = rating_inbox.Inbox(home), []
    with store.connect(home.database) as db:
        for _ in range(12):
            [best] = found.next(1)
            asked.append(best.turn.id)
            feedback.rate(db, best.turn.id, 1 if best.turn.response.startswith(TERSE) else -1)
    assert len(set(asked)) == 12
    with store.connect(home.database) as db:
        kinds = {db.turn(number).response.startswith(TERSE) for number in asked}
    assert kinds == {True, False}
    [best] = found.next(1, set(range(41)) - {3, 33})
    assert best.turn.id in (3, 33)


def test_a_light_install_shows_the_newest(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = fill(home, *[f"{(TERSE, LONG)[i % 2]} {i}" for i in range(12)])
    with store.connect(home.database) as db:
        for number in numbers[:6]:
            feedback.rate(db, number, 1 if number % 2 else -1)
        ask = ({"role": "user", "content": "Tell me about otters."},)
        pair = [db.add_turn(Turn("s", ask, said)).id for said in (TERSE, LONG)]
    assert rating_inbox.waiting(home, 1)[0].gain > 0
    monkeypatch.setitem(sys.modules, "numpy", None)
    found = rating_inbox.Inbox(home)
    assert [(w.turn.id, w.gain) for w in found.next(2)] == [(pair[1], 0.0), (numbers[11], 0.0)]
    assert [({p.first.id, p.second.id}, p.bits) for p in found.pairs(2)] == [(set(pair), 0.0)]


def test_pairs_are_two_answers_to_the_same_prompt(home: Home) -> None:
    alone = fill(home, LONG, TERSE)
    with store.connect(home.database) as db:
        ask = ({"role": "user", "content": "Tell me about otters."},)
        first, second, same = (db.add_turn(Turn("s", ask, said)).id for said in (TERSE, LONG, LONG))
    found = [{p.first.id, p.second.id} for p in rating_inbox.Inbox(home).pairs(9)]
    assert sorted(found, key=max) == [{first, second}, {first, same}], "two that say the same are no pair"
    with store.connect(home.database) as db:
        feedback.rate(db, first, 1)
    assert rating_inbox.Inbox(home).pairs(9) == []
    assert alone


def test_the_command(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    assert main(["inbox"]) == 0
    assert "Nothing is waiting" in capsys.readouterr().out
    assert main(["inbox", "--pairs"]) == 0
    assert "No prompt has two answers" in capsys.readouterr().out
    [number] = fill(home, LONG)
    assert main(["inbox", "--json"]) == 0
    [one] = json.loads(capsys.readouterr().out)
    assert (one["turn"], one["prompt"]) == (number, "Tell me about animal 0.")
    fill(home, TERSE)  # the same prompt
    assert main(["inbox", "--pairs", "--json"]) == 0
    [pair] = json.loads(capsys.readouterr().out)
    assert {pair["first"], pair["second"]} == {number, number + 1}
    assert pair["responses"] == [LONG if pair[side] == number else TERSE for side in ("first", "second")]


def keys(home: Home, shown: str, *typed: bytes, options: tuple[str, ...] = ()) -> str:
    """What the terminal shows where these keys are typed, each when it is asked for."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "clawback", "inbox", "--rate", *options]
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env={**os.environ, "CLAWBACK_HOME": str(home.root)}
    )
    os.close(child)
    screen = b""
    for number, key in enumerate(typed, 1):
        while screen.count(shown.encode()) < number:
            screen += os.read(parent, 4096)
        os.write(parent, key)
    assert process.wait(timeout=60) == 0
    return screen.decode()


def test_one_key_a_turn(home: Home) -> None:
    numbers = fill(home, *[f"{LONG} {i}" for i in range(4)])
    shown = keys(home, KEYS, b"g", b"s", b"\n", b"gg", b"0", b"q")
    assert shown.count(UNKNOWN) == 2, "a slip skips nothing"
    with store.connect(home.database) as db:
        given = {f.turn_id: f.value for f in db.feedback()}
    assert given == {numbers[3]: 1.0, numbers[1]: 1.0}


def test_one_key_a_pair(home: Home) -> None:
    ask = ({"role": "user", "content": "Tell me about otters."},)
    with store.connect(home.database) as db:
        first, second = (db.add_turn(Turn("s", ask, said)).id for said in (TERSE, LONG))
    [shown] = rating_inbox.Inbox(home).pairs(9)
    keys(home, SIDES, b"g", b"2", options=("--pairs",))
    with store.connect(home.database) as db:
        [given] = db.feedback()
    assert {first, second} == {shown.first.id, shown.second.id}
    assert (given.kind, given.turn_id, given.other_turn_id) == ("preference", shown.second.id, shown.first.id)


def test_a_pair_that_makes_enough_ratings_starts_training(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    monkeypatch.setattr("clawback.cli.chat.one_key", lambda _: "1")
    started: list[Home] = []
    monkeypatch.setattr("clawback.jobs.maybe_train", lambda home: started.append(home) or True)
    config.save(home.config, {"training": {"background": True, "threshold": 2}})
    fill(home, TERSE, TERSE)
    fill(home, LONG, LONG)
    _compare(rating_inbox.Inbox(home), 1)
    assert (started, "training run is being prepared" in capsys.readouterr().out) == ([], False)
    _compare(rating_inbox.Inbox(home), 1)
    assert started == [home]
    assert "training run is being prepared" in capsys.readouterr().out


def test_rating_without_a_terminal_is_refused_in_a_sentence(home: Home) -> None:
    fill(home, LONG)
    command = [sys.executable, "-m", "clawback", "inbox", "--rate"]
    ended = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "CLAWBACK_HOME": str(home.root)},
        check=False,
    )
    assert ended.returncode == 2
    assert "terminal" in ended.stderr
    assert "Traceback" not in ended.stderr


def asked(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def test_steps_are_asked_about_with_the_answer_that_they_led_to_and_never_alone(home: Home) -> None:
    read, run = ({"id": "1", "name": name, "arguments": "{}"} for name in ("Read", "Bash"))
    with store.connect(home.database) as db:
        first = db.add_turn(Turn("agent", asked("Why?"), "", calls=(read,))).id
        second = db.add_turn(Turn("agent", asked("Why?"), "Let me run it.", calls=(run,))).id
        db.put_next_state(second, [{"role": "tool", "content": "1 failed"}])
        answer = db.add_turn(Turn("agent", asked("Why?"), "The limit is a string.")).id
        db.add_turn(Turn("agent", asked("And now?"), "", calls=(read,)))  # its answer never came
        db.add_turn(Turn("other", asked("Nothing?"), "   "))
        speaking = db.add_turn(Turn("last", asked("Send it."), "Sent.", calls=(run,))).id
    found = {w.turn.id: [s.id for s in w.steps] for w in rating_inbox.waiting(home, 10)}
    assert found == {answer: [first, second], speaking: []}


def test_the_list_and_the_questions_name_the_calls(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database) as db:
        call = {"id": "1", "name": "Read", "arguments": "{}"}
        step = db.add_turn(Turn("agent", asked("Why?"), "", calls=(call,)))
        db.add_turn(Turn("agent", asked("Why?"), "Because."))
    assert main(["inbox", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert listed["steps"] == [{"turn": step.id, "calls": ["Read"]}]
    assert steps_line((step,)).strip() == "(1 tool call before it: Read)"
    assert steps_line(()) == ""
