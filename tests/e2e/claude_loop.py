"""The whole loop with a real Claude Code: run by test_claude_code.py where only loopback exists.

usage: claude_loop.py CLAUDE WORKDIR TASTE
Claude Code talks to a server that answers with the live version; the installed hooks capture each turn; a
simulated person types ``/rl good`` or ``/rl bad`` into Claude Code; the 32nd rating starts the background run.
Prints one JSON object about what happened.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import claude_environment
from messages_server import MessagesServer

from clawback import engine, store
from clawback.admin.rating_inbox import Inbox
from clawback.extensions.demo import corpus, tastes
from clawback.paths import Home

STALLED = 300
"""Seconds without a step of a run after which it is not waited for."""
RATINGS = 32


class LiveModel:
    """Answers with whatever version is live now, as the serving room will."""

    def __init__(self, home: Home) -> None:
        self.home, self.loaded, self.policy, self.served = home, None, None, []

    def __call__(self, messages: list[dict[str, str]]) -> str:
        with store.connect(self.home.database) as db:
            version = db.live()
        if self.loaded != version.number:
            adapter = Path(version.path) if version.path else None
            self.policy, self.loaded = engine.load("embedded", adapter=adapter), version.number
        assert self.policy is not None
        seed = len(self.served)
        [[completion]] = self.policy.generate([messages], max_tokens=160, seed=seed)
        self.served.append(version.number)
        return completion.text


def wait_for_the_run(home: Home) -> None:
    """Until the background run, a process of its own, has ended. It may take its time, as long as it goes on."""
    seen, moved = "", time.monotonic()
    while time.monotonic() < moved + STALLED:
        with store.connect(home.database) as db:
            [*runs] = db.runs()
        if runs and runs[0].status not in ("preparing", "running"):
            return
        told = repr(runs)
        if told != seen:
            seen, moved = told, time.monotonic()
        time.sleep(1)
    log = home.logs / "train.log"
    why = log.read_text() if log.exists() else ""
    raise AssertionError(f"the run has done nothing for {STALLED} s: {seen} {why}")


def answer_the_gate(home: Home, taste: Any, run: Callable[..., str]) -> int:
    """Say which of two answers is better, as the person does in a terminal, until the gate has decided; how many were asked."""
    questions = 0
    for pair in Inbox(home).questions():
        fits = [taste.fits(pair.first.prompt, turn.response) for turn in (pair.first, pair.second)]
        if fits[0] == fits[1]:
            continue
        better, worse = (pair.first, pair.second) if fits[0] else (pair.second, pair.first)
        run("clawback", "prefer", str(better.id), str(worse.id))
        questions += 1
    deadline = time.monotonic() + STALLED
    while time.monotonic() < deadline:
        with store.connect(home.database) as db:
            if db.waiting() is None:
                return questions
        time.sleep(1)
    raise AssertionError(f"the gate has not decided {STALLED} s after {questions} answers")


def main(claude: str, workdir: Path, taste_name: str) -> dict[str, Any]:
    person, project = workdir / "home", workdir / "project"
    home = Home(workdir / "clawback")
    for folder in (person, project):
        folder.mkdir(parents=True)
    settings = person / ".claude" / "settings.json"
    settings.parent.mkdir()
    before = b'{\n  "model": "opus",\n  "hooks": {}\n}\n'
    settings.write_bytes(before)
    model = LiveModel(home)
    taste = tastes.TASTES[taste_name]
    prompts = [p.text for p in corpus.prompts("rated", RATINGS, seed=1)]
    held_out = corpus.prompts("held_out", 12, seed=2)

    with MessagesServer(model) as server:
        environment = claude_environment(person, server.url, home.root)

        def run(*command: str) -> str:
            done = subprocess.run(
                command,
                cwd=project,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, f"{command[:3]}: {done.stdout[-500:]} {done.stderr[-2000:]}"
            return done.stdout

        def claude_says(text: str, *options: str) -> dict[str, Any]:
            return dict(json.loads(run(claude, "-p", text, "--output-format", "json", *options)))

        def satisfied() -> int:
            return sum(taste.fits(p, claude_says(p.text)["result"]) for p in held_out)

        run("clawback", "init", "--yes", "--agent", "claude-code", "--model", "embedded")
        # A machine that does something else as well would have it take longer than it may unless somebody says so.
        run("clawback", "config", "set", "training.budget", "24h")
        fits_before, replies, rated = satisfied(), [], []
        for text in prompts:
            turn = claude_says(text)
            good = taste.fits(text, turn["result"])
            asked = len(server.requests)
            reply = claude_says(f"/rl {'good' if good else 'bad'}", "--resume", turn["session_id"])
            replies.append(len(server.requests) - asked)
            rated.append({"prompt": text, "response": turn["result"], "good": good})
        wait_for_the_run(home)

        with store.connect(home.database) as db:
            stored = [
                {"prompt": t.prompt, "response": t.response, "good": f[0].value > 0}
                for t in reversed(db.turns(limit=500))
                if (f := db.feedback(turn_id=t.id))
            ]
        answer_the_gate(home, taste, run)
        with store.connect(home.database) as db:
            versions = [(v.number, v.status) for v in db.versions()]
            runs = [(r.status, r.algorithm, r.error) for r in db.runs()]
        fits_after = satisfied()
        last_version = model.served[-1]
        run("clawback", "rollback")
        claude_says("Tell me about the otter.")
        run("clawback", "init", "--remove", "--yes")
    return {
        "llm_calls_of_rl": sum(replies),
        "last_reply": reply.get("result"),
        "stored_equals_rated": stored == rated,
        "stored": len(stored),
        "rated_good": sum(r["good"] for r in rated),
        "versions": versions,
        "runs": runs,
        "version_after_training": last_version,
        "version_after_rollback": model.served[-1],
        "fits_before": fits_before,
        "fits_after": fits_after,
        "held_out": len(held_out),
        "settings_restored": settings.read_bytes() == before,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])))
