"""Rating, chatting and versions on the page, by keyboard alone in a real Chromium, at the width of a desk and of a telephone."""

from __future__ import annotations

import os

import pytest

from clawback import store
from clawback.records import Run

from .desk import Desk, Speaker, say_in_chat, to_chat
from .page import ratings

pytestmark = pytest.mark.slow


@pytest.fixture
def upstream() -> Speaker:
    return Speaker()


# ------------------------------------------------------------------------------------------------------- rating


def test_call_an_answer_good_and_see_the_next(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("g")
    desk.sees("2 of 5")
    desk.sees("4 good, 1 bad")
    assert [value for _, value in ratings(desk.home)] == [1.0]


def test_call_an_answer_bad(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("b")
    desk.sees("Saved: bad.")
    assert [value for _, value in ratings(desk.home)] == [-1.0]


def test_give_scores(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("8")
    desk.sees("2 of 5")
    desk.press("0")
    desk.sees("3 of 5")
    assert [value for _, value in ratings(desk.home)] == [0.56, 1.0]


def test_undo_a_mistap_after_the_next_answer_is_shown(desk: Desk) -> None:
    desk.sees("1 of 5")
    shown = desk.page.inner_text(".prompt")
    desk.press("b")
    desk.sees("2 of 5")
    desk.press("u")
    desk.sees("Taken back.")
    desk.sees("1 of 5")
    assert desk.page.inner_text(".prompt") == shown
    assert desk.kinds() == []
    desk.press("g")
    desk.sees("2 of 5")
    assert [value for _, value in ratings(desk.home)][-1] == 1.0


def test_undo_two_things_the_last_first(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("g")
    desk.sees("2 of 5")
    desk.press("b")
    desk.sees("3 of 5")
    desk.press("u")
    desk.sees("2 of 5")
    assert desk.kinds() == ["rating"]
    desk.press("u")
    desk.sees("1 of 5")
    assert desk.kinds() == []


def test_undo_from_the_message_that_says_what_was_saved(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("g")
    desk.page.locator("#said button:has-text('Undo')").focus()
    desk.press("Enter")
    desk.sees("1 of 5")
    assert desk.kinds() == []


def test_edit_the_answer_in_its_place(desk: Desk) -> None:
    desk.open_answer("Why does the test fail?")
    desk.press("e")
    editor = desk.page.locator(".editor")
    editor.wait_for()
    assert desk.page.locator(".answer").count() == 0, "the editor stands where the answer was"
    assert not desk.page.locator(".bar").is_visible(), "nothing floats over it"
    save = editor.locator("button:has-text('Save')").bounding_box()
    assert save["y"] + save["height"] <= 800, "Save is on the screen"
    desk.press("Control+a")
    desk.write("The limit is a number.")
    desk.sees("What you changed")
    desk.press("Control+Enter")
    desk.sees("Saved: your edit.")
    with store.connect(desk.home.database) as db:
        assert [f.text for f in db.feedback() if f.kind == "edit"] == ["The limit is a number."]
    desk.page.wait_for_selector(".answer")


def test_leave_the_editor_and_find_the_draft_again(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("e")
    desk.press("Control+End")
    desk.write(" And stop here.")
    desk.press("Escape")
    desk.page.wait_for_selector(".answer")
    assert desk.kinds() == []
    desk.press("e")
    assert desk.page.input_value(".editor textarea").endswith("And stop here.")
    desk.press("Escape")
    desk.press("g")
    desk.sees("2 of 5")


def test_write_a_remark(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("r")
    desk.write("Too long.")
    assert desk.page.locator(".answer").is_visible(), "the answer can be read meanwhile"
    desk.press("Control+Enter")
    desk.sees("Saved: your remark.")
    assert desk.kinds() == ["critique"]


def test_read_the_conversation_before(desk: Desk) -> None:
    desk.open_answer("How do I sort?")
    desk.press("c")
    desk.sees("What can I do?", ".messages")


def test_read_the_steps_of_an_agent(desk: Desk) -> None:
    desk.open_answer("Why does the test fail?")
    desk.press("m")
    desk.reach("2 steps before the answer")
    desk.press("Enter")
    desk.reach("calls Read")
    desk.press("Enter")
    desk.sees("tests/test_api.py")


def test_go_back_and_forth(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("ArrowRight", "ArrowRight")
    desk.sees("3 of 5")
    desk.press("ArrowLeft")
    desk.sees("2 of 5")


def test_see_code_in_colours(desk: Desk) -> None:
    desk.open_answer("How do I sort?")
    desk.page.wait_for_selector(".code .token-func:has-text('sorted')")
    assert desk.page.inner_text(".code pre code").strip() == "sorted(turns, key=len)"


# ------------------------------------------------------------------------------------------------------- A or B


def to_pairs(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("m")
    desk.reach("A or B")
    desk.press("Enter")


def test_choose_the_better_of_two_and_take_it_back(desk: Desk) -> None:
    to_pairs(desk)
    desk.sees("Answer A")
    desk.press("b")
    desk.sees("Saved: B is better.")
    assert desk.kinds() == ["preference"]
    desk.press("u")
    desk.sees("Answer A")
    assert desk.kinds() == []


def test_find_two_answers_equal_and_skip_two_others(desk: Desk) -> None:
    to_pairs(desk)
    desk.sees("Answer A")
    desk.press("ArrowRight")
    desk.sees("That was all that waits.")
    assert desk.kinds() == [], "to skip says nothing"
    desk.page.reload()
    to_pairs(desk)
    desk.sees("Answer A")
    desk.press("s")
    desk.sees("Saved: neither is better.")
    with store.connect(desk.home.database) as db:
        assert [(f.kind, f.value) for f in db.feedback() if f.source == "web"] == [("preference", 0.0)]


def test_draw_two_answers_where_none_wait(desk: Desk) -> None:
    to_pairs(desk)
    desk.sees("Answer A")
    desk.press("ArrowRight")
    desk.sees("That was all that waits.")
    desk.reach("Your prompt")
    desk.press("Control+a")
    desk.write("Which is larger?")
    desk.reach("Draw two answers")
    desk.press("Enter")
    desk.sees("Which is larger?", ".prompt")
    shown = [one.inner_text() for one in desk.page.locator(".pair .markdown").all()]
    assert {text[:8] for text in shown} == {"Answer 1", "Answer 2"}
    desk.press("a")
    desk.sees("Saved: A is better.")
    with store.connect(desk.home.database) as db:
        [given] = [f for f in db.feedback() if f.kind == "preference"]
        assert db.turn(given.turn_id).response.replace("**", "") == shown[0]


# --------------------------------------------------------------------------------------------------------- chat


def test_ask_in_chat_and_rate_with_the_keys_that_are_shown(desk: Desk) -> None:
    to_chat(desk)
    say_in_chat(desk, "good?", 1)
    assert not desk.page.locator(".chat .rater kbd").first.is_visible(), (
        "a key that does nothing is not shown"
    )
    desk.press("Escape", "g")
    desk.sees("Saved: good.")
    desk.press("/")
    desk.write("more")
    assert desk.page.input_value(".compose textarea") == "more"
    assert [value for _, value in ratings(desk.home)] == [1.0]


def test_have_it_answered_again(desk: Desk) -> None:
    to_chat(desk)
    say_in_chat(desk, "Which?", 1)
    desk.press("Escape", "a")
    desk.sees("Answer 2", ".chat .assistant")
    assert desk.page.locator(".chat .assistant").count() == 1
    assert desk.speaker.questions[0] == desk.speaker.questions[1]


def test_edit_an_answer_of_the_chat(desk: Desk) -> None:
    to_chat(desk)
    say_in_chat(desk, "Which?", 1)
    desk.press("Escape", "e", "Control+a")
    desk.write("This one.")
    desk.press("Control+Enter")
    desk.sees("Saved: your edit.")
    assert desk.kinds() == ["edit"]


def test_copy_an_answer(desk: Desk) -> None:
    desk.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    to_chat(desk)
    say_in_chat(desk, "Which?", 1)
    desk.reach("Copy the answer", "Shift+Tab")
    desk.press("Enter")
    desk.page.wait_for_selector("button:has-text('Copied')")
    assert desk.page.evaluate("() => navigator.clipboard.readText()") == "Answer **1** to Which?"


def test_go_back_to_an_earlier_conversation(desk: Desk) -> None:
    to_chat(desk)
    say_in_chat(desk, "First?", 1)
    say_in_chat(desk, "Second?", 2)
    desk.press("Escape", "g")
    desk.sees("Saved: good.")
    desk.press("m")
    desk.reach("New conversation")
    desk.press("Enter")
    desk.page.wait_for_selector(".chat:empty", state="attached")
    desk.press("m")
    desk.reach("Conversations (1)")
    if not desk.page.locator("details.talks[open]").count():
        desk.press("Enter")
    desk.reach("First?")
    desk.press("Enter")
    desk.sees("to Second?", ".chat .assistant")
    assert desk.page.locator(".chat .message").count() == 4
    desk.page.wait_for_selector(".chat .message:last-child .good[aria-pressed=true]")
    desk.page.locator(".compose textarea").focus()
    say_in_chat(desk, "Third?", 3)
    assert [one["role"] for one in desk.speaker.questions[-1]] == ["user", "assistant"] * 2 + ["user"]


def test_set_a_system_prompt(desk: Desk) -> None:
    to_chat(desk)
    desk.reach("System prompt", "Shift+Tab")
    desk.press("Enter")
    desk.reach("System prompt")
    desk.write("Be brief.")
    desk.reach("Your message")
    say_in_chat(desk, "Which?", 1)
    assert desk.speaker.questions[-1][0] == {"role": "system", "content": "Be brief."}


def test_see_which_model_answers(desk: Desk) -> None:
    to_chat(desk)
    desk.reach("Who answers", "Shift+Tab")
    assert desk.page.evaluate("() => document.activeElement.selectedOptions[0].text") == "some-model"


# ---------------------------------------------------------------------------------------- turns, learning, versions


def test_find_a_turn_and_rate_it(desk: Desk) -> None:
    desk.view("Turns")
    desk.reach("Search")
    desk.write("limit is a string")
    desk.page.wait_for_selector(".rows li:only-child")
    desk.reach("11")
    desk.press("Enter")
    desk.sees("No feedback yet.")
    desk.press("g")
    desk.sees("Reward +1.00")
    desk.press("u")
    desk.sees("No feedback yet.")


def test_read_the_figures_of_a_run(desk: Desk) -> None:
    desk.view("Learning")
    desk.page.wait_for_selector(".plot[aria-label^='Loss: 1.00'] canvas")
    desk.reach("As figures")
    desk.press("Enter")
    desk.sees("0.11", "figure")


def test_start_a_run(desk: Desk) -> None:
    desk.view("Learning")
    desk.reach("Train now")
    desk.press("Enter")
    desk.sees("A training run is being prepared.")


def test_stop_a_run(desk: Desk) -> None:
    progress = {"phase": "draw", "step": 120, "steps": 256, "seconds_left": 200.0}
    with store.connect(desk.home.database) as db:
        run = db.start_run(Run("tiny", "", "auto", {}, seed=0, parent=1, pid=os.getpid(), progress=progress))
    desk.view("Learning")
    desk.sees("120 of 256, about 3 min left in this phase")
    desk.reach("Stop")
    desk.press("Enter")
    desk.sees(f"Resume run {run.id}")


def test_roll_a_version_back(desk: Desk) -> None:
    desk.view("Versions")
    desk.reach("Roll back")
    desk.press("Enter")
    desk.sees("The base model is live", "#live")
    with store.connect(desk.home.database) as db:
        assert db.live().number == 0
