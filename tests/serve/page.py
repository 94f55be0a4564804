"""What the tests of the page share: a filled home, and looks at a page in a real Chromium."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

from clawback import feedback, store
from clawback.paths import Home
from clawback.records import Run, Turn, Version

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE_MS = int(os.environ.get("CLAWBACK_TEST_PATIENCE_MS", "120000"))
"""A busy machine is no defect."""
CODE = (
    "Use `sorted`:\n\n```python\nsorted(turns, key=len)\n```\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n- [x] done"
)
HOSTILE = [
    "<script>document.title = 'ran'</script>",
    "<img src=x onerror=\"document.title='ran'\">",
    "<svg onload=\"document.title='ran'\"><animate onbegin=\"document.title='ran'\"></svg>",
    "<iframe srcdoc=\"<script>parent.document.title='ran'</script>\"></iframe>",
    "[link](javascript:document.title='ran')",
    "[link](&#106;avascript:document.title='ran')",
    "[link](java\tscript:document.title='ran')",
    "[link](data:text/html,<script>document.title='ran'</script>)",
    "[link](vbscript:x) <a href=\"javascript:document.title='ran'\">link</a>",
    "![picture](javascript:document.title='ran')",
    "![picture](http://127.0.0.1:9/seen.png)",
    '![x](x"onerror="document.title=1)',
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=document.title='ran'&gt;\">",
    "<form action=javascript:document.title='ran'><button>press</button></form><style>*{display:none}</style>",
    "```html\n<script>document.title='ran'</script>\n```",
    "<details open ontoggle=\"document.title='ran'\">x</details><body onload=\"document.title='ran'\">",
]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def fill(home: Home) -> None:
    """Six answers that wait (the last of them after two tool steps, two to the same prompt), two versions, a run with curves."""
    with store.connect(home.database) as db:
        before = (user("Hello"), {"role": "assistant", "content": "What can I do?"}, user("How do I sort?"))
        db.add_turn(Turn("sort", before, CODE, agent="claude-code", model="opus"))
        db.add_turn(Turn("bad", (user("Do harm."),), "\n\n".join(HOSTILE), agent="claude-code"))
        for session, text in (("a", "It swims."), ("b", "- It swims\n- It eats fish")):
            db.add_turn(Turn(session, (user("Tell me about the otter."),), text))
        rated = [
            db.add_turn(Turn(f"r{n}", (user(f"Question {n}?"),), "Yes.", version=0)).id for n in range(4)
        ]
        said = [feedback.rate(db, number, 1 if i else -1).id for i, number in enumerate(rated)]
        read = {"id": "1", "name": "Read", "arguments": '{"path": "tests/test_api.py"}'}
        asked = user("Why does the test fail?")
        db.add_turn(Turn("agent", (asked,), "", agent="openclaw", calls=(read,)))
        db.add_turn(Turn("agent", (asked,), "", agent="openclaw", calls=(read | {"name": "Bash"},)))
        db.add_turn(Turn("agent", (asked,), "The limit is a string.", agent="openclaw"))
        run = db.start_run(Run("embedded", "", "auto", {}, seed=0, parent=0, train_ids=tuple(said)))
        db.add_steps(
            run.id, [("train", n, {"loss": 1 / n, "reward": n / 9, "drift": n / 99}) for n in range(1, 10)]
        )
        report = {
            "accepted": True,
            "reasons": ["Better than version 0."],
            "evidence": {"kl": 2.0, "gain": 0.3},
        }
        db.add_version(Version(1, "candidate", "embedded", parent=0, run_id=run.id, report=report))
        db.update_run(run.id, status="done", version=1)
        db.promote(1)


def is_wrong(message: Any) -> bool:
    """Not: a request that a test itself let fail, or that the server refuses with a sentence."""
    provoked = ("net::ERR_FAILED", "status of 400", "status of 503")
    return message.type in ("error", "warning") and not any(one in message.text for one in provoked)


def go(page: Any, view: str) -> None:
    """To a view: by its tab, else by its address."""
    if page.locator(f"nav a[href='#{view}']").count():
        page.click(f"nav a[href='#{view}']")
    else:
        page.evaluate("view => { location.hash = view; }", view)
    page.wait_for_selector(f"#view[data-view={view}]:not([aria-busy])")


def ratings(home: Home) -> list[tuple[int, float]]:
    with store.connect(home.database) as db:
        return [(f.turn_id, round(f.value, 2)) for f in db.feedback() if f.source == "web"]


def fits(page: Any) -> bool:
    """Nothing sticks out sideways, no word of a button is broken, and no field sticks out of its card."""
    return bool(
        page.evaluate(
            """() => document.documentElement.scrollWidth <= innerWidth
            && [...document.querySelectorAll("main button:not(.rowbutton)")].every((b) => b.scrollWidth <= b.clientWidth + 1 && b.offsetHeight < 56)
            && [...document.querySelectorAll(".card input, .card p")].every((f) => f.getBoundingClientRect().right <= f.closest(".card").getBoundingClientRect().right)"""
        )
    )


def sse(*events: Any) -> bytes:
    return b"".join(
        b"data: " + (e.encode() if isinstance(e, str) else json.dumps(e).encode()) + b"\n\n" for e in events
    )
