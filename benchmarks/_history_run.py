"""One evening by the commands, on the embedded model: a history of its own answers, fifteen questions, a run, the gate's questions, a live version; for ``benchmarks.history``."""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.half_year import answer
from benchmarks.history import CONVERSATIONS, RIGHT, ask, command, conversations

PROMPTS, EACH = 700, 4
"""Prompts of the history, and answers that the base gives to each."""
MEASURED = 128
"""Prompts on which versions are measured; none of them is in the history."""
LIKED = (0.2, 0.6)
"""Share of the base's answers that a wish is met by, or the next wish is taken."""


def answers_of_base(count: int, seed: int) -> dict[str, list[str]]:
    """Prompt → answers of the embedded model."""
    from clawback import engine
    from clawback.embedded import corpus

    policy = engine.load("embedded")
    asked = corpus.prompts("rated", count, seed)
    made = policy.generate([p.messages for p in asked], samples=EACH, seed=seed)
    return {
        p.messages[-1]["content"]: [one.text for one in some] for p, some in zip(asked, made, strict=True)
    }


def evening_with_a_run(names: str, seed: int = 1) -> dict[str, Any]:
    """The figures of one person."""
    from benchmarks._wishes import TEST
    from clawback import config, store
    from clawback.gate.report import Report
    from clawback.paths import Home

    every = answers_of_base(PROMPTS, seed)
    rates = {one.name: _share(one.holds, every) for one in TEST if one.form}
    wish = next(one for one in TEST if one.name in rates and (one.name in names.split(",") or LIKED[0] <= rates[one.name] <= LIKED[1]))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "home", Path(folder) / "conversations.json"
        file.write_text(json.dumps(conversations(every, wish.holds, seed)))
        began, cpu = time.perf_counter(), os.times()
        command(root, "init", "--yes", "--model", "embedded", "--agent", "none")
        home = Home(root)
        config.save(home.config, {"training": {"background": False, "seed": seed}})
        command(root, "import", "--yes", str(file))
        command(root, "inbox", "--pairs", "--limit", "1", "--json")
        marks = {"seconds_to_the_first_question": time.perf_counter() - began}
        chance = random.Random(seed)
        ask(root, wish.holds, "informative", chance)
        marks["seconds_to_the_run"] = time.perf_counter() - began
        shown, _ = command(root, "train")
        with store.connect(home.database) as db:
            waiting = db.waiting()
            report = Report.from_dict(db.version(waiting[0]).report) if waiting else None
        _, asked = answer(home, report, wish.holds, chance, 1 - RIGHT)
        marks["seconds_to_the_verdict"] = time.perf_counter() - began
        after = os.times()
        used = sum(after[:4]) - sum(cpu[:4])
        with store.connect(home.database) as db:
            live, versions = db.live().number, [(one.number, one.status) for one in db.versions()]
        found = {"wish": wish.name, "base_rates": rates, "conversations": CONVERSATIONS, "gate_questions": asked, "live": live, "versions": versions}  # fmt: skip
        found |= {"cpu_seconds": round(used)} | {name: round(value, 1) for name, value in marks.items()}
        found["liked"] = measured(home, wish, seed)
        found["last_lines"] = shown.strip().splitlines()[-6:]
    return found


def measured(home: Any, wish: Any, seed: int) -> dict[str, float]:
    """Share of liked answers of the base and of the live version to prompts that are not in the history."""
    from clawback import release, store
    from clawback.embedded import corpus

    asked = corpus.prompts("held_out", MEASURED, seed)
    found = {}
    with store.connect(home.database) as db:
        for name, version in (("base", db.version(0)), ("live", db.live())):
            policy = release.load(home, version)
            made = policy.generate([p.messages for p in asked], seed=seed)
            found[name] = round(sum(wish.holds(p.messages[-1]["content"], one.text) for p, [one] in zip(asked, made, strict=True)) / MEASURED, 3)  # fmt: skip
    return found


def _share(holds: Any, every: dict[str, list[str]]) -> float:
    rows = [holds(prompt, text) for prompt, some in every.items() for text in some]
    return round(sum(rows) / len(rows), 3)


if __name__ == "__main__":
    print(json.dumps(evening_with_a_run(""), indent=2), file=sys.stdout)
