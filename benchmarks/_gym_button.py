"""MiniWoB's ``click-test`` in a real Chromium, seen as a picture alone: a button of any size somewhere on the page is to be clicked, by coordinates.

A click is one of 25 points. Where the middle of the button is nearest to one on a diagonal of these, the task is held out: each column and each row comes
in training, these pairs of them do not. Which that is the pictures say, each of which is looked at once. The model (``_gym_sights.py``) knows the page from drawings of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from benchmarks._gym_sights import Shown, make
from clawback.environments.core import Environment, Split, Task
from clawback.extensions.browser import miniwob
from clawback.pictures import pictures

PAGE = "click-test"
SETTINGS = {"observe": "screenshot", "actions": "coord", "turns": 1, "tasks": 128, "held_out": 1}
AT_ONCE = 4
CACHE = Path("bench-results") / "gym-button.json"
COLUMNS, ROWS = (20, 50, 80, 110, 140), (70, 100, 130, 160, 190)
HEAD = 52
"""Pixels at the top that hold the instruction."""
GOAL, WHERE = "Goal: Click the button.", "Where is it?"
SKILL = 0.1


def nearest(x: float, y: float) -> tuple[int, int]:
    column = min(range(len(COLUMNS)), key=lambda i: abs(COLUMNS[i] - x))
    return column, min(range(len(ROWS)), key=lambda i: abs(ROWS[i] - y))


class Button:
    """``click-test``, its tasks told apart by where the button is."""

    name = f"miniwob:{PAGE}"

    def __init__(self) -> None:
        self.of = miniwob.make(PAGE, SETTINGS)

    def tasks(self, split: Split) -> Sequence[Task]:
        aside = {name for name, (column, row) in self.where.items() if column == row}
        return [
            dataclasses.replace(task, split=split)
            for task in self.of.tasks("train")
            if (task.id in aside) == (split == "test")
        ]

    def make(self) -> Environment:
        return self.of.make()

    async def aclose(self) -> None:
        await self.of.aclose()

    @cached_property
    def where(self) -> dict[str, list[int]]:
        """Task → the column and the row that its button's middle is nearest to."""
        if not CACHE.is_file():
            with ThreadPoolExecutor(1) as aside:  # the caller may be in an event loop
                found = aside.submit(asyncio.run, self._opened()).result()
            CACHE.parent.mkdir(exist_ok=True)
            CACHE.write_text(json.dumps(found))
        return dict(json.loads(CACHE.read_text()))

    async def _opened(self) -> dict[str, list[int]]:
        tasks = list(self.of.tasks("train"))
        some = [tasks[i : i + AT_ONCE] for i in range(0, len(tasks), AT_ONCE)]
        found = [place for these in some for place in await asyncio.gather(*map(self._place, these))]
        await self.of.aclose()
        return {task.id: place for task, place in zip(tasks, found, strict=True)}

    async def _place(self, task: Task) -> list[int]:
        from PIL import Image, ImageChops

        world = self.of.make()
        [png] = pictures((await world.reset(task, 0)).messages[-1]["content"])
        await world.close()
        page = Image.open(io.BytesIO(png)).convert("RGB").crop((0, HEAD, miniwob.WIDTH, miniwob.HEIGHT))
        box = ImageChops.difference(page, Image.new("RGB", page.size, "white")).getbbox()
        assert box
        return list(nearest((box[0] + box[2]) / 2, HEAD + (box[1] + box[3]) / 2))


def a_page(rng: random.Random) -> Shown:
    """A drawing of the page: where the button is, which the model is taught to tell, or a click."""
    from PIL import Image, ImageDraw

    side = rng.randrange(35, 100)
    x, y = rng.randrange(160 - side), HEAD + rng.randrange(160 - side)
    image = Image.new("RGB", (miniwob.WIDTH, miniwob.HEIGHT), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((0, 0, miniwob.WIDTH, 49), fill=(255, 255, 0))
    pen.rectangle((x, y, x + side, y + side), fill=(239, 239, 239), outline=(118, 118, 118))
    pen.text((x + side / 2, y + side / 2), "Click Me!", fill="black", anchor="mm")
    column, row = nearest(x + side / 2, y + side / 2)
    if rng.random() < 0.5:
        told = [f"column{column}", f"row{row}"]
        return Shown(image, WHERE, told, lambda _: told)
    return Shown(image, GOAL, [f"mouse_click({COLUMNS[column]},", f"{ROWS[row]})"], a_click)


def a_click(rng: random.Random) -> list[str]:
    return [f"mouse_click({rng.choice(COLUMNS)},", f"{rng.choice(ROWS)})"]


def of_button(folder: Path) -> Path:
    from benchmarks.gym import opening

    told = [f"{name}{i}" for name in ("column", "row") for i in range(5)]
    clicks = [*(f"mouse_click({x}," for x in COLUMNS), *(f"{y})" for y in ROWS)]
    words = [*GOAL.split(), *WHERE.split(), *told, *clicks]
    before = opening("benchmarks._gym_button:Button")
    return make(folder, words, a_page, before=before, skill=SKILL, steps=1000)
