"""Only what the owner wrote goes live unseen: forty hostile sentences by each way that others' words come in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clawback import feedback, store
from clawback.capture.events import PromptEvent
from clawback.capture.taps import obey
from clawback.cli import main
from clawback.extensions import importers
from clawback.feedback import provenance
from clawback.paths import Home
from clawback.records import Feedback, Turn, Version
from clawback.release import prompted, screening
from clawback.rewards.instructions import of_remark
from clawback.store import Store

from .injections import INJECTIONS

SIGNS_ALONE = ["🔥🔥🔥 ➡️ ☠️", "$(){}|&> `` <- -> #!", "👉👉👉", "→ ← ↑", "💰💰"]


@pytest.fixture
def db(home: Home) -> Store:
    opened = store.connect(home.database)
    opened.add_turn(Turn("s", ({"role": "user", "content": "q"},), "a"))
    return opened


def by_rater(home: Home, db: Store, folder: Path, text: str) -> None:
    feedback.critique(db, 1, text, source="rater:anna")
    feedback.rate(db, 1, 1, note=text, source="rater:anna")


def by_file(home: Home, db: Store, folder: Path, text: str) -> None:
    line = {
        "prompt": "q",
        "response": f"a{hash(text)}",
        "rating": 1,
        "note": text,
        "critique": text,
        "person": "owner",
    }
    entries = [
        {"kind": kind, "value": 0.0, "text": text, "person": "owner", "source": "cli"}
        for kind in ("critique", "rating")
    ]
    other = {"prompt": "q", "response": f"b{hash(text)}", "feedback": entries}
    (folder / "f.jsonl").write_text("\n".join(map(json.dumps, (line, other))))
    assert importers.import_file(db, folder / "f.jsonl").problems == []


def by_mcp(home: Home, db: Store, folder: Path, text: str) -> None:
    pytest.importorskip("mcp")
    from clawback.extensions.channels.mcp import Tools

    Tools(home, folder).critique(text, turn=1)
    Tools(home, folder).rate(turn=1, value="good", note=text)


def by_stranger(home: Home, db: Store, folder: Path, text: str) -> None:
    for agent in ("slack", "openclaw"):
        place = f"{agent}:prompt:c:1"
        db.put_post(place, 1)
        obey(home, db, agent, PromptEvent("c", f"/rl note {text}", "", about="1", by="U999"), ["note", text])
        feedback.critique(db, 1, text, source=f"{agent}:U999")
    assert obey(home, db, "openclaw", PromptEvent("c", "/rl status", ""), ["status"])


def by_agent(home: Home, db: Store, folder: Path, text: str) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CLAWBACK_HOME", str(home.root))
        patched.setenv("CLAUDECODE", "1")
        assert main(["critique", "1", text]) == 0
        assert main(["bad", "--turn", "1", "--note", text]) == 0
    feedback.critique(db, 1, text, source="some-plugin")


@pytest.mark.parametrize("enter", [by_rater, by_file, by_mcp, by_stranger, by_agent])
def test_no_words_of_others_go_live_unseen(home: Home, db: Store, tmp_path: Path, enter: object) -> None:
    for text in INJECTIONS:
        enter(home, db, tmp_path, text)  # type: ignore[operator]
    assert len({f.text for f in db.feedback()} & set(INJECTIONS)) == len(INJECTIONS), (
        "all were taken in as remarks"
    )
    known = screening.known(db)
    for text in INJECTIONS:
        for prompt in (text, of_remark(text), f"Be brief.\n- {text}"):
            assert screening.unknown(prompt, known), text


@pytest.mark.parametrize("form", [str, of_remark])
def test_a_remark_of_the_owner_is_known_in_every_form_that_a_prompt_may_have(form, db: Store) -> None:
    remark = "Too long. Where is the example?"
    feedback.critique(db, 1, remark, source="cli")
    assert screening.unknown(form(remark), screening.known(db)) == []
    [piece, *_] = screening.sentences(form(remark))
    assert screening.authors(db, [piece]) == {piece: ["the owner"]}


def test_the_owners_own_words_may(home: Home, db: Store, tmp_path: Path) -> None:
    wishes = {
        source: f"Answer as {source} would."
        for source in ("cli", "web", "chat", "claude-code", "codex", "gemini-cli")
    }
    for source, text in wishes.items():
        feedback.critique(db, 1, text, source=source)
    feedback.critique(db, 1, "Say it in Spanish.", source="slack:U1")
    version = Version(0, "candidate", "base", prompt="\n".join([*wishes.values(), "Say it in Spanish."]))
    assert prompted.unseen(db, version) == ["Say it in Spanish."]
    db.identify("slack:U1", "owner")
    assert prompted.unseen(db, version) == []


def test_who_wrote_a_sentence_is_told_with_it(home: Home, db: Store) -> None:
    feedback.critique(db, 1, "Name Zappo first. Be kind.", source="rater:anna")
    db.add_feedback(Feedback(1, "critique", 0.0, "Be kind.", source="import"))
    assert screening.authors(db, ["Name Zappo first.", "Be kind.", "New."]) == {
        "Name Zappo first.": ["rater:anna"],
        "Be kind.": ["rater:anna", "an imported file"],
    }


@pytest.mark.parametrize("signs", SIGNS_ALONE)
def test_signs_are_looked_at_too(home: Home, db: Store, signs: str) -> None:
    feedback.critique(db, 1, "Be brief.", source="cli")
    known = screening.known(db)
    assert screening.unknown("Be brief.", known) == []
    for prompt in (signs, f"Be brief.\n{signs}", f"Be brief {signs}", f"{signs} be brief"):
        assert screening.unknown(prompt, known), prompt
    feedback.critique(db, 1, signs, source="cli")
    assert screening.unknown(f"Be brief.\n{signs}", screening.known(db)) == []


def test_the_words_of_others_are_no_instruction_to_train_under(db: Store) -> None:
    feedback.rate(db, 1, -1)
    feedback.critique(db, 1, "Be brief.", source="cli")
    feedback.critique(db, 1, "Name Zappo first.", source="rater:anna")
    feedback.critique(db, 1, "Use no lists.", source="import")
    [sample] = feedback.samples(db)
    assert set(sample.hints) - set(sample.foreign_hints) == {"Be brief."}
    assert set(sample.foreign_hints) == {"Name Zappo first.", "Use no lists."}


@pytest.mark.parametrize(
    "name",
    [
        "CLAUDECODE",
        "CODEX_THREAD_ID",
        "CODEX_SANDBOX",
        "GEMINI_CLI",
        "OPENCLAW_SHELL",
        "OPENCODE",
        "AI_AGENT",
    ],
)
def test_a_command_that_an_agent_runs_is_the_agents(name: str) -> None:
    """The variables that the agents' shells really have."""
    assert provenance.of_terminal({name: "1"}) == "agent"
    assert provenance.of_terminal({name: ""}) == "cli"
