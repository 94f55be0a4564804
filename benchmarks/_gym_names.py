"""A browser task for a tiny model: MiniWoB's ``enter-text`` in a real Chromium, with names held out.

The page asks for one of fifty names to be typed and submitted. Seeds differ in little but the name, so that held-out seeds would say little: here held-out tasks
have names that no training task has. They are solved by whoever has learned to copy what is asked for, and by nobody who has learned names by heart.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from benchmarks._gym_model import Action, Sight
from clawback.environments.core import Environment, Split, Task
from clawback.extensions.browser import miniwob

PAGE = "enter-text"
TURNS = 3
SEEDS = 96
"""Of each split; a quarter of the names is held out."""
AT_ONCE = 4
"""Pages: a busy machine takes seconds for each, and ten are too long for one."""
CACHE = Path("bench-results") / "gym-names.json"
KEY = '"Submit"'


def names() -> list[str]:
    """The fifty that the page draws from, as its script lists them."""
    script = (miniwob.folder() / "common" / "ui_utils.js").read_text()
    found = re.search(r"FIFTY_NAMES = \[(.*?)\]", script, re.DOTALL)
    assert found
    return re.findall(r"'([^']+)'", found[1])


def held_out() -> frozenset[str]:
    return frozenset(names()[::4])


class Names:
    """``enter-text``, its training and its held-out tasks told apart by the name that they ask for."""

    name = f"miniwob:{PAGE}"

    def __init__(self) -> None:
        self.of = miniwob.make(PAGE, {"tasks": SEEDS, "held_out": SEEDS, "turns": TURNS})

    def tasks(self, split: Split) -> Sequence[Task]:
        aside = held_out()
        return [t for t in self.of.tasks(split) if (self.asked[t.id] in aside) == (split == "test")]

    def make(self) -> Environment:
        return self.of.make()

    async def aclose(self) -> None:
        await self.of.aclose()

    @cached_property
    def asked(self) -> dict[str, str]:
        """Task → the name that its page asks for: each is opened once."""
        if not CACHE.is_file():
            with ThreadPoolExecutor(1) as aside:  # the caller may be in an event loop
                found = aside.submit(asyncio.run, self._opened()).result()
            CACHE.parent.mkdir(exist_ok=True)
            CACHE.write_text(json.dumps(found))
        return dict(json.loads(CACHE.read_text()))

    async def _opened(self) -> dict[str, str]:
        tasks = [*self.of.tasks("train"), *self.of.tasks("test")]
        some = [tasks[i : i + AT_ONCE] for i in range(0, len(tasks), AT_ONCE)]
        asked = [name for these in some for name in await asyncio.gather(*map(self._name, these))]
        await self.of.aclose()
        return {task.id: name for task, name in zip(tasks, asked, strict=True)}

    async def _name(self, task: Task) -> str:
        world = self.of.make()
        seen = await world.reset(task, 0)
        await world.close()
        wanted = re.search(r'Enter "(.*?)"', str(seen.messages[-1]["content"]))
        assert wanted
        return wanted[1]


# ---- what the model is taught: the form of a reply, and each part of it a little


def seen() -> list[str]:
    quoted = [f'"{name}"' for name in names()]
    return [*quoted, KEY, *(f"value={one}" for one in quoted), "[1]", "[2]", "textbox", "button", "Goal:", "Enter", "page", "now:", "focused"]  # fmt: skip


def actions() -> list[Action]:
    """A verb with its element, a value, and the end. What a click is given in place of a name is a mouse button."""
    verbs = [f"\n{verb}('{n}'," for verb in ("fill", "click") for n in (1, 2)]
    return [(verb, value, ")") for verb in verbs for value in (*seen()[: len(names())], '"left"')]


def sight(rng: random.Random) -> Sight:
    """The page before the name is in it, or after. Both are pages of the form that the environment gives; names are of all fifty."""
    name = f'"{rng.choice(names())}"'
    if rng.random() < 0.5:
        shown = f"Goal: Enter {name} into the text field and press Submit.\n[1] textbox\n[2] button {KEY}"
        return Sight(name, shown, actions().index(("\nfill('1',", name, ")")))
    shown = f"The page now:\n[1] textbox value={name} focused\n[2] button {KEY}"
    return Sight(KEY, shown, actions().index(("\nclick('2',", '"left"', ")")))
