"""Takes the pictures of the web page with a real Chromium. ``python docs/images/make.py [--model FOLDER_OR_ID] [learning] [talking]``.

Two homes: in one the named model answers (*Rate*, *Chat*); in the other the embedded model, which learns in seconds, is trained twice
from ratings that a rule gives (*Learning*, *Versions*). Needs the ``dev`` extra.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROMPTS = (
    "How do I sort a list of dictionaries by a key in Python?",
    "Write a Python function that checks whether a string is a palindrome.",
    "How do I read a CSV file in Python?",
)
SETTINGS = """
[model]
base = "{model}"
[training]
algorithm = "mis-po"
background = false
[training.overrides]
steps = {steps}
[generation]
max_tokens = {longest}
"""
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
"""The browser talks to the page and to nobody else; Playwright gives it a new empty profile."""
STEPS = 16
MOST_TOKENS = 100


@contextmanager
def home_of(model: str) -> Iterator[Any]:
    """A temporary home with that model."""
    from clawback.paths import Home

    converted = Path(os.environ.get("CLAWBACK_HOME", "~/.clawback")).expanduser() / "models"
    root = Path(tempfile.mkdtemp(prefix="clawback-pictures-"))
    home = Home(root)
    home.create()
    if converted.is_dir() and not home.models.exists():  # what was made ready there is not made again
        home.models.symlink_to(converted)
    home.config.write_text(SETTINGS.format(model=model, steps=STEPS, longest=MOST_TOKENS))
    os.environ.update(CLAWBACK_HOME=str(root), HOME=str(root))
    try:
        yield home
    finally:
        shutil.rmtree(root, ignore_errors=True)


def talk(home: Any, model: str) -> None:
    """Two answers of the model to each prompt, which wait for a rating."""
    from clawback import engine, store
    from clawback.models.types import Sampling
    from clawback.records import Turn

    policy = engine.load(model)
    prompts = [({"role": "user", "content": text},) for text in PROMPTS]
    answers = policy.generate(
        prompts, samples=2, sampling=Sampling(temperature=0.7), max_tokens=MOST_TOKENS, seed=3
    )
    with store.connect(home.database) as db:
        for draw in range(2):
            for i, (messages, samples) in enumerate(zip(prompts, answers, strict=True)):
                text = samples[draw].text
                turn = Turn(f"talk-{draw}-{i}", messages, text, agent="clawback", version=0)
                db.add_turn(turn)


def rate_some(home: Any) -> None:
    """Answers in random styles, rated by a rule that likes bullets."""
    import random

    from clawback import feedback, store
    from clawback.extensions.demo import corpus, tastes
    from clawback.records import Turn

    taste, rng = tastes.TASTES["bullets"], random.Random(0)
    with store.connect(home.database) as db:
        for i, prompt in enumerate(corpus.prompts("rated", 24, 0)):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            turn = db.add_turn(Turn(f"s{i}", tuple(prompt.messages), text, agent="clawback", version=0))
            feedback.rate(db, turn.id, taste.rate(prompt, text, rng, 0.1))


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server of the home that the environment names."""
    import httpx

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "clawback", "serve", "--port", str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                httpx.get(f"{url}/healthz")
                break
            except httpx.HTTPError:
                time.sleep(1)
        yield url
    finally:
        server.terminate()
        server.wait()


class Camera:
    """A page of a browser that takes pictures of views."""

    def __init__(self, browser: Any, url: str, home: Any, width: int, scheme: str) -> None:
        from clawback.paths import secret

        self.url = url
        self.page = browser.new_page(viewport={"width": width, "height": 820}, color_scheme=scheme)
        self.page.set_default_timeout(600_000)
        self.page.goto(f"{url}/#token={secret(home.root / 'token')}")
        self.page.wait_for_selector("h1")

    def go(self, view: str) -> None:
        self.page.goto(f"{self.url}/#{view}")
        self.page.wait_for_selector(f"#view[data-view={view}]")

    def shoot(self, name: str) -> None:
        self.page.wait_for_timeout(2000)
        self.page.screenshot(path=HERE / f"{name}.png")


def talking(browser: Any, home: Any, url: str) -> None:
    for width, scheme, name in (
        (1200, "dark", "page-dark"),
        (400, "dark", "page-phone"),
        (1200, "light", "page"),  # last: its chat is one more answer to rate
    ):
        camera = Camera(browser, url, home, width, scheme)
        for _ in range(2 * len(PROMPTS)):  # to an answer that has code in it
            if camera.page.locator(".answer .code").count():
                break
            camera.page.click("button:has-text('Next')")
        camera.shoot(f"{name}-rate")
        if name == "page":
            camera.page.click("button:has-text('A or B')")
            camera.page.wait_for_selector(".pair")
            camera.shoot("page-pairs")
            camera.go("chat")
            camera.page.fill(
                "textarea:visible", "Write a Python function that reverses the words of a sentence."
            )
            camera.page.keyboard.press("Enter")
            camera.page.wait_for_selector(".rater")
            camera.shoot("page-chat")


def learning(browser: Any, home: Any, url: str) -> None:
    from clawback import jobs, store

    camera = Camera(browser, url, home, 1200, "light")
    camera.go("versions")
    camera.shoot("page-versions")
    camera.go("learning")
    jobs.start(home, seed=1)
    step = 0
    while step < STEPS // 3:  # a second run is under way
        with store.connect(home.database) as db:
            run = db.active_run()
        step = run.progress.get("step", 0) if run and run.progress.get("phase") == "train" else 0
        time.sleep(0.2)
    camera.page.wait_for_selector("button:has-text('Stop')")
    camera.shoot("page-learning")


def main() -> int:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("views", nargs="*", default=["learning", "talking"])
    options = parser.parse_args()
    model, views = options.model, options.views
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=QUIET)
        if "learning" in views:
            with home_of("embedded") as home:
                from clawback import jobs

                rate_some(home)
                jobs.train_once(home)
                with serving() as url:
                    learning(browser, home, url)
        if "talking" in views:
            with home_of(model) as home:
                talk(home, model)
                with serving() as url:
                    talking(browser, home, url)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
