"""The demo for a cloud model, without a network: an agent talks through the proxy, a simulated person rates, a prompt is learned.

Only the model, which is never trained, and the person are simulated (``cloud.py``): the requests go over
HTTP through the server that ``clawback serve`` runs, turns and ratings are rows of a store, the search and
the gate are those of ``clawback prompts optimize``.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clawback import config, feedback, release, store
from clawback.admin.rating_inbox import Inbox
from clawback.errors import ClawbackError, UsageError
from clawback.extensions.demo.cloud import MODEL, TASTES, Cloud, questions
from clawback.paths import Home, secret
from clawback.progress import OnProgress
from clawback.prompt_jobs import prompt_learning
from clawback.prompt_jobs.prompt_search import SearchResult
from clawback.records import Turn, Version

AGENT = "You are a helpful assistant inside a terminal. Answer what is asked."
RATINGS = 32
UNRATED = 0.5
"""Further answers for each that is rated: nobody rates all that their agent says."""
HELD_OUT = 48
NOISE = 0.1
REMARKS = 0.3
"""Share of bad answers about which the person says a word."""


@dataclass(frozen=True, slots=True)
class AnsweredQuestions:
    """How questions that nobody rated are answered through the proxy. ``version``: as its header says, 0 for no prompt."""

    version: int
    satisfaction: float
    answers: tuple[tuple[str, str], ...]


class CloudDemo:
    """A home, a person, and a model behind the proxy. A context manager.

    Raises ``UsageError`` for a taste that there is not, and for a folder with something in it.
    """

    def __init__(self, home: Home, taste: str | None = None, *, seed: int = 0) -> None:
        name = taste or next(iter(TASTES))
        if name not in TASTES:
            raise UsageError(f"There is no taste {name!r}. There are: {'; '.join(TASTES)}.")
        if home.root.exists() and (not home.root.is_dir() or any(home.root.iterdir())):
            raise UsageError(f"{home.root} is not an empty folder. The demo needs one of its own: name another with --home.")  # fmt: skip
        home.create()
        self.home, self.taste, self.seed = home, TASTES[name], seed
        self.person = random.Random(f"person {seed}")
        asked = questions(seed)
        self.held_out, self.asked = asked[:HELD_OUT], asked[HELD_OUT:]
        self.given = self.good = self.remarks = 0
        self.cloud = Cloud()

    def __enter__(self) -> CloudDemo:
        self.cloud.__enter__()
        settings = {"upstream": self.cloud.url}
        config.save(self.home.config, {"serve": settings, "prompts": {"model": MODEL}, "training": {"seed": self.seed, "background": False}})  # fmt: skip
        return self

    def __exit__(self, *error: object) -> None:
        self.cloud.__exit__(*error)

    def collect(self, count: int = RATINGS, on_progress: OnProgress | None = None) -> int:
        """The agent asks, the person rates the answers: one time in ten wrongly, and now and then with a remark. Returns how many were good."""
        tell = on_progress or (lambda _: None)
        more = round(count * (1 + UNRATED))
        todo, self.asked = self.asked[:more], self.asked[more:]
        good = 0
        with served(self.home) as port, store.connect(self.home.database) as db:
            for place, question in enumerate(todo):
                tell({"phase": "answer", "step": place, "steps": len(todo)})
                said, _ = ask(port, question, self.home)
                if place >= count:
                    continue
                turn = db.turns(limit=1)[0]
                value = 1 if self.taste.fits(said) else -1
                value = -value if self.person.random() < NOISE else value
                feedback.rate(db, turn.id, value, source="demo")
                good += value > 0
                remark = self.taste.remark(said)
                if value < 0 and remark and self.person.random() < REMARKS:
                    feedback.critique(db, turn.id, remark, source="demo")
                    self.remarks += 1
        self.given += count
        self.good += good
        return good

    def learn(self, on_progress: OnProgress | None = None) -> tuple[SearchResult, int]:
        """A search and the gate, as ``clawback prompts optimize`` does them; what the gate asks is answered. With how many questions it asked."""
        found, asked = prompt_learning.optimize(self.home, on_progress=on_progress), 0
        while found.report is not None and found.report.again_at:
            pair = next(iter(Inbox(self.home).questions()), None)
            if pair is None:
                break
            asked += 1
            with store.connect(self.home.database) as db:
                feedback.prefer(db, *self.choose(pair.first, pair.second), source="demo")
            report = prompt_learning.judge_waiting(self.home, on_progress=on_progress) or found.report
            with store.connect(self.home.database) as db:
                version = db.version(report.version)
            found = SearchResult(version, report, (), *_rest(found))
        return found, asked

    def choose(self, first: Turn, second: Turn) -> tuple[int, int]:
        """Numbers of the better turn and the worse one, as the simulated person sees it: sometimes wrong."""
        likes = self.taste.fits(first.response), self.taste.fits(second.response)
        if likes[0] == likes[1]:
            right = self.person.random() < 0.5
        else:
            right = likes[0] != (self.person.random() < NOISE)
        return (first.id, second.id) if right else (second.id, first.id)

    def look(self, on_progress: OnProgress | None = None) -> AnsweredQuestions:
        """Ask what nobody rates, through a server of its own on a copy of the store: looking leaves no trace."""
        tell = on_progress or (lambda _: None)
        with tempfile.TemporaryDirectory(prefix="clawback-look-") as folder:
            copy = Home(Path(folder) / "home")
            copy.create()
            copy.config.write_bytes(self.home.config.read_bytes())
            with store.connect(self.home.database) as db:
                db.backup(copy.database)
            versions, answers = set(), []
            with served(copy) as port:
                for place, question in enumerate(self.held_out):
                    tell({"phase": "held out", "step": place, "steps": len(self.held_out)})
                    said, version = ask(port, question, copy)
                    answers.append((question, said))
                    versions.add(version)
        [number] = versions
        liked = sum(self.taste.fits(said) for _, said in answers) / len(answers)
        return AnsweredQuestions(number, liked, tuple(answers))

    def rollback(self) -> Version:
        with store.connect(self.home.database) as db:
            return release.rollback(db, self.home)

    def forward(self, version: int) -> Version:
        with store.connect(self.home.database) as db:
            return release.promote(db, self.home, version)


def ask(port: int, question: str, home: Home) -> tuple[str, int]:
    """What the agent does: one request through the proxy. The answer, and the version that its header names."""
    body = {
        "model": MODEL,
        "messages": [{"role": "system", "content": AGENT}, {"role": "user", "content": question}],
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json", "x-clawback-token": secret(home.root / "token")}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        said = json.loads(answer.read())
        if answer.status != 200:
            raise ClawbackError(f"The proxy answered with {answer.status}: {said}.")
        return said["choices"][0]["message"]["content"], int(answer.headers.get("x-clawback-prompt", 0))
    finally:
        connection.close()


@contextmanager
def served(home: Home) -> Iterator[int]:
    """The server of this home on a free port of loopback, on a thread; the port."""
    import uvicorn

    from clawback.serve import app, protocol

    settings = config.load(home.config).serve
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(64)
    port = int(listening.getsockname()[1])
    server = uvicorn.Server(
        uvicorn.Config(
            app.make(home, settings), http=protocol.Limited, log_level="error", access_log=False, timeout_graceful_shutdown=5
        )
    )  # fmt: skip
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 60
        while not server.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise ClawbackError("The demo's server did not start.")
            thread.join(0.02)
        yield port
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listening.close()


def changed(
    earlier: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]
) -> tuple[str, str, str] | None:
    """A question that was answered otherwise: (question, before, after)."""
    for (question, one), (_, other) in zip(earlier, after, strict=True):
        if one != other:
            return question, one, other
    return None


def address(url: str) -> str:
    return urlsplit(url).netloc


def _rest(result: SearchResult) -> tuple[Any, ...]:
    return (
        result.first_score,
        result.best_score,
        result.calls,
        result.tokens,
        result.money,
        result.stopped,
        result.notes,
    )
