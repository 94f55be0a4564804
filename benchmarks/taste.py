"""How well a hidden taste is learned from one-tap ratings, and what it costs: drift, perplexity, facts.

A simulated person has a taste and taps wrong one time in ten. Each round they rate some answers of the newest version, one to a prompt; a
share of the ratings is held back, as for the gate, and a fresh adapter is trained on all others so far, as the product does it. Every version is then measured
on topics that nobody rated. A recipe with a ``?`` is rated what `clawback inbox --rate` asks about (the inbox itself chooses), out of the
four times as many answers that an agent gave; with a ``*`` it also gets one sentence about each answer that was rated bad: what is missing in it.

Settings may be chosen with the tastes for development; what is claimed is measured with those for the test, half of which the style features cannot say.

    python -m benchmarks taste                                    # the test tastes, five seeds, 32, 64, 96, 128 ratings, auto
    python -m benchmarks taste --tastes dev --ratings 8,16,32 --recipes "auto,auto?,auto?*,mis-po:learning_rate=0.002"
    python -m benchmarks taste --tastes "only bad;only good" --ratings 32

Results are kept, one a line, in bench-results/taste.jsonl; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NOISE = 0.1
REACHED = 0.85
"""Satisfaction that the ratings which it takes are counted for."""
TURNS = 4
"""Turns that an agent captures for each one that its person rates; the others' prompts are there to imagine answers to."""
ANSWERS, NEUTRAL = 128, 96
ONE_SIGN = {"only bad": -1.0, "only good": 1.0}
"""People who tap one key whatever they see; what they would like is measured as the taste "bullets"."""
RESULTS = Path("bench-results/taste.jsonl")


@dataclass(frozen=True)
class Case:
    recipe: str
    taste: str
    seed: int
    ratings: tuple[int, ...]
    """How many there are at the end of each round."""
    held_out: float

    @property
    def speaks(self) -> bool:
        return "*" in self.recipe

    @property
    def chooses(self) -> bool:
        return "?" in self.recipe

    @property
    def key(self) -> str:
        return f"{self.recipe}|{self.taste}|{self.seed}|{','.join(map(str, self.ratings))}|{self.held_out}"


def run(case: Case) -> list[dict[str, Any]]:
    """All rounds of one person with one recipe; a row each."""
    import torch

    torch.set_num_threads(1)
    from clawback import engine, feedback
    from clawback.extensions.demo import corpus, tastes

    policy = engine.load("embedded")
    taste = tastes.TASTES[case.taste if case.taste not in ONE_SIGN else "bullets"]
    person = random.Random(f"person {case.seed}")
    asked = corpus.prompts("rated", case.ratings[-1], case.seed)
    unrated = corpus.prompts("rated", case.ratings[-1] * (TURNS - 1), 100 + case.seed)
    samples: list[Any] = []
    captured: list[tuple[Any, Any]] = []
    places: dict[int, str] = {}
    rows = []
    for number, (before, count) in enumerate(zip((0, *case.ratings), case.ratings, strict=False)):
        new = asked[before:count]
        if case.chooses:
            new = [*new, *unrated[(TURNS - 1) * before : (TURNS - 1) * count]]
        seed = 1000 * case.seed + number
        answers = [one for [one] in policy.generate([p.messages for p in new], seed=seed)]
        captured += zip(new, answers, strict=True)
        if case.chooses:
            _choose(captured, samples, count, taste, person, case)
        else:
            samples += [_rated(i, *captured[i], taste, person, case) for i in range(before, count)]
        train, held = feedback.split(samples, case.held_out, splits=places)
        places = {s.turn_id: "train" for s in train} | {s.turn_id: "held_out" for s in held}
        policy.put(None)
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            result = engine.train(
                policy,
                train,
                _recipe(policy, case.recipe),
                seed=case.seed,
                out=Path(folder),
                prompts=_prompts(captured, unrated[: len(samples) * (TURNS - 1)], held, case),
            )
            seconds = time.process_time() - began
        row = {"key": case.key, "recipe": case.recipe, "taste": case.taste, "seed": case.seed}
        row |= {"given": count, "ratings": len(train), "good": sum(s.reward > 0 for s in train)}
        row |= {
            "cpu_seconds": seconds,
            "algorithm": result.algorithm,
            "note": result.note,
            "stopped": result.stopped,
        }
        rows.append(row | measure(policy, taste, case.seed))
    return rows


def _prompts(captured: Any, unrated: Any, held: Any, case: Case) -> list[Any]:
    """What a run imagines answers to: the newest turns, those kept for the gate left out (``jobs.training_job``)."""
    from clawback.jobs.inputs import MOST_PROMPTS

    kept = {sample.turn_id - 1 for sample in held}
    turns = [prompt for i, (prompt, _) in enumerate(captured) if i not in kept]
    if not case.chooses:  # nobody looked at the answers to these, so none were made
        turns += unrated
    return [prompt.messages for prompt in turns[-MOST_PROMPTS:]]


def _choose(captured: Any, samples: list[Any], count: int, taste: Any, person: Any, case: Case) -> None:
    """Add ratings of captured answers that nobody rated, those that the inbox asks about, until there are ``count``."""
    from clawback import config, feedback, store
    from clawback.admin.rating_inbox import Inbox
    from clawback.paths import Home
    from clawback.records import Turn

    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        home.create()
        config.save(home.config, {"gate": {"held_out": case.held_out}, "training": {"background": False}})
        with store.connect(home.database) as db:
            with db.together():
                for number, (prompt, answer) in enumerate(captured):
                    db.add_turn(Turn(f"{number}", tuple(prompt.messages), answer.text))
                for one in samples:
                    feedback.rate(db, one.turn_id, int(one.reward))
            inbox = Inbox(home)
            while len(samples) < count:
                place = inbox.next()[0].turn.id - 1
                samples.append(_rated(place, *captured[place], taste, person, case))
                feedback.rate(db, place + 1, int(samples[-1].reward))


def _rated(number: int, prompt: Any, answer: Any, taste: Any, person: random.Random, case: Case) -> Any:
    from clawback.records import Part, Sample

    rating = taste.rate(prompt, answer.text, person, NOISE)
    words = ""
    if case.speaks and rating < 0:
        words = taste.remark(prompt, answer.text, person)
    return Sample(
        turn_id=number + 1,
        messages=tuple(prompt.messages),
        response=answer.text,
        reward=ONE_SIGN.get(case.taste, float(rating)),
        response_ids=answer.ids,
        response_logprobs=answer.logprobs,
        parts=(Part(number + 1, "rating", float(rating), 1.0),),
        hints=(words,) if words else (),
    )


def _recipe(policy: Any, text: str) -> Any:
    """``auto:exact_kl=0.2,preset=careful`` → the recipe with these values in place of its own."""
    from clawback import engine
    from clawback.sources.distilled import DistilSettings
    from clawback.sources.fresh_answers import RolloutSettings
    from clawback.sources.graded import GradingSettings

    name, _, changes = text.rstrip("*?").partition(":")
    values = {k: _value(v) for k, v in (change.split("=") for change in changes.split("+") if change)}
    preset = str(values.pop("preset", "balanced"))
    known = {
        *RolloutSettings.__dataclass_fields__,
        *GradingSettings.__dataclass_fields__,
        *DistilSettings.__dataclass_fields__,
    }
    extra = {k: v for k, v in values.items() if k in known}
    plain = {k: v for k, v in values.items() if k not in extra}
    return replace(engine.recipe(policy.info, preset, name, plain), extra=extra)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def measure(policy: Any, taste: Any, seed: int) -> dict[str, float]:
    """How a version answers prompts about topics that nobody rated, and how far it is from the base."""
    from clawback.extensions.demo import axes, corpus

    asked = corpus.prompts("held_out", ANSWERS, seed)
    talks = [p.messages for p in asked]
    made = [one for [one] in policy.generate(talks, seed=10_000 + seed)]
    with policy.base():
        base = policy.logprobs(talks, [one.ids for one in made])
    checks = [corpus.check_facts(p, one.text) for p, one in zip(asked, made, strict=True)]
    plain = corpus.neutral_text(NEUTRAL, seed)
    prompts, said = [d[:-1] for d in plain], [d[-1]["content"] for d in plain]
    ours = _perplexity(policy.logprobs(prompts, said))
    with policy.base():
        theirs = _perplexity(policy.logprobs(prompts, said))
    return {
        "satisfaction": sum(taste.fits(p, one.text) for p, one in zip(asked, made, strict=True)) / ANSWERS,
        "facts": sum(c.right for c in checks) / max(1, sum(c.stated for c in checks)),
        "stated": sum(c.stated for c in checks) / ANSWERS,
        "kl": sum(sum(o.logprobs) - float(b.sum()) for o, b in zip(made, base, strict=True)) / ANSWERS,
        "perplexity": ours / theirs,
        "well_formed": sum(axes.well_formed(one.text) for one in made) / ANSWERS,
    }


def _perplexity(logprobs: list[Any]) -> float:
    import torch

    return float(torch.exp(-torch.cat(logprobs).mean()))


def base_rates(names: list[str], seeds: int) -> dict[str, dict[str, float]]:
    """The same measures of the base model, by taste: mean over the seeds."""
    from clawback import engine
    from clawback.extensions.demo import tastes

    policy = engine.load("embedded")
    table = {}
    for name in names:
        rows = [measure(policy, tastes.TASTES[name], seed) for seed in range(seeds)]
        table[name] = {key: statistics.mean(row[key] for row in rows) for key in rows[0]}
    return table


COLUMNS = ("satisfaction", "facts", "kl", "perplexity", "cpu_seconds")


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: mean ± standard deviation by recipe and ratings over all tastes, satisfaction by taste, and ratings needed."""
    lines = [
        "| recipe | ratings | trained on | " + " | ".join(COLUMNS) + " |",
        "|" + " --- |" * (3 + len(COLUMNS)),
    ]
    groups = {
        (recipe, given): [row for row in rows if (row["recipe"], row["given"]) == (recipe, given)]
        for recipe in dict.fromkeys(row["recipe"] for row in rows)
        for given in sorted({row["given"] for row in rows if row["recipe"] == recipe})
    }
    for (recipe, given), some in groups.items():
        cells = [_spread([row[name] for row in some]) for name in COLUMNS]
        trained = f"{statistics.mean(row['ratings'] for row in some):.0f}"
        lines.append(f"| {recipe} | {given} | {trained} | " + " | ".join(cells) + " |")
    names = list(dict.fromkeys(row["taste"] for row in rows))
    lines += ["", "| recipe | ratings | " + " | ".join(names) + " |", "|" + " --- |" * (2 + len(names))]
    for (recipe, given), some in groups.items():
        cells = [_spread([r["satisfaction"] for r in some if r["taste"] == name], 2) for name in names]
        lines.append(f"| {recipe} | {given} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"| recipe | ratings to {REACHED:g} | " + " | ".join(names) + " |",
        "|" + " --- |" * (2 + len(names)),
    ]
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        mine = [row for row in rows if row["recipe"] == recipe]
        cells = [needed(mine), *(needed([row for row in mine if row["taste"] == name]) for name in names)]
        lines.append(f"| {recipe} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def needed(rows: list[dict[str, Any]]) -> str:
    """Ratings at which the mean satisfaction reaches 0.85: between two measured numbers by a line over their logarithms."""
    if not rows:
        return "–"
    counts = sorted({row["given"] for row in rows})
    means = [statistics.mean(row["satisfaction"] for row in rows if row["given"] == n) for n in counts]
    for place, (count, mean) in enumerate(zip(counts, means, strict=True)):
        if mean >= REACHED:
            if not place:
                return f"≤ {count}"
            below, under = counts[place - 1], means[place - 1]
            share = (REACHED - under) / (mean - under)
            return f"{below * (count / below) ** share:.0f}"
    return f"> {counts[-1]}"


def _spread(values: list[float], digits: int = 3) -> str:
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 and digits else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def main(argv: list[str] | None = None) -> int:
    from clawback.extensions.demo import tastes

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks taste", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--recipes", default="auto", help="NAME[:FIELD=VALUE[+FIELD=VALUE…]], comma between recipes"
    )
    parser.add_argument(
        "--tastes",
        default="test",
        help="test (12), dev (12), main (6 of dev), varied (12), or names with ; between",
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--ratings", default="32,64,96,128", help="how many there are at the end of each round"
    )
    parser.add_argument("--held-out", type=float, default=0.125)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--json", action="store_true", help="print the rows instead of the tables")
    options = parser.parse_args(argv)
    groups = {
        "test": list(tastes.TEST),
        "dev": list(tastes.DEV),
        "main": list(tastes.MAIN),
        "varied": list(tastes.VARIED),
    }
    names = groups.get(options.tastes) or [name.strip() for name in options.tastes.split(";")]
    if unknown := [name for name in names if name not in tastes.TASTES and name not in ONE_SIGN]:
        parser.error(f"no taste {unknown[0]!r}; there are: {'; '.join([*tastes.TASTES, *ONE_SIGN])}")
    ratings = tuple(sorted(int(count) for count in options.ratings.split(",")))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cases = [
        Case(recipe, taste, seed, ratings, options.held_out)
        for seed in seeds
        for recipe in options.recipes.split(",")
        for taste in names
    ]
    rows = work(cases, options.results, options.processes)
    print(json.dumps(rows) if options.json else table(rows))
    return 0


def work(cases: list[Case], results: Path, processes: int) -> list[dict[str, Any]]:
    """Rows of all cases; those that the file holds already are read from there."""
    from multiprocessing import get_context

    from tqdm import tqdm

    results.parent.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []
    done = {row["key"] for row in known}
    todo = [case for case in cases if case.key not in done]
    # What a child prints or draws at random must not depend on what this process did: so none is forked.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    with (
        ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool,
        results.open("a", encoding="utf-8") as file,
        tqdm(total=len(cases), initial=len(cases) - len(todo), file=sys.stderr, unit="case") as bar,
    ):
        for future in as_completed([pool.submit(run, case) for case in todo]):
            for row in future.result():
                known.append(row)
                file.write(json.dumps(row) + "\n")
            file.flush()
            bar.update()
    wanted = {case.key for case in cases}
    return [row for row in known if row["key"] in wanted]


if __name__ == "__main__":
    sys.exit(main())
