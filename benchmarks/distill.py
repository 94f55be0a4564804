"""A live prompt folded into the adapter by ``clawback distill``: what is kept without it, and what the gate says, by both of its questions.

The embedded model under "Answer with a bulleted list.", and a person who likes lists, has rated 32 answers, one tap in ten wrong. The figure is the share of lists
among answers to 48 questions that nobody rated: of the model alone, under the prompt, and of the version that comes of it, without the prompt.

    python -m benchmarks distill --seeds 3
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

PROMPT = "Answer with a bulleted list."
TURNS, RATINGS, UNSEEN = 48, 32, 48


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks distill", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(argv)
    columns = ("alone", "prompted", "folded", "accepted", "probability", "better", "cpu_seconds")
    print(f"| seed | {' | '.join(columns)} |\n{'| --- ' * (len(columns) + 1)}|")
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            row = measure(Path(folder), seed)
        print(f"| {seed} | " + " | ".join(str(row[name]) for name in columns) + " |", flush=True)
    return 0


def measure(folder: Path, seed: int) -> dict[str, Any]:
    from clawback import jobs, store
    from clawback.engine.embedded import corpus
    from clawback.paths import Home

    home = Home(folder / "home")
    filled(home, seed)
    started = time.process_time()
    made = jobs.train_once(home, fold=True, seed=seed)
    seconds = time.process_time() - started
    from clawback import engine

    policy = engine.load("embedded")
    asked = [one.messages for one in corpus.prompts("test", UNSEEN, seed)]

    def lists(adapter: Path | None, prompt: str = "") -> float:
        policy.put(adapter)
        policy.chat.system = prompt
        answers = [one.text for [one] in policy.generate(asked, seed=seed)]
        return round(sum("\n-" in text or text.startswith("-") for text in answers) / UNSEEN, 2)

    found = {
        "alone": lists(None),
        "prompted": lists(None, PROMPT),
        "folded": lists(Path(made.version.path)),
        "accepted": "yes" if made.report.accepted else "no",
        "probability": round(made.report.probability, 2),
        "cpu_seconds": round(seconds),
    }
    with store.connect(home.database) as db:
        return found | {"better": round(better_than_the_prompt(db, made.version, policy), 2)}


def filled(home: Any, seed: int) -> None:
    """Turns, ratings, and the prompt live."""
    from clawback import feedback, store
    from clawback.engine.embedded import corpus, tastes
    from clawback.records import Turn
    from clawback.release import prompt_gate, prompted

    home.create()
    home.config.write_text("[training]\nbackground = false\n")
    rng, taste = random.Random(seed), tastes.TASTES["bullets"]
    with store.connect(home.database) as db:
        for number, prompt in enumerate(corpus.prompts("rated", TURNS, seed)):
            text = corpus.answer(corpus.BY_NAME[prompt.topic], corpus.random_style(rng), rng)
            turn = db.add_turn(Turn(f"s{number}", tuple(prompt.messages), text))
            if number < RATINGS:
                feedback.rate(db, turn.id, taste.rate(prompt, text, rng, 0.1))
        version = prompted.propose(db, PROMPT, origin={"author": "hand"})
        prompt_gate.by_hand(db, home, version)


def better_than_the_prompt(db: Any, version: Any, policy: Any) -> float:
    """What the gate would say if it asked whether the version is better than the model under the prompt."""
    from clawback import feedback
    from clawback.config import Gate
    from clawback.release import evidence, gating, rule

    samples = feedback.evidence(feedback.samples(db))
    kept = gating.unseen(db, samples, db.run(version.run_id), db.version(1))
    held = [one for one in samples if one.turn_id in kept]
    asked = gating.prompts(db, kept)
    policy.chat.system = ""
    found = evidence.measure(
        policy, Path(version.path), None, samples, held, asked, max_tokens=None, seed=0, systems=("", PROMPT)
    )
    return rule.decide(found, Gate()).probability
