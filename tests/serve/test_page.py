"""The web page in a real Chromium: by keyboard, mouse and at the width of a telephone, light and dark."""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from clawback import config, paths, pictures, store
from clawback.paths import Home
from clawback.records import Branch, Episode, EpisodeStep, Run, Turn
from clawback.release import prompted
from clawback.serve import app as serving

from .conftest import Running, Upstream, sse
from .page import CODE, HOSTILE, PATIENCE_MS, fits, go, ratings, user

pytestmark = pytest.mark.slow


def test_rating_by_keys_alone_and_the_counts_are_right_at_once(page: Any, home: Home) -> None:
    assert "token=" not in page.url, "it is in no bookmark"
    page.wait_for_selector("text=1 of 5")
    assert "3 good, 1 bad" in page.inner_text("#live")
    page.keyboard.press("b")
    page.wait_for_selector("text=2 of 5")
    page.wait_for_selector("#live:has-text('3 good, 2 bad')")
    page.keyboard.press("8")
    page.wait_for_selector("text=3 of 5")
    page.wait_for_selector("#live:has-text('4 good, 2 bad')")
    assert [value for _, value in ratings(home)] == [-1.0, 0.56]
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector(".score[aria-pressed=true]:has-text('8')")
    page.keyboard.press("u")
    page.wait_for_selector("#live:has-text('3 good, 2 bad')")
    assert [value for _, value in ratings(home)] == [-1.0]
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]:has-text('a score from 1 to 10')")
    page.keyboard.press("Escape")
    page.keyboard.press("m")
    assert page.evaluate("() => document.activeElement.textContent") == "Rate"


def test_a_conversation_is_offered_where_there_is_one(page: Any) -> None:
    offered = {}
    for number in range(1, 6):
        page.wait_for_selector(f"text={number} of 5")
        asked = page.inner_text(".prompt")
        offered[asked] = page.locator("summary:has-text('The conversation before')").count()
        page.keyboard.press("c")
        page.keyboard.press("ArrowRight")
    assert offered["How do I sort?"] == 1
    assert sum(offered.values()) == 1, offered


def test_steps_are_no_answers_but_are_shown_with_the_one_they_led_to(page: Any) -> None:
    page.wait_for_selector("text=1 of 5")
    while "Why does the test fail?" not in page.inner_text(".prompt"):
        page.keyboard.press("ArrowRight")
    page.click("summary:has-text('2 steps before the answer: Read, Bash')")
    page.click("summary:has-text('calls Read')")
    page.wait_for_selector("pre:has-text('tests/test_api.py')")
    assert page.locator(".answer").count() == 1


def test_an_answer_is_markdown_with_its_conversation_and_edits_show_what_changed(
    page: Any, home: Home
) -> None:
    page.wait_for_selector("text=1 of 5")
    while "How do I sort?" not in page.inner_text(".prompt"):
        page.keyboard.press("ArrowRight")
    assert page.inner_text(".code pre code").strip() == "sorted(turns, key=len)"
    assert page.inner_text(".code-head span") == "python"
    assert page.locator(".answer table td").count() == 2
    assert "☑ done" in page.inner_text(".answer")
    page.keyboard.press("c")
    page.wait_for_selector(".messages:has-text('What can I do?')")
    page.keyboard.press("e")
    page.fill("textarea", CODE.replace("len", "str"))
    page.wait_for_selector("ins:has-text('str')")
    assert page.inner_text("del") == "len"
    page.click("button:has-text('Save')")
    page.wait_for_selector("text=Saved: your edit.")
    with store.connect(home.database) as db:
        assert [f.text for f in db.feedback() if f.kind == "edit"] == [CODE.replace("len", "str")]


def test_nothing_that_a_model_wrote_runs(page: Any) -> None:
    page.wait_for_selector("text=1 of 5")
    while "Do harm." not in page.inner_text(".prompt"):
        page.keyboard.press("ArrowRight")
    answer = page.locator(".answer")
    assert answer.locator("script, img, svg, iframe, form, style, math, [onerror], [onload]").count() == 0
    links = answer.locator("a").evaluate_all("(all) => all.map((a) => a.getAttribute('href'))")
    assert all(link.startswith(("http://", "https://")) for link in links)
    assert "<script>" in answer.inner_text(), "it is shown as what it is"
    assert "ran" not in page.title()


def png(colour: tuple[int, int, int]) -> bytes:
    """Eight by eight of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * 8) * 8
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_pictures_are_shown_where_they_came_with_the_turn_and_fetched_from_nowhere(
    home: Home, proxy: Running, opened: Callable[..., Any], chromium: Any
) -> None:
    foreign = [
        {"type": "image_url", "image_url": {"url": address}}
        for address in (
            "https://example.org/a.png",
            "http://127.0.0.1:9/a.png",
            "data:image/svg+xml;base64,PHN2Zy8+",
            "data:text/html;base64,AAAA",
        )
    ]
    red, blue = (pictures.part_of(png(colour)) for colour in ((250, 0, 0), (0, 0, 250)))
    first = {"role": "user", "content": [red, *foreign, {"type": "text", "text": "What is this?"}]}
    talk = (first, {"role": "assistant", "content": "Red."}, {"role": "user", "content": [blue, {"type": "text", "text": "And this?"}]})  # fmt: skip
    with store.connect(home.database) as db:
        number = db.add_turn(Turn("seen", talk, "Blue.")).id
        db.add_turn(Turn("other", ({"role": "user", "content": [red, {"type": "text", "text": "And this?"}]},), "Red."))  # fmt: skip
    page = opened(proxy, home)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_selector("text=1 of 2")
    while "Blue." not in page.inner_text(".answer"):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.prompt img')?.naturalWidth === 8")
    assert page.locator(".prompt img").count() == 1
    assert page.inner_text(".prompt").strip() == "And this?"
    page.keyboard.press("c")
    page.wait_for_function("() => document.querySelector('.messages img')?.naturalWidth === 8")
    assert page.locator(".messages img").count() == 1
    assert "What is this?" in page.inner_text(".messages")
    go(page, "turns")
    page.click(f".rowbutton:has-text('{number} ·')")
    page.wait_for_selector(".detail .card > .message.user img")
    assert page.locator(".detail img").count() == 2
    shown = page.locator("img.seen").evaluate_all("(all) => all.map((one) => one.src.slice(0, 22))")
    assert set(shown) == {"data:image/png;base64,"}
    assert all(url.startswith((proxy.url, "data:image/png")) for url in asked)
    # The same words about two pictures are not two answers to one question.
    go(page, "rate")
    page.click("button:has-text('A or B')")
    page.wait_for_selector("text=No two answers to the same prompt wait for you.")


def test_two_answers_side_by_side(page: Any, home: Home) -> None:
    page.click("button:has-text('A or B')")
    page.wait_for_selector(".pair .answer:nth-child(2)")
    assert "otter" in page.inner_text(".prompt")
    chosen = page.inner_text(".pair .answer:first-child .markdown")
    page.keyboard.press("a")
    page.wait_for_selector("text=Saved:")
    with store.connect(home.database) as db:
        [given] = [f for f in db.feedback() if f.kind == "preference"]
        assert db.turn(given.turn_id).response.startswith(chosen[:3] if "\n" not in chosen else "- It swims")


def test_turns_learning_versions_and_health(page: Any, home: Home) -> None:
    go(page, "turns")
    page.fill("input[type=search]", "limit is a string")
    page.wait_for_selector(".rows li:only-child")
    page.click(".rowbutton")
    page.wait_for_selector("text=No feedback yet.")
    page.click(".detail button.good")
    page.wait_for_selector("text=Reward +1.00")
    go(page, "learning")
    page.wait_for_selector(".plot[aria-label^='Loss: 1.00 → 0.11 over 9 steps'] canvas")
    satisfied = page.get_attribute(".plot[aria-label^='Satisfaction']", "aria-label")
    assert satisfied.endswith("75 % (one version)")
    page.wait_for_selector("button:has-text('Run 1')")
    go(page, "versions")
    card = page.inner_text(".version.live")
    assert "Trained today on 4 ratings, live since today at" in card
    page.click("button:has-text('Roll back')")
    page.wait_for_selector("#live:has-text('the base model is live')")
    with store.connect(home.database) as db:
        assert db.live().number == 0
    go(page, "health")
    page.click("summary:has-text('What was checked')")
    page.wait_for_selector("text=settings can be read")
    width = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], "nothing sticks out sideways"


def test_a_prompt_is_read_accepted_put_live_and_taken_back_by_keyboard(page: Any, home: Home) -> None:
    with store.connect(home.database) as db:
        live = db.version(1)
        prompted.propose(db, "Answer briefly.\n<img src=x onerror=\"document.title='ran'\">", parent=live, origin={"author": "hand"})  # fmt: skip
    go(page, "prompts")
    page.wait_for_selector("text=New sentences that nobody has accepted yet")
    page.keyboard.press("ArrowDown")
    assert "Version 2" in page.evaluate("() => document.activeElement.ariaLabel")
    page.locator("button:has-text('Accept')").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#live:has-text('version 2 is live')")
    with store.connect(home.database) as db:
        assert db.live().number == 2
        assert prompted.unseen(db, db.live()) == []
    page.locator("button:has-text('Roll back')").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#live:has-text('version 1 is live')")
    assert page.title() == "Prompts · Clawback"
    width = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], "nothing sticks out sideways"


def test_a_run_under_way_can_be_watched_and_stopped(page: Any, home: Home) -> None:
    progress = {"phase": "draw", "step": 120, "steps": 256, "seconds_left": 200.0}
    with store.connect(home.database) as db:
        run = db.start_run(Run("tiny", "", "auto", {}, seed=0, parent=1, pid=os.getpid(), progress=progress))
    go(page, "learning")
    page.wait_for_selector("text=120 of 256, about 3 min left in this phase")
    with store.connect(home.database) as db:
        db.add_steps(run.id, [("train", 1, {"loss": 0.5, "reward": 0.1})])
        db.update_run(run.id, progress={"phase": "train", "step": 1, "steps": 4})
    page.wait_for_selector(".plot[aria-label='Loss: 0.50 (one step)']")
    page.click("button:has-text('Stop')")
    page.wait_for_selector(f"button:has-text('Resume run {run.id}')")
    with store.connect(home.database) as db:
        assert db.run(run.id).status == "stopped", "nobody worked on it"


def test_each_view_fits_with_something_open_in_it(page: Any, home: Home) -> None:
    said = (user("SFFF"), {"role": "assistant", "content": "right"})
    tokens = Branch((1, 2), (False, True), (0.0, -0.1))
    played = Episode(
        "lake", "lake/3", 3, said, (tokens,), (EpisodeStep(0, 1, 2, -1.0),), "completed", "fell in"
    )
    with store.connect(home.database) as db:
        db.add_episodes([played])
        prompted.propose(db, "Be brief.", parent=db.version(1), origin={"author": "hand"})
    for view in (
        "rate",
        "turns",
        "learning",
        "versions",
        "prompts",
        "health",
        "more",
        "connect",
        "files",
        "setup",
        "raters",
        "rules",
        "episodes",
    ):
        go(page, view)
        if view in ("turns", "episodes"):
            page.locator(".rowbutton").first.click()
            page.wait_for_selector(".detail h2")
        assert fits(page), view
        if view == "versions":
            assert "A prompt, written by hand today" in page.inner_text("#view"), "and not trained"
    assert [one.inner_text() for one in page.locator(".messages .role").all()] == ["Environment", "Model"]
    page.keyboard.press("?")
    assert page.locator("dialog kbd").first.is_visible(), "a telephone may have a keyboard"


@pytest.mark.parametrize("width", [1400, 1200, 1000, 800, 720])
def test_what_is_live_stands_beside_the_menu_in_two_lines(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_function("() => document.getElementById('live').textContent.includes('good')")
    assert page.evaluate("document.querySelector('header').offsetHeight") < 75
    assert fits(page)


def test_who_comes_without_a_token_is_asked_for_it(home: Home, proxy: Running, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(proxy.url)
    page.wait_for_selector("#token")
    assert fits(page)
    page.fill("#token", paths.secret(home.root / "token"))
    page.keyboard.press("Enter")
    page.wait_for_selector("text=There is no answer to rate")
    context.close()


def test_every_control_has_a_name_and_a_view_its_heading(page: Any) -> None:
    for view in (
        "rate",
        "chat",
        "turns",
        "learning",
        "versions",
        "prompts",
        "health",
        "connect",
        "files",
        "setup",
    ):
        go(page, view)
        assert page.locator("main h1").count() == 1
        nameless = page.locator("button, a, input, textarea, select").evaluate_all(
            "(all) => all.filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map((e) => e.outerHTML)"
        )
        assert nameless == []
        assert page.locator("nav a[aria-current]").count() == 1
    assert page.get_attribute("#said", "aria-live") == "polite"


def test_chatting_and_rating_what_streams_in(
    page: Any, home: Home, upstream: Upstream, request: pytest.FixtureRequest
) -> None:
    go(page, "chat")
    more = threading.Event()
    request.addfinalizer(more.set)
    piece = [
        sse({"choices": [{"index": 0, "delta": {"content": text}}], "model": "some-model"})
        for text in ("Otters **swim**", f" and play. {HOSTILE[1]}")
    ]
    end = sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]")
    upstream.says(piece[0], more, piece[1], end, kind="text/event-stream")
    page.fill(".compose textarea", "What do otters do?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".chat strong:has-text('swim')")
    more.set()
    page.click(".chat .rater .good")
    page.wait_for_selector("text=Saved: good.")
    with store.connect(home.database) as db:
        [turn] = [t for t in db.turns(limit=5) if t.prompt == "What do otters do?"]
        assert turn.session.startswith("page-")
        assert turn.kind == "main"
    assert ratings(home) == [(turn.id, 1.0)]
    assert "ran" not in page.title()
    secret = paths.secret(home.root / "token")
    assert not any(secret in f"{headers} {body}" for _, _, headers, body in upstream.got), (
        "the token stays here"
    )
    go(page, "turns")
    go(page, "chat")
    page.wait_for_selector(".chat .good[aria-pressed=true]")


def test_a_tap_that_the_server_cannot_take_is_kept_and_counts_once(page: Any, home: Home) -> None:
    page.wait_for_selector("text=1 of 5")
    page.route("**/feedback", lambda route: route.abort())
    page.keyboard.press("g")
    page.wait_for_selector("text=Your rating is kept here and sent again.")
    assert ratings(home) == []
    page.unroute("**/feedback")
    page.wait_for_selector("text=The ratings that were waiting are saved.")
    assert [value for _, value in ratings(home)] == [1.0]


def test_both_versions_on_the_embedded_model(
    trained: Home, running: Callable[[Any], Running], opened: Callable[..., Any]
) -> None:
    with store.connect(trained.database) as db:
        db.add_turn(Turn("new", (user("Tell me about the otter."),), "It swims."))
    page = opened(running(serving.make(trained, config.ServeSection())), trained)
    page.click("button:has-text('Ask both versions again')")
    page.wait_for_selector("text=Asked again: version 1")
    page.wait_for_selector("text=Asked again: the base model")
    page.click("button:has-text('A or B')")
    page.click("button:has-text('A is better'):enabled")
    page.wait_for_selector("text=Saved:")
    with store.connect(trained.database) as db:
        [given] = [f for f in db.feedback() if f.kind == "preference"]
        assert {db.turn(given.turn_id).version, db.turn(given.other_turn_id).version} == {0, 1}
    go(page, "chat")
    page.fill(".compose textarea", "Tell me about the owl.")
    page.click("button:has-text('Send')")
    page.wait_for_selector(".chat .rater")
    assert page.inner_text(".chat .assistant .role") == "Version 1"
    go(page, "versions")
    page.click("button:has-text('Before and after')")
    page.wait_for_selector("text=Before and after: the base model and version 1")


def test_a_rule_is_added_and_a_breach_is_one_click_from_its_turn(page: Any, home: Home) -> None:
    with store.connect(home.database) as db:
        turn = db.add_turn(Turn("broken", (user("Which?"),), "It is.\nSorry about that.", model="opus")).id
    go(page, "rules")
    page.fill("#rule", "Never apologise.")
    page.click("button:has-text('Add the rule')")
    card = page.locator("section[aria-label='Rule 1']")
    card.locator("text=code checks it").wait_for()
    card.locator("button:has-text('Receipts')").click()
    card.locator(".breaches a:has-text('Line 2: Sorry about that.')").click()
    page.wait_for_selector(f".detail h2:has-text('Turn {turn}')")
    go(page, "rules")
    page.locator("section[aria-label='Rule 1'] button:has-text('Withdraw it')").click()
    page.click("summary:has-text('1 rule withdrawn')")
    page.locator("section[aria-label='Rule 1'] button:has-text('Yes, keep it')").click()
    page.wait_for_selector("section[aria-label='Rule 1'] .badge:has-text('believed')")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(("scheme", "width"), [("dark", 1200), ("light", 400)])
def test_an_invited_rater_rates_and_takes_back_and_sees_nothing_else(
    home: Home, proxy: Running, chromium: Any, scheme: str, width: int
) -> None:
    with store.connect(home.database) as db:
        numbers = [db.add_turn(Turn("s", (user(f"Question {n}?"),), f"Answer {n}.")).id for n in range(3)]
        token = db.invite("anna", "rater")
        db.assign([("anna", number) for number in numbers])
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{proxy.url}/#token={token}")
    page.wait_for_selector("text=1 of 3 · 0 done")
    page.keyboard.press("g")
    page.wait_for_selector("text=2 of 3 · 1 done")
    page.keyboard.press("u")
    page.wait_for_selector("text=1 of 3 · 0 done")
    page.keyboard.press("r")
    page.keyboard.type("Too long.")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("text=Saved: your remark.")
    assert page.locator("nav a").all_inner_texts() == ["Rate"]
    assert fits(page)
    with store.connect(home.database) as db:
        standing = [(f.kind, f.source) for f in db.feedback() if f.undone_at is None]
    assert standing == [("critique", "rater:anna")]
    context.close()
