"""The web page in a real Chromium, by keyboard and mouse."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clawback import paths, store
from clawback.paths import Home
from clawback.records import Turn
from clawback.serve import app as serving

from .conftest import Running

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
UGLY = '<img src=x onerror="document.title=1">\n<script>document.title = 2</script>'


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, trained: Home, running: Callable[[Any], Running]) -> Iterator[Any]:
    with store.connect(trained.database) as db:
        for number in range(3):
            asked = ({"role": "user", "content": f"Tell me about the otter, {number}."},)
            db.add_turn(
                Turn(session="new", messages=asked, response=f"It swims. {number}" if number < 2 else UGLY)
            )
    server = running(serving.make(trained))
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        made = browser.new_page(color_scheme=request.param, viewport={"width": 1200, "height": 800})
        said: list[str] = []
        made.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        made.on("pageerror", lambda error: said.append(str(error)))
        made.goto(f"{server.url}/#token={paths.secret(trained.root / 'token')}")
        made.wait_for_selector("text=What was it worth?")
        yield made
        assert said == [], "nothing went wrong in the browser"
        browser.close()


def ratings(home: Home) -> list[tuple[int, float]]:
    with store.connect(home.database) as db:
        return [(f.turn_id, round(f.value, 2)) for f in db.feedback() if f.source == "web"]


def test_rating_by_keys_alone(page: Any, trained: Home) -> None:
    assert "token=" not in page.url, "it is in no bookmark"
    assert page.inner_text("body").count("onerror") == 1, "markup of a model is shown, not run"
    assert page.title() == "Clawback"
    page.keyboard.press("b")
    page.keyboard.press("ArrowRight")  # saves by itself
    page.wait_for_selector("text=2 of 3")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_selector("text=Saved.")
    assert ratings(trained) == [(15, -1.0), (14, 1.0)]
    page.keyboard.press("q")
    page.wait_for_selector("h1:text('Turns')")


def test_the_slider_and_both_versions(page: Any, trained: Home) -> None:
    page.wait_for_selector("text=Asked again: version 1")
    page.wait_for_selector("text=Asked again: the base model")
    page.fill("input[type=range]", "8")
    page.wait_for_selector("text=8 of 10")
    page.click("button:has-text('Save')")
    page.wait_for_selector("text=Saved.")
    assert ratings(trained) == [(15, 0.56)]


def test_blind_preference_by_mouse(page: Any, trained: Home) -> None:
    page.click("text=Blind")
    page.wait_for_selector("button:has-text('A is better'):enabled")
    assert "version 1" not in page.inner_text("main")
    page.click("button:has-text('A is better')")
    page.click("button:has-text('Save')")
    page.wait_for_selector("text=Saved.")
    with store.connect(trained.database) as db:
        [given] = [f for f in db.feedback() if f.kind == "preference"]
        versions = {db.turn(given.turn_id).version, db.turn(given.other_turn_id).version}
    assert versions == {0, 1}


def test_searching_and_inspecting_turns(page: Any) -> None:
    page.keyboard.press("2")
    page.wait_for_selector("tbody tr:nth-child(10)")
    page.fill("input[type=search]", "swims. 1")
    page.wait_for_selector("tbody tr:only-child")
    page.click("tbody tr")
    page.wait_for_selector("text=Nobody has said anything about it")
    page.click("button:has-text('Good')")
    page.wait_for_selector("text=Reward +1.00")


def test_learning_versions_and_health(page: Any, trained: Home) -> None:
    page.keyboard.press("3")
    page.wait_for_selector("svg[role=img]")
    assert "version 1" in page.text_content("svg title")
    page.keyboard.press("4")
    page.click("button:has-text('Before and after')")
    page.wait_for_selector("text=Before and after: the base model and version 1")
    page.click("button:has-text('Roll back')")
    page.wait_for_selector("text=the base model is live")
    with store.connect(trained.database) as db:
        assert db.live().number == 0
    page.keyboard.press("5")
    page.wait_for_selector("text=settings can be read")
