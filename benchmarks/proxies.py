"""What a reward model is good for beyond scoring: best of N, learning on prompts that nobody rated, and how far it is fooled.

A simulated person with a hidden taste rates 64 answers of the embedded model, one tap in ten wrong. ``clawback lab reward train``'s own
function makes a reward model of these ratings. It then chooses the best of 4 and of 16 answers (``jobs/best.py``), and grades the
imagined answers of a run in place of the head (``[reward] grade = true``): with the guards as they are, and with all of them off (no
pessimism, no KL, no stop). Beside them the base model and the default, whose head each run fits for itself on the same ratings.

All answer prompts about topics that nobody rated. *True* is the share of answers that fit the taste; *promised* is the reward model's
calibrated opinion of the same answers; *said* is what the person would tap, wrong taps included, both in [0, 1]. The gap is by how much more of (promised
less said) there is than on the base model's answers, as ``rewards.overoptimization.gap`` defines it.

    python -m benchmarks proxies                   # three tastes, five seeds
    python -m benchmarks proxies --seeds 3 --tastes "bullets, no apology"

Results are kept, one a line, in bench-results/proxies.jsonl; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TASTES = ("bullets, no apology", "casual, asks back", "metric units")
RATED, NOISE = 64, 0.1
UNRATED = 192
"""Captured turns whose prompts are there to imagine answers to, as many for each rated one as the demo has."""
ANSWERS, MOST = 128, 16
WATCHED = 32
"""Answers of a version that the person rates afterwards: what the guard sees."""
UNGUARDED_SEEDS = 3
RESULTS = Path("bench-results/proxies.jsonl")


@contextmanager
def home_of(taste: str, seed: int) -> Iterator[tuple[Any, Any]]:
    """A home with 64 rated turns, 192 that nobody rated, a reward model trained on the ratings; and its open store."""
    from clawback import config, engine, feedback, store
    from clawback.extensions.demo import corpus, tastes
    from clawback.paths import Home
    from clawback.records import Turn

    person = random.Random(f"person {seed}")
    asked = corpus.prompts("rated", RATED, seed)
    others = corpus.prompts("rated", UNRATED, 100 + seed)
    made = engine.load("embedded").generate([p.messages for p in (*asked, *others)], seed=1000 * seed)
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "clawback")
        home.create()
        config.save(home.config, {"reward": {"grade": True}, "tracking": {"to": []}})
        with store.connect(home.database) as db:
            for place, (prompt, [one]) in enumerate(zip((*asked, *others), made, strict=True)):
                turn = db.add_turn(
                    Turn(
                        "talk",
                        tuple(prompt.messages),
                        one.text,
                        version=0,
                        response_ids=one.ids,
                        response_logprobs=one.logprobs,
                    )
                )
                if place < RATED:
                    feedback.rate(
                        db,
                        turn.id,
                        tastes.TASTES[taste].rate(prompt, one.text, person, NOISE),
                        source="person",
                    )
            yield home, db


class Judged:
    """Answers to the held-out prompts, seen by the taste, by the reward model, and by the person."""

    def __init__(self, home: Any, taste: str, seed: int) -> None:
        from clawback.extensions.demo import corpus, tastes
        from clawback.extensions.reward import rewarding

        self.taste, self.seed = tastes.TASTES[taste], seed
        self.asked = corpus.prompts("held_out", ANSWERS, seed)
        self.talks = [p.messages for p in self.asked]
        self.model, _ = rewarding.load(home)
        self.first: Any = None

    def __call__(self, made: Sequence[Any], kl: float) -> dict[str, Any]:
        """The figures of one way of answering; the base model's must be the first."""
        from clawback.extensions.demo import corpus
        from clawback.extensions.reward import measures
        from clawback.rewards import overoptimization

        person = random.Random(f"later {self.seed}")
        pairs = [(p.text, one.text) for p, one in zip(self.asked, made, strict=True)]
        fits = [self.taste.fits(p, one.text) for p, one in zip(self.asked, made, strict=True)]
        said = [
            (1 + self.taste.rate(p, one.text, person, NOISE)) / 2
            for p, one in zip(self.asked, made, strict=True)
        ]
        scores = self.model.score(pairs)
        promised = self.model.expected(scores)
        facts = [corpus.check_facts(p, one.text) for p, one in zip(self.asked, made, strict=True)]
        whole = overoptimization.check(promised, said)
        self.first = self.first or whole
        return {
            "true": statistics.mean(fits),
            "said": whole.human,
            "promised": whole.proxy,
            "score": float(scores.mean()),
            "gap": overoptimization.gap([self.first, whole]).sizes[-1],
            "watched": dataclasses.asdict(overoptimization.check(promised[:WATCHED], said[:WATCHED])),
            "spearman": measures.spearman(scores, [float(f) for f in fits]),
            "facts": sum(c.right for c in facts) / max(1, sum(c.stated for c in facts)),
            "kl": kl,
        }


def run(taste: str, seed: int, ways: Sequence[str]) -> Iterator[dict[str, Any]]:
    """One person: a row for each way of answering that is asked for (and the base model's, which the others are held against)."""
    from clawback import config, engine
    from clawback.extensions.reward import rewarding
    from clawback.extensions.reward.encoder import EncoderSettings
    from clawback.jobs import answering
    from clawback.rewards import overoptimization

    with home_of(taste, seed) as (home, db):
        began = time.process_time()
        outcome = rewarding.train(home, rewarding.ratings(home), EncoderSettings(), seed=seed)
        seconds = time.process_time() - began
        judged = Judged(home, taste, seed)
        pool = engine.load("embedded").generate(judged.talks, samples=MOST, seed=10_000 + seed)
        row = {"reward model": outcome.to_dict()["held_out"]["spearman"], "cpu_seconds": seconds}
        yield {"way": "base"} | judged([some[0] for some in pool], 0.0) | row
        for count in (4, MOST):
            if f"best of {count}" in ways:
                pick = answering.picker(home, config.load(home.config), count)
                kept = [pick(p.text, some[:count])[0] for p, some in zip(judged.asked, pool, strict=True)]
                yield {"way": f"best of {count}"} | judged(kept, overoptimization.best_of_kl(count))
        for way, train in TRAINED.items():
            if way in ways:
                began = time.process_time()
                policy, note = train(home, db, seed)
                row = {"note": note, "cpu_seconds": time.process_time() - began}
                yield {"way": way} | judged(*answers(policy, judged.talks, seed)) | row


def answers(policy: Any, talks: Sequence[Any], seed: int) -> tuple[list[Any], float]:
    """A version's answers, and how far it is from the base on them: Σ log π − log π_base, mean over answers."""
    made = [one for [one] in policy.generate(talks, seed=10_000 + seed)]
    with policy.base():
        base = policy.logprobs(talks, [one.ids for one in made])
    kl = statistics.mean(sum(o.logprobs) - float(b.sum()) for o, b in zip(made, base, strict=True))
    return made, kl


def default(home: Any, db: Any, seed: int) -> tuple[Any, str]:
    """``auto``, its head fitted in the run."""
    return trained(home, db, seed, None)


def graded(home: Any, db: Any, seed: int) -> tuple[Any, str]:
    """``auto``, graded by the reward model as ``[reward] grade = true`` has it, be it shown to read better than chance or not."""
    from clawback import config
    from clawback.extensions.reward import rewarding, run_grader

    model, _ = rewarding.load(home)
    return trained(
        home, db, seed, run_grader.RewardModelGrader(model, config.load(home.config).reward.pessimism)
    )


def unguarded(home: Any, db: Any, seed: int) -> tuple[Any, str]:
    """The same without pessimism, without a KL to the base, twice as long, and with nothing that would stop it."""
    from clawback.extensions.reward import rewarding, run_grader

    model, _ = rewarding.load(home)
    loose = {"max_drift": 1e9, "max_reward_drop": 1e9, "extra": {"exact_kl": 0.0, "rounds": 24}}
    return trained(home, db, seed, run_grader.RewardModelGrader(model, 0.0), **loose)


def trained(home: Any, db: Any, seed: int, grader: Any, **changes: Any) -> tuple[Any, str]:
    """One run on all ratings and the prompts of all turns: the policy, and what was learned from or why it ended."""
    from clawback import engine, feedback

    policy = engine.load("embedded")
    result = engine.train(
        policy,
        feedback.samples(db),
        dataclasses.replace(engine.recipe(policy.info), **changes),
        seed=seed,
        out=home.runs / "1",
        prompts=[t.messages for t in reversed(db.turns(limit=-1))],
        grader=grader,
        resume=False,
    )
    return policy, result.stopped or result.note


TRAINED: dict[str, Callable[[Any, Any, int], tuple[Any, str]]] = {
    "auto (head of the run)": default,
    "graded by it": graded,
    "graded, guards off": unguarded,
}
WAYS = ("base", "best of 4", f"best of {MOST}", *TRAINED)


def opened(row: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether the guard stops at this way of answering, told of the base model, of the guarded run where this is the unguarded one, and of it."""
    from clawback.rewards import overoptimization

    before = {"graded, guards off": ["base", "graded by it"]}.get(row["way"], ["base"])
    own = {r["way"]: r for r in rows if (r["taste"], r["seed"]) == (row["taste"], row["seed"])}
    seen = [overoptimization.Check(**own[way]["watched"]) for way in (*before, row["way"])]
    return row["way"] != "base" and overoptimization.gap(seen).opened is not None


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: mean ± standard deviation over tastes and seeds, and what is true by taste."""
    names = list(dict.fromkeys(row["taste"] for row in rows))
    head = ["answers by", "runs", "true", "said", "promised", "gap", "guard opens", "KL", "facts", *names]
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    for way in WAYS:
        if some := [row for row in rows if row["way"] == way]:
            cells = [str(len(some))]
            cells += [_spread([row[key] for row in some]) for key in ("true", "said", "promised", "gap")]
            cells.append(str(sum(opened(row, rows) for row in some)))
            cells += [
                f"{statistics.mean(r[key] for r in some):.{d}f}" for key, d in (("kl", 1), ("facts", 2))
            ]
            cells += [_spread([row["true"] for row in some if row["taste"] == name]) for name in names]
            lines.append(f"| {way} | " + " | ".join(cells) + " |")
    rho = [row["reward model"]["value"] for row in rows if row["way"] == "base"]
    fresh = [row["spearman"] for row in rows if row["way"] == "base"]
    lines.append(f"\nSpearman's ρ of the reward model: {_spread(rho)} with the ratings that `reward train` held out, "
                 f"{_spread(fresh)} with whether answers about unseen topics fit.")  # fmt: skip
    return "\n".join(lines)


def _spread(values: list[float]) -> str:
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks proxies", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--unguarded-seeds",
        type=int,
        default=UNGUARDED_SEEDS,
        help="of these, how many also with the guards off",
    )
    parser.add_argument("--tastes", default=";".join(TASTES), help="names, with ; between them")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--json", action="store_true", help="print the rows instead of the table")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    text = options.results.read_text("utf-8") if options.results.exists() else ""
    known = {row["key"]: row for row in map(json.loads, text.splitlines())}
    wanted = []
    for seed in range(options.seeds):
        for taste in (name.strip() for name in options.tastes.split(";")):
            ways = WAYS if seed < options.unguarded_seeds else WAYS[:-1]
            keys = {way: f"{way}|{taste}|{seed}" for way in ways}
            if missing := [way for way, key in keys.items() if key not in known]:
                for made in run(taste, seed, missing):
                    row = {"key": keys[made["way"]], "taste": taste, "seed": seed} | made
                    if row["key"] not in known:
                        known[row["key"]] = row
                        with options.results.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(row) + "\n")
                        print(json.dumps(row), file=sys.stderr, flush=True)
            wanted += [known[key] for key in keys.values()]
    print(json.dumps(wanted) if options.json else table(wanted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
