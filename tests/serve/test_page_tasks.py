"""Tasks of a person on the page, by keyboard alone in a real Chromium, at the width of a desk and of a telephone; and what axe finds there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from clawback import config, jobs, store
from clawback.paths import Home
from clawback.records import Run, Turn
from clawback.release import prompted
from clawback.serve import wire

from .conftest import Running, sse
from .page import fits, go, ratings, user

pytestmark = pytest.mark.slow
NAME = "(e => e.ariaLabel || e.labels?.[0]?.innerText || e.innerText || e.placeholder || '')(document.activeElement)"
SCORES = [{"prompt": f"Question {n}?", "response": f"Answer {n}.", "score": 1 + n % 5} for n in range(10)]


class Speaker:
    """An upstream that lists one model and answers each question with the next number."""

    def __init__(self) -> None:
        self.questions: list[list[dict[str, str]]] = []

    def says(self, *_: Any) -> None:
        """It has its own answers."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        body, kind = await wire.body(receive), b"application/json"
        answer = json.dumps({"data": [{"id": "some-model"}]}).encode()
        if scope["method"] == "POST":
            self.questions.append(json.loads(body)["messages"])
            text = f"Answer **{len(self.questions)}** to {self.questions[-1][-1]['content']}"
            pieces = [{"choices": [{"index": 0, "delta": {"content": text}}], "model": "some-model"}]
            pieces.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})  # type: ignore[dict-item]
            answer, kind = sse(*pieces, "[DONE]"), b"text/event-stream"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": answer})


@pytest.fixture
def upstream() -> Speaker:
    return Speaker()


@dataclass
class Desk:
    """The page with a keyboard before it, the home behind it, and who answers."""

    page: Any
    home: Home
    speaker: Speaker
    folder: Path

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def write(self, text: str) -> None:
        self.page.keyboard.type(text)

    def sees(self, text: str, within: str = "body") -> None:
        self.page.wait_for_selector(f"{within} >> text={text} >> visible=true")

    def focused(self) -> str:
        return " ".join(str(self.page.evaluate(f"() => {NAME}")).split())

    def reach(self, name: str, key: str = "Tab") -> None:
        """To a control, by the Tab key from where the focus is."""
        for _ in range(120):
            self.press(key)
            if self.focused().startswith(name):
                return
        raise AssertionError(f"{name!r} cannot be reached with {key}; the focus is on {self.focused()!r}")

    def view(self, name: str) -> None:
        """To a view, by the menu and, where it is not in it, by More."""
        self.press("m")
        tabs = self.page.locator("nav a").all_inner_texts()
        tabs = [" ".join(one.split()) for one in tabs]
        tab = name if name in tabs else "More"
        step = "Tab" if tabs.index(tab) > tabs.index(self.focused()) else "Shift+Tab"
        for _ in tabs:
            if self.focused() == tab:
                break
            self.press(step)
        self.press("Enter")
        self.ready(tab)
        if tab != name:
            self.reach(name)
            self.press("Enter")
            self.ready(name)

    def ready(self, title: str) -> None:
        self.page.wait_for_function(
            "title => document.title.startsWith(title) && !document.getElementById('view').ariaBusy",
            arg=title,
        )

    def open_answer(self, prompt: str) -> None:
        """The answer to this prompt among those that wait."""
        self.sees("1 of 5")
        while prompt not in self.page.inner_text(".prompt"):
            self.press("ArrowRight")

    def kinds(self) -> list[str]:
        """What the person said here, in its order, without what was taken back."""
        with store.connect(self.home.database) as db:
            return [f.kind for f in db.feedback() if f.source == "web" and f.undone_at is None]


TASKS: dict[str, Callable[[Desk], None]] = {}


def task(function: Callable[[Desk], None]) -> Callable[[Desk], None]:
    TASKS[function.__name__] = function
    return function


# ------------------------------------------------------------------------------------------------------- rating


@task
def call_an_answer_good_and_see_the_next(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("g")
    desk.sees("2 of 5")
    desk.sees("4 good, 1 bad")
    assert [value for _, value in ratings(desk.home)] == [1.0]


@task
def call_an_answer_bad(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("b")
    desk.sees("Saved: bad.")
    assert [value for _, value in ratings(desk.home)] == [-1.0]


@task
def give_scores(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("8")
    desk.sees("2 of 5")
    desk.press("0")
    desk.sees("3 of 5")
    assert [value for _, value in ratings(desk.home)] == [0.56, 1.0]


@task
def undo_a_mistap_after_the_next_answer_is_shown(desk: Desk) -> None:
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


@task
def undo_two_things_the_last_first(desk: Desk) -> None:
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


@task
def undo_from_the_message_that_says_what_was_saved(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("g")
    desk.page.locator("#said button:has-text('Undo')").focus()
    desk.press("Enter")
    desk.sees("1 of 5")
    assert desk.kinds() == []


@task
def edit_the_answer_in_its_place(desk: Desk) -> None:
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


@task
def leave_the_editor_and_find_the_draft_again(desk: Desk) -> None:
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


@task
def write_a_remark(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("r")
    desk.write("Too long.")
    assert desk.page.locator(".answer").is_visible(), "the answer can be read meanwhile"
    desk.press("Control+Enter")
    desk.sees("Saved: your remark.")
    assert desk.kinds() == ["critique"]


@task
def read_the_conversation_before(desk: Desk) -> None:
    desk.open_answer("How do I sort?")
    desk.press("c")
    desk.sees("What can I do?", ".messages")


@task
def read_the_steps_of_an_agent(desk: Desk) -> None:
    desk.open_answer("Why does the test fail?")
    desk.press("m")
    desk.reach("2 steps before the answer")
    desk.press("Enter")
    desk.reach("calls Read")
    desk.press("Enter")
    desk.sees("tests/test_api.py")


@task
def go_back_and_forth(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("ArrowRight", "ArrowRight")
    desk.sees("3 of 5")
    desk.press("ArrowLeft")
    desk.sees("2 of 5")


@task
def see_code_in_colours(desk: Desk) -> None:
    desk.open_answer("How do I sort?")
    desk.page.wait_for_selector(".code .token-func:has-text('sorted')")
    assert desk.page.inner_text(".code pre code").strip() == "sorted(turns, key=len)"


# ------------------------------------------------------------------------------------------------------- A or B


def to_pairs(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("m")
    desk.reach("A or B")
    desk.press("Enter")


@task
def choose_the_better_of_two_and_take_it_back(desk: Desk) -> None:
    to_pairs(desk)
    desk.sees("Answer A")
    desk.press("b")
    desk.sees("Saved: B is better.")
    assert desk.kinds() == ["preference"]
    desk.press("u")
    desk.sees("Answer A")
    assert desk.kinds() == []


@task
def draw_two_answers_where_none_wait(desk: Desk) -> None:
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


def say_in_chat(desk: Desk, text: str, number: int) -> None:
    desk.write(text)
    desk.press("Enter")
    desk.sees(f"to {text}", ".chat .assistant")
    desk.page.wait_for_selector(f".chat .assistant:nth-of-type({2 * number}) .rater")


def to_chat(desk: Desk) -> None:
    desk.view("Chat")
    desk.page.locator(".compose textarea").focus()


@task
def ask_in_chat_and_rate_with_the_keys_that_are_shown(desk: Desk) -> None:
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


@task
def have_it_answered_again(desk: Desk) -> None:
    to_chat(desk)
    say_in_chat(desk, "Which?", 1)
    desk.press("Escape", "a")
    desk.sees("Answer 2", ".chat .assistant")
    assert desk.page.locator(".chat .assistant").count() == 1
    assert desk.speaker.questions[0] == desk.speaker.questions[1]


@task
def edit_an_answer_of_the_chat(desk: Desk) -> None:
    to_chat(desk)
    say_in_chat(desk, "Which?", 1)
    desk.press("Escape", "e", "Control+a")
    desk.write("This one.")
    desk.press("Control+Enter")
    desk.sees("Saved: your edit.")
    assert desk.kinds() == ["edit"]


@task
def copy_an_answer(desk: Desk) -> None:
    desk.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    to_chat(desk)
    say_in_chat(desk, "Which?", 1)
    desk.reach("Copy the answer", "Shift+Tab")
    desk.press("Enter")
    desk.page.wait_for_selector("button:has-text('Copied')")
    assert desk.page.evaluate("() => navigator.clipboard.readText()") == "Answer **1** to Which?"


@task
def go_back_to_an_earlier_conversation(desk: Desk) -> None:
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


@task
def set_a_system_prompt(desk: Desk) -> None:
    to_chat(desk)
    desk.reach("System prompt", "Shift+Tab")
    desk.press("Enter")
    desk.reach("System prompt")
    desk.write("Be brief.")
    desk.reach("Your message")
    say_in_chat(desk, "Which?", 1)
    assert desk.speaker.questions[-1][0] == {"role": "system", "content": "Be brief."}


@task
def see_which_model_answers(desk: Desk) -> None:
    to_chat(desk)
    desk.reach("Who answers", "Shift+Tab")
    assert desk.page.evaluate("() => document.activeElement.selectedOptions[0].text") == "some-model"


# ---------------------------------------------------------------------------------------- turns, learning, versions


@task
def find_a_turn_and_rate_it(desk: Desk) -> None:
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


@task
def read_the_figures_of_a_run(desk: Desk) -> None:
    desk.view("Learning")
    desk.page.wait_for_selector(".plot[aria-label^='Loss: 1.00'] canvas")
    desk.reach("As figures")
    desk.press("Enter")
    desk.sees("0.11", "figure")


@task
def start_a_run(desk: Desk) -> None:
    desk.view("Learning")
    desk.reach("Train now")
    desk.press("Enter")
    desk.sees("A training run is being prepared.")


@task
def stop_a_run(desk: Desk) -> None:
    progress = {"phase": "draw", "step": 120, "steps": 256, "seconds_left": 200.0}
    with store.connect(desk.home.database) as db:
        run = db.start_run(Run("tiny", "", "auto", {}, seed=0, parent=1, pid=os.getpid(), progress=progress))
    desk.view("Learning")
    desk.sees("120 of 256, about 3 min left in this phase")
    desk.reach("Stop")
    desk.press("Enter")
    desk.sees(f"Resume run {run.id}")


@task
def roll_a_version_back(desk: Desk) -> None:
    desk.view("Versions")
    desk.reach("Roll back")
    desk.press("Enter")
    desk.sees("The base model is live", "#live")
    with store.connect(desk.home.database) as db:
        assert db.live().number == 0


# -------------------------------------------------------------------------------------------------- rules, prompts


def add_rule(desk: Desk) -> int:
    with store.connect(desk.home.database) as db:
        turn = db.add_turn(Turn("broken", (user("Which?"),), "It is.\nSorry about that.", model="opus")).id
    desk.view("Rules")
    desk.reach("What do you want of every answer?")
    desk.write("Never apologise.")
    desk.press("Enter")
    desk.sees("code checks it")
    return turn


@task
def add_a_rule_and_read_a_breach(desk: Desk) -> None:
    turn = add_rule(desk)
    desk.reach("Receipts")
    desk.press("Enter")
    desk.reach(f"turn {turn} ·")
    desk.press("Enter")
    desk.sees(f"Turn {turn}", ".detail")


@task
def withdraw_a_rule_and_keep_it_after_all(desk: Desk) -> None:
    add_rule(desk)
    desk.reach("Withdraw it")
    desk.press("Enter")
    desk.sees("1 rule withdrawn")
    desk.press("m")
    desk.reach("1 rule withdrawn")
    desk.press("Enter")
    desk.reach("Yes, keep it")
    desk.press("Enter")
    desk.sees("believed", ".rule")


@task
def accept_a_prompt(desk: Desk) -> None:
    with store.connect(desk.home.database) as db:
        prompted.propose(db, "Answer briefly.", parent=db.version(1), origin={"author": "hand"})
    desk.view("Prompts")
    desk.press("ArrowDown")
    desk.reach("Accept 1 sentence")
    desk.press("Enter")
    desk.sees("Version 2 is live", "#live")


# -------------------------------------------------------------------------------------------------------- set up


@task
def copy_the_command_that_connects_an_agent(desk: Desk) -> None:
    desk.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    desk.view("Connect your agent")
    desk.reach("Copy: export OPENAI_BASE_URL=")
    desk.press("Enter")
    desk.page.wait_for_selector("button:has-text('Copied')")
    address = desk.page.evaluate("() => location.origin")
    assert (
        desk.page.evaluate("() => navigator.clipboard.readText()") == f"export OPENAI_BASE_URL={address}/v1"
    )


def choose(desk: Desk, file: Path) -> None:
    desk.page.on("filechooser", lambda chooser: chooser.set_files(file))
    desk.view("Import and export")
    desk.reach("A file")
    desk.press("Enter")


@task
def import_a_file_after_a_look_at_what_it_holds(desk: Desk) -> None:
    file = desk.folder / "scores.jsonl"
    file.write_text("\n".join(map(json.dumps, SCORES)))
    with store.connect(desk.home.database) as db:
        before = db.count_turns()
    choose(desk, file)
    desk.sees("from 1 to 5")
    assert desk.focused() == "Store this"
    with store.connect(desk.home.database) as db:
        assert db.count_turns() == before, "nothing is stored yet"
    desk.press("Enter")
    desk.sees("10 turns and 10 pieces of feedback imported", "#view")
    with store.connect(desk.home.database) as db:
        assert db.count_turns() == before + 10


@task
def leave_a_file_that_is_not_understood(desk: Desk) -> None:
    file = desk.folder / "colours.json"
    file.write_text('[{"colour": "red"}]')
    choose(desk, file)
    desk.sees("in no format that is known")
    assert desk.focused() == "Another file"
    desk.press("Enter")
    desk.page.wait_for_selector("#file")


@task
def download_the_ratings(desk: Desk) -> None:
    desk.view("Import and export")
    desk.reach("Download: Thumbs for TRL")
    with desk.page.expect_download() as download:
        desk.press("Enter")
    rows = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert sorted(row["label"] for row in rows) == [False, True, True, True]
    assert download.value.suggested_filename == "clawback-trl-kto.jsonl"


@task
def change_a_setting_and_go_back_to_its_default(desk: Desk) -> None:
    desk.view("Models and settings")
    desk.reach("training.threshold")
    desk.press("Control+a")
    desk.write("48")
    desk.press("Tab")
    desk.sees("training.threshold is 48.")
    assert config.load(desk.home.config).training.threshold == 48
    desk.reach("Default of training.threshold", "Shift+Tab")
    desk.press("Enter")
    desk.sees("training.threshold is 32.")


@task
def read_why_a_value_is_refused(desk: Desk) -> None:
    desk.view("Models and settings")
    desk.reach("training.threshold")
    desk.press("Control+a")
    desk.write("many")
    desk.press("Tab")
    desk.sees("takes a whole number from 1")
    assert desk.page.input_value("#training-threshold") == "32"


@task
def read_what_is_wrong(desk: Desk) -> None:
    desk.home.database.chmod(0o644)
    desk.view("Health")
    desk.sees("1 problem")
    desk.sees("others can read")
    assert desk.page.locator("#view .card").count() <= 2, "what is well is folded"


# ------------------------------------------------------------------------------------------------------- the frame


@task
def keep_what_last_nights_run_brought(desk: Desk) -> None:
    desk.sees("4 ratings, version 1. Keep it?")
    desk.press("y")
    desk.sees("Version 1 stays.")
    desk.page.wait_for_selector("#news", state="hidden")


@task
def go_back_to_the_version_before(desk: Desk) -> None:
    desk.sees("4 ratings, version 1. Keep it?")
    desk.press("n")
    desk.sees("The base model is live", "#live")


@task
def read_the_keys(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("?")
    desk.sees("undo the last thing that you said", "dialog")
    desk.press("Escape")
    desk.press("g")
    desk.sees("2 of 5")


@task
def skip_the_menu(desk: Desk) -> None:
    desk.page.evaluate("() => document.activeElement.blur()")
    desk.reach("Skip to the content", "Shift+Tab")
    desk.press("Enter")
    assert desk.page.evaluate("() => document.activeElement.id") == "view"


@task
def see_a_tab_before_its_data(desk: Desk) -> None:
    desk.sees("1 of 5")
    waiting: list[Any] = []
    desk.page.route("**/api/health", lambda route: waiting.append(route))
    desk.page.evaluate("() => { location.hash = 'health'; }")
    desk.sees("Loading …")
    assert desk.page.inner_text("h1") == "Health"
    assert desk.page.locator(".answer").count() == 0, "the view before is gone"
    waiting[0].continue_()
    desk.sees("All is well")


@task
def be_told_what_failed_and_try_again(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.page.route(
        "**/api/rules", lambda route: route.fulfill(status=503, json={"error": "The database is locked."})
    )
    desk.page.evaluate("() => { location.hash = 'rules'; }")
    desk.sees("The database is locked.", "#view")
    desk.page.unroute("**/api/rules")
    desk.press("m")
    desk.reach("Try again")
    desk.press("Enter")
    desk.sees("There are no rules yet.")


@pytest.mark.parametrize("name", TASKS)
def test_a_task(
    name: str, page: Any, home: Home, upstream: Speaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "start", lambda *_, **__: True)  # nothing is trained here
    desk = Desk(page, home, upstream, tmp_path)
    TASKS[name](desk)
    assert fits(page)


# ------------------------------------------------------------------------------------------------------------ axe


def axe() -> str:
    """The program text of axe-core: the file that ``$CLAWBACK_AXE`` names, or the one of axe-playwright-python."""
    spec = find_spec("axe_playwright_python")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    files = (
        [Path(os.environ["CLAWBACK_AXE"])]
        if "CLAWBACK_AXE" in os.environ
        else [f / "axe.min.js" for f in folders]
    )
    if not files:
        pytest.skip("axe-core is not here: pip install --no-deps axe-playwright-python")
    return files[0].read_text()


RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
SMALL = """() => [...document.querySelectorAll("button, select, input:not([type=checkbox]), summary, nav a, .tiles a")]
    .filter((e) => e.checkVisibility()).map((e) => [e.outerHTML.slice(0, 90), ...["width", "height"].map((s) => Math.round(e.getBoundingClientRect()[s]))])
    .filter(([, width, height]) => width < 44 || height < 44)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_no_view_violates_a_rule_of_axe_and_every_target_has_44_pixels(
    scheme: str,
    width: int,
    home: Home,
    proxy: Running,
    opened: Callable[..., Any],
    upstream: Speaker,
    tmp_path: Path,
) -> None:
    from .page import fill

    program = axe()
    fill(home)
    with store.connect(home.database) as db:
        db.add_turn(Turn("broken", (user("Which?"),), "It is.\nSorry about that.", model="opus"))
        prompted.propose(db, "Answer briefly.", parent=db.version(1), origin={"author": "hand"})
    page = opened(proxy, home, scheme=scheme, width=width)
    desk = Desk(page, home, upstream, tmp_path)
    violations: list[Any] = []

    def check(state: str) -> None:
        page.evaluate(program)
        rows = page.evaluate(
            "async rules => (await axe.run(document, {runOnly: rules})).violations.map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 160))])",
            RULES,
        )
        violations.extend([state, *row] for row in [*rows, *page.evaluate(SMALL)])

    desk.sees("1 of 6")
    desk.press("?")
    check("help")
    desk.press("Escape")
    for key, state in (("e", "an edit"), ("r", "a remark")):
        desk.press(key)
        check(state)
        desk.press("Escape")
    desk.press("g")
    check("a message")
    page.click("button:has-text('A or B')")
    desk.sees("Answer A")
    check("two answers")
    for view in ("turns", "learning", "versions", "prompts", "more", "connect", "files", "setup", "raters", "health", "episodes", "rules"):  # fmt: skip
        go(page, view)
        if view == "turns":
            page.locator(".rowbutton").last.click()
            page.wait_for_selector(".detail h2")
        check(view)
    add_rule(desk)
    desk.reach("Receipts")
    desk.press("Enter")
    desk.sees("Breaches, ")
    check("receipts")
    to_chat(desk)
    say_in_chat(desk, "Which?", 1)
    check("chat")
    assert violations == []
