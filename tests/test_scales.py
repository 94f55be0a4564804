"""What a rating means: words, signs, scales of whole columns, and what is usual for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import feedback, scales, store
from clawback.errors import UsageError
from clawback.extensions import importers
from clawback.feedback import command
from clawback.jobs import inputs
from clawback.paths import Home
from clawback.records import Turn
from clawback.store import Store

GOOD = [
    "good",
    "Good!",
    "GOOD.",
    "up",
    "thumbs_up",
    "Thumbs Up",
    "thumbs-up",
    "👍",
    "👍🏽",
    "👍👍",
    "+1",
    "+",
    "yes",
    "liked",
    "❤️",
    "✅",
]
BAD = ["bad", "bad!!", "down", "thumbs_down", "thumbs down", "👎", "👎🏿", "-1", "-", "no", "disliked", "❌"]


@pytest.fixture
def db(home: Home) -> Iterator[Store]:
    with store.connect(home.database) as opened:
        for number in range(40):
            opened.add_turn(Turn("s", ({"role": "user", "content": f"q{number}"},), f"answer {number}"))
        yield opened


@pytest.mark.parametrize(("words", "sign"), [*((w, 1) for w in GOOD), *((w, -1) for w in BAD)])
def test_words_and_signs_for_good_and_bad(words: str, sign: int) -> None:
    assert scales.sign_of(words) == sign


@pytest.mark.parametrize("words", ["", "so so", "goodish", "not good", "7", "👍👎", "nobody"])
def test_other_words_are_no_rating(words: str) -> None:
    assert scales.sign_of(words) is None


@pytest.mark.parametrize(
    ("typed", "value", "note", "said"),
    [
        ("/rl good!", 1.0, "", "Noted: good"),
        ("/rl 👍", 1.0, "", "Noted: good"),
        ("/rl 👎🏽 too long", -1.0, "too long", "Noted: bad"),
        ("rl:good", 1.0, "", "Noted: good"),
        ("/rl bad: too wordy", -1.0, "too wordy", "Noted: bad"),
        ("/rl thumbs up nice one", 1.0, "nice one", "Noted: good"),
        ("/rl rate 7.5", 4 / 9, "", "Noted: 7.5 of 10"),
        ("/rl rate 7,5 nearly", 4 / 9, "nearly", "Noted: 7.5 of 10"),
        ("/rl rate 4/5", 0.5, "", "Noted: 4 of 5"),
        ("/rl 10", 1.0, "", "Noted: 10 of 10"),
        ("/rl ★★★★★", 1.0, "", "Noted: 5 of 5"),
    ],
)
def test_one_language_for_every_surface(db: Store, typed: str, value: float, note: str, said: str) -> None:
    words = command.parse(typed)
    assert words
    assert command.run(db, words, 1, source="claude-code").text.startswith(said)
    [stored] = db.feedback()
    assert (stored.value, stored.text) == (pytest.approx(value), note)


@pytest.mark.parametrize(
    "typed", ["/rl rate 11", "/rl rate", "/rl rate x", "/rl 0", "/rl rate 6/5", "/rl perhaps"]
)
def test_what_is_no_rating_is_refused_in_a_sentence(db: Store, typed: str) -> None:
    words = command.parse(typed)
    assert words
    reply = command.run(db, words, 1, source="cli")
    assert not reply.rated
    assert reply.text.endswith(".")
    assert db.feedback() == []


@pytest.mark.parametrize(
    ("column", "scale"),
    [
        ([1, 3, 5], "1-5"),
        ([4, 5, 4, 3, 5], "1-5"),
        ([0.2, 1.0], "0-1"),
        ([0, 1, 1], "0-1"),
        ([6, 8, 10], "1-10"),
        ([7.5, 8], "1-10"),
        ([0, 4, 9], "0-10"),
        ([87, 40], "0-100"),
        ([-1, 0.5], "-1-1"),
    ],
)
def test_a_scale_is_read_from_the_whole_column(column: list[float], scale: str) -> None:
    assert scales.of_column(column) == scale


@pytest.mark.parametrize(
    "column", [[4] * 6, [4, 3], [1, 1], [0, 3], [1, 4, 7, 6, 2, 3], [11, 15], [-5, 5], [400]]
)
def test_a_column_that_does_not_say_its_scale_asks_for_it(column: list[float]) -> None:
    with pytest.raises(UsageError, match="--scale"):
        scales.of_column(column)


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=60),
    st.lists(st.floats(-1, 1), min_size=2, max_size=5),
)
def test_centring_keeps_order_ends_and_range(own: list[float], values: list[float]) -> None:
    zero = scales.middle(own)
    found = [scales.centred(v, zero) for v in sorted(values)]
    assert found == sorted(found)
    assert all(-1 - 1e-9 <= v <= 1 + 1e-9 for v in found)
    assert scales.centred(1.0, zero) == pytest.approx(1.0)
    assert scales.centred(-1.0, zero) == pytest.approx(-1.0)
    if len(own) <= scales.FEW:
        assert zero == 0
    if len(own) >= scales.MANY:
        assert zero == pytest.approx(fmean(own))


@given(st.lists(st.integers(1, 10), min_size=scales.MANY, max_size=60).filter(lambda s: len(set(s)) > 1))
def test_whoever_gives_more_than_one_score_has_good_and_bad_ones(scores: list[int]) -> None:
    values = [scales.value_of(s, "1-10") for s in scores]
    found = [scales.centred(v, scales.middle(values)) for v in values]
    assert min(found) < 0 < max(found)


def test_a_few_scores_count_from_the_fixed_middle(db: Store) -> None:
    for turn, number in enumerate((6, 8, 9, 10), 1):
        feedback.score(db, turn, number)
    assert [s.reward for s in feedback.samples(db)] == pytest.approx([1 / 9, 5 / 9, 7 / 9, 1.0])
    assert db.count_ratings() == (4, 0)


def test_32_scores_between_6_and_10_can_train(db: Store) -> None:
    for turn in range(1, 33):
        feedback.score(db, turn, (8, 9, 10)[turn % 3] if turn % 2 else 6 + turn // 2 % 2)
    samples = feedback.samples(db)
    inputs.enough(samples)
    assert {s.turn_id for s in samples if s.reward > 0} == set(range(1, 33, 2))
    assert db.count_ratings() == (16, 16)
    assert feedback.balance(db).warning == ""
    assert [f.score for f in db.feedback()][:2] == [9.0, 7.0], "what was given is kept as given"


def test_scores_are_centred_for_each_person_and_taps_are_not(db: Store) -> None:
    for turn in range(1, 33):
        feedback.score(db, turn, 8 if turn % 2 else 6, source="rater:kind")
        feedback.score(db, turn, 5 if turn % 2 else 2, source="rater:strict")
    feedback.rate(db, 33, 1)
    feedback.rate(db, 34, -1)
    rewards = {s.turn_id: s.reward for s in feedback.samples(db)}
    assert (rewards[33], rewards[34]) == (1.0, -1.0)
    assert all((rewards[turn] > 0) == bool(turn % 2) for turn in range(1, 33))
    assert feedback.rater_weights(db) == {"rater:kind": 1.0, "rater:strict": 1.0}


# ------------------------------------------------------------------------------------------------------- in files


def imported(
    home: Home, path: Path, rows: Any, encoding: str = "utf-8", **options: Any
) -> tuple[importers.ImportReport, list[Any]]:
    text = (
        rows if isinstance(rows, str) else "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    )
    path.write_text(text, encoding)
    with store.connect(home.database) as db:
        return importers.import_file(db, path, **options), db.feedback()


def lines(**values: list[Any]) -> list[dict[str, Any]]:
    [(name, column)] = values.items()
    return [{"prompt": f"p{i}", "response": f"r{i}", name: value} for i, value in enumerate(column)]


@pytest.mark.parametrize(
    ("rows", "values"),
    [
        (lines(rating=[True, False]), [1, -1]),
        (lines(rating=["up", "👎", "thumbs_up", "Good"]), [1, -1, 1, 1]),
        (lines(rating=[1, -1, 0]), [1, -1, 0]),
        (lines(rating=[5, 1, 4]), [1, -1, 0.5]),
        (lines(score=[5, 1, 4]), [1, -1, 0.5]),
        (lines(score=[4, 5, 5, 3, 4]), [0.5, 1, 1, 0, 0.5]),
        (lines(score=["4/5", "9/10"]), [0.5, 7 / 9]),
        (lines(score=["4 out of 5", "9 of 10", "4 stars", "1 star"]), [0.5, 7 / 9, 0.5, -1.0]),
        (lines(score=["80%", "0 %", "37,5 %", "2,5-Stars"]), [0.6, -1.0, -0.25, -0.25]),
        (lines(score=["★★★★☆"]), [0.5]),
        (lines(score=[100, 50, 75]), [1, 0, 0.5]),
        (lines(score=[0.75, 0.5]), [0.5, 0]),
        (lines(score=["8", "6"]), [5 / 9, 1 / 9]),
    ],
)
def test_ratings_of_a_file(home: Home, tmp_path: Path, rows: list[Any], values: list[float]) -> None:
    report, given = imported(home, tmp_path / "f", rows)
    assert report.problems == []
    assert [f.value for f in given] == pytest.approx(values)


def test_four_of_five_stars_is_never_taken_for_a_bad_rating(home: Home, tmp_path: Path) -> None:
    rows = lines(score=[4] * 6)
    report, given = imported(home, tmp_path / "f", rows)
    assert (report.turns, given) == (0, [])
    assert len(report.problems) == 6
    assert "`--scale 1-5` or `--scale 1-10`" in report.notes[0]
    report, given = imported(home, tmp_path / "f", rows, scale="1-5")
    assert [(f.value, f.score, f.scale) for f in given] == [(0.5, 4.0, "1-5")] * 6
    with pytest.raises(UsageError, match="no scale"):
        imported(home, tmp_path / "f", rows, scale="stars")


def test_one_odd_number_does_not_change_what_the_others_mean(home: Home, tmp_path: Path) -> None:
    report, given = imported(home, tmp_path / "f", lines(score=[4, 5, 3, 4, 50, 5]))
    assert given == []
    assert "--scale" in report.notes[0]


@pytest.mark.parametrize(
    "name", ["helpfulness", "label", "thumbs", "weight", "stars", "score_chosen", "likes", "Quality"]
)
def test_columns_that_look_like_ratings_are_named(home: Home, tmp_path: Path, name: str) -> None:
    rows = [{"prompt": "p", "response": "r", name: 1, "colour": "red"}]
    report, given = imported(home, tmp_path / "f", rows)
    assert given == []
    assert any(f"`{name}` looks like a rating" in note for note in report.notes)
    assert any("`colour`" in note for note in report.notes)


def test_a_named_column_is_read(home: Home, tmp_path: Path) -> None:
    report, given = imported(
        home, tmp_path / "f", lines(helpfulness=[0, 4, 2]), rating_field="helpfulness", scale="0-4"
    )
    assert [f.value for f in given] == [-1, 1, 0]
    assert not any("looks like" in note for note in report.notes)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("as_list", [True, False])
def test_no_line_is_lost_to_an_encoding(home: Home, tmp_path: Path, encoding: str, as_list: bool) -> None:
    rows = [{"prompt": f"ö{i}", "response": f"日本{i} 🦦", "rating": 1} for i in range(6)]
    text = (
        json.dumps(rows, ensure_ascii=False, indent=1)
        if as_list
        else "\r\n".join(json.dumps(r, ensure_ascii=False) for r in rows)
    )
    report, given = imported(home, tmp_path / "f", text, encoding)
    assert (report.turns, report.problems, len(given)) == (6, [], 6)
    with store.connect(home.database) as db:
        assert {t.response for t in db.turns(limit=9)} == {r["response"] for r in rows}


def test_bytes_that_are_no_text_are_named(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b'{"prompt": "p", "response": "r"}\n{"prompt": "caf\xe9", "response": "r"}\n')
    with store.connect(home.database) as db:
        report = importers.import_file(db, path)
    assert report.turns == 1
    assert report.problems == ["line 2: holds bytes that are no UTF-8 text: save the file as UTF-8"]


def test_messages_may_include_the_answer(home: Home, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    report, _ = imported(
        home, tmp_path / "f", [{"messages": messages, "rating": 1}, {"messages": messages, "response": "a"}]
    )
    assert (report.turns, report.known, report.problems) == (1, 1, [])
    with store.connect(home.database) as db:
        [turn] = db.turns(limit=9)
    assert (turn.prompt, turn.response, len(turn.messages)) == ("q", "a", 1)
