"""One evening by the commands: a history, fifteen questions, a run, the gate's questions, a live version; for ``benchmarks.history``.

The embedded model's history is of its own answers to prompts of its own kind. Any other model's is of ten chat models' answers, as a ChatGPT export is of
another model's: what is learned from it has to carry over.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.history import CONVERSATIONS, World, answer_gate, ask, command, conversations

PROMPTS, EACH = 700, 4
"""Prompts of the history, and answers that the base gives to each."""
MEASURED = 128
"""Prompts on which versions are measured; none of them is in the history."""
HELD = 64
"""The same of a model that is not the embedded one: its answers are long."""
LIKED = (0.2, 0.6)
"""Share of the history's answers that a wish is met by, or the next wish is taken."""
ROOM = 128
"""Tokens of an answer that is measured."""


def answers_of_base(count: int, seed: int) -> dict[str, list[str]]:
    """Prompt → answers of the embedded model."""
    from clawback import engine
    from clawback.extensions.demo import corpus

    policy = engine.load("embedded")
    asked = corpus.prompts("rated", count, seed)
    made = policy.generate([p.messages for p in asked], samples=EACH, seed=seed)
    return {
        p.messages[-1]["content"]: [one.text for one in some] for p, some in zip(asked, made, strict=True)
    }


def wishes() -> tuple[Any, ...]:
    """The reported wishes of form, and the taste of ``benchmarks.evidence``, which the product has words for."""
    from benchmarks._wishes import TEST, Wish
    from benchmarks.evidence import likes

    plain = Wish("plain", True, lambda _, answer: likes(answer), "Plain running text, please.")
    return (*(one for one in TEST if one.form), plain)


def evening_with_a_run(
    names: str, seed: int = 1, model: str = "embedded", data: Path | None = None
) -> dict[str, Any]:
    """The figures of one person. ``names``: of wishes, comma-separated; "test" takes the first that is met by some answers and not by most."""
    from clawback import config, store
    from clawback.paths import Home

    world = None if model == "embedded" or data is None else World(data)
    every = answers_of_base(PROMPTS, seed) if world is None else world.answers
    rates = {one.name: _share(one.holds, every) for one in wishes()}
    named = [one for one in wishes() if one.name in names.split(",")]
    wish = next(iter(named or [one for one in wishes() if LIKED[0] <= rates[one.name] <= LIKED[1]]))
    with tempfile.TemporaryDirectory() as folder:
        root, file = Path(folder) / "home", Path(folder) / "conversations.json"
        file.write_text(json.dumps(conversations(every, wish.holds, seed)))
        began, cpu = time.perf_counter(), os.times()
        command(root, "init", "--yes", "--model", model, "--agent", "none")
        home = Home(root)
        config.save(home.config, {"training": {"background": False, "seed": seed}})
        command(root, "import", "--yes", str(file))
        command(root, "inbox", "--pairs", "--limit", "1", "--json")
        marks = {"seconds_to_the_first_question": time.perf_counter() - began}
        chance = random.Random(seed)
        ask(root, wish.holds, "informative", chance)
        marks["seconds_to_the_run"] = time.perf_counter() - began
        shown, _ = command(root, "train")
        asked = answer_gate(root, wish.holds, chance)
        marks["seconds_to_the_verdict"] = time.perf_counter() - began
        after = os.times()
        used = sum(after[:4]) - sum(cpu[:4])
        with store.connect(home.database) as db:
            live, versions = db.live().number, [(one.number, one.status) for one in db.versions()]
        found = {"model": model, "wish": wish.name, "base_rates": rates, "conversations": CONVERSATIONS, "gate_questions": asked, "live": live, "versions": versions}  # fmt: skip
        found |= {"cpu_seconds": round(used)} | {name: round(value, 1) for name, value in marks.items()}
        found["liked"] = measured(home, wish, seed, world)
        found["last_lines"] = shown.strip().splitlines()[-6:]
    return found


def measured(home: Any, wish: Any, seed: int, world: World | None) -> dict[str, float]:
    """Share of liked answers of the base and of each version, live or not, to prompts that are not in the history."""
    from clawback import release, store
    from clawback.extensions.demo import corpus

    if world is None:
        asked = [one.messages for one in corpus.prompts("held_out", MEASURED, seed)]
    else:
        asked = [({"role": "user", "content": one},) for one in list(dict.fromkeys(p for p, _ in world.held))[:HELD]]  # fmt: skip
    found = {}
    with store.connect(home.database) as db:
        for version in sorted(db.versions(), key=lambda one: one.number):
            name = f"version {version.number}, {version.status}" if version.number else "base"
            policy = release.load(home, version)
            made = policy.generate(asked, seed=seed, **({} if world is None else {"max_tokens": ROOM}))
            found[name] = round(sum(wish.holds(str(p[-1]["content"]), one.text) for p, [one] in zip(asked, made, strict=True)) / len(asked), 3)  # fmt: skip
    return found


def _share(holds: Any, every: dict[str, list[str]]) -> float:
    rows = [holds(prompt, text) for prompt, some in every.items() for text in some]
    return round(sum(rows) / len(rows), 3)


if __name__ == "__main__":
    print(json.dumps(evening_with_a_run(""), indent=2), file=sys.stdout)
