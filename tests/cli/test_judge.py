"""``judge raters``: a judge over HTTP, the live version as a judge, and the table of raters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from clawback import config, feedback, jobs, store
from clawback.jobs import control, judge_pass, worker
from clawback.paths import Home
from tests.feedback.judge_server import judge_server
from tests.feedback.test_judge import LIKED, fill

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("CLAWBACK_HOME", str(home.root))
    with store.connect(home.database) as db:
        fill(db, 6)
    return home


def settings(home: Home, **values: object) -> None:
    config.save(home.config, {"judge": values})


def honest(_: str, user: str) -> str:
    return "\\boxed{1}" if LIKED in user else "\\boxed{-1}"


def test_a_judge_on_the_network(run: Run, here: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "k-1")
    with judge_server(honest) as server:
        settings(here, api="anthropic", url=server.url, model="otter-1", key_env="MY_KEY", timeout=5.0)
        code, out, _ = run("lab", "judge", "--dry-run")
        assert (code, server.asked) == (0, [])
        assert out.startswith(f"6 turns wait for otter-1 ({server.url}): at most 18 calls, ")
        code, out, _ = run("lab", "judge", "--limit", "4")
        assert (code, out) == (0, "4 turns judged: 2 good, 2 bad, 0 unclear (8 calls, 800 tokens)\n")
        assert server.asked[0][1]["x-api-key"] == "k-1"
        code, out, _ = run("lab", "judge", "--votes", "1", "--json")
        data = json.loads(out)
        assert (data["judged"]["turns"], data["calls"], data["stopped"], data["hinted"]) == (2, 2, "", None)
    with store.connect(here.database) as db:
        assert {f.source for f in db.feedback()} == {"judge:otter-1"}
        assert len(db.feedback()) == 6
    code, out, _ = run("show", "1")
    assert "reward -0.25 = judge -1 × 0.25" in out
    assert "k-1" not in here.config.read_text() + here.database.read_bytes().decode("latin-1")


def test_hints_on_request(run: Run, here: Home) -> None:
    hint = "\\boxed{1}[HINT_START]Say it in one sentence.[HINT_END]"
    with judge_server(lambda system, _: hint if "HINT_START" in system else "\\boxed{0}") as server:
        settings(here, api="openai", url=server.url, model="m", timeout=5.0)
        code, out, _ = run("lab", "judge", "--hints", "--votes", "1")
    assert (code, out.split(" (")[0]) == (
        0,
        "6 turns judged: 0 good, 0 bad, 6 unclear; 6 hints for 6 of 6 turns",
    )
    with store.connect(here.database) as db:
        assert feedback.hints_of(db.feedback(turn_id=1)) == ("Say it in one sentence.",)


def test_what_ends_early_says_so_and_exits_with_one(run: Run, here: Home) -> None:
    with judge_server(honest) as server:
        settings(here, api="openai", url=server.url, model="m", votes=1, max_calls=2, parallel=1)
        code, out, _ = run("lab", "judge")
        assert code == 1
        assert "Stopped early: all of the 2 calls of this pass are used (`max_calls`)" in out


def test_a_wrong_setup_is_a_sentence(run: Run, here: Home) -> None:
    settings(here, api="openai", url="http://127.0.0.1:9", model="m", key_env="NO_SUCH_KEY")
    code, _, err = run("lab", "judge")
    assert (code, err) == (
        1,
        "clawback: The environment variable NO_SUCH_KEY ([judge] key_env) is not set.\n",
    )
    settings(here, model=None)
    assert "[judge] model is not set" in run("lab", "judge")[2]
    here.config.write_text("[judge]\nvotes = 0\n")
    code, _, err = run("lab", "judge")
    assert (code, "votes" in err) == (2, True)


def test_one_pass_at_a_time(run: Run, here: Home) -> None:
    from filelock import FileLock

    with FileLock(here.judge_lock):
        code, _, err = run("lab", "judge")
    assert (code, err) == (1, "clawback: The judge is running already in another process.\n")


def test_ctrl_c_keeps_what_was_judged(here: Home) -> None:
    """A process of its own, interrupted while the judge thinks."""
    import signal

    with judge_server(honest) as server:
        settings(here, api="openai", url=server.url, model="m", votes=1, parallel=2, timeout=60.0)
        server.says = lambda s, u: (server.hold.clear() if len(server.asked) >= 3 else None, honest(s, u))[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "clawback", "judge"],
            env=os.environ.copy(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        deadline = time.monotonic() + 60
        while len(server.asked) < 5 or kept(here) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        before = kept(here)
        server.says = honest
        server.hold.set()
        assert judge_pass.judge_once(here).judged.turns == 6 - before
    assert kept(here) == 6


def kept(home: Home) -> int:
    with store.connect(home.database) as db:
        return len(db.feedback())


@pytest.mark.slow
def test_the_live_version_as_its_own_judge(run: Run, here: Home) -> None:
    """The embedded model cannot read: that it is asked, and that the pass ends and says how, is what is tested."""
    settings(here, votes=1, answer_tokens=16, hints=True)
    assert "6 turns wait for local (the live version), 6 for hints" in run("lab", "judge", "--dry-run")[1]
    code, out, _ = run("lab", "judge", "--json")
    data = json.loads(out)
    judged = data["judged"]
    assert judged["source"] == "judge:local"
    assert data["calls"] >= judged["turns"] + judged["failed"] >= 5
    assert (code, bool(data["stopped"])) in ((0, False), (1, True))
    assert 0 < data["tokens"] <= 1_000_000


def test_the_background_process_judges_first_where_it_is_asked_to(
    here: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with judge_server(honest) as server:
        settings(here, api="openai", url=server.url, model="m", votes=1, timeout=5.0)
        worker.judge_first(here)
        assert server.asked == []
        settings(here, enabled=True)
        worker.judge_first(here)
        assert kept(here) == 6
        settings(here, url="nowhere")
        worker.judge_first(here)  # trouble with the judge is no trouble for the run


def test_the_judges_key_reaches_the_background_process_and_no_other_does(
    here: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []

    def start(*_: object, env: dict[str, str], **__: object) -> object:
        seen.append(env)
        return SimpleNamespace(pid=os.getpid())

    monkeypatch.setattr(control.subprocess, "Popen", start)
    monkeypatch.setenv("MY_KEY", "k")
    monkeypatch.setenv("OTHER_KEY", "o")
    settings(here, key_env="MY_KEY")
    jobs.start(here)
    with store.connect(here.database) as db:
        db.drop_preparation(db.runs()[0].id)
    settings(here, enabled=True)
    jobs.start(here)
    assert ["MY_KEY" in env for env in seen] == [False, True]
    assert not any("OTHER_KEY" in env for env in seen)


def test_the_table_of_raters(run: Run, here: Home) -> None:
    with store.connect(here.database) as db:
        for turn in range(1, 7):
            feedback.rate(db, turn, 1, source="web")
            feedback.rate(db, turn, 1 if turn > 1 else -1, source="rater:anna")
    code, out, _ = run("raters")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["owner", "rater:anna", "Krippendorff's"]
    data = json.loads(run("raters", "--json")[1])
    assert [r["count"] for r in data["raters"]] == [6, 6]
    assert data["raters"][1]["good"] == pytest.approx(5 / 6)


def test_nobody_has_rated(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLAWBACK_HOME", str(tmp_path / "new"))
    assert run("raters")[1] == "Nobody has rated anything yet.\n"
    assert json.loads(run("raters", "--json")[1]) == {"raters": [], "alpha": None}
