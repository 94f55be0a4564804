"""Which two answers are asked about after an import, and what is believed before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clawback import feedback, store
from clawback.admin.pair_questions import Feedbacks, observations
from clawback.admin.rating_inbox import Inbox
from clawback.cli import main
from clawback.extensions import importers
from clawback.paths import Home
from clawback.records import Feedback, Turn
from clawback.store import Store

TOPICS = ["otters", "rivers", "stones", "clouds", "fields", "horses", "lights", "papers", "queens", "sugars"]


def listed(topic: str) -> str:
    return f"- {topic} are old\n- {topic} are many"


def prose(topic: str) -> str:
    return f"There are many {topic}, and they are old."


def chat(
    number: int, question: str, answers: list[str], kept: int = 0, then: str = "Thanks."
) -> dict[str, Any]:
    """A conversation of ChatGPT's with branches, of which one went on; with ``then`` the person wrote once more."""

    def node(name: str, parent: str, role: str, text: str) -> dict[str, Any]:
        return {"id": name, "parent": parent, "message": {"author": {"role": role}, "create_time": 1.6e9, "content": {"content_type": "text", "parts": [text]}}}  # fmt: skip

    nodes = {"q": node("q", "", "user", question)}
    nodes |= {f"a{i}": node(f"a{i}", "q", "assistant", text) for i, text in enumerate(answers)}
    nodes["t"] = node("t", f"a{kept}", "user", then)
    if then != "Thanks.":
        nodes["b"] = node("b", "t", "assistant", f"Again: {answers[0]}")
    return {"conversation_id": f"c{number}", "mapping": {f"{number}{k}": v | {"id": f"{number}{k}", "parent": f"{number}{v['parent']}" if v["parent"] else None} for k, v in nodes.items()}, "current_node": f"{number}{list(nodes)[-1]}"}  # fmt: skip


def bring(db: Store, folder: Path, chats: list[dict[str, Any]]) -> None:
    (folder / "conversations.json").write_text(json.dumps(chats))
    report = importers.import_file(db, folder / "conversations.json")
    assert report.problems == []


def shown(home: Home, limit: int = 99) -> list[set[str]]:
    return [{pair.first.response, pair.second.response} for pair in Inbox(home).pairs(limit)]


def test_branches_of_a_history_are_asked_about_however_old_they_are(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They carry a guess, which is no rating."""
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database) as db:
        bring(db, tmp_path, [chat(1, "What of otters?", [listed("otters"), prose("otters")])])
        assert [one.kind for one in db.feedback()] == ["implicit"]
        assert [turn.response for turn in db.turns(rated=False)] == [prose("otters"), listed("otters")]
        assert db.turns(rated=True) == []
    assert shown(home) == [{listed("otters"), prose("otters")}]
    assert main(["inbox"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "two answers to compare: `clawback inbox --pairs --rate`" in printed


def test_a_question_that_was_asked_again_has_two_answers(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        bring(
            db,
            tmp_path,
            [chat(1, "Please tell me of otters", ["They swim."], then="Please tell me of the otters")],
        )
    assert shown(home) == [{"They swim.", "Again: They swim."}]


def test_what_was_answered_is_not_asked_again_and_its_guess_counts_no_more(
    home: Home, tmp_path: Path
) -> None:
    with store.connect(home.database) as db:
        bring(db, tmp_path, [chat(i, f"What of {t}?", [listed(t), prose(t)]) for i, t in enumerate(TOPICS)])
        assert len(Inbox(home).pairs(99)) == len(TOPICS)
        [pair, other, *_] = Inbox(home).pairs(2)
        feedback.prefer(db, pair.first.id, pair.second.id)
        feedback.tie(db, other.first.id, other.second.id)
        said = Feedbacks.of(db)
        place = {turn.id: turn.id for turn in db.turns(limit=99)}
        weights = [one.weight for one in observations(said, place, set())]
        assert sorted(weights) == [0.25] * (len(TOPICS) - 2) + [1.0]
        assert observations(said, place, set(place)) == [], "what is kept for the gate has no say"
    left = shown(home)
    assert len(left) == len(TOPICS) - 2
    assert {pair.first.response, pair.second.response} not in left


def test_what_the_guesses_leave_open_comes_first(home: Home, tmp_path: Path) -> None:
    """Lists were kept nine times: what the person thinks of shouting is not known."""
    chats = [chat(i, f"What of {t}?", [listed(t), prose(t)]) for i, t in enumerate(TOPICS * 3)]
    loud = ["Otters swim in rivers and eat fish.", "OTTERS SWIM!!! IN RIVERS!!! AND EAT FISH!!!"]
    with store.connect(home.database) as db:
        bring(db, tmp_path, chats)
        for place, text in enumerate(loud):
            db.add_turn(Turn(f"s{place}", ({"role": "user", "content": "And now?"},), text))
    [first, *_] = Inbox(home).pairs(1)
    assert {first.first.response, first.second.response} == set(loud)
    assert first.bits > 0


def test_no_pair_of_what_cannot_be_compared(home: Home) -> None:
    ask = ({"role": "user", "content": "Why?"},)
    with store.connect(home.database) as db:
        one = db.add_turn(Turn("a", ask, "Because.")).id
        for number, fields in enumerate(({"consent": "no"}, {"kind": "side"}, {"ending": "error"}, {"response": "  "}, {"response": "Because. "})):  # fmt: skip
            other = db.add_turn(
                Turn(**{"session": f"b{number}", "messages": ask, "response": "So.", **fields})
            ).id  # type: ignore[arg-type]
            db.add_feedback(Feedback(one, "implicit", 1.0, other_turn_id=other, source="kept-branch"))
    assert Inbox(home).pairs(9) == []


def test_the_order_of_two_answers_says_nothing(home: Home, tmp_path: Path) -> None:
    with store.connect(home.database) as db:
        bring(db, tmp_path, [chat(i, f"What of {t}?", [listed(t), prose(t)]) for i, t in enumerate(TOPICS)])
    pairs = Inbox(home).pairs(99)
    assert {pair.first.response.startswith("-") for pair in pairs} == {True, False}
    assert [p.first.id for p in Inbox(home).pairs(99)] == [p.first.id for p in pairs]


@pytest.mark.parametrize("side", [0, 1])
def test_a_comparison_of_a_person_outweighs_the_branch_that_was_kept(
    home: Home, tmp_path: Path, side: int
) -> None:
    with store.connect(home.database) as db:
        bring(db, tmp_path, [chat(1, "What of otters?", [listed("otters"), prose("otters")])])
        kept, other = (turn.id for turn in reversed(db.turns()))
        better, worse = ((kept, other), (other, kept))[side]
        feedback.prefer(db, better, worse)
        rewards = {one.turn_id: one.reward for one in feedback.samples(db)}
    assert rewards == {better: 0.5, worse: -0.5}
