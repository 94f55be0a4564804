"""What the demo shows: true to the figures, plain where it is piped."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from clawback.extensions.demo import Look, display

BASE = Look(
    0, 0.25, 0.9, 0.0, {"bullets": 0.5, "emoji": 0.4, "terse": 0.5}, (("asked?", "old [bold]answer"),)
)
AFTER = Look(1, 0.75, 0.88, 2.5, {"bullets": 1.0, "emoji": 0.1, "terse": 0.52}, (("asked?", "- new answer"),))


def plain(*shown: object) -> str:
    out = io.StringIO()
    Console(file=out, width=100).print(*shown)
    return out.getvalue()


def test_a_bar_is_as_long_as_its_share() -> None:
    base, after = plain(display.bars([BASE, AFTER])).splitlines()
    assert (base.count("█"), after.count("█")) == (display.BAR // 4, display.BAR * 3 // 4)
    assert "25% liked" in base
    assert "75% liked" in after
    assert "version 1" in after
    assert "KL 2.5" in after


def test_a_row_of_bars_fits_eighty_columns() -> None:
    rows = plain(display.bars([BASE, replace(AFTER, facts=1.0, satisfaction=1.0, kl=10.0)])).splitlines()
    assert len(rows) == 2
    assert max(len(row.rstrip()) for row in rows) <= 80


def test_no_bar_for_a_taste_that_nobody_knows() -> None:
    text = plain(display.bars([replace(BASE, satisfaction=None)]))
    assert "liked" not in text
    assert "90.0% facts right" in text


def test_answers_are_shown_as_they_are() -> None:
    text = plain(display.side_by_side(BASE, AFTER))
    assert "old [bold]answer" in text, "an answer is never taken for markup"
    assert "- new answer" in text
    assert "\x1b" not in text


def test_the_habits_that_changed_come_most_changed_first() -> None:
    lines = plain(display.changes(BASE, AFTER)).splitlines()
    assert [line.split()[0] for line in lines] == ["bullets", "emoji"]
    assert "40%" in lines[1]
    assert "10%" in lines[1]
    assert "No habit changed" in plain(display.changes(BASE, BASE))


def test_a_reason_becomes_a_sentence() -> None:
    assert display.sentence("it drifted 3.1 nats") == "It drifted 3.1 nats."
    assert display.sentence("it ends.") == "It ends."


def test_where_facts_cannot_be_checked_the_length_of_answers_is_said() -> None:
    look = replace(BASE, facts=None, answers=(("a?", "one two three"), ("b?", "one")))
    assert display.measure(look) == "2 words each"
    assert display.measure(BASE) == "90.0% facts right"
