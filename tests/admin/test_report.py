"""The report and the data card: figures against ones reckoned by hand, and nothing that was said, nor any script, in the file."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from scipy.stats import binomtest

from clawback import feedback, paths, store
from clawback.admin import html_report
from clawback.cli import main
from clawback.records import Turn
from clawback.release import data_card

EVIL = "<script>alert(1)</script>"


def fill(db: store.Store) -> None:
    for n in range(40):
        words = "Secret words: this is what you want. " * (20 if n % 2 else 2)
        made = db.add_turn(
            Turn(EVIL, ({"role": "user", "content": "What is the reason of it?"},), words, version=0)
        )
        feedback.rate(db, made.id, -1 if n % 2 else 1, source=f"web:{EVIL}")
        if n < 20:
            feedback.rate(db, made.id, 1, source="cli")
    db.add_survey(0, 4)
    db.add_survey(0, 5)


def test_figures_are_those_of_the_store(home: paths.Home) -> None:
    with store.connect(home.database) as db:
        fill(db)
        found = html_report.facts(db)
        card = data_card.markdown(db, [f.id for f in db.feedback()], 1)
    assert (found.turns, found.ratings, found.good) == (40, 60, pytest.approx(40 / 60))
    lengths = {g.name: g for g in found.skew["length"]}
    assert lengths["up to 30 words"].good == 1.0
    assert lengths["101 to 300"].good == pytest.approx(10 / 30)
    assert all(g.leans for g in lengths.values())
    assert {g.name for g in found.skew["language"]} == {"English"}
    assert found.versions[0]["survey"] == 4.5
    assert sum(w.count for w in found.weeks) == 60
    assert "| owner | 20 | 1.00 |" in card
    assert "Secret" not in card
    json.dumps(found.to_dict())


@pytest.mark.parametrize(("good", "count"), [(0, 5), (5, 5), (3, 10), (70, 100)])
def test_wilson_is_scipys(good: int, count: int) -> None:
    theirs = binomtest(good, count).proportion_ci(method="wilson")
    assert data_card.wilson(good, count) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


@pytest.mark.parametrize(
    ("text", "tongue"),
    [
        ("What is the reason for that and how do you know?", "English"),
        ("Wie ist das und was mache ich mit der Datei?", "German"),
        ("Comment est-ce que je fais pour les fichiers dans une liste?", "French"),
        ("Что это такое?", "Cyrillic"),
        ("これは何ですか", "Chinese or Japanese"),
        ("1 + 1 = 2", "other"),
        ("", "other"),
    ],
)
def test_a_language_is_guessed(text: str, tongue: str) -> None:
    assert data_card.language(text) == tongue


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("Why does this python function fail?", "code"),
        ("Write a short email to my landlord", "writing"),
        ("What is the capital of Peru?", "facts"),
        ("Calculate the average of these", "numbers"),
        ("Hello", "other"),
    ],
)
def test_what_was_asked_for_is_guessed(prompt: str, kind: str) -> None:
    assert data_card.topic(prompt, "Yes.") == kind
    assert data_card.topic(prompt, "```python\n1\n```") == "code"


def test_the_data_card_says_how_far_raters_agree(home: paths.Home) -> None:
    with store.connect(home.database) as db:
        fill(db)
        card = data_card.markdown(db, [f.id for f in db.feedback()], 1)
    assert "- rated by several: 20, of which some liked and others did not: 10" in card
    assert "- Krippendorff's alpha: -" in card
    assert "owner 1.00" in card


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "action")]


def test_the_file_holds_no_script_and_no_word_of_a_turn(
    home: paths.Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database) as db:
        fill(db)
    out = tmp_path / "r.html"
    assert main(["report", "--output", str(out)]) == 0
    assert "Ratings lean by length" in capsys.readouterr().out
    text = out.read_text()
    tags = Tags()
    tags.feed(text)
    assert "svg" in tags.seen
    assert tags.seen.isdisjoint({"script", "iframe", "link", "img", "object"})
    assert tags.addresses == []
    assert "Secret words" not in text
    for piece in text.split("<svg")[1:]:
        ET.fromstring("<svg" + piece.split("</svg>")[0] + "</svg>")
    assert out.stat().st_mode & 0o777 == 0o600


def test_an_empty_home_has_a_report_too(home: paths.Home) -> None:
    with store.connect(home.database) as db:
        assert "Nothing is rated yet" in html_report.page(html_report.facts(db))
