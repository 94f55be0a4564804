"""A teacher on loopback: answers kept as they come, none paid for twice, the key nowhere on the disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clawback import feedback, paths, store
from clawback.cli import main
from clawback.errors import ClawbackError
from clawback.extensions.teachers import teacher_answers
from clawback.prompts import OpenAIBackend, ScriptedLLM

KEY = "sk-" + "a1B2" * 10


class Teacher:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.fail: dict[str, int] = {}
        self.lock, self.at_once, self.most, self.url = threading.Lock(), 0, 0, ""
        self.gate = threading.Event()
        self.gate.set()


@pytest.fixture
def teacher() -> Iterator[Teacher]:
    made = Teacher()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            prompt = body["messages"][-1]["content"]
            key = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix(
                "Bearer "
            )
            with made.lock:
                made.asked.append((self.path, key, prompt))
                made.at_once += 1
                made.most = max(made.most, made.at_once)
                status = made.fail.pop(prompt, 200)
            made.gate.wait(30)
            with made.lock:
                made.at_once -= 1
            text = f"The answer to {prompt}"
            if "messages" in self.path:
                out: dict[str, Any] = {
                    "content": [{"type": "text", "text": text}],
                    "stop_reason": "end_turn",
                    "usage": {"input_tokens": 10, "output_tokens": 20},
                }
            else:
                out = {
                    "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 20},
                }
            data = json.dumps(out).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            if status == 429:
                self.send_header("retry-after", "0.01")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield made
    made.gate.set()
    server.shutdown()
    server.server_close()


def corpus(folder: Path, count: int = 6) -> Path:
    path = folder / "prompts.txt"
    path.write_text("".join(f"Question number {n} about trees?\n" for n in range(count)))
    return path


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_answers_go_into_the_store_and_the_file(
    teacher: Teacher, tmp_path: Path, capsys: pytest.CaptureFixture[str], api: str
) -> None:
    prompts, env, out = corpus(tmp_path), tmp_path / ".env", tmp_path / "baseline.json"
    env.write_text(
        f"{api.upper()}_API_KEY={KEY}\n{api.upper()}_BASE_URL={teacher.url}\nBASELINE_MODEL=teacher-1\nOTHER=x\n"
    )
    call = ["baseline", "--prompts", str(prompts), "--output", str(out), "--env", str(env), "--api", api]
    prices = ["--price-sent", "1", "--price-received", "10"]
    assert main([*call, *prices, "--dry-run"]) == 0
    assert "6 calls" in capsys.readouterr().out
    assert teacher.asked == []
    assert main([*call, *prices, "--yes", "--licence", "their terms"]) == 0
    # 6 x (10 x 1 + 20 x 10) / 1e6
    assert "0.0013 by the prices given" in capsys.readouterr().out
    made = json.loads(out.read_text())
    assert list(made) == [f"prompt_{n}" for n in range(1, 7)]
    assert made["prompt_1"]["response"] == "The answer to Question number 0 about trees?"
    assert made["prompt_1"]["timestamp"].endswith("Z")
    assert {(path, key) for path, key, _ in teacher.asked} == {
        ("/v1/messages" if api == "anthropic" else "/v1/chat/completions", KEY)
    }
    with store.connect(paths.home().database) as db:
        turns = db.turns()
        assert {(t.agent, t.model, t.licence) for t in turns} == {("baseline", "teacher-1", "their terms")}
        # The 1-10 rating is of the teacher's answer, as of any other.
        assert feedback.score(db, turns[0].id, 9).value == pytest.approx(7 / 9)
    assert KEY.encode() not in b"".join(p.read_bytes() for p in paths.home().root.rglob("*") if p.is_file())
    assert KEY not in out.read_text()
    assert main([*call, "--yes"]) == 0
    assert len(teacher.asked) == 6  # nothing twice


def test_what_failed_is_asked_again_and_the_rest_is_kept(teacher: Teacher, tmp_path: Path) -> None:
    prompts, out = corpus(tmp_path), tmp_path / "b.jsonl"
    teacher.fail = {"Question number 1 about trees?": 429, "Question number 2 about trees?": 400}
    call = [
        "baseline",
        "--prompts",
        str(prompts),
        "--output",
        str(out),
        "--url",
        teacher.url,
        "--model",
        "m",
        "--yes",
    ]
    assert main(call) == 1
    assert len(out.read_text().splitlines()) == 5  # 429 was tried again, 400 was not
    assert main(call) == 0
    assert [json.loads(line)["prompt"][16] for line in out.read_text().splitlines()] == list("012345")


def test_a_wrong_key_is_not_tried_a_thousand_times(
    teacher: Teacher, home: paths.Home, tmp_path: Path
) -> None:
    prompts = [f"Question number {n} about trees?" for n in range(100)]
    teacher.fail = dict.fromkeys(prompts, 401)
    with pytest.raises(ClawbackError, match="401"):
        teacher_answers.ask(
            home, prompts, OpenAIBackend("m", "wrong", teacher.url), "m", teacher_answers.TeacherTerms(2)
        )
    assert len(teacher.asked) <= teacher_answers.FAILURES + 2


def test_as_many_at_once_as_asked_for_and_no_more_money_than_allowed(
    teacher: Teacher, home: paths.Home
) -> None:
    from clawback.prompts import Price

    prompts = [f"Question number {n} about trees?" for n in range(12)]
    backend = OpenAIBackend(
        "m", "", teacher.url, price=Price(0, 50_000)
    )  # 20 tokens: one unit of money a call
    made = teacher_answers.ask(home, prompts, backend, "m", teacher_answers.TeacherTerms(3, max_money=5))
    assert made.stopped
    assert 5 <= made.requests <= 7  # those under way are not thrown away
    assert teacher.most <= 3


def test_calls_a_minute_are_spread_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(teacher_answers.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(teacher_answers.time, "sleep", sleep)
    pace = teacher_answers._Pace(30)
    for _ in range(4):
        pace.wait()
    assert slept == pytest.approx([2.0, 2.0, 2.0])


def test_own_answers_beside_the_teachers(home: paths.Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    home.config.write_text('[generation]\nmax_tokens = 12\n[training]\nlearn_from = ["m"]\n')
    prompts = ["What is rain?", "What is snow?"]
    teacher_answers.ask(home, prompts, ScriptedLLM("Water that falls."), "m")
    assert teacher_answers.live_answers(home, prompts, "m", "prefer") == 2
    with store.connect(home.database) as db:
        assert [(f.kind, f.source) for f in db.feedback()] == [("preference", "teacher:m")] * 2
        assert {db.turn(f.turn_id).response for f in db.feedback()} == {"Water that falls."}
    assert teacher_answers.live_answers(home, prompts, "m", "distil") == 2
    with store.connect(home.database) as db:
        assert db.count_turns() == 4  # the same answers, once
        edits = [s for s in feedback.samples(db) if s.reward == 1.0]
        assert {s.response for s in edits} == {"Water that falls."}  # what training imitates
