"""Ten people whose tastes have a shared and a private part learn one adapter together: beside central training, with a liar, with noise.

Everybody likes bullets and no apologies; besides, each of them wants one of five axes of style one way or the other (terse, formal, emoji, a question,
a caveat: two people an axis, who contradict each other). A person rates good what has both parts, and taps wrong one time in ten. What is
measured is the shared part: the share of fresh answers, to prompts about topics that nobody rated, that have bullets and no apology.

The engine is the real one (``engine.train``, ``reinforce`` on the ratings themselves, as ``clawback lab federated contribute`` runs it), the model the embedded one.

    central    all 320 ratings in one place, A and B trained, as many steps in all as ten people make
    alone      one person's ratings, one run
    mean …     rounds of federated averaging by each of the rules: of B under the common A, then of A under the common B, in turn
    …/frozen   A stays as it was drawn, in all rounds
    apart      everybody trains an A and a B of their own; A's and B's are averaged apart, which is wrong
    +liar      one person of ten sends their honest change, turned round and ten times as large
    +flipped   one person of ten learns from ratings turned round: nothing about the size of their update gives them away
    z=Z        clipped to the median norm of the first round, with noise; ε at δ = 1/100 after all rounds

    python -m benchmarks federated                     # two seeds, all variants; some 200 CPU seconds each
    python -m benchmarks federated --seeds 1 --only mean,median+liar

Rows are kept in bench-results/federated.jsonl; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clawback.extensions.federated import differential_privacy
from clawback.extensions.federated.aggregate import Array, Update, aggregate, error, followed, step_for

RESULTS = Path("bench-results/federated.jsonl")
SHARED = "bullets, no apology"
AXES = ("terse", "formal", "emoji", "question", "caveat")
PEOPLE, LIAR = 10, 3
NOISE = 0.1
RATINGS = 32
ROUNDS, STEPS = 2, 8
RATE = 5e-3
"""Of a person's steps, five times the recipe's: there are few, and ten people's changes are averaged. Central training and ``alone`` keep the recipe's."""
CENTRAL_RUNS, CENTRAL_STEPS = 4, 32
"""160 steps of 8 answers in all (a run goes through 320 ratings once at least): as many as ten people make in their rounds."""
ANSWERS = 256
RANK = 16
BOOST = 10.0
DELTA = 1 / (10 * PEOPLE)
DEFAULT = (
    "mean,central,median,trimmed,median+liar,trimmed+liar,mean+liar,mean+flipped,median+flipped,trimmed+flipped,"
    "mean/frozen,median/frozen,trimmed/frozen,apart,krum,krum+liar,z=0.01,z=4,alone"
)


@dataclass(frozen=True)
class Variant:
    """``mean``, ``krum+liar``, ``z=4`` taken apart."""

    name: str

    @property
    def alternates(self) -> bool:
        return not self.name.endswith("/frozen")

    @property
    def rule(self) -> str:
        return "mean" if self.name.startswith("z=") else self.name.removesuffix("/frozen").partition("+")[0]

    @property
    def attack(self) -> str:
        return self.name.removesuffix("/frozen").partition("+")[2]

    @property
    def noise(self) -> float | None:
        return float(self.name[2:]) if self.name.startswith("z=") else None


class World:
    """One seed: ten people, what each of them rated, and one policy whose adapter is set to whatever is wanted."""

    def __init__(self, seed: int) -> None:
        from clawback import engine
        from clawback.extensions.demo import corpus

        self.seed = seed
        self.policy = engine.load("embedded")
        asked = corpus.prompts("rated", PEOPLE * RATINGS, seed)
        answers = [one for [one] in self.policy.generate([p.messages for p in asked], seed=seed)]
        self.samples = [
            [self._rated(person, i, asked[i], answers[i]) for i in range(person, PEOPLE * RATINGS, PEOPLE)]
            for person in range(PEOPLE)
        ]
        self.policy.attach(rank=RANK, alpha=2 * RANK, seed=seed)
        self.start = self.weights()
        self.first: dict[tuple[str, int], Update] = {}
        """Updates of the first round, which are the same under every rule."""

    def _rated(self, person: int, number: int, prompt: Any, answer: Any) -> Any:
        from clawback.extensions.demo import axes, tastes
        from clawback.records import Part, Sample

        wanted = axes.axes(answer.text)[AXES[person // 2]] == (person % 2 == 0)
        good = wanted and tastes.TASTES[SHARED].fits(prompt, answer.text)
        wrong = random.Random(f"tap {self.seed} {number}").random() < NOISE
        rating = 1.0 if good != wrong else -1.0
        return Sample(
            turn_id=number + 1,
            messages=tuple(prompt.messages),
            response=answer.text,
            reward=rating,
            response_ids=answer.ids,
            response_logprobs=answer.logprobs,
            parts=(Part(number + 1, "rating", rating, 1.0),),
        )

    # ------------------------------------------------------------------------------------------- the adapter

    def weights(self) -> dict[str, Array]:
        named = self.policy.model.named_parameters()
        return {n: p.detach().double().numpy().copy() for n, p in named if "lora_" in n}

    def put(self, weights: dict[str, Array], trained: str) -> None:
        """``trained``: the factors that are, of AB."""
        import torch

        for name, parameter in self.policy.model.named_parameters():
            if "lora_" in name:
                parameter.data = torch.from_numpy(weights[name]).float()
                parameter.requires_grad_(name[name.index("lora_") + 5] in trained)

    def fresh(self, seed: int) -> dict[str, Array]:
        """An adapter that changes nothing, with an A of its own."""
        rng = np.random.default_rng(seed)
        made = dict(self.start)
        for name, value in self.start.items():
            if "lora_A" in name:
                bound = value.shape[1] ** -0.5
                made[name] = rng.uniform(-bound, bound, value.shape)
        return made

    def train(self, samples: list[Any], seed: int, steps: int, rate: float = 0.0) -> None:
        """A run of the engine from the adapter as it stands."""
        from clawback import engine

        made = {"rank": RANK, "alpha": 2 * RANK, "steps": steps} | ({"learning_rate": rate} if rate else {})
        recipe = engine.recipe(self.policy.info, "balanced", "reinforce", made)
        with tempfile.TemporaryDirectory() as out:
            engine.train(self.policy, samples, recipe, seed=seed, out=Path(out) / "run", resume=False)

    def measure(self) -> float:
        from clawback.extensions.demo import corpus, tastes

        asked = corpus.prompts("held_out", ANSWERS, self.seed)
        made = self.policy.generate([p.messages for p in asked], seed=10_000 + self.seed)
        return statistics.fmean(
            tastes.TASTES[SHARED].fits(p, one.text) for p, [one] in zip(asked, made, strict=True)
        )

    # ---------------------------------------------------------------------------------------------- a client

    def update(
        self, person: int, number: int, weights: dict[str, Array], attack: str, own_a: bool, factor: str
    ) -> Update:
        """What one person sends: the change of B (under the common A), or A and B as they are."""
        samples, liar = self.samples[person], attack if person == LIAR else ""
        if liar == "flipped":
            import dataclasses

            samples = [dataclasses.replace(s, reward=-s.reward) for s in samples]
        known = (f"{'own' if own_a else 'ffa'} {'flipped' if liar == 'flipped' else ''}", person)
        if number or known not in self.first:
            begun = self.fresh(1000 * self.seed + person) if own_a and not number else weights
            self.put(begun, trained="AB" if own_a else factor)
            self.train(samples, self.seed * 100 + number, STEPS, RATE)
            made = _update(self.weights(), weights, own_a, factor)
            if not number:
                self.first[known] = made
        else:
            made = self.first[known]
        if liar == "liar":
            made = Update(made.a, {n: -BOOST * v for n, v in made.b.items()}, made.scale)
        return made


def _update(after: dict[str, Array], before: dict[str, Array], own_a: bool, factor: str) -> Update:
    if not own_a:
        change = {
            n.replace(f"lora_{factor}", "lora_#"): v - before[n]
            for n, v in after.items()
            if f"lora_{factor}" in n
        }
        return Update({n: np.zeros((v.shape[1], 1)) for n, v in change.items()}, change, 2.0)
    b = {n.replace("lora_B", "lora_#"): v for n, v in after.items() if "lora_B" in n}
    a = {n.replace("lora_A", "lora_#"): v for n, v in after.items() if "lora_A" in n}
    return Update(a, b, 2.0)


def run(world: World, variant: Variant) -> dict[str, Any]:
    """All rounds of one variant."""
    began = time.process_time()
    row: dict[str, Any] = {"variant": variant.name, "seed": world.seed}
    if variant.name == "base":
        world.put(world.start, trained="AB")
        return row | {"shared": world.measure(), "cpu_seconds": time.process_time() - began}
    if variant.name in ("central", "alone"):
        everybody = [s for some in zip(*world.samples, strict=True) for s in some]
        world.put(world.start, trained="AB")
        for number in range(CENTRAL_RUNS if variant.name == "central" else 1):
            samples = everybody if variant.name == "central" else world.samples[0]
            world.train(samples, world.seed * 100 + number, CENTRAL_STEPS)
        return row | {"shared": world.measure(), "cpu_seconds": time.process_time() - began}
    weights, own_a, off, after = dict(world.start), variant.rule == "apart", [], []
    clip, rng = 0.0, np.random.default_rng(world.seed)
    for number in range(ROUNDS):
        factor = "A" if variant.alternates and number % 2 and not own_a else "B"
        updates = [world.update(p, number, weights, variant.attack, own_a, factor) for p in range(PEOPLE)]
        if variant.noise is not None:
            clip = clip or float(np.median([differential_privacy.size(u.b) for u in updates]))
            updates = [differential_privacy.clipped(u, clip) for u in updates]
        made = aggregate(updates, [1.0] * PEOPLE, variant.rule)  # type: ignore[arg-type]
        off.append(error(made, updates, [1.0] * PEOPLE) if own_a else 0.0)
        if variant.noise:
            made = differential_privacy.noised(made, PEOPLE, clip, variant.noise, rng)
        # ``apart`` sends A and B as they are, not by how much they changed.
        before = {n: weights[n.replace("lora_#", f"lora_{factor}")] * own_a for n in made.b}
        sizes = [differential_privacy.size({n: u.b[n] - before[n] for n in before}) for u in updates]
        usual = clip if variant.noise else float(np.median(sizes))
        for name, change in followed(
            {n: made.b[n] - before[n] for n in before}, step_for(PEOPLE, variant.rule), usual
        ).items():
            place = name.replace("lora_#", f"lora_{factor}")
            weights[place] = weights[place] + change
            if own_a:
                weights[name.replace("lora_#", "lora_A")] = made.a[name]
        world.put(weights, trained="AB")
        after.append(world.measure())
    if variant.noise is not None:
        row |= {"clip": clip, "epsilon": differential_privacy.epsilon(variant.noise, ROUNDS, DELTA)}
    row |= {
        "distances": off,
        "norm": differential_privacy.size({n: v for n, v in weights.items() if "lora_B" in n}),
    }
    return row | {"shared": after[-1], "after": after, "cpu_seconds": time.process_time() - began}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: the shared part by variant, and what share of central training's gain over the base that is."""
    by = {(r["variant"], r["seed"]): r for r in rows}
    lines = [
        "| variant | seeds | after one round | shared part | of central training's | of its gain | CPU s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(r["variant"] for r in rows):
        some = [r for r in rows if r["variant"] == name]
        whole, gain = [], []
        for row in some:
            base, central = by.get(("base", row["seed"])), by.get(("central", row["seed"]))
            if base and central:
                whole.append(row["shared"] / central["shared"])
                gain.append((row["shared"] - base["shared"]) / (central["shared"] - base["shared"]))
        paid = f" (ε = {some[0]['epsilon']:.1f})" if some[0].get("epsilon", 1e9) < 1e6 else ""
        first = [r["after"][0] for r in some if "after" in r]
        cells = [spread(first), spread([r["shared"] for r in some]), spread(whole), spread(gain)]
        seconds = statistics.mean(r["cpu_seconds"] for r in some)
        lines.append(f"| {name}{paid} | {len(some)} | " + " | ".join(cells) + f" | {seconds:.0f} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    if not values:
        return "–"
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks federated", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", default=DEFAULT, help="variants, with , between (base always runs)")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--json", action="store_true", help="print the rows instead of the table")
    options = parser.parse_args(argv)
    import torch

    torch.set_num_threads(1)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    kept = options.results.read_text("utf-8").splitlines() if options.results.exists() else []
    rows = [json.loads(line) for line in kept]
    done = {(row["variant"], row["seed"]) for row in rows}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        wanted = [name for name in ["base", *options.only.split(",")] if (name, seed) not in done]
        world = World(seed) if wanted else None
        for name in wanted:
            assert world is not None
            row = run(world, Variant(name))
            rows.append(row)
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{name:<18} seed {seed}  {row['shared']:.3f}  {row['cpu_seconds']:.0f} s", file=sys.stderr)
    chosen = [row for row in rows if row["variant"] in ("base", *options.only.split(","))]
    print(json.dumps(chosen) if options.json else table(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
