"""MiniWoB++'s pages, from the ``miniwob`` wheel, as tasks of the browser agent.

The wheel is used as data: it is located, not imported (importing it needs Selenium), so ``pip install
--no-deps miniwob`` is enough. A page draws its problem from the seed; time plays no part in the reward, which
is 1 where the page reports more than 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clawback import installed
from clawback.environments import world_helpers
from clawback.environments.core import EnvironmentFailure, Observation, Split, Step, Task, Tool
from clawback.environments.tools import calls as reading
from clawback.errors import NotFound, UsageError
from clawback.extensions.browser import actions, page_view
from clawback.extensions.browser.chromium import Chromium
from clawback.records import JsonObject, Message

TURNS = 10
WIDTH, HEIGHT = 160, 210
EPISODE_MILLISECONDS = 100_000_000
"""The pages' own clock would end an episode after ten seconds, and pay less the later it is."""
MOST_WAITS = 20
OBSERVE = ("tree", "screenshot", "both")
SETTINGS = ("observe", "actions", "as_tools", "turns", "tasks", "held_out", "pages")
_QUIET = "#reward-display, #click-canvas { display: none !important; }"
_BEGIN = """
([seed, time]) => {
  Math.seedrandom(seed);
  core.EPISODE_MAX_TIME = time;
  core.startEpisodeReal();
  window.__clawbackBegun = true;
  document.getElementById("query")?.setAttribute("data-clawback-hidden", "");
}
"""
_STATE = """
() => window.__clawbackBegun
  ? {raw: WOB_RAW_REWARD_GLOBAL, done: WOB_DONE_GLOBAL, reason: WOB_REWARD_REASON}
  : {raw: 0, done: true, reason: "the page was left"}
"""
_GOAL = "() => { const said = core.getUtterance(); return typeof said === 'string' ? said : said.utterance; }"


def names() -> list[str]:
    return [path.stem for path in (folder() / "miniwob").glob("*.html")]


def folder(setting: Any = None) -> Path:
    """The wheel's ``html`` folder. Raises ``NotFound``."""
    spec = find_spec("miniwob")
    places = (
        [Path(str(setting)).expanduser()]
        if setting
        else [Path(place) / "html" for place in (spec.submodule_search_locations if spec else ()) or ()]
    )
    found = next((place for place in places if (place / "miniwob").is_dir()), None)
    if found is None:
        raise NotFound(
            f"MiniWoB's pages are not here: {installed.add_package('--no-deps miniwob')}, or name its html folder (?pages=FOLDER)."
        )
    return found.resolve()


def make(rest: str, settings: Mapping[str, Any]) -> MiniWobSet:
    world_helpers.unknown_settings("miniwob", settings, SETTINGS)
    world_helpers.needed("playwright", "The browser agent", "browser")
    root = folder(settings.get("pages"))
    known = [path.stem for path in (root / "miniwob").glob("*.html")]
    chosen = [world_helpers.member("miniwob", name, known) for name in (rest.split(",") if rest else [""])]
    return MiniWobSet(chosen, root, settings)


class MiniWobSet:
    """Some pages; a task is a page and a seed. Its episodes share one browser until ``aclose``."""

    free_replies = True

    def __init__(self, pages: Sequence[str], root: Path, settings: Mapping[str, Any] | None = None) -> None:
        told = dict(settings or {})
        self.pages, self.root, self.settings = tuple(pages), root, told
        self.observe = str(told.get("observe", "tree"))
        subset = str(told.get("actions", "bid" if self.observe == "tree" else "all"))
        if self.observe not in OBSERVE or subset not in actions.SUBSETS:
            raise UsageError(
                f"miniwob: observe is one of {', '.join(OBSERVE)}; actions is one of {', '.join(actions.SUBSETS)}."
            )
        self.allowed = actions.SUBSETS[subset]
        self.tools: tuple[Tool, ...] = actions.tools(self.allowed) if told.get("as_tools") else ()
        self.name = f"miniwob:{','.join(pages)}"
        self.browser = Chromium()

    def tasks(self, split: Split) -> Sequence[Task]:
        counts = (
            int(self.settings.get("tasks", world_helpers.TRAIN_TASKS)),
            int(self.settings.get("held_out", world_helpers.TEST_TASKS)),
        )
        each = [world_helpers.seeded_tasks(f"miniwob:{name}", split, *counts) for name in self.pages]
        mixed = [task for tasks in zip(*each, strict=True) for task in tasks]
        return [
            Task(t.id, {**t.data, "page": t.id.partition(":")[2].rpartition("/")[0]}, split) for t in mixed
        ]

    def make(self) -> MiniWob:
        return MiniWob(self)

    async def aclose(self) -> None:
        """Close the browser; the next episode starts another."""
        await self.browser.aclose()


class MiniWob:
    """One episode: one page in a context of its own."""

    def __init__(self, of: MiniWobSet) -> None:
        self.of = of
        self.page: Any = None
        self.turns = 0

    async def reset(self, task: Task, seed: int) -> Observation:  # noqa: ARG002 — a page has no chance beyond its task's seed
        return await self.of.browser.run(self._reset(task))

    async def step(self, message: Message) -> Step:
        return await self.of.browser.run(self._step(message))

    async def close(self) -> None:
        if self.page is not None:
            await self.of.browser.run(self._close())

    async def _reset(self, task: Task) -> Observation:
        await self._close()
        self.turns = 0
        with world_helpers.faults(self.of.name):
            self.page = await self.of.browser.page(WIDTH, HEIGHT, self.of.root)
            await page_view.still(self.page)
            await self.page.goto((self.of.root / "miniwob" / f"{task.data['page']}.html").as_uri())
            await self.page.add_style_tag(content=_QUIET)
            await self.page.evaluate(_BEGIN, [str(task.data["seed"]), EPISODE_MILLISECONDS])
            await self._until_ready()
            goal = str(await self.page.evaluate(_GOAL))
            seen = await self._seen(f"Goal: {goal}")
        how = "Call one tool at a time." if self.of.tools else actions.description(self.of.allowed)
        told = {"role": "system", "content": f"You use a web page to reach a goal. {how}"}
        return Observation((told, seen), self.of.tools)

    async def _step(self, message: Message) -> Step:
        self.turns += 1
        late = self.turns >= int(self.of.settings.get("turns", TURNS))
        call: reading.Call | None = None
        info: JsonObject = {}
        try:
            call, action = self._read(message)
        except actions.Unreadable as error:
            problem, info = str(error), {"unparsable": True}
        else:
            with world_helpers.faults(self.of.name):
                problem = await page_view.act(self.page, action)
            info = {"action": action.name} | ({"error": problem} if problem else {})
        with world_helpers.faults(self.of.name):
            state = await page_view.evaluate(self.page, _STATE)
            if state["done"]:
                return Step(
                    (),
                    float(state["raw"] > 0),
                    True,
                    info | {"raw": state["raw"], "reason": str(state["reason"] or "")},
                )
            if late:
                return Step((), 0.0, True, info | {"truncated": True})
            seen = await self._seen(f"That did not work: {problem}" if problem else "The page now:")
        answers = (
            [{"role": "tool", "tool_call_id": call.id, "name": call.name, "content": problem or "done"}]
            if call
            else []
        )
        return Step((*answers, seen), None, False, info)

    async def _until_ready(self) -> None:
        """Some pages lay themselves out in steps."""
        for _ in range(MOST_WAITS):
            await page_view.let_pass(self.page)
            if await self.page.evaluate("() => WOB_TASK_READY"):
                return
        raise EnvironmentFailure(f"{self.of.name} does not get ready.")

    async def _close(self) -> None:
        shown, self.page = self.page, None
        if shown is not None:
            from playwright.async_api import Error

            with suppress(Error):  # the browser is gone, and the page with it
                await shown.context.close()

    def _read(self, message: Message) -> tuple[reading.Call | None, actions.Action]:
        reply = reading.read(message, tools=self.of.tools)
        if reply.calls:
            call = reply.calls[0]
            return call, actions.of_call(call.name, call.arguments, self.of.allowed)
        return None, actions.parse(world_helpers.text(message), self.of.allowed)

    async def _seen(self, sentence: str) -> Message:
        shown = self.of.observe
        text = f"{sentence}\n{await page_view.tree(self.page)}" if shown != "screenshot" else sentence
        return page_view.message(text, await page_view.picture(self.page) if shown != "tree" else None)
