"""The gate's questions in `/rl`, chats and chat programs: the same ones as in the inbox, one at a time, for the owner alone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from clawback import config, feedback, store
from clawback.admin import rating_inbox
from clawback.capture import hook
from clawback.cli import conversation
from clawback.extensions.channels.channel import Desk, Heard
from clawback.feedback import command
from clawback.gate import questions
from clawback.gate.guards import AnswerStatistics
from clawback.gate.report import Report
from clawback.gate.rule import Evidence
from clawback.jobs import comparing, training_job
from clawback.jobs.comparing import Surface
from clawback.models.types import Completion
from clawback.paths import Home
from clawback.records import OWNER, Feedback, Run, Turn, Version
from clawback.runs import trigger
from clawback.serve import hooks

FINE = AnswerStatistics(finished=1.0, empty=0.0, repeating=0.0, length=40.0)
TERMINAL = Surface("chat", "s")


@pytest.fixture
def waiting(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a version that waits for the answers to eight questions or more, of ten that there are."""
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    home.config.write_text("[training]\nbackground = false\n")
    prompts = [({"role": "user", "content": f"Question {i}?"},) for i in range(10)]
    with store.connect(home.database) as db:
        for value in (1.0, 1.0, -1.0, -1.0):
            turn = db.add_turn(Turn("s", ({"role": "user", "content": f"Rated {value}?"},), "Yes."))
            feedback.rate(db, turn.id, value)
        run = db.start_run(Run("embedded", "r", "auto", {}, 0, 0))
        version = db.add_candidate(Version(0, "candidate", "embedded", parent=0, run_id=run.id))
        db.update_run(run.id, status="done")
        answers = [
            [Completion(f"Answer {i} {name}.", (1, 2), (-0.5, -0.5), True) for i in range(10)]
            for name in "xy"
        ]
        pairs = [questions.Question(i, i, 1.0) for i in range(10)]
        questions.put(db, version, db.live(), questions.ShownAnswers(prompts, *answers, pairs))
        evidence = Evidence(
            2, 2, (), (), 0.2, 0.4, 0.2, 0.97, 2.0, 1.0, FINE, FINE, FINE, questions=len(pairs)
        )  # fmt: skip
        report = Report(version.number, 0, False, 0.5, ("undecided",), evidence, again_at=5)
        db.set_report(version.number, report.to_dict())
    return home


def asked(home: Home) -> list[tuple[int, int]]:
    return [(pair.first.id, pair.second.id) for pair in rating_inbox.Inbox(home).questions()]


def comparisons(home: Home) -> list[Feedback]:
    with store.connect(home.database) as db:
        return [one for one in db.feedback() if one.kind == "preference"]


def test_a_question_is_that_of_the_inbox_and_says_not_whose_the_answers_are(waiting: Home) -> None:
    first, second = (
        rating_inbox.Inbox(waiting).questions()[0].first,
        rating_inbox.Inbox(waiting).questions()[0].second,
    )
    text = comparing.reply(waiting, TERMINAL, "ab")
    assert text.index(first.prompt) < text.index(first.response) < text.index(second.response)
    assert comparing.reply(waiting, TERMINAL, "ab") == text, "to look twice changes nothing"
    assert not {f"version {n}" for n in (0, 1)} & set(text.lower().split("\n"))
    assert len(asked(waiting)) == 10


@pytest.mark.parametrize(("word", "place"), [("a", 0), ("b", 1)])
def test_an_answer_is_a_preference_of_the_owners_and_counts_once(
    waiting: Home, word: str, place: int
) -> None:
    pair = asked(waiting)[0]
    comparing.reply(waiting, TERMINAL, "ab")
    text = comparing.reply(waiting, TERMINAL, word)
    assert "At most 9 more" in text
    [given] = comparisons(waiting)
    assert (given.turn_id, given.other_turn_id) == (pair[place], pair[1 - place])
    assert (given.source, given.author) == ("chat", OWNER)
    assert pair not in asked(waiting)
    with store.connect(waiting.database) as db:
        assert db.count_gate_answers(1) == 1
    assert "No question was open here" in comparing.reply(waiting, TERMINAL, word)
    assert len(comparisons(waiting)) == 1, "what was not shown is not answered"


def test_undo_takes_back_an_answer_to_the_question_where_it_was_given(waiting: Home) -> None:
    pair = asked(waiting)[0]
    comparing.reply(waiting, TERMINAL, "ab")
    comparing.reply(waiting, TERMINAL, "a")
    with store.connect(waiting.database) as db:
        assert "nothing to take back" in command.run(db, ["undo"], None, source="claude-code").text
        assert "Taken back" in command.run(db, ["undo"], None, source=TERMINAL.source).text
        assert db.count_gate_answers(1) == 0
    assert pair in asked(waiting)


def test_answers_that_are_judged_are_not_called_a_training_run(
    waiting: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.config.write_text("[training]\nbackground = true\n")
    monkeypatch.setattr(trigger, "start_process", lambda *_: SimpleNamespace(pid=1))
    texts = []
    for _ in range(5):
        comparing.reply(waiting, TERMINAL, "ab")
        texts.append(comparing.reply(waiting, TERMINAL, "a"))
    said = " ".join(texts)
    assert "The version that waits is judged by the answers so far" in said
    assert "training run" not in said
    assert all(f"At most {left} more" in text for left, text in zip(range(9, 4, -1), texts, strict=True))


def test_five_answers_are_judged_as_those_of_the_inbox(waiting: Home) -> None:
    with store.connect(waiting.database) as db:
        firsts = [first.version == 1 for first, _ in questions.pairs(db, 1, 0)]
    for number, ours in enumerate(firsts[:9]):
        comparing.reply(waiting, TERMINAL, "ab")
        comparing.reply(waiting, TERMINAL, "a" if ours else "b")
        if number in (4, 8):
            training_job.judge_waiting(waiting)
    with store.connect(waiting.database) as db:
        assert db.version(1).status == "live"


def test_neither_is_asked_once_and_rewards_nobody(waiting: Home) -> None:
    pair = asked(waiting)[0]
    comparing.reply(waiting, TERMINAL, "ab")
    assert "neither is better" in comparing.reply(waiting, TERMINAL, "same")
    assert pair not in asked(waiting)
    with store.connect(waiting.database) as db:
        assert questions.answers(db, 1, 0) == (None,)
        assert {sample.turn_id for sample in feedback.samples(db)}.isdisjoint(pair)
        feedback.prefer(db, *pair)
        assert questions.answers(db, 1, 0) in ((True,), (False,)), "the newer word counts"


def test_who_finds_everything_equal_is_not_asked_for_ever(waiting: Home) -> None:
    for number in range(10):
        comparing.reply(waiting, TERMINAL, "ab")
        comparing.reply(waiting, TERMINAL, "same")
        if number in (4, 9):
            training_job.judge_waiting(waiting)
    with store.connect(waiting.database) as db:
        version = db.version(1)
    assert version.status == "rejected"
    assert "neither answer was better" in str(version.report)
    assert comparing.reply(waiting, TERMINAL, "ab") == comparing.NOTHING


def test_a_contented_person_is_asked_nothing(home: Home) -> None:
    for word in ("ab", "a", "same"):
        assert comparing.reply(home, TERMINAL, word).endswith(comparing.NOTHING)


@pytest.mark.parametrize(
    "source", ["slack:U2", "mcp", "agent", "import", "rater:anna", "openclaw:someone", "x"]
)
def test_only_the_owner_is_asked_and_heard(waiting: Home, source: str) -> None:
    for word in ("ab", "a", "same"):
        assert comparing.reply(waiting, Surface(source, "s"), word) == comparing.NOT_THE_OWNER
    assert comparisons(waiting) == []


def test_a_sender_who_is_known_as_the_owner_is(waiting: Home) -> None:
    with store.connect(waiting.database) as db:
        db.identify("slack:U1", OWNER)
    comparing.reply(waiting, Surface("slack:U1", "s"), "ab")
    assert comparing.reply(waiting, Surface("slack:U1", "s"), "a").startswith("Noted")


def test_an_answer_that_is_brought_twice_counts_once(waiting: Home) -> None:
    comparing.reply(waiting, TERMINAL, "ab")
    brought = Surface("chat", "s", "event")
    text = comparing.reply(waiting, brought, "a")
    comparing.reply(waiting, TERMINAL, "ab")
    assert comparing.reply(waiting, brought, "a") == text
    assert len(comparisons(waiting)) == 1


def test_a_question_that_was_answered_elsewhere_is_replaced(waiting: Home) -> None:
    comparing.reply(waiting, TERMINAL, "ab")
    with store.connect(waiting.database) as db:
        feedback.prefer(db, *asked(waiting)[0])
    second = rating_inbox.Inbox(waiting).questions()[0]
    text = comparing.reply(waiting, TERMINAL, "b")
    assert "settled meanwhile" in text
    assert second.first.response in text
    assert len(comparisons(waiting)) == 1
    assert len(asked(waiting)) == 9


def test_each_conversation_has_a_question_of_its_own(waiting: Home) -> None:
    comparing.reply(waiting, TERMINAL, "ab")
    assert "No question was open here" in comparing.reply(waiting, Surface("chat", "other"), "a")
    assert comparisons(waiting) == []


def test_long_answers_are_cut_and_it_is_said(waiting: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "LONGEST", 5)
    assert "more characters" in comparing.reply(waiting, TERMINAL, "ab")


# ------------------------------------------------------------------------------------------------------- surfaces


def typed(text: str, number: int = 1) -> bytes:
    event = {
        "hook_event_name": "UserPromptSubmit",
        "session_id": "c",
        "prompt": text,
        "prompt_id": f"p{number}",
    }
    return json.dumps(event).encode()


def test_an_agents_hook_asks_through_the_server(waiting: Home) -> None:
    pair = rating_inbox.Inbox(waiting).questions()[0]
    text, _ = hooks.answer(waiting, "claude-code", typed("/rl ab"))
    assert json.loads(text)["decision"] == "block", "the agent's model does not see it"
    assert pair.first.response in json.loads(text)["reason"]
    text, _ = hooks.answer(waiting, "claude-code", typed("/rl b", 2))
    assert "Noted: B is better." in text
    [given] = comparisons(waiting)
    assert (given.turn_id, given.source) == (pair.second.id, "claude-code")


@pytest.mark.slow  # a process
def test_an_agents_hook_asks_without_a_server(waiting: Home) -> None:
    pair = rating_inbox.Inbox(waiting).questions()[0]
    answer = hook.handle(waiting, "claude-code", typed("/rl ab"))
    assert answer is not None
    assert pair.second.response in answer["reason"]


def test_a_chat_program_asks_its_owner_and_nobody_else_reads_it(waiting: Home) -> None:
    desk = Desk(waiting, "telegram", config.ChannelSection(owners=("1",), allowed=("2",)), 4000)
    direct = Heard("telegram:5", "m1", "1", "/rl ab", True)
    assert "Question" in desk.obey(direct, ["ab"])
    in_a_group = Heard("telegram:6", "m2", "1", "/rl ab", False)
    assert "direct message" in desk.obey(in_a_group, ["ab"])
    assert "for owners" in desk.obey(Heard("telegram:7", "m3", "2", "/rl ab", True), ["ab"])
    assert "Noted: A" in desk.obey(Heard("telegram:5", "m4", "1", "/rl a", True), ["a"])
    assert desk.obey(Heard("telegram:5", "m4", "1", "/rl a", True), ["a"]).startswith("Clawback: Noted: A")
    assert len(comparisons(waiting)) == 1


def test_the_terminals_chat_takes_commands(waiting: Home) -> None:
    with store.connect(waiting.database) as db:
        turn = db.add_turn(Turn("c", ({"role": "user", "content": "What?"},), "That."))
        assert conversation.reply_to_command(db, "c", "What is /rl ab?", turn.id) is None
        assert "Question" in (conversation.reply_to_command(db, "c", "/rl ab", turn.id) or "")
        assert "clawback train" in (conversation.reply_to_command(db, "c", "/rl train", turn.id) or "")
        assert "Noted: good" in (conversation.reply_to_command(db, "c", "/rl good short", turn.id) or "")
        assert [one.text for one in db.feedback(turn_id=turn.id)] == ["short"]
