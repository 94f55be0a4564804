"""A person at the keyboard before the page, and a model that answers them: for the tests of tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawback import store
from clawback.inference import wire
from clawback.paths import Home
from clawback.records import Turn

from .page import sse, user

NAME = "(e => e.ariaLabel || e.labels?.[0]?.innerText || e.innerText || e.placeholder || '')(document.activeElement)"


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


def say_in_chat(desk: Desk, text: str, number: int) -> None:
    desk.write(text)
    desk.press("Enter")
    desk.sees(f"to {text}", ".chat .assistant")
    desk.page.wait_for_selector(f".chat .assistant:nth-of-type({2 * number}) .rater")


def to_chat(desk: Desk) -> None:
    desk.view("Chat")
    desk.page.locator(".compose textarea").focus()


def add_rule(desk: Desk) -> int:
    with store.connect(desk.home.database) as db:
        turn = db.add_turn(Turn("broken", (user("Which?"),), "It is.\nSorry about that.", model="opus")).id
    desk.view("Rules")
    desk.reach("What do you want of every answer?")
    desk.write("Never apologise.")
    desk.press("Enter")
    desk.sees("code checks it")
    return turn
