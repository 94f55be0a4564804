"""One line for an agent's status bar: the version that answers, and the number of ratings until the next run."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time

from clawback import config, store
from clawback.capture.script import LINE
from clawback.feedback.news import news
from clawback.paths import Home

AGENT = "claude-code"
COARSE = 20_000_000
"""Nanoseconds by which a file's time may lag behind the clock, with some to spare: Linux takes it from the last tick."""


def text(home: Home, payload: bytes = b"") -> str:
    """A line such as ``clawback v3 · 12/32 ratings``. Never raises: errors do not belong in a status bar.

    It is kept for the program that agents run, which shows it until something changes. ``payload``: what Claude Code
    tells its status line, the transcript and the model among it.
    """
    with contextlib.suppress(Exception):
        _complete_turns(home, payload)
    asked = time.time_ns() - COARSE
    line = _read(home)
    if line is None:
        return "clawback ?"
    with contextlib.suppress(OSError):
        _keep(home, line, asked)
    return line


WRITTEN_WITHIN = 60.0
"""Seconds after which a record without the answer's ending is not read for it again: the line is drawn every second."""


def _complete_turns(home: Home, payload: bytes) -> None:
    """The line is drawn a moment after an answer: by then the transcript has what ``Stop`` came too early for."""
    event = json.loads(payload)
    session, transcript, model = event["session_id"], event.get("transcript_path"), event.get("model")
    with store.connect(home.database, busy_seconds=0.2) as db:
        name = f"{AGENT}:{session}"
        if not (db.lacks_record(name, time.time() - WRITTEN_WITHIN) or db.ended_prompts(AGENT, session)):
            return
        from clawback.capture import late
        from clawback.capture.events import PromptEvent

        exchanges = late.read(AGENT, PromptEvent(session, "", transcript=transcript or ""))
        late.answer_ended(home, db, AGENT, PromptEvent(session, ""), exchanges)
        late.complete(home, db, AGENT, session, exchanges)
        last = db.last_turn(session=name)
        if last and not last.model and isinstance(model, dict) and isinstance(model.get("id"), str):
            db.name_model(last.id, model["id"])


def _keep(home: Home, text: str, moment: int) -> None:
    """In one rename, with its time: whoever sees the file newer than the database may believe it."""
    beside = home.root / f".{LINE}.{os.getpid()}.{threading.get_ident()}"
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{text}\n")
    os.utime(beside, ns=(moment, moment))
    beside.replace(home.root / LINE)


def _read(home: Home) -> str | None:
    try:
        with store.connect(home.database, busy_seconds=0.2) as db:
            threshold = config.load(home.config).training.threshold
            live, fresh, run = db.live().number, db.count_fresh(threshold), db.current_run()
            brought = news(db)
    except Exception:
        return None
    if run and not run.interrupted:
        steps = run.progress.get("steps") or 0
        done = f" {100 * int(run.progress.get('step') or 0) // int(steps)} %" if steps else ""
        what = "preparing a run" if run.status == "preparing" else f"training{done}"
        return f"clawback v{live} · {what}"
    if brought is not None:
        question = "keep? /rl y or /rl n" if brought.live else "which is better? /rl ab"
        return f"clawback v{live} · {brought.facts} · {question}"
    return f"clawback v{live} · {fresh}/{threshold} ratings"
