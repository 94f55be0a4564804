"""Rules, files, settings and the frame of the page, by keyboard alone in a real Chromium; and what axe finds in every view."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from clawback import config, store
from clawback.feedback.rule_consent import may_be_said
from clawback.paths import Home
from clawback.records import Rule, Turn
from clawback.release import prompted

from .conftest import Running
from .desk import Desk, Speaker, add_rule, say_in_chat, to_chat
from .page import fill, go, user

pytestmark = pytest.mark.slow
SCORES = [{"prompt": f"Question {n}?", "response": f"Answer {n}.", "score": 1 + n % 5} for n in range(10)]


@pytest.fixture
def upstream() -> Speaker:
    return Speaker()


# -------------------------------------------------------------------------------------------------- rules, prompts


def test_add_a_rule_and_read_a_breach(desk: Desk) -> None:
    turn = add_rule(desk)
    desk.reach("Receipts")
    desk.press("Enter")
    desk.reach(f"turn {turn} ·")
    desk.press("Enter")
    desk.sees(f"Turn {turn}", ".detail")


def test_withdraw_a_rule_and_keep_it_after_all(desk: Desk) -> None:
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


def test_say_yes_to_a_rule_that_waits(desk: Desk) -> None:
    with store.connect(desk.home.database) as db:
        db.add_rule(Rule("Answer in lists.", author="agent:claude-code", status="believed"))
    desk.page.reload()
    desk.sees("Your ratings speak for “Answer in lists”.")
    desk.reach("Yes, keep it")
    desk.press("Enter")
    desk.sees("Rule 1 counts.")
    desk.page.wait_for_selector("text=Your ratings speak", state="detached")
    with store.connect(desk.home.database) as db:
        assert may_be_said(db.rule(1))


def test_accept_a_prompt(desk: Desk) -> None:
    with store.connect(desk.home.database) as db:
        prompted.propose(db, "Answer briefly.", parent=db.version(1), origin={"author": "hand"})
    desk.view("Prompts")
    desk.press("ArrowDown")
    desk.reach("Accept 1 sentence")
    desk.press("Enter")
    desk.sees("Version 2 is live", "#live")


# -------------------------------------------------------------------------------------------------------- set up


def test_copy_the_command_that_connects_an_agent(desk: Desk) -> None:
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


def test_import_a_file_after_a_look_at_what_it_holds(desk: Desk) -> None:
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


def test_leave_a_file_that_is_not_understood(desk: Desk) -> None:
    file = desk.folder / "colours.json"
    file.write_text('[{"colour": "red"}]')
    choose(desk, file)
    desk.sees("in no format that is known")
    assert desk.focused() == "Another file"
    desk.press("Enter")
    desk.page.wait_for_selector("#file")


def test_download_the_ratings(desk: Desk) -> None:
    desk.view("Import and export")
    desk.reach("Download: Thumbs for TRL")
    with desk.page.expect_download() as download:
        desk.press("Enter")
    rows = [json.loads(line) for line in Path(download.value.path()).read_text().splitlines()]
    assert sorted(row["label"] for row in rows) == [False, True, True, True]
    assert download.value.suggested_filename == "clawback-trl-kto.jsonl"


def test_change_a_setting_and_go_back_to_its_default(desk: Desk) -> None:
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


def test_read_why_a_value_is_refused(desk: Desk) -> None:
    desk.view("Models and settings")
    desk.reach("training.threshold")
    desk.press("Control+a")
    desk.write("many")
    desk.press("Tab")
    desk.sees("takes a whole number from 1")
    assert desk.page.input_value("#training-threshold") == "32"


def test_read_what_is_wrong(desk: Desk) -> None:
    desk.home.database.chmod(0o644)
    desk.view("Health")
    desk.sees("1 problem")
    desk.sees("others can read")
    assert desk.page.locator("#view .card").count() <= 2, "what is well is folded"


# ------------------------------------------------------------------------------------------------------- the frame


def test_keep_what_last_nights_run_brought(desk: Desk) -> None:
    desk.sees("4 ratings, version 1. Keep it?")
    desk.press("y")
    desk.sees("Version 1 stays.")
    desk.page.wait_for_selector("#news", state="hidden")


COVERED = """() => {
    const over = document.getElementById("said").getBoundingClientRect();
    return [...document.querySelectorAll("#news button")].map((b) => [b.innerText, b.getBoundingClientRect()])
        .filter(([, b]) => b.left < over.right && over.left < b.right && b.top < over.bottom && over.top < b.bottom).map(([text]) => text);
}"""


def test_read_the_news_while_a_message_is_shown(desk: Desk) -> None:
    desk.sees("4 ratings, version 1. Keep it?")
    desk.sees("1 of 5")
    desk.press("g")
    desk.sees("Saved: good.")
    desk.page.wait_for_function(
        "() => document.getElementById('said').getAnimations().every((a) => a.playState === 'finished')"
    )
    assert desk.page.evaluate(COVERED) == []


def test_go_back_to_the_version_before(desk: Desk) -> None:
    desk.sees("4 ratings, version 1. Keep it?")
    desk.press("n")
    desk.sees("The base model is live", "#live")


def test_read_the_keys(desk: Desk) -> None:
    desk.sees("1 of 5")
    desk.press("?")
    desk.sees("undo the last thing that you said", "dialog")
    desk.press("Escape")
    desk.press("g")
    desk.sees("2 of 5")


def test_skip_the_menu(desk: Desk) -> None:
    desk.page.evaluate("() => document.activeElement.blur()")
    desk.reach("Skip to the content", "Shift+Tab")
    desk.press("Enter")
    assert desk.page.evaluate("() => document.activeElement.id") == "view"


def test_see_a_tab_before_its_data(desk: Desk) -> None:
    desk.sees("1 of 5")
    waiting: list[Any] = []
    desk.page.route("**/api/health", lambda route: waiting.append(route))
    desk.page.evaluate("() => { location.hash = 'health'; }")
    desk.sees("Loading …")
    assert desk.page.inner_text("h1") == "Health"
    assert desk.page.locator(".answer").count() == 0, "the view before is gone"
    waiting[0].continue_()
    desk.sees("All is well")


def test_be_told_what_failed_and_try_again(desk: Desk) -> None:
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
