"""kill -9 under load: whatever a client has seen the end of is in the store, and conversations go on.

``CLAWBACK_KILLS=50 pytest -m slow tests/serve/test_kill.py`` for more of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from clawback import store
from clawback.inference import wire
from clawback.paths import Home

from .conftest import Running

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("CLAWBACK_KILLS", "8"))


class Echo:
    """An upstream that answers with the number of the question, as a stream."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                await send({"type": (await receive())["type"] + ".complete"})
        body = await wire.body(receive)
        said = json.loads(body)["messages"][-1]["content"] if body else ""
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        for piece in (f"answer to {said}", None):
            choice = {
                "delta": {"content": piece} if piece else {},
                "finish_reason": None if piece else "stop",
            }
            data = f"data: {json.dumps({'choices': [choice]})}\n\n" + ("" if piece else "data: [DONE]\n\n")
            await send({"type": "http.response.body", "body": data.encode(), "more_body": bool(piece)})


def serve(home: Home, upstream: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "clawback", "serve", "--port", "0", "--upstream", upstream],
        env=os.environ | {"CLAWBACK_HOME": str(home.root)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    url = process.stdout.readline().split("answers on ")[1].split()[0]
    for _ in range(600):
        try:
            httpx.get(url + "/healthz", timeout=5)
            return process, url
        except httpx.HTTPError:
            threading.Event().wait(0.05)
    raise AssertionError("it did not start")


def test_no_acknowledged_turn_is_lost_and_conversations_go_on(
    home: Home, running: Callable[[Any], Running]
) -> None:
    rng = random.Random(0)
    upstream = running(Echo())
    talks: dict[int, list[dict[str, str]]] = {person: [] for person in range(6)}
    seen: list[tuple[int, str]] = []

    def talk(person: int, url: str, over: threading.Event) -> None:
        with httpx.Client(timeout=10) as client:
            while not over.is_set():
                asked = [*talks[person], {"role": "user", "content": f"p{person} q{len(talks[person])}"}]
                try:
                    answer = client.post(
                        url + "/v1/chat/completions", json={"messages": asked, "stream": True}
                    )
                except httpx.HTTPError:
                    return
                if "[DONE]" not in answer.text:
                    return
                said = f"answer to {asked[-1]['content']}"
                seen.append((person, said))
                talks[person] = [*asked, {"role": "assistant", "content": said}]

    for _ in range(KILLS):
        process, url = serve(home, upstream.url)
        over = threading.Event()
        people = [threading.Thread(target=talk, args=(person, url, over)) for person in talks]
        for one in people:
            one.start()
        over.wait(rng.uniform(0.05, 0.5))
        process.send_signal(signal.SIGKILL)
        process.wait()
        over.set()
        for one in people:
            one.join()
        with store.connect(home.database) as db:
            assert db.integrity() == []
            kept = {turn.response for turn in db.turns(limit=100_000)}
        assert {said for _, said in seen} <= kept
    assert len(seen) > 10 * KILLS
    with store.connect(home.database) as db:
        by_person: dict[str, set[str]] = {}
        for turn in db.turns(limit=100_000):
            by_person.setdefault(turn.prompt.split()[0], set()).add(turn.session)
    # A conversation whose very first answer was lost with the server may begin twice; no other splits.
    assert sum(len(names) for names in by_person.values()) <= len(talks) + KILLS
    assert all(len(names) <= 2 for names in by_person.values())
