"""``clawback inbox --draw``: two answers of the live version to prompts of the person's own, to be compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from clawback import release, store
from clawback.cli import main
from clawback.errors import UsageError
from clawback.jobs import question_draws
from clawback.models.types import Completion
from clawback.paths import Home
from clawback.records import GATE, PICTURE, Message, Turn


class Writer:
    """A policy that names the draw in each answer, except where the prompt asks for the same one."""

    def __init__(self, last: int = 99) -> None:
        self.prompts: list[str] = []
        self.seeds: list[int] = []
        self.last = last
        """The call in which the person presses Ctrl-C."""

    def generate(
        self, conversations: Sequence[Sequence[Message]], *, samples: int, max_tokens: int, seed: int
    ) -> list[list[Completion]]:
        assert max_tokens == question_draws.LONGEST_ANSWER
        if len(self.seeds) == self.last:
            raise KeyboardInterrupt
        self.seeds.append(seed)
        prompts = [str(messages[-1]["content"]) for messages in conversations]
        self.prompts += prompts
        return [
            [
                Completion(
                    "Same." if "same" in prompt else f"{prompt} {seed}/{n}", (n, 2), (-0.5, -0.5), True
                )
                for n in range(samples)
            ]
            for prompt in prompts
        ]


@pytest.fixture
def writer(home: Home, monkeypatch: pytest.MonkeyPatch) -> Writer:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    made = Writer()
    monkeypatch.setattr(release, "load", lambda *_: made)
    return made


def record(home: Home, *prompts: str, agent: str = "api", response: str = "An answer.") -> int:
    with store.connect(home.database) as db:
        turns = [
            db.add_turn(Turn(f"s{text}", ({"role": "user", "content": text},), response, agent=agent))
            for text in prompts
        ]
    return turns[-1].id


def pairs(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert main(["inbox", "--draw", "--json", *options]) == 0
    shown: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return shown


def test_two_answers_to_a_prompt_of_the_persons_own_wait_to_be_compared(
    home: Home, writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    last = record(home, "One?", "The same?")
    shown = pairs(capsys)
    assert {pair["prompt"] for pair in shown} == {"One?"}
    [pair] = [pair for pair in shown if last - 1 not in (pair["first"], pair["second"])]
    assert {text[:5] for text in pair["responses"]} == {"One? "}
    with store.connect(home.database) as db:
        drawn = [db.turn(number) for number in (pair["first"], pair["second"])]
        assert {turn.version for turn in drawn} == {0}
        assert all(turn.response_ids and turn.response_logprobs for turn in drawn), (
            "of the live version, with its tokens"
        )
        assert len(db.turns(limit=9)) == 4, "answers that are the same are not stored"
    assert main(["good", "--any"]) == 0
    with store.connect(home.database) as db:
        assert [one.turn_id for one in db.feedback()] == [last], "nobody has seen the drawn ones yet"


def test_prompts_that_cannot_be_put_again_are_left_out(home: Home, writer: Writer) -> None:
    record(home, f"What is {PICTURE}?", "x" * (question_draws.LONGEST_CONVERSATION + 1))
    record(home, "Of the gate?", agent=GATE)
    with pytest.raises(UsageError, match="No prompt is recorded yet"):
        question_draws.draw(home, 9)
    assert writer.prompts == []


def test_a_second_draw_takes_prompts_that_have_one_answer_and_draws_other_answers(
    home: Home, writer: Writer
) -> None:
    record(home, *(f"Question {n}?" for n in range(6)))
    assert question_draws.draw(home, 3) == 3
    assert question_draws.draw(home, 3) == 3
    assert sorted(writer.prompts) == [f"Question {n}?" for n in range(6)]
    assert question_draws.draw(home, 6) == 6
    assert len(set(writer.seeds)) == len(writer.seeds)
    with store.connect(home.database) as db:
        answers = [turn.response for turn in db.turns(limit=99) if turn.agent == "clawback"]
    assert len(set(answers)) == len(answers) == 24


def test_what_was_drawn_before_ctrl_c_is_asked_about(
    home: Home, writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    record(home, *(f"Question {n}?" for n in range(6)))
    writer.last = 1
    assert len({pair["prompt"] for pair in pairs(capsys, "--limit", "99")}) == question_draws.AT_ONCE
