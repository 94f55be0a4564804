"""Prompts as HTTP calls: what there is, a yes to what was shown, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clawback import store
from clawback.paths import Home
from clawback.release import prompted
from clawback.serve import app as serving

from .conftest import Running
from .test_api import Api

NEW = ["Answer briefly.", "Name the source of each figure."]


@pytest.fixture
def api(home: Home, running: Callable[[Any], Running]) -> Api:
    home.create()
    with store.connect(home.database) as db:
        prompted.propose(db, " ".join(NEW), origin={"author": "search"})
    return Api(running(serving.make(home)).url, home)


def test_a_prompt_goes_live_with_the_sentences_that_were_shown_and_no_others(api: Api, home: Home) -> None:
    there = api.get("/prompts")
    assert (there["live"], there["prompt"], there["phase"]) == (0, "", "initialisation")
    [row] = there["versions"]
    assert (row["number"], row["status"], row["author"], row["before"]) == (1, "candidate", "search", "")
    assert row["unseen"] == NEW
    assert "path" not in row
    assert "2 sentences that were not shown" in api.post("/prompts/1/use", status=400)["error"]
    assert "1 sentences" in api.post("/prompts/1/use", {"seen": NEW[:1]}, status=400)["error"]
    with store.connect(home.database) as db:
        assert db.live().number == 0
        assert prompted.unseen(db, db.version(1)) == NEW, "a yes that was refused accepts nothing"
    assert api.post("/prompts/1/use", {"seen": NEW})["status"] == "live"
    assert prompted.file(home).read_text() == " ".join(NEW) + "\n"
    assert api.get("/prompts")["prompt"] == " ".join(NEW)
    assert api.post("/rollback")["number"] == 0
    assert api.post("/prompts/1/use")["status"] == "live", "it was live before: nothing in it is new"


def test_what_cannot_be_used_is_said_in_a_sentence(api: Api, home: Home) -> None:
    assert "no prompt" in api.post("/prompts/0/use", status=400)["error"]
    assert api.post("/prompts/9/use", status=404)["error"]
    api.post("/prompts/1/use", {"seen": NEW})
    assert "live already" in api.post("/prompts/1/use", {"seen": NEW}, status=400)["error"]
    prompted.file(home).write_text("Use metric units.")
    assert [row["author"] for row in api.get("/prompts")["versions"]] == ["hand", "search"], (
        "an edit of the file"
    )
