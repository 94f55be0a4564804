"""A real Codex, before and after its hooks are trusted, in a terminal and by ``exec``: each rating is on what the person saw, or refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents
import pytest

pytestmark = pytest.mark.slow

OTTER = ["Tell me about the otter.", "All about the otter."]
FOX = ["Tell me about the fox.", "All about the fox."]
LINES = "".join(f"Line {number} of it.\n" for number in range(1, 13))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run for all: most of its time is Codex's own."""
    script, folder = Path(__file__).with_name("codex_loop.py"), tmp_path_factory.mktemp("codex")
    return agents.on_loopback(script, str(agents.codex()), str(folder), timeout=900)


def test_notify_records_and_ratings_count_before_the_hooks_are_trusted(seen: dict[str, Any]) -> None:
    before = seen["before_trust"]
    assert before["doctor"].startswith("BAD  Codex: Codex skips the hooks until you have trusted them")
    assert before["turns"] == [OTTER, FOX]
    assert before["calls_of_rl"] == 1, "the model is asked as well: no hook keeps the command from it"
    assert before["rated"] == [[OTTER[1], 1.0]], "of the conversation that went on, not the newest answer"
    assert (before["agents"], before["sessions"], before["elsewhere"]) == (["codex"], 2, [])


def test_hooks_record_once_and_keep_a_rating_from_the_model(seen: dict[str, Any]) -> None:
    by_exec = seen["by_exec"]
    assert by_exec["turns"] == [OTTER, FOX], "hooks and notify tell of the same answer"
    assert by_exec["calls_of_rl"] == 0
    assert by_exec["rated"] == [[OTTER[1], 1.0]]


def test_hooks_run_once_a_person_has_trusted_them(seen: dict[str, Any]) -> None:
    after = seen["after_trust"]
    assert after["doctor"].startswith("ok ")
    assert after["turns"] == [OTTER]
    assert after["calls_of_rl"] == 0
    assert after["rated"] == [[OTTER[1], -1.0]]


def test_a_conversation_in_the_terminal_with_hooks_alone(seen: dict[str, Any]) -> None:
    """The script has waited for each reply on the screen: of what Codex threw away nothing could be rated."""
    hooks = seen["hooks"]
    assert hooks["turns"] == [
        OTTER,
        ["Tell me about the tool.\n\nAnd about the owl.", "All about the tool and the owl."],
        ["Tell me about the helper.", "All about the helper."],
    ]
    assert hooks["rated"] == [[response, 1.0] for _, response in hooks["turns"]]
    assert hooks["endings"] == ["done", "done", "done"], "by Codex's own record"
    assert hooks["models"] == ["clawback"]
    assert hooks["work"][1][-2:] == ["assistant", "tool"], "the call, and what it returned"
    assert hooks["waiting"] == 0
    assert hooks["side"] == ["Three beans."], "the sub-agent's answer; the title is left out"
    assert (hooks["sessions"], hooks["elsewhere"]) == (1, [])


def test_a_conversation_in_the_terminal_through_our_server(seen: dict[str, Any]) -> None:
    served = seen["served"]
    turns = [turn for turn, calls in zip(served["turns"], served["calls"], strict=True) if not calls]
    assert turns == [
        OTTER,
        ["Tell me about the epic.", LINES],
        ["And about the owl.", "All about the tool and the owl."],
        ["Tell me about the helper.", "All about the helper."],
        ["Tell me about the newt.", "All about the newt.\n"],
    ], "each once, also what was interrupted"
    ended = [end for end, calls in zip(served["endings"], served["calls"], strict=True) if not calls]
    assert ended == ["done", "interrupted", "done", "done", "interrupted"]
    values = [1.0, -1.0, 1.0, 1.0, -1.0]
    assert served["rated"] == [[response, value] for (_, response), value in zip(turns, values, strict=True)]
    assert served["asked"][-1] == [
        "Tell me about the otter.",
        "Tell me about the epic.",
        "Tell me about the tool.",
        "And about the owl.",
        "Tell me about the helper.",
        "Tell me about the newt.",
    ], "what a person wrote, in order"
    assert [calls for calls in served["calls"] if calls] == [
        ["exec_command"],
        ["spawn_agent"],
        ["wait_agent"],
    ]
    assert served["waiting"] == 0
    assert sorted(served["side"]) == ["Three beans.", '{"title": "Look at animals"}']
    assert (served["agents"], served["sessions"], served["elsewhere"]) == (["codex"], 1, [])


@pytest.mark.parametrize("where", ["hooks", "served"])
def test_no_rating_in_the_terminal_reaches_the_model(seen: dict[str, Any], where: str) -> None:
    calls = {name: count for name, count in seen[where].items() if name.startswith("calls_of_rl")}
    assert len(calls) == 5
    assert set(calls.values()) == {0}, calls


def test_what_was_installed_is_taken_out_byte_for_byte(seen: dict[str, Any]) -> None:
    for name, part in seen.items():
        assert part["hooks_restored"], name
        assert part["config_restored"], f"{name}: but for what Codex itself has written since"
    assert [name for name, part in seen.items() if part["config_untouched"]] == ["before_trust", "by_exec"]


def test_a_broken_rule_goes_back_once_and_is_said_again_with_the_next_prompt(tmp_path: Path) -> None:
    script = Path(__file__).with_name("codex_rules.py")
    seen = agents.on_loopback(script, str(agents.codex()), str(tmp_path), timeout=600)

    assert seen["calls_first"] == 2, "sent back once"
    [(_, broken, _), (sentence, kept, messages), (_, third, _)] = seen["turns"]
    assert (broken, kept, third) == ("Sorry, it is four.", "It is four.", "Sorry, it is four.")
    assert "Never apologise." in sentence
    assert messages == ["What is two and two?", broken, sentence]
    assert seen["reminded"]
    assert (seen["kept"], seen["checked"], seen["breaches"]) == (1, 3, [3, 1])
