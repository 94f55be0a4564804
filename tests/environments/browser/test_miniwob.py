"""Real pages in a real Chromium: seen as a tree or a picture, acted on, and rewarded by the page."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright")

from clawback.environments import play, policies, registry
from clawback.environments.tools.calls import Call, message
from clawback.environments.validate import validate
from clawback.errors import NotFound, UsageError
from clawback.extensions.browser import chromium
from tests.environments.playing import walk

pytestmark = pytest.mark.skipif(
    not chromium.program() or not find_spec("miniwob"), reason="Chromium or the miniwob wheel is not here"
)


def bid(seen: Any, pattern: str) -> str:
    text = seen["content"] if isinstance(seen["content"], str) else seen["content"][0]["text"]
    found = re.search(rf"\[(\d+)\] {pattern}", text)
    assert found, text
    return found[1]


def solve(messages: list[Any], tools: Any) -> str:
    """Does what the simplest pages ask."""
    goal, seen = str(messages[1]["content"]), messages[-1]
    if wanted := re.search(r'Enter "(.+?)" into', goal):
        done = f'value="{wanted[1]}"' in str(seen["content"])
        return f"click('{bid(seen, 'button')}')" if done else f"fill('{bid(seen, 'textbox')}', '{wanted[1]}')"
    wanted = re.search(r'Click on the "(.+?)" button', goal)
    button = f'button "{re.escape(wanted[1])}"' if wanted else "button"
    return f"click('{bid(seen, button)}')"


def use(scene: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(120):
            await scene()

    asyncio.run(whole())


@pytest.mark.slow
def test_pages_are_solved_by_what_the_tree_says_many_at_once_and_alike() -> None:
    found = registry.find("miniwob:click-test,click-button,enter-text?held_out=1")
    tasks = found.tasks("test")
    assert [t.data["page"] for t in tasks[:3]] == ["click-test", "click-button", "enter-text"]
    played = asyncio.run(play.play(found, tasks, policies.Script(solve), play.PlaySettings(together=4)))
    assert [p.reward for p in played] == [1.0] * 3
    again = asyncio.run(
        play.play(found, tasks, policies.Script(solve), play.PlaySettings(together=1))
    )  # another loop, another browser
    assert [p.messages for p in again] == [p.messages for p in played]


@pytest.mark.slow
def test_what_goes_wrong_is_told_and_costs_only_a_turn() -> None:
    async def scene() -> None:
        found = registry.find("miniwob:click-button?turns=4")
        try:
            replies = ["Hmm.", "click('999')", "fill('1', 'x')", "noop()"]
            opened, steps = await walk(found, found.tasks("train")[0], replies)
            assert "Goal: Click on" in opened.messages[-1]["content"]
            assert steps[0].info == {"unparsable": True}
            assert "There is no action" in steps[0].messages[0]["content"]
            assert steps[1].info["error"]
            assert (steps[-1].done, steps[-1].reward, steps[-1].info["truncated"]) == (True, 0.0, True)
        finally:
            await found.aclose()  # type: ignore[attr-defined]
            await found.aclose()  # type: ignore[attr-defined]

    use(scene)


@pytest.mark.slow
def test_a_picture_is_an_image_part_and_places_can_be_clicked() -> None:
    async def scene() -> None:
        found = registry.find("miniwob:click-test?observe=both&as_tools=true")
        try:
            opened, _ = await walk(found, found.tasks("train")[0], [])
            text, image = opened.messages[-1]["content"]
            assert text["type"] == "text"
            png = base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,"))
            assert png.startswith(b"\x89PNG")
            assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (160, 210)
            assert {t["function"]["name"] for t in opened.tools} >= {"click", "mouse_click"}
            click = message([Call("click", {"bid": bid(opened.messages[-1], "button")})])
            _, [step] = await walk(found, found.tasks("train")[0], [click])
            assert (step.reward, step.done) == (1.0, True)
            assert [c.problem for c in await validate(found, found.tasks("train")[:1])] == [""]
        finally:
            await found.aclose()  # type: ignore[attr-defined]

    use(scene)


def test_a_page_reads_nothing_beyond_its_folder(tmp_path: Path) -> None:
    (tmp_path / "html" / "miniwob").mkdir(parents=True)
    (tmp_path / "secret.js").write_text("window.found = 'secret';")
    (tmp_path / "html" / "miniwob" / "spy.html").write_text(
        """<html><body><div id="query"></div><script>var WOB_TASK_READY = true, WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0, WOB_REWARD_REASON = null;
        Math.seedrandom = () => {}; var core = {startEpisodeReal: () => {}, getUtterance: () => "Spy."};</script>
        <script src="../../secret.js"></script><p id="p">nothing</p>
        <script>document.getElementById("p").textContent = window.found || "nothing";
        fetch("http://127.0.0.1:9/").catch(() => { document.getElementById("p").textContent += " and no network"; });</script></body></html>"""
    )

    async def scene() -> None:
        found = registry.find(f"miniwob:spy?pages={tmp_path / 'html'}")
        try:
            _, [step] = await walk(found, found.tasks("train")[0], ["noop(200)"])
            assert '"nothing and no network"' in step.messages[0]["content"]
        finally:
            await found.aclose()  # type: ignore[attr-defined]

    use(scene)


def test_wrong_names_and_settings_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="Did you mean `miniwob:click-test`"):
        registry.find("miniwob:click-tess")
    with pytest.raises(UsageError, match="observe is one of"):
        registry.find("miniwob:click-test?observe=smell")
    with pytest.raises(NotFound, match="pages are not here"):
        registry.find(f"miniwob:click-test?pages={tmp_path}")
