"""What a model thought before it answered is kept, apart from the answer."""

from __future__ import annotations

from pathlib import Path

from clawback import store
from clawback.records import Turn


def test_thinking_is_kept_apart_whoever_brings_it(tmp_path: Path) -> None:
    with store.connect(tmp_path / "a.db") as db:
        asked = ({"role": "user", "content": "2 + 2?"},)
        told = db.add_turn(Turn("s", asked, "Four.", thinking="Two and two."))
        inline = db.add_turn(Turn("s", asked, "<think>Two and two.</think>\n\nFour."))
        plain = db.add_turn(Turn("s", asked, "Four."))
    assert [(t.thinking, t.response) for t in (told, inline, plain)] == [
        ("Two and two.", "Four."),
        ("Two and two.", "Four."),
        ("", "Four."),
    ]
