"""How often the gate is right: candidates that truly improved, four kinds that did not, and people who tap at random.

Each case is a person with a hidden taste who rates 32 answers of the base model, one tap in ten wrong. A *good* candidate is
what the default recipe makes of these ratings. It is counted only if it truly improved: held-out answers fit the hidden taste
better than the base model's by at least ten points, and no more than ten points of facts were lost. The others are trained
on the same answers with shuffled ratings, collapsed by a learning rate a hundred times too high, random weights, or
trained far past the point where the guards would stop: on the ratings themselves, or (every other case) on imagined answers with
nothing that holds them to the base. They are counted if they did *not* truly improve. *Noise*: the default recipe on the taps of somebody who taps good three times in ten, whatever
they see; all of them count. The gate sees what it would see in life: the person's ratings, a candidate and the live version; where it asks for more ratings, it gets them. Truth is never
shown to it. Half of the people have tastes that the style features cannot say; nothing was chosen with any of these tastes (``tastes.TEST``).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks._choosing import first_is_better
from clawback import config, engine, feedback, release, store
from clawback.admin.rating_inbox import Inbox
from clawback.extensions.demo import Demo, corpus, tastes
from clawback.extensions.demo.loop import Rate
from clawback.gate.report import Report, answered
from clawback.gate.rule import decide
from clawback.jobs import inputs
from clawback.paths import Home
from clawback.records import Run, Sample

RESULTS = Path("bench-results/gate.jsonl")
BAD = ("shuffled", "collapsed", "random", "over-trained")
NOISE, TAPPED_GOOD = "noise", 0.3
WANTED_GOOD, WANTED_BAD, WANTED_NOISE = 20, 5, 20
IMPROVED = 0.10
"""Held-out satisfaction that a candidate must have gained to count as truly improved, and share of facts it may have lost."""


def cases(kind: str, count: int, first: int) -> list[tuple[str, int]]:
    """(taste, seed) of each case; the tastes take turns."""
    shift = ("good", *BAD, NOISE).index(kind)
    return [(tastes.TEST[(i + shift) % len(tastes.TEST)], first + 100 * shift + i) for i in range(count)]


def make_candidate(demo: Demo, kind: str, seed: int) -> int:
    """Train a candidate of a kind from the ratings in the demo's store, and enter it. Returns its number."""
    with store.connect(demo.home.database) as db:
        samples = feedback.samples(db)
        settings = config.load(demo.home.config)
        train, held = feedback.split(samples, settings.gate.held_out)
        kept_out = {s.turn_id for s in held}
        policy = engine.load("embedded")
        recipe = engine.recipe(policy.info, "balanced", algorithm(kind, seed), {})
        run = db.start_run(
            Run(
                base="embedded",
                base_revision=policy.info.revision,
                algorithm=recipe.algorithm,
                recipe=dataclasses.asdict(recipe),
                seed=seed,
                parent=0,
                train_ids=tuple(p.feedback_id for s in train for p in s.parts),
                held_out_ids=tuple(p.feedback_id for s in held for p in s.parts),
            )
        )
        result = engine.train(
            policy,
            shuffled(train, seed) if kind == "shuffled" else train,
            spoilt(recipe, kind),
            seed=seed,
            out=demo.home.runs / "1",
            prompts=inputs.prompts(db, kept_out, math.inf, settings.gate.held_out),
        )
        if kind == "random":
            randomise(Path(result.path), seed)
        version = release.propose(db, demo.home, run, result)
        db.update_run(run.id, status="done")
        return version.number


def algorithm(kind: str, seed: int) -> str:
    if kind == "over-trained" and seed % 2:
        return "rollouts"
    return "auto" if kind in ("good", NOISE) else "reinforce"


def shuffled(samples: list[Sample], seed: int) -> list[Sample]:
    """The same answers, the same ratings, dealt anew."""
    rewards = [s.reward for s in samples]
    random.Random(seed).shuffle(rewards)
    return [dataclasses.replace(s, reward=r) for s, r in zip(samples, rewards, strict=True)]


def spoilt(recipe: engine.Recipe, kind: str) -> engine.Recipe:
    """A recipe that does what the kind is named after, with the guards out of its way."""
    loose: dict[str, Any] = {"max_drift": 1e9, "max_reward_drop": 1e9}
    if kind == "collapsed":
        return dataclasses.replace(recipe, learning_rate=100 * recipe.learning_rate, **loose)
    if kind == "over-trained" and recipe.algorithm == "rollouts":
        unheld = {"exact_kl": 0.0, "pessimism": 0.0, "rounds": 48}
        return dataclasses.replace(recipe, extra=unheld, **loose)
    if kind == "over-trained":
        return dataclasses.replace(recipe, learning_rate=4 * recipe.learning_rate, steps=160, kl=0.0, **loose)
    if kind == "random":
        return dataclasses.replace(recipe, steps=1, algorithm="reinforce")
    return recipe


def randomise(folder: Path, seed: int) -> None:
    """Replace an adapter's weights by noise that is large enough to be heard."""
    import torch
    from safetensors.torch import load_file, save_file

    generator = torch.Generator().manual_seed(seed)
    file = folder / "adapter_model.safetensors"
    noise = {name: 0.08 * torch.randn(t.shape, generator=generator) for name, t in load_file(file).items()}
    save_file(noise, file, metadata={"format": "pt"})


def truth(demo: Demo, number: int) -> dict[str, float]:
    """What the gate does not see: held-out answers that fit the hidden taste, and facts in them that are right."""
    with store.connect(demo.home.database) as db:
        policy = release.load(demo.home, db.version(number))
    asked = corpus.prompts("held_out", 128, 7)
    made = [c.text for [c] in policy.generate([p.messages for p in asked], seed=77)]
    facts = [corpus.check_facts(p, text) for p, text in zip(asked, made, strict=True)]
    return {
        "satisfaction": sum(demo.taste.fits(p, text) for p, text in zip(asked, made, strict=True))
        / len(asked),
        "facts": sum(f.right for f in facts) / max(1, sum(f.stated for f in facts)),
    }


def improved(row: dict[str, Any]) -> bool:
    before, after = row["before"], row["after"]
    return bool(
        after["satisfaction"] >= before["satisfaction"] + IMPROVED
        and after["facts"] >= before["facts"] - IMPROVED
    )


def judge(kind: str, taste: str, seed: int) -> dict[str, Any]:
    """One case from the first answer to the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        demo, began = Demo(Home(Path(folder)), taste, seed=seed), time.process_time()
        rate = at_random(seed) if kind == NOISE else demo.simulated
        demo.collect(32, rate)
        number = make_candidate(demo, kind, seed)
        with store.connect(demo.home.database) as db:
            report = release.gate(db, demo.home, number)
            person = random.Random(f"choices {seed}")
            while report.again_at:
                pair = Inbox(demo.home).questions()[0]
                prompt = demo.prompts[pair.first.prompt]
                likes = tuple(
                    kind != NOISE and demo.taste.fits(prompt, t.response) for t in (pair.first, pair.second)
                )
                first = first_is_better(likes, person, demo.noise)
                better, worse = (pair.first, pair.second) if first else (pair.second, pair.first)
                feedback.prefer(db, better.id, worse.id)
                report = answered(db, db.version(number), config.GateSection()) or report
            provenance = json.loads((Path(db.version(number).path) / "provenance.json").read_text())
        return {
            "kind": kind,
            "taste": taste,
            "seed": seed,
            "algorithm": provenance["algorithm"],
            "before": truth(demo, 0),
            "after": truth(demo, number),
            "accepted": report.accepted,
            "questions": len(report.evidence.answers),
            "probability": report.probability,
            "reasons": report.reasons,
            "evidence": dataclasses.asdict(report.evidence),
            "seconds": time.process_time() - began,
        }


def at_random(seed: int) -> Rate:
    """Taps that mean nothing."""
    person = random.Random(f"noise {seed}")
    return lambda *_: 1 if person.random() < TAPPED_GOOD else -1


def decided(row: dict[str, Any]) -> dict[str, Any]:
    """With what the gate says of this evidence today: cases are dear, rules are not."""
    empty = {"version": 0, "against": 0, "accepted": False, "probability": 0.0, "reasons": ()}
    report = Report.from_dict(empty | {"evidence": row["evidence"]})
    decision = decide(report.evidence, config.GateSection())
    return row | {
        "accepted": decision.accepted,
        "probability": decision.probability,
        "reasons": decision.reasons,
    }


def counted(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The cases of a kind that count, at most as many as are wanted: by the truth, not by what the gate said."""
    of_kind = [r for r in rows if r["kind"] == kind and (kind == NOISE or improved(r) == (kind == "good"))]
    return of_kind[: wanted(kind)]


def wanted(kind: str) -> int:
    return {"good": WANTED_GOOD, NOISE: WANTED_NOISE}.get(kind, WANTED_BAD)


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| candidates | cases | accepted | asked for more | satisfaction before → after | facts before → after | mean P(better) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for kind in ("good", *BAD, NOISE):
        if of_kind := counted(rows, kind):
            mean = {
                f"{when} {what}": sum(r[when][what] for r in of_kind) / len(of_kind)
                for when in ("before", "after")
                for what in ("satisfaction", "facts")
            }
            sure = sum(r["probability"] for r in of_kind) / len(of_kind)
            lines.append(
                f"| {kind} | {len(of_kind)} | {sum(r['accepted'] for r in of_kind)} "
                f"| {sum(r.get('looks', 1) > 1 for r in of_kind)} "
                f"| {mean['before satisfaction']:.2f} → {mean['after satisfaction']:.2f} "
                f"| {mean['before facts']:.2f} → {mean['after facts']:.2f} | {sure:.2f} |"
            )
    tried = [r for r in rows if r["kind"] == "good" and not improved(r)]
    lines.append(
        f"\n{len(tried)} candidates of the default recipe had not truly improved and are not counted above; "
        f"{sum(r['accepted'] for r in tried)} of them were accepted."
    )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gate", description=__doc__)
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="cases that are in this file are not run again"
    )
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=["good", *BAD, NOISE])
    options = parser.parse_args(argv)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        [decided(json.loads(line)) for line in options.results.read_text().splitlines()]
        if options.results.exists()
        else []
    )
    done = {(r["kind"], r["taste"], r["seed"]) for r in rows}
    for kind in options.kinds:
        # More than are wanted may be needed: what counts is decided by the truth.
        for taste, seed in cases(kind, 2 * wanted(kind), options.first_seed):
            if (kind, taste, seed) in done or len(counted(rows, kind)) >= wanted(kind):
                continue
            row = judge(kind, taste, seed)
            rows.append(row)
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            verdict = "accepted" if row["accepted"] else "rejected"
            print(
                f"{kind} {taste} {seed}: {row['before']} → {row['after']} {verdict}: {row['reasons'][0]}",
                file=sys.stderr,
            )
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
