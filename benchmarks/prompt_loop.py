"""Prompts learned from taps on a scripted cloud model: satisfaction before and after, calls, and what the gate makes of good, idle and coin-tossed prompts.

Each person is simulated, rates 32 of the model's answers (one tap in ten wrong) and says a word about three bad ones in ten; where the gate asks for 16 more ratings, once or
twice, they are given. Satisfaction is measured on 64 questions that nobody rated. ``--silent``: no words at all. The gate's own errors: prompts that do what the person
wants, prompts that do something else, and good prompts after ratings by a coin.

    python -m benchmarks prompt_loop
    python -m benchmarks prompt_loop --seeds 4 --silent
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks._choosing import answer_all
from clawback import feedback, store
from clawback.config import GateSection
from clawback.errors import TrainingError
from clawback.extensions.demo import cloud
from clawback.gate import prompt_gate as prompt_gate
from clawback.gate.report import Report, answered
from clawback.paths import Home
from clawback.prompt_jobs import prompt_learning
from clawback.prompts import ScriptedLLM
from clawback.records import Turn, under
from clawback.release import prompted

RATED, UNRATED, HELD = 32, 16, 64
AGENT = {"role": "system", "content": "You are a helpful assistant inside a terminal."}
WANTED = {
    "brief, no emoji": "- Use no emoji.\n- Answer in at most two short sentences.",
    "bullets, no opener": "- Answer with a bulleted list.\n- Start with the answer at once, without any opener.",
    "brief, no question back": "- Do not end with a question.\n- Answer in at most two short sentences.",
}
IDLE = "- Use metric units.\n- Be definite: no may, might or could."


@dataclass(frozen=True)
class Row:
    taste: str
    seed: int
    before: float
    after: float
    live: bool
    questions: int
    calls: int
    why: str


def rate(
    home: Home,
    taste: cloud.CloudTaste,
    asked: Sequence[str],
    rng: random.Random,
    *,
    rated: int,
    words: bool,
    noise: float = 0.1,
) -> None:
    with store.connect(home.database) as db, db.together():
        for number, question in enumerate(asked):
            messages = under([AGENT, {"role": "user", "content": question}], db.live().prompt)
            said = cloud.answer(messages)
            turn = db.add_turn(
                Turn(f"s{question}", (AGENT, {"role": "user", "content": question}), said, model=cloud.MODEL)
            )
            if number >= rated:
                continue
            value = 1 if taste.fits(said) else -1
            value = -value if rng.random() < noise else value
            feedback.rate(db, turn.id, value)
            if words and value < 0 and (remark := taste.remark(said)) and rng.random() < 0.3:
                feedback.critique(db, turn.id, remark)


def satisfied(taste: cloud.CloudTaste, prompt: str, asked: Sequence[str]) -> float:
    made = [cloud.answer(under([AGENT, {"role": "user", "content": q}], prompt)) for q in asked]
    return sum(map(taste.fits, made)) / len(made)


def learned(taste: cloud.CloudTaste, seed: int, words: bool) -> Row:
    """One person from the first tap to what is live in the end."""
    asked, rng = cloud.questions(seed), random.Random(f"person {seed}")
    held, rest = asked[:HELD], asked[HELD:]
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.create()
        rate(home, taste, rest[: RATED + UNRATED], rng, rated=RATED, words=words)
        questions, why = 0, ""
        backend = ScriptedLLM(cloud.answer)
        try:
            found = prompt_learning.optimize(home, backend=backend, seed=seed)
            report = found.report
            why = report.reasons[0] if report else found.stopped
            questions = answer_all(
                home,
                lambda turn: taste.fits(turn.response),
                rng,
                0.1,
                lambda: prompt_learning.judge_waiting(home),
            )
            if report is not None and questions:
                with store.connect(home.database) as db:
                    why = str((db.version(report.version).report or {})["reasons"][0])
        except TrainingError as error:
            why = str(error)
        with store.connect(home.database) as db:
            live = db.live().prompt
    return Row(
        taste.name,
        seed,
        satisfied(taste, "", held),
        satisfied(taste, live, held),
        bool(live),
        questions,
        backend.usage.calls,
        why,
    )


def accepted(taste: cloud.CloudTaste, seed: int, prompt: str, noise: float) -> bool:
    """Whether the gate lets a given prompt through, by the person's answers."""
    asked, rng = cloud.questions(seed), random.Random(f"gate {seed}")
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.create()
        rate(home, taste, asked[: RATED + UNRATED], rng, rated=RATED, words=False, noise=noise)
        with store.connect(home.database) as db:
            version = prompted.propose(db, prompt)
            report = prompt_gate.gate(db, home, version.number, cloud.answer)

            def judge() -> Report | None:
                nonlocal report
                report = answered(db, db.version(version.number), GateSection()) or report
                return report

            answer_all(home, lambda turn: taste.fits(turn.response), rng, noise, judge)
            return report.accepted


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks prompt_loop", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--silent", action="store_true", help="nobody says a word, they only tap")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    rows = []
    for taste in cloud.TASTES.values():
        for seed in range(options.seeds):
            rows.append(learned(taste, seed, not options.silent))
            print(rows[-1], file=sys.stderr)
    gate = {}
    for name, prompt_of, noise in (
        ("what the person wants", lambda t: WANTED[t.name], 0.1),
        ("something else", lambda _: IDLE, 0.1),
        ("what they want, ratings by a coin", lambda t: WANTED[t.name], 0.5),
    ):
        made = [
            accepted(t, 100 + s, prompt_of(t), noise)
            for t in cloud.TASTES.values()
            for s in range(options.seeds)
        ]
        gate[name] = (sum(made), len(made))
    if options.json:
        print(json.dumps({"rows": [asdict(r) for r in rows], "gate": gate}))
        return 0
    print(
        "| taste | persons | live | liked before | after | ratings | calls |\n|---|---|---|---|---|---|---|"
    )
    for taste in cloud.TASTES.values():
        of = [r for r in rows if r.taste == taste.name]
        mean = {
            n: statistics.fmean(getattr(r, n) for r in of) for n in ("before", "after", "ratings", "calls")
        }
        print(
            f"| {taste.name} | {len(of)} | {sum(r.live for r in of)} | {mean['before']:.2f} | {mean['after']:.2f} | {mean['ratings']:.0f} | {mean['calls']:.0f} |"
        )
    print("\n| the gate lets through, at its first look | |\n|---|---|")
    for name, (yes, count) in gate.items():
        print(f"| {name} | {yes} of {count} |")
    return 0
