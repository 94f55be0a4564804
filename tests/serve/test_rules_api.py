"""Rules as HTTP calls: the list with its shares, receipts, and what the owner changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from clawback import feedback, store
from clawback.jobs import rule_proposals
from clawback.paths import Home
from clawback.records import Turn
from clawback.rules import rule_reminders
from clawback.serve import app as serving
from clawback.serve import hooks

from .conftest import Running
from .test_api import Api


@pytest.fixture
def api(home: Home, running: Callable[[Any], Running]) -> Api:
    home.create()
    with store.connect(home.database) as db:
        for text, sign in (("Sorry, it is four.", -1), ("It is four.", 1)):
            turn = db.add_turn(Turn("s", ({"role": "user", "content": "q"},), text, model="opus"))
            feedback.rate(db, turn.id, sign)
    return Api(running(serving.make(home)).url, home)


def test_a_rule_is_added_read_and_withdrawn(api: Api, home: Home) -> None:
    assert api.get("/rules") == {"rules": [], "prompt_differs": False}
    made = api.post("/rules", {"text": " Never  apologise. "})
    assert (made["id"], made["text"], made["kept"], made["checked"]) == (1, "Never apologise.", 1, 2)
    listed = api.get("/rules")
    assert listed["prompt_differs"] is True
    assert listed["rules"][0]["models"] == [{"model": "opus", "kept": 1, "checked": 2}]
    receipt = api.get("/rules/1")
    assert receipt["ratings"]["disliked_broken"] == [1]
    assert receipt["ratings"]["liked_kept"] == [2]
    [breach] = receipt["breaches"]
    assert (breach["turn"], breach["line"], breach["place"]) == (1, 1, "Sorry, it is four.")
    [week] = receipt["weeks"]
    assert receipt["by_model_and_week"] == {"opus": {week["week"]: {"kept": 1, "checked": 2}}}
    assert api.get("/rules/1?before=1")["breaches"] == []
    assert (home.root / rule_reminders.FILE).exists()
    assert api.post("/rules/1/drop")["status"] == "withdrawn"
    assert not (home.root / rule_reminders.FILE).exists()
    assert api.post("/rules/1/keep")["status"] == "believed"


def test_rules_go_into_the_live_prompt(api: Api, home: Home) -> None:
    api.post("/rules", {"text": "Never apologise."})
    assert api.post("/rules/use")["prompt"] == "## Constraints\n- Never apologise."
    assert api.get("/rules")["prompt_differs"] is False
    with store.connect(home.database) as db:
        assert db.live().prompt.endswith("Never apologise.")
    assert "holds all rules" in api.post("/rules/use", status=400)["error"]


def test_what_cannot_be_done_is_said_in_a_sentence(api: Api) -> None:
    assert "no rule 7" in api.post("/rules/7/keep", status=404)["error"]
    assert "no rule 7" in json.dumps(api.post("/rules/7/drop", status=404))
    assert "in a sentence" in api.post("/rules", {"text": " "}, status=400)["error"]
    assert "not valid" in api.post("/rules", {"sentence": "x"}, status=400)["error"]


def test_the_server_does_what_a_hook_without_it_does(home: Home) -> None:
    """An event over HTTP is reminded, and sent back, as one by a program of our own."""
    home.create()
    home.config.write_text("[rules]\nsend_back = true\n")
    with store.connect(home.database) as db:
        rule_proposals.add(db, "Never apologise.")
        rule_reminders.write(home, db)

    def tell(name: str, **fields: Any) -> Any:
        event = {"hook_event_name": name, "session_id": "s", "prompt_id": "p", **fields}
        said, _ = hooks.answer(home, "claude-code", json.dumps(event).encode())
        return json.loads(said or "null")

    assert tell("UserPromptSubmit", prompt="q") is None
    assert tell("Stop", last_assistant_message="Sorry.")["decision"] == "block"
    assert tell("Stop", last_assistant_message="Four.", stop_hook_active=True) is None
    context = tell("UserPromptSubmit", prompt="r", prompt_id="p2")["hookSpecificOutput"]["additionalContext"]
    assert "Never apologise." in context


@pytest.mark.parametrize(
    ("method", "path", "code", "sentence"),
    [
        ("GET", "/rules/first", 404, "There is nothing at /api/rules/first."),
        ("DELETE", "/rules", 405, "/api/rules does not take DELETE."),
    ],
)
def test_a_path_or_a_method_that_there_is_not_is_a_sentence_in_json(
    api: Api, method: str, path: str, code: int, sentence: str
) -> None:
    answer = api.client.request(method, path)
    assert (answer.status_code, answer.json()) == (code, {"error": sentence})
