"""The simulated people of ``benchmarks.meaning``, and the intervals of its table."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from benchmarks import _meaning_table, meaning
from benchmarks._meaning_judge import SENTENCES, PlayedJudge
from benchmarks._people import SLIPS, Graded, Person, Sum, by_quality, people
from benchmarks._wishes import TEST, Wish
from clawback.extensions.demo.played_model import PlayedModel
from clawback.feedback.endpoint import JudgeAnswer
from clawback.rules import exam
from clawback.rules.rule_judge import EndpointJudge, RuledTurn

LIKES_A = Wish("a", True, lambda _, answer: answer == "a", "Say a.")


@pytest.mark.parametrize("wrong", SLIPS)
def test_so_many_taps_are_wrong_as_was_asked_for(wrong: float) -> None:
    asked = [("?", "a"), ("?", "b")] * 2000
    truth = [1.0, -1.0] * 2000
    slips = sum(a != b for a, b in zip(Person(LIKES_A, 0, wrong).taps(asked), truth, strict=True)) / 4000
    assert slips == pytest.approx(wrong, abs=0.03)  # four standard errors


def test_a_person_taps_the_same_each_time_and_no_two_alike() -> None:
    asked = [("?", "a"), ("?", "b")] * 30
    assert Person(LIKES_A, 1, 0.3).taps(asked) == Person(LIKES_A, 1, 0.3).taps(asked)
    assert Person(LIKES_A, 1, 0.3).taps(asked) != Person(LIKES_A, 2, 0.3).taps(asked)
    assert Person(LIKES_A, 1).places(160, 32) != Person(LIKES_A, 2).places(160, 32)


def test_something_is_said_to_bad_answers_alone_and_only_by_who_speaks() -> None:
    assert Person(LIKES_A, 0, speaks=True).remarks([1.0, -1.0]) == ["", "Say a."]
    assert Person(LIKES_A, 0).remarks([1.0, -1.0]) == ["", ""]


def test_people_have_the_wishes_in_turn() -> None:
    names = [person.wish.name for person in people(TEST, 14, 0.1)]
    assert names[:12] == [wish.name for wish in TEST]
    assert names[12:] == names[:2]


def test_the_best_graded_answers_are_the_good_ones() -> None:
    answers = [Graded("?", "!", "m", grade) for grade in (0.9, 0.0, 0.5, 0.0, 0.1)]
    assert by_quality(answers) == [1.0, -1.0, 1.0, -1.0, -1.0]


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("That is 65,960.", True),
        ("65960", True),
        ("$65,960.00", True),
        ("65,960 of 3", False),
        ("none", False),
    ],
)
def test_the_last_number_is_the_result(answer: str, right: bool) -> None:
    assert Sum("?", "65,960").right(answer) is right


def test_an_interval_is_students() -> None:
    # t(0.975, 3) = 3.182, standard deviation 0.1291, over √4.
    assert _meaning_table.interval([0.1, 0.2, 0.3, 0.4]) == "0.25 [0.04, 0.46] (4)"
    assert _meaning_table.interval([0.3]) == "0.30 (1 person)"
    assert _meaning_table.interval([float("nan")]) == "–"


def test_what_is_there_already_is_not_done_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "lines.jsonl"
    head = {"row": "form-10", "model": "smollm2", "code": "c", "kind": "read"}
    found = [head | {"person": n, "auc": 0.6 + n / 10, "trusted": True, "base": 0.3} for n in (0, 1)]
    results.write_text("".join(json.dumps(one) + "\n" for one in found))
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("")  # no model could be loaded for these
    argv = ["form-10", "--people", "2", "--code", "c", "--results", str(results), "--prompts", str(prompts)]
    assert meaning.main(argv) == 0
    assert "0.65 [0.01, 1.29] (2)" in capsys.readouterr().out
    assert len(results.read_text().splitlines()) == 2


@pytest.mark.parametrize("right", [1.0, 0.9, 0.6])
def test_a_played_judge_is_right_as_often_as_was_asked_for(right: float) -> None:
    judge = PlayedJudge(right)
    asked = EndpointJudge(lambda _, material: JudgeAnswer(judge.reply(material), 1), "played")
    rules = list(SENTENCES.values())
    texts = [f"Number {n} of the world {'improves daily' if n % 3 else 'is old'}." for n in range(200)]
    hits = 0
    for start in range(0, len(texts), 5):
        some = texts[start : start + 5]
        rows = asked([RuledTurn("What is it?", text) for text in some], rules)
        hits += sum(v == judge.truth(r, "What is it?", t) for t, row in zip(some, rows, strict=True) for r, v in zip(rules, row, strict=True))  # fmt: skip
    assert hits / (len(texts) * len(rules)) == pytest.approx(right, abs=0.05)


def test_a_played_judge_knows_the_truth_of_the_exam() -> None:
    judge = PlayedJudge(1.0)
    assert judge.truth("Use a list.", "", "- one\n- two\n- three")
    assert not judge.truth("Use a list.", "", "One.")
    one = exam.CONTENT[0]
    assert judge.truth(one.rule, "", f"It works. {one.sentences[0]}")
    assert not judge.truth(one.rule, "", "It works.")


def test_a_judge_is_served_on_loopback() -> None:
    with PlayedModel(PlayedJudge(1.0).answer, "played") as model:
        asked = {"messages": [{"role": "user", "content": "<<RULE A x>>\nSay what it is good for.\n<<end x>>\n<<ANSWER 1 x>>\nIt is useful.\n<<end x>>"}]}  # fmt: skip
        request = urllib.request.Request(f"{model.url}/v1/chat/completions", json.dumps(asked).encode())
        with urllib.request.urlopen(request, timeout=10) as reply:
            said = json.loads(reply.read())["choices"][0]["message"]["content"]
    assert json.loads(said) == {"1": {"A": "yes"}}
