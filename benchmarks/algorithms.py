"""Whether each algorithm learns: satisfaction of one taste before and after, over seeds, with a p-value.

A simulated person rates 64 answers of the embedded model and taps wrong one time in ten. Each algorithm gets what it learns from:
groups of four answers to a prompt (grpo, rloo, gspo), preferences between two (dpo), a sentence on what was wrong with
those they did not like (opd, combined), or a rating of one answer a prompt (all others). Before and after are answers to the same
prompts, about topics that nobody rated; p is of a paired t-test over seeds. ``sac`` learns a corridor instead, and its figure is the return.

    python -m benchmarks algorithms                       # all, five seeds
    python -m benchmarks algorithms --only ppo,kto --seeds 3

Results are kept, one a line, in bench-results/algorithms.jsonl; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

TASTE = "bullets, no apology"
WORDS = {"bullets": ("bullets", True), "apology": ("apology", False)}
"""What the person says is wrong: an axis of style, and how they want it."""
RATED, NOISE, ANSWERS = 64, 0.1, 96
GROUP = {"grpo": 4, "rloo": 4, "gspo": 4, "dpo": 2}
"""Answers to each prompt; 1 for the others."""
RESULTS = Path("bench-results/algorithms.jsonl")


def run(name: str, seed: int, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """One algorithm, one person: a row."""
    if name == "sac":
        return {"algorithm": name, "seed": seed, **corridor(seed)}
    import torch

    torch.set_num_threads(1)
    from clawback import engine
    from clawback.extensions.demo import tastes

    policy = engine.load("embedded")
    taste = tastes.TASTES[TASTE]
    samples = said(policy, taste, name, seed)
    before = satisfaction(policy, taste, seed)
    recipe = engine.recipe(policy.info, algorithm=name)
    for key, value in (changes or {}).items():
        known = key in recipe.__dataclass_fields__
        recipe = replace(recipe, **({key: value} if known else {"extra": {**recipe.extra, key: value}}))
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        result = engine.train(policy, samples, recipe, seed=seed, out=Path(folder))
        seconds = time.process_time() - began
    after = satisfaction(policy, taste, seed)
    row = {"algorithm": name, "seed": seed, "before": before["satisfaction"], "after": after["satisfaction"]}
    row |= {k: after[k] for k in ("well_formed", "facts", "kl")}
    return row | {"steps": result.steps, "stopped": result.stopped, "cpu_seconds": seconds}


def said(policy: Any, taste: Any, name: str, seed: int) -> list[Any]:
    """What the person said about answers of the base model."""
    from clawback.extensions.demo import corpus
    from clawback.records import Part, Sample

    each = GROUP.get(name, 1)
    person = random.Random(f"person {seed}")
    asked = corpus.prompts("rated", RATED // each, seed)
    made = policy.generate([p.messages for p in asked], samples=each, seed=1000 * seed)
    samples = []
    for number, (prompt, answers) in enumerate(zip(asked, made, strict=True)):
        rated = [taste.rate(prompt, one.text, person, NOISE) for one in answers]
        for place, (one, rating) in enumerate(zip(answers, rated, strict=True)):
            turn = number * each + place + 1
            value, parts = float(rating), (Part(turn, "rating", float(rating), 1.0),)
            if name == "dpo":
                if len(set(rated)) < 2:
                    continue  # neither is the better one
                value = 0.5 * rating
                parts = (Part(number + 1, "preference", value, 0.5),)
            words = critique(one.text, person) if rating < 0 and name in ("opd", "combined") else ()
            samples.append(
                Sample(turn, tuple(prompt.messages), one.text, value, parts, one.ids, one.logprobs, words)
            )
    return samples


def critique(text: str, person: random.Random) -> tuple[str, ...]:
    """One sentence for each part of the taste that an answer misses."""
    from clawback.extensions.demo.axes import axes
    from clawback.extensions.demo.corpus import HINTS

    seen = axes(text)
    missed = [wanted for axis, wanted in WORDS.items() if seen[axis] != wanted[1]]
    return (" ".join(person.choice(HINTS[wanted]) for wanted in missed),) if missed else ()


def satisfaction(policy: Any, taste: Any, seed: int) -> dict[str, float]:
    """Share of answers to held-out prompts that fit, and what it cost."""
    from clawback.extensions.demo import axes, corpus

    asked = corpus.prompts("held_out", ANSWERS, seed)
    talks = [p.messages for p in asked]
    made = [one for [one] in policy.generate(talks, seed=10_000 + seed)]
    with policy.base():
        base = policy.logprobs(talks, [one.ids for one in made])
    checks = [corpus.check_facts(p, one.text) for p, one in zip(asked, made, strict=True)]
    return {
        "satisfaction": sum(taste.fits(p, one.text) for p, one in zip(asked, made, strict=True)) / ANSWERS,
        "well_formed": sum(axes.well_formed(one.text) for one in made) / ANSWERS,
        "facts": sum(c.right for c in checks) / max(1, sum(c.stated for c in checks)),
        "kl": sum(sum(o.logprobs) - float(b.sum()) for o, b in zip(made, base, strict=True)) / ANSWERS,
    }


# ------------------------------------------------------------------------------------------------------ a corridor

ROOMS, LONGEST = 8, 40
"""Rooms in a row. The door is in the last, worth 1; each step costs 0.02, and one in five goes the other way."""


def corridor(seed: int, steps: int = 4000) -> dict[str, float]:
    """SAC from a memory of steps, on tables: the mean return of 50 walks before and after."""
    import torch

    from clawback.rl.algorithms.sac import Sac

    sac = Sac()
    generator = torch.Generator().manual_seed(seed)
    chance = random.Random(f"corridor {seed}")
    policy, q1, q2 = (torch.zeros(ROOMS, 2, requires_grad=True) for _ in range(3))
    slow = [q1.detach().clone(), q2.detach().clone()]
    log_temperature = torch.tensor(-2.0, requires_grad=True)
    optimizer = torch.optim.Adam([policy, q1, q2, log_temperature], lr=0.01)
    before = walks(policy, seed)
    memory: list[tuple[int, int, float, int, bool]] = []
    room, age = 0, 0
    for _ in range(steps):
        action = int(torch.multinomial(policy[room].detach().softmax(-1), 1, generator=generator))
        after, reward, done = walk(room, action, chance)
        memory.append((room, action, reward, after, done))
        age += 1
        room, age = (0, 0) if done or age >= LONGEST else (after, age)
        if len(memory) < 64:
            continue
        some = [memory[chance.randrange(len(memory))] for _ in range(32)]
        rooms, actions, rewards, afters, ends = (torch.tensor(column) for column in zip(*some, strict=True))
        temperature = log_temperature.exp()
        target = sac.target(
            rewards, ends, policy[afters].detach(), slow[0][afters], slow[1][afters], temperature.detach()
        )
        loss = sac.critic_loss(q1[rooms], q2[rooms], actions, target)
        loss = loss + sac.actor_loss(policy[rooms], q1[rooms], q2[rooms], temperature)
        loss = loss + sac.temperature_loss(log_temperature, policy[rooms])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sac.follow(slow, [q1.detach(), q2.detach()])
    return {"before": before, "after": walks(policy, seed)}


def walk(room: int, action: int, chance: random.Random) -> tuple[int, float, bool]:
    """The room after a step, its reward, and whether it was the door."""
    forward = (action == 1) != (chance.random() < 0.2)
    after = min(ROOMS - 1, room + 1) if forward else max(0, room - 1)
    return after, (1.0 if after == ROOMS - 1 else 0.0) - 0.02, after == ROOMS - 1


def walks(policy: Any, seed: int, count: int = 50) -> float:
    """Mean return."""
    chance = random.Random(f"walks {seed}")
    forward = policy.detach().softmax(-1)[:, 1].tolist()
    total = 0.0
    for _ in range(count):
        room = 0
        for _ in range(LONGEST):
            room, reward, done = walk(room, int(chance.random() < forward[room]), chance)
            total += reward
            if done:
                break
    return total / count


# ------------------------------------------------------------------------------------------------------- the table


def p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """Of a paired t-test that asks whether it went up; 1 with fewer than two seeds."""
    from scipy import stats

    if len(before) < 2:
        return 1.0
    if len({a - b for a, b in zip(after, before, strict=True)}) == 1:
        return 0.0 if after[0] > before[0] else 1.0
    return float(stats.ttest_rel(after, before, alternative="greater").pvalue)


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: mean ± standard deviation over seeds."""
    lines = [
        "| algorithm | seeds | before | after | p | KL, nats an answer | facts right | CPU s |",
        "|" + " --- |" * 8,
    ]
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        some = [row for row in rows if row["algorithm"] == name]
        before, after = ([row[key] for row in some] for key in ("before", "after"))
        cells = [_spread(before), _spread(after), f"{p_value(before, after):.1g}"]
        for key, digits in (("kl", 1), ("facts", 2), ("cpu_seconds", 0)):
            cells.append(f"{statistics.mean(row[key] for row in some):.{digits}f}" if key in some[0] else "–")
        lines.append(f"| {name} | {len(some)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def main(argv: list[str] | None = None) -> int:
    from clawback.rl import algorithms

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks algorithms", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="names, with commas between them")
    parser.add_argument("--set", default="", help="FIELD=VALUE[,FIELD=VALUE…] in place of the recipe's own")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--json", action="store_true", help="print the rows instead of the table")
    options = parser.parse_args(argv)
    every = [*algorithms.names(), *algorithms.ENVIRONMENT]
    names = options.only.split(",") if options.only else every
    if unknown := [name for name in names if name not in every]:
        parser.error(f"no algorithm {unknown[0]!r}; there are: {', '.join(every)}")
    changes = {k: _value(v) for k, v in (one.split("=") for one in options.set.split(",") if one)}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    text = options.results.read_text("utf-8") if options.results.exists() else ""
    known = {row["key"]: row for row in map(json.loads, text.splitlines())}
    rows = []
    for name in names:
        for seed in range(options.seeds):
            key = f"{name}|{seed}|{options.set}"
            if key not in known:
                known[key] = {"key": key, **run(name, seed, changes)}
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[key]) + "\n")
                print(json.dumps(known[key]), file=sys.stderr, flush=True)
            rows.append(known[key])
    print(json.dumps(rows) if options.json else table(rows))
    return 0


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main())
