"""The commands of a chat: each does what its line of help says, and what is asked is what the person sees."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from clawback import store
from clawback.cli import conversation
from clawback.cli.chat import show_answer
from clawback.errors import ClawbackError
from clawback.inference.streams import AnswerRequest
from clawback.paths import Home
from clawback.records import Turn


class Echo:
    """Answers with what it was asked and by which version, and stores it as a source does."""

    activity, draws, notice = "answering", 1, ""

    def __init__(self, db: store.Store) -> None:
        self.db, self.asked = db, list[AnswerRequest]()

    def answer(self, question: AnswerRequest) -> Iterator[str]:
        self.asked.append(question)
        if question.messages[-1]["content"] == "fail":
            raise ClawbackError("The server broke off the answer.")
        yield f"answer {len(self.asked)}"

    def finish(self, cut: bool) -> Turn | None:
        one = self.asked[-1]
        version = 0 if one.version is None else one.version.number
        return self.db.add_turn(
            Turn(one.session, one.messages, f"answer {len(self.asked)}", agent="clawback", version=version)
        )

    def close(self) -> None: ...


Talk = Callable[..., tuple[list[AnswerRequest], str]]


@pytest.fixture
def talk(home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """``talk("Hi", "/clear", …)``: what was asked, and what was shown."""

    def run(*typed: str) -> tuple[list[AnswerRequest], str]:
        lines = iter([*typed, "/quit"])
        monkeypatch.setattr("builtins.input", lambda _: next(lines))
        monkeypatch.setattr(conversation, "rate_by_key", lambda *_: True)
        with store.connect(home.database) as db:
            source = Echo(db)
            monkeypatch.setattr(conversation, "open_source", lambda *_: source)
            conversation.Conversation(home, db, 7).run()
        return source.asked, capsys.readouterr().out

    return run


def texts(question: AnswerRequest) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in question.messages]


def test_each_answer_sees_the_conversation_until_it_is_cleared(talk: Talk) -> None:
    asked, _ = talk("One?", "Two?", "/clear", "Three?")
    assert texts(asked[1]) == [("user", "One?"), ("assistant", "answer 1"), ("user", "Two?")]
    assert texts(asked[2]) == [("user", "Three?")]
    assert asked[0].session == asked[1].session != asked[2].session
    assert [one.seed for one in asked] == [7, 8, 9]


def test_a_regenerated_answer_takes_the_place_of_the_last(talk: Talk) -> None:
    asked, shown = talk("/regenerate", "One?", "/regenerate", "Two?")
    assert "Nothing was asked yet." in shown
    assert texts(asked[1]) == [("user", "One?")]
    assert asked[1].seed != asked[0].seed
    assert texts(asked[2]) == [("user", "One?"), ("assistant", "answer 2"), ("user", "Two?")]


def test_a_system_prompt_is_before_each_answer_and_in_no_turn_of_the_conversation(talk: Talk) -> None:
    asked, _ = talk("/system Be brief.", "One?", "Two?", "/system", "Three?")
    assert [texts(one)[0] for one in asked] == [("system", "Be brief.")] * 2 + [("user", "One?")]
    assert [role for role, _ in texts(asked[1])].count("system") == 1


def test_a_version_is_chosen_by_number_or_name_and_a_wrong_one_changes_nothing(talk: Talk) -> None:
    asked, shown = talk(
        "/version base", "One?", "/version 9", "Two?", "/version best", "/version live", "Three?"
    )
    assert [None if one.version is None else one.version.number for one in asked] == [0, 0, None]
    assert "There is no version 9" in shown
    assert "There is no version `best`" in shown


def test_who_stops_reading_leaves_what_there_was(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    with store.connect(home.database) as db:
        with pytest.raises(BrokenPipeError):
            show_answer(Echo(db), AnswerRequest(({"role": "user", "content": "One?"},), "ask:1", 1))
        assert [turn.response for turn in db.turns(limit=5)] == ["answer 1"]


def test_what_fails_ends_the_answer_and_not_the_chat(talk: Talk) -> None:
    asked, shown = talk("fail", "One?")
    assert "broke off" in shown
    assert texts(asked[1]) == [("user", "One?")], "what was not answered is no part of it"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (['"""def f():', "    return 1", '"""'], "def f():\n    return 1"),
        (['"""one line"""'], "one line"),
        (["first \\", "second"], "first \nsecond"),
        ([" /help"], "/help"),
        (["/etc/hosts is what?"], "/etc/hosts is what?"),
    ],
)
def test_a_message_may_have_several_lines_and_begin_with_a_slash(
    talk: Talk, typed: list[str], message: str
) -> None:
    [one], _ = talk(*typed)
    assert texts(one) == [("user", message)]


def test_help_lists_every_command_and_an_unknown_one_is_named(talk: Talk) -> None:
    asked, shown = talk("/help", "/nonsense")
    assert asked == []
    for name in ("/help", "/clear", "/version N", "/system TEXT", "/regenerate", "/quit"):
        assert name in shown
    assert "There is no command /nonsense" in shown


def test_the_end_of_the_input_is_the_end_of_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    assert conversation.read_input() == ""


def test_the_arrow_keys_bring_back_what_is_still_in_the_store(home: Home) -> None:
    readline = pytest.importorskip("readline")
    with store.connect(home.database) as db:
        for number, session in enumerate(("chat:1", "ask:1", "web:1")):
            messages = ({"role": "user", "content": f"question {number}"},)
            db.add_turn(replace(Turn(session, messages, "a"), agent="clawback"))
        conversation.remember_inputs(db)
    items = [readline.get_history_item(i + 1) for i in range(readline.get_current_history_length())]
    readline.clear_history()
    assert items == ["question 0", "question 1"]
