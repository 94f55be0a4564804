"""Answers as they come, from the running server and from the engine in this process: stored alike, cut alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawback import config, feedback, store
from clawback.capture import script
from clawback.cli import main
from clawback.cli.chat import show_answer
from clawback.errors import ClawbackError, UsageError
from clawback.inference import streams
from clawback.inference.local import LocalEngine
from clawback.paths import Home
from clawback.records import Turn
from clawback.serve import app

from .conftest import Running

PROMPT = {"role": "user", "content": "Tell me about the otter."}


def question(session: str = "ask:1", seed: int = 1, limit: int = 24) -> streams.AnswerRequest:
    return streams.AnswerRequest((PROMPT,), session, seed, max_tokens=limit)


@pytest.fixture
def served(home: Home, running: Callable[[Any], Running], monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home whose server runs, and a process that must not load a model itself."""
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    there = running(app.make(home))
    script.announce(home, there.port)
    monkeypatch.setattr(LocalEngine, "start", lambda _: pytest.fail("the model was loaded again"))
    return home


def interrupted_after(pieces: int, stream: Iterator[str]) -> Iterator[str]:
    """The person presses Ctrl-C after so many pieces."""
    for _ in range(pieces):
        yield next(stream)
    raise KeyboardInterrupt


@pytest.fixture(params=["server", "engine"])
def source(request: pytest.FixtureRequest, home: Home) -> Iterator[tuple[streams.AnswerSource, store.Store]]:
    if request.param == "server":
        request.getfixturevalue("served")
    with store.connect(home.database) as db:
        found = streams.source_of(home, db)
        assert isinstance(found, streams.ServerAnswers) == (request.param == "server")
        yield found, db
        found.close()


def check_complete(source: streams.AnswerSource) -> None:
    pieces = list(source.answer(question()))
    assert len(pieces) > 3, "it comes in pieces"
    turn = source.finish(False)
    assert turn is not None
    assert turn.response == "".join(pieces)
    assert (turn.agent, turn.version, turn.kind, turn.cwd) == ("clawback", 0, "main", os.getcwd())  # noqa: PTH109
    assert turn.vouched
    assert len(turn.response_ids or ()) == len(turn.response_logprobs or ()) > 3
    assert list(source.answer(question("ask:2"))) == pieces, "the same seed gives the same answer"


def check_cut(source: streams.AnswerSource, db: store.Store) -> None:
    before = db.count_turns()

    class Cut:
        activity = "answering"

        def answer(self, asked: streams.AnswerRequest) -> Iterator[str]:
            return interrupted_after(2, source.answer(asked))

        def finish(self, cut: bool) -> Turn | None:
            return source.finish(cut)

    turn, cut = show_answer(Cut(), question("ask:3", limit=200), quiet=True)
    assert cut
    assert turn is not None
    assert turn.ending == "interrupted"
    assert turn.response
    assert db.count_turns() == before + 1
    feedback.rate(db, turn.id, -1)
    assert [one.value for one in db.feedback(turn_id=turn.id)] == [-1.0]


def test_an_answer_comes_in_pieces_and_one_that_is_stopped_is_kept_and_ratable(
    source: tuple[streams.AnswerSource, store.Store],
) -> None:
    check_complete(source[0])
    check_cut(*source)


def test_ask_uses_the_server_that_runs(served: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "Tell me about the otter.", "--max-tokens", "8", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ending"] in ("length", "done")
    assert main(["good", "short", "and", "right"]) == 0, "it is the newest turn of this folder"
    with store.connect(served.database) as db:
        [given] = db.feedback(turn_id=data["turn"])
    assert given.text == "short and right"
    assert main(["ask", "One?", "--picture", __file__]) == 2


def test_what_the_server_refuses_is_said_in_its_sentence(served: Home) -> None:
    with store.connect(served.database) as db:
        source = streams.source_of(served, db)
        asked = streams.AnswerRequest((), "ask:1", 1)
        with pytest.raises(UsageError, match="at least one message is needed"):
            list(source.answer(asked))
        assert source.finish(False) is None


@pytest.mark.parametrize("lines", [[], [b'data: {"choices": [{"delta": {"content": "a"}}]}\n']])
def test_a_stream_that_ends_too_early_is_no_answer(lines: list[bytes]) -> None:
    with pytest.raises(ClawbackError, match="broke off"):
        list(streams._pieces(iter(lines)))


def test_a_server_with_another_model_or_an_upstream_is_not_asked(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.announce(home, 1)
    monkeypatch.setattr("clawback.capture.server_proof.proven", lambda *_: True)
    settings = config.load(home.config)
    for state, port in (
        ({"upstream": False, "model": settings.model.base}, 1),
        ({"upstream": True, "model": settings.model.base}, None),
        ({"upstream": False, "model": "another"}, None),
        ({}, None),
    ):
        monkeypatch.setattr(streams, "_status", lambda *_, state=state: state)
        assert streams.running_server(home, settings) == port


def test_asking_needs_no_part_of_the_server() -> None:
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('starlette', 'uvicorn', 'aiohttp', 'uvloop', 'httptools')));"
        "import clawback.inference.streams, clawback.inference.local"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)
