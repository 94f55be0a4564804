"""Why an answer ended, from any provider's word to what is learned from it, and what whoever rates it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback import feedback, store
from clawback.endings import ending_of, mark, notice
from clawback.extensions.importers import export_file, import_file
from clawback.feedback import command
from clawback.paths import Home
from clawback.records import CUT, UNLEARNED, Ending, Turn

WORDS: list[tuple[Any, Ending | None]] = [
    ("stop", "done"), ("end_turn", "done"), ("tool_calls", "done"), ("tool_use", "done"), ("STOP", "done"), ("eos", "done"),
    ("completed", "done"), ("COMPLETE", "done"), ("stop_sequence", "stop"),
    ("length", "length"), ("max_tokens", "length"), ("MAX_TOKENS", "length"), ("max_output_tokens", "length"), ("model_length", "length"),
    ("model_context_window_exceeded", "length"), ("context_length_exceeded", "length"), ("length_limit", "length"),
    ("content_filter", "filter"), ("SAFETY", "filter"), ("RECITATION", "filter"), ("PROHIBITED_CONTENT", "filter"), ("sensitive", "filter"),
    ("guardrail_intervened", "filter"), ("content-filter", "filter"), ("IMAGE_SAFETY", "filter"),
    ("refusal", "refusal"), ("pause_turn", "pause"), ("compaction", "pause"),
    ("error", "error"), ("failed", "error"), ("network_error", "error"), ("MALFORMED_FUNCTION_CALL", "error"),
    ("insufficient_system_resource", "error"), ("cancelled", "interrupted"), ("abort", "interrupted"), ("incomplete", "incomplete"),
    ("", None), ("null", None), (None, None), (3, None), ("FINISH_REASON_UNSPECIFIED", None), ("because", ""),
]  # fmt: skip


@pytest.mark.parametrize(("word", "ending"), WORDS)
def test_every_providers_word_has_one_meaning(word: Any, ending: Ending | None) -> None:
    assert ending_of(word) == ending


@given(st.text(max_size=40))
def test_any_word_has_an_ending_that_is_known(word: str) -> None:
    assert ending_of(word) in (None, *get_args(Ending))


def test_only_what_was_cut_is_told_of() -> None:
    for ending in get_args(Ending):
        assert bool(notice(ending)) == bool(mark(ending)) == (ending in CUT)
    assert UNLEARNED < CUT


def turn_of(db: store.Store, ending: Ending, number: int = 0) -> Turn:
    asked = ({"role": "user", "content": f"Tell me of otter {number}."},)
    return db.add_turn(Turn("s", asked, "The otter eats", ending=ending, event_id=f"{ending}{number}"))


@pytest.mark.parametrize("ending", get_args(Ending))
def test_a_rating_of_it_is_stored_and_learned_as_far_as_it_goes(home: Home, ending: Ending) -> None:
    with store.connect(home.database) as db:
        turn = turn_of(db, ending)
        assert db.turn(turn.id).ending == ending
        feedback.rate(db, turn.id, 1.0)
        assert [f.value for f in db.feedback(turn_id=turn.id)] == [1.0]
        assert db.count_fresh() == (ending not in UNLEARNED)
        made = feedback.samples(db)
        if ending in UNLEARNED:
            assert made == []
        else:
            [sample] = made
            assert (sample.ending, sample.ends) == (ending, ending in ("", "done"))
        assert bool(feedback.evidence(made)) == (ending not in CUT)
        # What the person wrote themselves is complete.
        feedback.edit(db, turn.id, "The otter eats fish.")
        edit = feedback.samples(db)[-1]
        assert (edit.response, edit.ends, edit.cut) == ("The otter eats fish.", True, False)
        assert feedback.evidence([edit]) == [edit]
        assert db.count_fresh() == 1


def test_a_late_rating_reaches_back_over_what_broke_off_and_learns_nothing_from_it(home: Home) -> None:
    with store.connect(home.database) as db:
        first, _, cut, last = (turn_of(db, e, n) for n, e in enumerate(("done", "error", "length", "done")))
        feedback.rate(db, last.id, 1.0)
        made = {s.turn_id: s for s in feedback.samples(db, query=feedback.SampleQuery(credit=0.5))}
    assert set(made) == {first.id, cut.id, last.id}
    assert (made[cut.id].ends, made[first.id].ends) == (False, True)


def test_a_cut_answer_is_rated_and_whoever_rates_it_is_told(home: Home) -> None:
    with store.connect(home.database) as db:
        turn = turn_of(db, "length")
        told = command.run(db, ["good"], turn.id, source="test").text
        assert "cut off at its length limit" in told
        assert "cut" not in command.run(db, ["good"], turn_of(db, "done").id, source="test").text


@pytest.mark.parametrize("ending", get_args(Ending))
def test_export_and_import_keep_it(home: Home, tmp_path: Path, ending: Ending) -> None:
    with store.connect(home.database) as db:
        feedback.rate(db, turn_of(db, ending).id, -1.0)
        export_file(db, tmp_path / "out.jsonl")
    other = Home(tmp_path / "other")
    other.create()
    with store.connect(other.database) as db:
        report = import_file(db, tmp_path / "out.jsonl")
        [turn] = db.turns()
    assert (report.problems, turn.ending) == ([], ending)


@pytest.mark.parametrize(("name", "word", "ending"), [("finish_reason", "length", "length"), ("stop_reason", "refusal", "refusal"), ("ending", "interrupted", "interrupted")])  # fmt: skip
def test_a_line_may_have_a_providers_word(
    home: Home, tmp_path: Path, name: str, word: str, ending: Ending
) -> None:
    line = {"prompt": "Tell me.", "response": "The otter", "rating": 1, name: word}
    (tmp_path / "in.jsonl").write_text(json.dumps(line) + "\n")
    with store.connect(home.database) as db:
        import_file(db, tmp_path / "in.jsonl")
        assert db.turns()[0].ending == ending
