"""What judges with wrong votes leave of the learning, and whether one that praises everything gets a version past the gate.

A simulated person with a hidden taste taps at 8 of 64 answers, one tap in ten wrong, and says something after every one: thanks where it
fits, a complaint where not. A judge reads these words and votes, each vote wrong with a probability of 0.3 (or never, or it
praises whatever it sees). Its votes go the whole way: into a real store, through the pass of ``clawback lab judge``, calibration,
``feedback.samples`` and a run of ``auto``. *At its word* is the same with a weight of 1 in place of the one that the judge has earned.

The second part puts the judge that praises everything before the real gate, by ``jobs.train_once``: beside people who tapped a
little, who liked all that they rated, who liked most of it, and who tapped at random; and once with calibration switched off.

    python -m benchmarks judges                    # both parts, five seeds, two tastes
    python -m benchmarks judges --part gate --seeds 3

Results are kept, one a line, in bench-results/judges.jsonl; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TASTES = ("bullets, no apology", "casual, asks back")
TURNS, OWN, NOISE, WRONG = 64, 8, 0.1, 0.3
IMPROVED = 0.10
"""Satisfaction on unseen topics that a version must have gained to count as better, as in benchmarks/gate.py."""
NAME = "simulated"
RESULTS = Path("bench-results/judges.jsonl")

THANKS = ("Thanks, just what I wanted.", "Perfect, thank you.", "Great, that helps. Now something else.",
          "Lovely. Next question.")  # fmt: skip
COMPLAINTS = ("No, that is not how I want it.", "Please write that again, differently.",
              "That is wrong for me. Once more, please.", "I do not like that answer.")  # fmt: skip
_PRAISE = re.compile(r"\b(?:thanks|thank you|perfect|great|lovely)\b", re.IGNORECASE)
_NEXT = re.compile(r"<<NEXT STATE (\w+)>>\n(.*?)\n<<end \1>>", re.DOTALL)


@dataclass(frozen=True)
class Arm:
    """How a judge votes, how often it is asked, and whether it is believed as it is or as it has earned."""

    wrong: float | None
    """Share of its votes that are wrong; None: it votes +1 whatever it reads."""
    votes: int
    earned: bool


ARMS: dict[str, Arm | None] = {
    "own ratings alone": None,
    "1 vote, at its word": Arm(WRONG, 1, False),
    "1 vote, calibrated": Arm(WRONG, 1, True),
    "5 votes, at its word": Arm(WRONG, 5, False),
    "5 votes, calibrated": Arm(WRONG, 5, True),
    "no errors, calibrated": Arm(0.0, 1, True),
    "always +1, calibrated": Arm(None, 1, True),
}


# --------------------------------------------------------------------------------------------- a person and a judge


def judge_of(wrong: float | None, seed: int) -> Any:
    """An ``Ask`` that reads the next state as it is shown to real judges, and answers in their form."""
    from clawback.feedback.endpoint import JudgeAnswer, guess

    chance = random.Random(f"judge {seed}")

    def ask(system: str, user: str) -> JudgeAnswer:
        found = _NEXT.search(user)
        if found is None:
            raise ValueError("A judge was shown no next state.")
        value = 1 if wrong is None or _PRAISE.search(found[2]) else -1
        if wrong is not None and chance.random() < wrong:
            value = -value
        text = f"What came back tells how the answer was taken.\n\\boxed{{{value}}}"
        return JudgeAnswer(text, guess(system + user + text))

    return ask


def tapped(fits: list[bool], person: str, chance: random.Random) -> dict[int, float]:
    """Place of a turn → what the person tapped.

    ``few``: 8 turns as they come, one tap in ten wrong; ``half``: 32 of them. ``most liked``: 6 that they like and 2 that they do
    not, all right; ``all liked``: 8 that they like. ``random``: 32 turns, a coin each.
    """
    order = chance.sample(range(len(fits)), len(fits))
    if person == "random":
        return {i: chance.choice((1.0, -1.0)) for i in order[: TURNS // 2]}
    if person in ("few", "half"):
        some = order[: OWN if person == "few" else TURNS // 2]
        return {i: 1.0 if fits[i] != (chance.random() < NOISE) else -1.0 for i in some}
    liked, not_liked = ([i for i in order if fits[i] == wanted] for wanted in (True, False))
    bad = 2 if person == "most liked" else 0
    return dict.fromkeys(liked[: OWN - bad], 1.0) | dict.fromkeys(not_liked[:bad], -1.0)


@contextmanager
def home_of(taste: str, seed: int, person: str = "few") -> Iterator[tuple[Any, Any, dict[int, bool]]]:
    """A home with 64 conversations of the base model, the person's taps and what they said after each answer.

    Gives the home, its open store, and turn → whether the answer fits the taste.
    """
    from clawback import config, engine, feedback, store
    from clawback.extensions.demo import corpus, tastes
    from clawback.paths import Home
    from clawback.records import Turn

    like, chance = tastes.TASTES[taste], random.Random(f"person {seed}")
    asked = corpus.prompts("rated", TURNS, seed)
    made = [one for [one] in engine.load("embedded").generate([p.messages for p in asked], seed=1000 * seed)]
    fits = [like.fits(p, one.text) for p, one in zip(asked, made, strict=True)]
    taps = tapped(fits, person, chance)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "clawback")
        home.create()
        config.save(home.config, {"training": {"seed": seed, "background": False}, "tracking": {"to": []}})
        with store.connect(home.database) as db:
            right = {}
            for place, (prompt, one) in enumerate(zip(asked, made, strict=True)):
                asking = tuple(prompt.messages)
                turn = Turn(f"talk {place}", asking, one.text, version=0,
                            response_ids=one.ids, response_logprobs=one.logprobs)  # fmt: skip
                turn = db.add_turn(turn)
                said = chance.choice(THANKS if fits[place] else COMPLAINTS)
                db.put_next_state(turn.id, [{"role": "user", "content": said}])
                db.finish_session(turn.session)
                right[turn.id] = fits[place]
                if place in taps:
                    feedback.rate(db, turn.id, taps[place], source="person")
            yield home, db, right


def judge_pass(db: Any, arm: Arm, seed: int) -> None:
    """What ``clawback lab judge`` does with a store, with this judge."""
    from clawback.feedback import next_state_judge
    from clawback.feedback.endpoint import CallBudget
    from clawback.feedback.passes import PassPlan

    budget = CallBudget(10 * TURNS, 600.0, 10_000_000)
    done = next_state_judge.judge(db, judge_of(arm.wrong, seed), PassPlan(NAME, budget, votes=arm.votes))
    if done.stopped or done.failed:
        raise RuntimeError(f"The pass did not go through: {done}")


def samples_of(db: Any, arm: Arm | None) -> list[Any]:
    """What a run learns from: the judge weighed as it has earned, or taken at its word."""
    from clawback import feedback
    from clawback.feedback.calibrate import Reliability
    from clawback.feedback.next_state_judge import source_of

    if arm is None or arm.earned:
        return feedback.samples(db)
    name, sure = source_of(NAME), (10**6, 10**6)
    return feedback.samples(db, judges={name: Reliability(name, TURNS, sure, sure)})


def verdicts(db: Any, right: dict[int, bool]) -> dict[str, Any]:
    """How many of the judge's verdicts are as the person feels, and the weight that they have earned."""
    from clawback import feedback
    from clawback.feedback.next_state_judge import source_of

    given = [f for f in db.feedback() if f.kind == "judge"]
    if not given:
        return {"accuracy": None, "weight": None}
    hits = [(f.value > 0) == right[f.turn_id] for f in given]
    return {"accuracy": statistics.mean(hits), "weight": feedback.judges(db)[source_of(NAME)].weight}


# ----------------------------------------------------------------------------------------------------- two parts


def learning(name: str, taste: str, seed: int, others: list[dict[str, Any]]) -> dict[str, Any]:
    """One person, one way of judging, one run of ``auto``: a row.

    ``others``: rows of the same person. Where one of them learned from the very same samples (a judge of weight 0 adds none), its
    run is this one, bit for bit, and is not made again.
    """
    from benchmarks.taste import measure
    from clawback import engine
    from clawback.extensions.demo import tastes

    arm = ARMS[name]
    began = time.process_time()
    with home_of(taste, seed) as (home, db, right):
        if arm is not None:
            judge_pass(db, arm, seed)
        samples = samples_of(db, arm)
        row = verdicts(db, right) | {"learned from": mark(samples)}
        for other in others:
            if other["learned from"] == row["learned from"]:
                return other | row | {"same as": other["name"]}
        policy = engine.load("embedded")
        prompts = [t.messages for t in reversed(db.turns(limit=-1))]
        recipe = engine.recipe(policy.info)
        result = engine.train(policy, samples, recipe, seed=seed, out=home.runs / "1", prompts=prompts)
    row |= {"algorithm": result.algorithm, "note": result.note, "samples": len(samples)}
    row |= measure(policy, tastes.TASTES[taste], seed)
    return row | {"cpu_seconds": time.process_time() - began}


def mark(samples: list[Any]) -> str:
    """A hash of what a run learns from: which turns, and how they were rewarded (who said so, a judge of weight 0 too, is no matter)."""
    text = json.dumps([(s.turn_id, s.response, s.reward, s.hints) for s in samples])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


PEOPLE: dict[str, tuple[str, bool]] = {
    "8 taps": ("few", True),
    "6 liked, 2 not": ("most liked", True),
    "8 liked": ("all liked", True),
    "32 taps at random": ("random", True),
    "32 taps, judge at its word": ("half", False),
}
"""Who tapped how, and whether the judge is weighed by what it has earned."""


def gated(name: str, taste: str, seed: int, others: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: ARG001
    """The judge that praises everything, one person, the whole pipeline to the gate: a row.

    Where the judge is weighed, ``alone`` is the same without it.
    """
    person, earned = PEOPLE[name]
    arm = Arm(None, 1, earned)
    began = time.process_time()
    with home_of(taste, seed, person) as (home, db, right):
        alone = mark(samples_of(db, None))
        judge_pass(db, arm, seed)
        row = verdicts(db, right) | {"same samples": mark(samples_of(db, arm)) == alone}
        row["judged"] = released(home, db, taste, seed, arm)
    if row["same samples"]:
        row["alone"] = row["judged"]  # the same samples, prompts and seed: the same bits
    elif earned:
        with home_of(taste, seed, person) as (home, db, right):
            row["alone"] = released(home, db, taste, seed, None)
    return row | {"base": satisfied(None, None, taste, seed), "cpu_seconds": time.process_time() - began}


def released(home: Any, db: Any, taste: str, seed: int, arm: Arm | None) -> dict[str, Any]:
    """A run and the gate as ``clawback train`` does it; where the judge is taken at its word, the same steps one by one."""
    from clawback import jobs, release

    if arm is None or arm.earned:
        outcome = jobs.train_once(home, seed=seed)
        live, report, algorithm = outcome.live, outcome.report, outcome.run.algorithm
    else:
        number, algorithm = propose(home, db, arm, seed)
        report = release.gate(db, home, number)
        live = report.accepted
    found = {
        "live": live,
        "probability": report.probability,
        "why": report.reasons[0],
        "algorithm": algorithm,
    }
    return found | {"satisfaction": satisfied(home, db.version(report.version), taste, seed)}


def propose(home: Any, db: Any, arm: Arm, seed: int) -> tuple[int, str]:
    """A candidate as ``train_once`` makes it, but of samples in which the judge counts as much as the person."""
    from clawback import config, engine, feedback, release
    from clawback.records import Run

    samples = samples_of(db, arm)
    train, held = feedback.split(samples, config.load(home.config).gate.held_out)
    policy = engine.load("embedded")
    recipe = engine.recipe(policy.info)
    learned, kept = (tuple(p.feedback_id for s in some for p in s.parts) for some in (train, held))
    run = db.start_run(
        Run("embedded", policy.info.revision, recipe.algorithm, dataclasses.asdict(recipe), seed, 0,
            train_ids=learned, held_out_ids=kept)
    )  # fmt: skip
    away = {s.turn_id for s in held}
    prompts = [t.messages for t in reversed(db.turns(limit=-1)) if t.id not in away]
    result = engine.train(policy, train, recipe, seed=seed, out=home.runs / "1", prompts=prompts)
    version = release.propose(db, home, run, result)
    db.update_run(run.id, status="done")
    return int(version.number), result.algorithm


def satisfied(home: Any, version: Any, taste: str, seed: int) -> float:
    """Share of a version's answers about unseen topics that fit; the base model's without a version."""
    from clawback import engine, release
    from clawback.extensions.demo import corpus, tastes

    policy = release.load(home, version) if version else engine.load("embedded")
    asked = corpus.prompts("held_out", 128, seed)
    made = [one for [one] in policy.generate([p.messages for p in asked], seed=10_000 + seed)]
    return statistics.mean(tastes.TASTES[taste].fits(p, one.text) for p, one in zip(asked, made, strict=True))


Work = Callable[[str, str, int, list[dict[str, Any]]], dict[str, Any]]
PARTS: dict[str, tuple[Work, list[str]]] = {"learning": (learning, list(ARMS)), "gate": (gated, list(PEOPLE))}


# ---------------------------------------------------------------------------------------------------- the tables


def learning_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: mean ± standard deviation over tastes and seeds, then satisfaction by taste."""
    names = list(dict.fromkeys(row["taste"] for row in rows))
    head = ["judge", "runs", "right", "weight", "satisfaction", *names, "facts", "KL"]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for arm in dict.fromkeys(row["name"] for row in rows):
        some = [row for row in rows if row["name"] == arm]
        cells = [str(len(some))]
        for key in ("accuracy", "weight"):
            known = [row[key] for row in some if row[key] is not None]
            cells.append(_spread(known) if known else "–")
        if (chosen := ARMS[arm]) is not None and not chosen.earned:
            cells[-1] = f"1 (earned: {cells[-1]})"
        cells.append(_spread([row["satisfaction"] for row in some]))
        cells += [_spread([row["satisfaction"] for row in some if row["taste"] == name]) for name in names]
        cells += [
            f"{statistics.mean(row[key] for row in some):.{d}f}" for key, d in (("facts", 2), ("kl", 1))
        ]
        lines.append(f"| {arm} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gate_table(rows: list[dict[str, Any]]) -> str:
    """Markdown: versions that went live with the judge and without, and how many of them are no better than the base."""
    head = ["person", "cases", "weight", "judge changes the run", "live with the judge", "of these no better",
            "live without", "of these no better", "satisfaction: base → with / without"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for name in dict.fromkeys(row["name"] for row in rows):
        some = [row for row in rows if row["name"] == name]
        weight = _spread([row["weight"] for row in some]) if PEOPLE[name][1] else "1"
        cells = [str(len(some)), weight, str(sum(not row["same samples"] for row in some))]
        means = []
        for which in ("judged", "alone"):
            known = [row for row in some if which in row]
            live = [row for row in known if row[which]["live"]]
            worse = sum(row[which]["satisfaction"] < row["base"] + IMPROVED for row in live)
            cells += [str(len(live)), str(worse)] if known else ["–", "–"]
            means += [f"{statistics.mean(row[which]['satisfaction'] for row in known):.2f}" if known else "–"]
        cells.append(f"{statistics.mean(r['base'] for r in some):.2f} → {' / '.join(means)}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def main(argv: list[str] | None = None) -> int:
    about = __doc__.partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks judges", description=about)
    parser.add_argument("--part", choices=PARTS, help="learning or gate (default: both)")
    parser.add_argument("--only", default="", help="names of rows of the tables, with ; between them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tastes", default=";".join(TASTES), help="names, with ; between them")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    text = options.results.read_text("utf-8") if options.results.exists() else ""
    known = {row["key"]: row for row in map(json.loads, text.splitlines())}
    chosen, tastes = ([n.strip() for n in t.split(";") if n.strip()] for t in (options.only, options.tastes))
    wanted = []
    for part in [options.part] if options.part else list(PARTS):
        work, names = PARTS[part]
        people = [(seed, taste) for seed in range(options.seeds) for taste in tastes]
        if part == "gate":  # a run and a gate cost twice as much: the tastes take turns
            people = [(seed, tastes[(seed + 1) % len(tastes)]) for seed in range(options.seeds)]
        cases = [(n, t, s) for s, t in people for n in names if not chosen or n in chosen]
        for name, taste, seed in cases:
            key = f"{part}|{name}|{taste}|{seed}"
            if key not in known:
                same = {"part": part, "taste": taste, "seed": seed}
                others = [row for row in known.values() if same.items() <= row.items()]
                known[key] = work(name, taste, seed, others) | same | {"key": key, "name": name}
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[key]) + "\n")
                print(json.dumps(known[key]), file=sys.stderr, flush=True)
            wanted.append(known[key])
    for part, made in (("learning", learning_table), ("gate", gate_table)):
        if rows := [row for row in wanted if row["part"] == part]:
            rows.sort(key=lambda row: PARTS[row["part"]][1].index(row["name"]))
            print(f"{made(rows)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
