"""What agents' hooks do about rules: say them again where they are at risk, send a breach back once, and never get in the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clawback import store
from clawback.capture import hook
from clawback.jobs import rule_proposals
from clawback.paths import Home
from clawback.records import Rule, Turn
from clawback.rules import receipts, rule_reminders
from clawback.rules.hook import respond

RULE = "Never apologise."
SORRY = "Sorry, I was wrong. It is four."


def tell(home: Home, name: str, agent: str = "claude-code", **fields: Any) -> dict[str, Any] | None:
    """One event of an agent, as its hooks pass it on; what the agent reads."""
    event = {"hook_event_name": name, "session_id": "s", **fields}
    return hook.handle(home, agent, json.dumps(event).encode(), respond)


def turn(home: Home, number: int, answer: str, **stop: Any) -> dict[str, Any] | None:
    """A prompt and its answer; what the agent reads after the answer."""
    tell(home, "UserPromptSubmit", prompt=f"What is {number}?", prompt_id=f"p{number}")
    return tell(home, "Stop", prompt_id=f"p{number}", last_assistant_message=answer, **stop)


@pytest.fixture
def ruled(home: Home) -> Home:
    """A home with one rule in the owner's words."""
    with store.connect(home.database) as db:
        rule_proposals.add(db, RULE)
        rule_reminders.write(home, db)
    return home


def answers(home: Home) -> list[tuple[str, str]]:
    with store.connect(home.database) as db:
        return [(one.prompt, one.response) for one in reversed(db.turns())]


def test_a_rule_that_was_broken_is_said_again_with_the_next_prompt(ruled: Home) -> None:
    assert tell(ruled, "UserPromptSubmit", prompt="a", prompt_id="a") is None, "nothing was broken yet"
    turn(ruled, 1, SORRY)
    said = tell(ruled, "UserPromptSubmit", prompt="And now?", prompt_id="p2")
    assert said is not None
    context = said["hookSpecificOutput"]
    assert context["hookEventName"] == "UserPromptSubmit"
    assert context["additionalContext"].endswith(f"\n- {RULE}")
    assert "decision" not in said


def test_a_rule_is_no_longer_said_once_it_is_kept_again(ruled: Home) -> None:
    def at_risk(*texts: str) -> bool:
        with store.connect(ruled.database) as db, db.together():
            for text in texts:
                db.add_turn(Turn("s", ({"role": "user", "content": "q"},), text, agent="claude-code"))
            receipts.update(db)
            return bool(rule_reminders.at_risk(db, "claude-code"))

    assert at_risk(SORRY)
    assert at_risk(*["It is four."] * 8), "one of nine"
    assert not at_risk("It is four."), "one of ten is what the person lives with"
    assert at_risk(SORRY)
    assert not at_risk(*["It is four."] * rule_reminders.RECENT)


def test_another_model_is_not_told_what_the_one_before_broke(ruled: Home) -> None:
    turn(ruled, 1, SORRY, model="claude-a")
    turn(ruled, 2, "It is two.", model="claude-b")
    assert tell(ruled, "UserPromptSubmit", prompt="3", prompt_id="p3") is None


def test_nothing_is_said_where_the_person_does_not_want_it(ruled: Home) -> None:
    ruled.config.write_text("[rules]\nremind = false\n")
    turn(ruled, 1, SORRY)
    assert tell(ruled, "UserPromptSubmit", prompt="2", prompt_id="p2") is None


def test_only_sentences_of_the_owner_or_with_a_yes_are_said(home: Home) -> None:
    with store.connect(home.database) as db:
        [proposed] = rule_proposals.propose(db, [RULE], "some-agent").rules
        believed = db.add_rule(Rule("Answer without lists.", "lists = no", "model:m", status="believed"))
        rule_reminders.write(home, db)
    turn(home, 1, f"{SORRY}\n- a\n- b")
    assert tell(home, "UserPromptSubmit", prompt="2", prompt_id="p2") is None
    assert not (home.root / rule_reminders.FILE).exists()
    with store.connect(home.database) as db:
        for rule in (proposed, believed):
            rule_proposals.accept(db, rule.id)
        rule_reminders.write(home, db)
    turn(home, 2, f"{SORRY}\n- a\n- b")
    said = tell(home, "UserPromptSubmit", prompt="3", prompt_id="p3")
    assert RULE in str(said)
    assert believed.text in str(said)
    with store.connect(home.database) as db:
        for rule in (proposed, believed):
            rule_proposals.withdraw(db, rule.id)
        rule_reminders.write(home, db)
    assert tell(home, "UserPromptSubmit", prompt="4", prompt_id="p4") is None


def test_what_is_said_is_bounded() -> None:
    rules = [Rule(f"Rule {number} " + "x" * 150, id=number) for number in range(20)]
    text = rule_reminders.reminder(rules)
    assert len(text) <= rule_reminders.LONGEST
    assert rule_reminders.reminder([]) == ""


def test_a_breach_goes_back_once_and_both_answers_are_in_the_receipts(ruled: Home) -> None:
    ruled.config.write_text("[rules]\nsend_back = true\n")
    said = turn(ruled, 1, SORRY)
    assert said is not None
    assert said["decision"] == "block"
    assert RULE in said["reason"]
    again = tell(ruled, "Stop", prompt_id="p1", last_assistant_message="It is four.", stop_hook_active=True)
    assert again is None
    sentence = said["reason"]
    assert answers(ruled) == [("What is 1?", SORRY), (sentence, "It is four.")]
    with store.connect(ruled.database) as db:
        last = db.turn(2)
        assert [message["content"] for message in last.messages] == ["What is 1?", SORRY, sentence]
        [receipt] = receipts.receipts(db)
    assert (receipt.overall.passes, receipt.overall.checked) == (1, 2)


@pytest.mark.parametrize(
    "stop",
    [
        {"stop_hook_active": True},
        {"background_tasks": [{"id": "b1"}]},
        {"prompt_id": ""},
    ],
    ids=["an answer that was sent back", "work in the background", "a prompt without a name"],
)
def test_what_is_not_sent_back(ruled: Home, stop: dict[str, Any]) -> None:
    ruled.config.write_text("[rules]\nsend_back = true\n")
    tell(ruled, "UserPromptSubmit", prompt="What is it?", prompt_id=stop.get("prompt_id", "p1"))
    event = {"prompt_id": "p1", "last_assistant_message": SORRY} | stop
    assert tell(ruled, "Stop", **event) is None


def test_an_answer_that_breaks_the_rule_again_is_left(ruled: Home) -> None:
    """Also where the agent does not say that it went on because of a hook."""
    ruled.config.write_text("[rules]\nsend_back = true\n")
    assert turn(ruled, 1, SORRY) is not None
    for text in ("Sorry again.", "Apologies, it is four."):
        assert tell(ruled, "Stop", prompt_id="p1", last_assistant_message=text) is None


def test_nothing_is_sent_back_unless_the_person_switched_it_on(ruled: Home) -> None:
    assert turn(ruled, 1, SORRY) is None
    assert turn(ruled, 2, "It is two.") is None


def test_an_answer_that_keeps_the_rules_is_not_sent_back(ruled: Home) -> None:
    ruled.config.write_text("[rules]\nsend_back = true\n")
    assert turn(ruled, 1, "It is four.") is None


def test_a_broken_file_costs_the_agent_nothing(ruled: Home) -> None:
    (ruled.root / rule_reminders.FILE).write_text("{")
    assert tell(ruled, "UserPromptSubmit", prompt="a", prompt_id="a") is None
    assert "rules left out" in (ruled.logs / "hooks.log").read_text()
    turn(ruled, 1, SORRY)
    assert [response for _, response in answers(ruled)] == [SORRY]


def test_agents_without_such_a_hook_go_on(ruled: Home) -> None:
    ruled.config.write_text("[rules]\nsend_back = true\n")
    for _ in range(2):
        tell(ruled, "BeforeAgent", "gemini-cli", prompt="What?")
        assert tell(ruled, "AfterAgent", "gemini-cli", prompt="What?", prompt_response=SORRY) is None
    with store.connect(ruled.database) as db:
        [receipt] = receipts.receipts(db)
    assert receipt.overall.checked == 1


def test_a_home_without_rules_loads_nothing_of_them(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    heavy = {f"clawback.rules.{name}" for name in ("receipts", "reminders", "checks")}
    for name in heavy:
        monkeypatch.delitem(sys.modules, name, raising=False)
    turn(home, 1, SORRY)
    assert not heavy & sys.modules.keys()


def test_turns_that_the_agent_asked_itself_are_no_part_of_it(ruled: Home) -> None:
    tell(ruled, "SubagentStop", last_assistant_message=SORRY, agent_id="a")
    with store.connect(ruled.database) as db:
        db.add_turn(Turn("g", ({"role": "user", "content": "q"},), SORRY, agent="gate"))
        receipts.update(db)
        [receipt] = receipts.receipts(db)
    assert receipt.overall.checked == 0


def test_what_follows_an_answer_that_was_sent_back_is_another_answer() -> None:
    """In the records of both agents: the tools and the text before it are those of the first answer."""
    from clawback.extensions.agents import claude_transcript, codex_rollout

    def said(text: str, name: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {
            "type": "assistant",
            "message": {"id": name, "role": "assistant", "model": "m", "content": content},
        }

    asked = {"type": "user", "promptId": "p", "message": {"role": "user", "content": "What?"}}
    feedback = {
        "type": "user",
        "isMeta": True,
        "message": {"role": "user", "content": "Stop hook feedback:\n- x"},
    }
    other = {"type": "user", "isMeta": True, "message": {"role": "user", "content": "Caveat: something else"}}
    for between, steps in ((feedback, 1), (other, 2)):
        entries = [asked, said(SORRY, "1"), between, said("It is four.", "2")]
        [exchange] = claude_transcript.read(json.dumps(entry) for entry in entries)
        assert (exchange.text, len(exchange.steps)) == ("It is four.", steps)

    def item(kind: str, text: str = "") -> str:
        content = [{"type": "Text", "text": text}]
        payload = {"type": "item_completed", "turn_id": "t", "item": {"type": kind, "content": content}}
        return json.dumps({"type": "event_msg", "payload": payload})

    started = json.dumps({"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}})
    lines = [
        started,
        item("UserMessage", "What?"),
        item("AgentMessage", SORRY),
        item("HookPrompt"),
        item("AgentMessage", "It is four."),
    ]
    [exchange] = codex_rollout.read(lines)
    assert (exchange.text, len(exchange.steps)) == ("It is four.", 1)
