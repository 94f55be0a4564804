"""The first evening in a terminal: a history, the questions that tell most, a run when the person wants it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clawback import store
from clawback.cli.inbox import SIDES
from clawback.cli.start import QUESTIONS
from clawback.paths import Home
from clawback.runs import schedule

from .conftest import Run, Terminal

TOPICS = [
    "otters",
    "rivers",
    "stones",
    "clouds",
    "fields",
    "horses",
    "lights",
    "papers",
    "queens",
    "sugars",
    "towers",
    "bridges",
    "gardens",
    "winters",
    "maps",
    "bells",
]


def history(path: Path) -> None:
    """A ChatGPT export in which each question was answered twice, and the answer without a list kept."""

    def node(name: str, parent: str | None, role: str, text: str) -> dict[str, Any]:
        message = {"author": {"role": role}, "create_time": 1.6e9, "content": {"content_type": "text", "parts": [text]}}  # fmt: skip
        return {"id": name, "parent": parent, "message": message}

    chats = []
    for topic in TOPICS:
        nodes = [
            node(f"{topic}q", None, "user", f"What of {topic}?"),
            node(f"{topic}a", f"{topic}q", "assistant", f"- {topic} are old\n- {topic} are many"),
            node(f"{topic}b", f"{topic}q", "assistant", f"There are many {topic}, and they are old."),
        ]
        chats.append({"conversation_id": topic, "mapping": {n["id"]: n for n in nodes}, "current_node": f"{topic}b"})  # fmt: skip
    path.write_text(json.dumps(chats))


@pytest.fixture
def evening(tmp_path: Path, terminal: Callable[..., Terminal]) -> Callable[[], tuple[Home, Terminal]]:
    """``clawback start conversations.json`` in a terminal, in a home that is set up."""

    def begin() -> tuple[Home, Terminal]:
        here = Home(tmp_path / "home")
        here.create()
        here.config.write_text('[model]\nbase = "embedded"\n[training]\nbackground = false\n')
        history(tmp_path / "conversations.json")
        asked = terminal("start", str(tmp_path / "conversations.json"), CLAWBACK_HOME=str(here.root), HOME=str(tmp_path))  # fmt: skip
        asked.until("2 of 4")
        asked.until("Store this?")
        asked.types("y\n")
        stored = asked.until("Up to 15 questions")
        assert "goes on" not in stored, "whoever walks through it needs no hint at it"
        asked.types("\n")
        return here, asked

    return begin


def answers(here: Home) -> list[tuple[str, float]]:
    with store.connect(here.database) as db:
        return [(one.kind, one.value) for one in db.feedback(outright=True)]


def test_without_any_answer_it_ends_with_what_to_do(
    tmp_path: Path, terminal: Callable[..., Terminal]
) -> None:
    asked = terminal("start", CLAWBACK_HOME=str(tmp_path / "home"), HOME=str(tmp_path))
    asked.until("Whose turns should be captured")
    asked.types("none\n")
    asked.until("What should be trained")
    asked.types("embedded\n")
    asked.until("is a demonstration")
    asked.until("Preset")
    asked.types("\n\n\n")  # where there are services, one more question before "Go on?"
    rest = asked.until("clawback start FILE")
    assert asked.ends_with() == 0
    assert "is a demonstration" not in rest, "said once"
    assert "Next:" not in rest


def test_whoever_stops_keeps_what_was_answered(evening: Callable[[], tuple[Home, Terminal]]) -> None:
    here, asked = evening()
    for key in ("1", "s", "q"):
        asked.until(SIDES)
        asked.presses(key)
    asked.until("single answers")
    asked.types("n\n")
    asked.until("4 of 4")
    asked.until("ratings")
    assert asked.ends_with() == 0
    assert answers(here) == [("preference", 1.0), ("preference", 0.0)]


@pytest.mark.slow
def test_fifteen_answers_are_enough_for_a_run_of_the_night(
    evening: Callable[[], tuple[Home, Terminal]], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, asked = evening()
    for number in range(QUESTIONS):
        asked.until(f"[{number + 1}/{QUESTIONS}]")
        text = asked.until(SIDES)
        first = text[text.index("[1]") : text.index("[2]")]
        asked.presses("2" if "- " in first else "1")
    asked.until("tonight at 02:00")
    asked.types("tonight\n")
    assert asked.ends_with() == 0
    assert answers(here) == [("preference", 1.0)] * QUESTIONS
    monkeypatch.setenv("CLAWBACK_HOME", str(here.root))
    assert [step["done"] for step in json.loads(run("start", "--json")[1])] == [True, True, True, False]
    with store.connect(here.database) as db:
        moment = schedule.scheduled(db)
    assert moment is not None
    assert f"{moment:%H:%M}" == "02:00"
    assert "02:00" in run("status")[1]
    assert "taken back" in run("runs", "stop")[1]  # the process that waits ends
    assert json.loads(run("status", "--json")[1])["scheduled"] is None
