"""What a run makes of a real instruct model from 32 taps: liked answers, drift, and what the gate says.

A simulated person rates answers of the base to prompts of their own (AlpacaEval's), a tenth of the taps wrong; a run learns from them, and the version
answers prompts that it has not seen. ``--words``: they also say a sentence to each bad answer.

    python -m benchmarks real --tastes development
    python -m benchmarks real --tastes test --persons 2 --words

``--recipes mis-po,kto:learning_rate=0.0003,auto:refine_rounds=3+passes=2`` are other algorithms and settings on the same taps, and ``dpo`` on as many comparisons of two answers, of which the person likes
one. ``--draw URL``: the answers of a run are drawn by a vLLM there. ``prompt`` and ``few-shot`` are what anybody would try first: the sentence, or three liked answers, before each prompt. ``kept`` measures
the version of ``auto`` that an earlier call left in ``--keep``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DATA = HERE.parent.parent / "shared" / "data" / "alpaca-eval-rated.jsonl"
RESULTS = HERE.parent / "bench-results" / "real"
OWN, HELD_OUT, LONGEST_PROMPT = 160, 64, 200
ROOM = 128
WRONG = 0.1


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks real", description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL with `prompt` and `response`")
    parser.add_argument("--tastes", default="test", help="development, test, or names, comma-separated")
    parser.add_argument("--recipes", default="auto", help="auto, prompt, few-shot, mis-po:learning_rate=…, …")
    parser.add_argument("--ratings", type=int, default=32)
    parser.add_argument("--persons", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--words", action="store_true")
    parser.add_argument(
        "--gate", action="store_true", help="ask the gate as well, on prompts that are kept from the run"
    )
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--keep", type=Path, help="folder for the versions, one a run")
    parser.add_argument(
        "--draw", default="", metavar="URL", help="address of a vLLM with the model, which draws the answers"
    )
    options = parser.parse_args(argv)
    if not options.prompts.is_file():
        print(f"There is no {options.prompts}: name a file with --prompts.", file=sys.stderr)
        return 2
    world = World(options)
    rows = []
    for seed in range(options.first_seed, options.first_seed + options.persons):
        for name, taste in chosen(options.tastes).items():
            for recipe in options.recipes.split(","):
                rows.append(world.run(name, taste, recipe, seed, options))
                print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    return 0


def chosen(names: str) -> dict[str, Any]:
    from benchmarks._real_tastes import DEVELOPMENT, TEST

    sets = {"development": DEVELOPMENT, "test": TEST}
    return sets.get(names) or {name: {**DEVELOPMENT, **TEST}[name] for name in names.split(",")}


class World:
    """The model, the prompts, and the base's answers to them, which are drawn once and kept."""

    def __init__(self, options: argparse.Namespace) -> None:
        from clawback import engine

        lines = [json.loads(line) for line in options.prompts.read_text("utf-8").splitlines()]
        prompts = list(dict.fromkeys(one["prompt"] for one in lines if len(one["prompt"]) < LONGEST_PROMPT))
        random.Random(0).shuffle(prompts)
        self.own, self.held = prompts[:OWN], prompts[OWN : OWN + HELD_OUT]
        others = [one for one in lines if one["prompt"] in set(prompts[OWN + HELD_OUT :])]
        self.neutral = [(one["prompt"], one["response"][:600]) for one in others[:32]]
        """Other models' answers to prompts that nobody rated."""
        beside = options.prompts.with_name("gsm8k-test.json")
        self.sums = sums(beside)
        """Sums in words (GSM8K's questions): text that has no manner that a person could have rated."""
        self.solved = solved(beside)
        """Sums in words and what comes out."""
        self.policy = engine.load(options.model, dtype=options.dtype)
        self.captured = self._captured()
        self.of_base: tuple[list[Any], dict[str, Any]] | None = None

    def _captured(self) -> list[dict[str, Any]]:
        return self._answered(1, f"base-{self.policy.info.revision[-12:]}")

    def _answered(self, seed: int, name: str) -> list[dict[str, Any]]:
        """The base's answers to the person's own prompts."""
        path = RESULTS / f"{name}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            made = self.policy.generate([user(p) for p in self.own], max_tokens=ROOM, seed=seed)
            rows = [{"text": one.text, "ids": one.ids, "logprobs": one.logprobs} for [one] in made]
            path.write_text(json.dumps(rows))
        return list(json.loads(path.read_text()))

    def rated(self, taste: Any, seed: int, ratings: int, words: bool) -> list[Any]:
        from clawback.records import Part, Sample

        rng = random.Random(seed)
        samples = []
        for turn in rng.sample(range(OWN), ratings):
            answer = self.captured[turn]
            good = taste.likes(answer["text"]) != (rng.random() < WRONG)
            reward = 1.0 if good else -1.0
            samples.append(
                Sample(
                    turn_id=turn + 1,
                    messages=user(self.own[turn]),
                    response=answer["text"],
                    reward=reward,
                    # As a tap and a remark come out of the store: without its part the remark would be all that was said.
                    parts=(Part(turn + 1, "rating", reward, 1.0),),
                    response_ids=tuple(answer["ids"]),
                    response_logprobs=tuple(answer["logprobs"]),
                    hints=(taste.words,) if words and not good else (),
                )
            )
        return samples

    def compared(self, taste: Any, seed: int, pairs: int) -> list[Any]:
        """Two answers to a prompt of which the person likes one, and says which: a tenth of the time wrongly."""
        from clawback.records import Part, Sample

        self.policy.put(None)
        others = self._answered(2, f"base-{self.policy.info.revision[-12:]}-again")
        rng = random.Random(seed)
        both = [(turn, (self.captured[turn], others[turn])) for turn in rng.sample(range(OWN), OWN)]
        told = [(turn, two) for turn, two in both if len({taste.likes(one["text"]) for one in two}) == 2]
        samples = []
        for turn, two in told[:pairs]:
            wrong = rng.random() < WRONG
            for number, one in enumerate(two):
                value = 1.0 if taste.likes(one["text"]) != wrong else -1.0
                samples.append(
                    Sample(
                        turn_id=2 * turn + number + 1,
                        messages=user(self.own[turn]),
                        response=one["text"],
                        reward=value,
                        parts=(Part(turn + 1, "preference", value, 1.0),),
                        response_ids=tuple(one["ids"]),
                        response_logprobs=tuple(one["logprobs"]),
                    )
                )
        return samples

    def run(
        self, name: str, taste: Any, recipe: str, seed: int, options: argparse.Namespace
    ) -> dict[str, Any]:
        if algorithm_of(recipe) == "dpo":
            samples = self.compared(taste, seed, options.ratings)
        else:
            samples = self.rated(taste, seed, options.ratings, options.words)
        self.policy.put(None)
        started, row = (
            time.process_time(),
            {"taste": name, "recipe": recipe, "seed": seed, "styled": taste.styled},
        )
        asked = [user(p) for p in self.held]
        with tempfile.TemporaryDirectory() as folder:
            out = options.keep / f"{name}-{algorithm_of(recipe)}-{seed}" if options.keep else Path(folder)
            if recipe == "prompt":
                asked = [user(f"{p}\n\n{taste.prompt}") for p in self.held]
            elif recipe == "few-shot":
                asked = [(*shots(samples), *user(p)) for p in self.held]
            elif recipe == "kept":
                found = sorted((options.keep / f"{name}-auto-{seed}").glob("**/adapter_config.json"))
                self.policy.put(found[-1].parent)
            elif recipe != "base":
                row |= self._train(samples, recipe, seed, out, options, taste)
            row["cpu_seconds"] = round(time.process_time() - started)
            return row | self._measured(taste, asked, kept=recipe == "base")

    def _train(
        self,
        samples: list[Any],
        recipe: str,
        seed: int,
        out: Path,
        options: argparse.Namespace,
        taste: Any,
    ) -> dict[str, Any]:
        from clawback import engine
        from clawback.errors import NothingRead
        from clawback.learning import run_budget
        from clawback.learning.training import DRAWING
        from clawback.trainer import TrainingRun

        algorithm, _, changes = recipe.partition(":")
        given = dict(change.split("=") for change in changes.split("+") if change)
        values = {name: json.loads(text) for name, text in given.items()}
        known = {one.name for one in dataclasses.fields(engine.Recipe)}
        overrides = {name: value for name, value in values.items() if name in known}
        chosen = engine.recipe(self.policy.info, "balanced", algorithm, overrides)
        more = {name: value for name, value in values.items() if name not in known}
        chosen = dataclasses.replace(chosen, extra=chosen.extra | more)
        held = [] if algorithm == "dpo" else samples[::8]
        kept = self.kept() if options.gate else []
        if options.gate:
            held = [one for one in samples if one.messages in kept]
        train = [one for one in samples if one not in held]
        rated = {one.turn_id for one in held}
        own = [user(p) for i, p in enumerate(self.own, 1) if i not in rated]
        prompts = [messages for messages in own if messages not in kept]
        phases: tuple[tuple[str, float], ...] = ()
        if algorithm in DRAWING:
            run = TrainingRun(self.policy, train, chosen, prompts=prompts)
            phases = run_budget.fit(run, run_budget.Allowed(math.inf))[1].phases
        took = Took()
        try:
            with drawn_by(options.draw) as sampler:
                result = engine.train(
                    self.policy,
                    train,
                    chosen,
                    seed=seed,
                    out=out,
                    prompts=prompts,
                    on_progress=took,
                    sampler=sampler,
                )
        except NothingRead as error:  # no version: the base goes on answering
            self.policy.put(None)
            return {"algorithm": "none", "instruction": "", "note": str(error), "steps": 0}
        took({})
        expected = {name: round(seconds) for name, seconds in phases if name != "gate"}
        found: dict[str, Any] = {
            "expected_seconds": sum(expected.values()),
            "seconds": round(sum(took.seconds.values())),
            "phases": {name: (expected.get(name), round(s)) for name, s in took.seconds.items()},
            "algorithm": result.algorithm,
            "instruction": result.instruction,
            "note": result.note,
            "steps": result.steps,
        }
        if sampler is not None:
            found |= {"drawn_by": sampler.name, "gap": round(sampler.gap, 4)}
        if options.gate:
            found |= self._judged(Path(result.path), taste, samples, held, seed)
        return found

    def kept(self) -> list[Any]:
        """The person's prompts that the gate keeps from every run, by the product's own hash."""
        from clawback.config import GateSection
        from clawback.feedback.turn_reward import keeps, prompt_key

        asked = [user(prompt) for prompt in self.own]
        return [messages for messages in asked if keeps(prompt_key(messages), GateSection().held_out)]

    def _judged(
        self, version: Path, taste: Any, samples: list[Any], held: list[Any], seed: int
    ) -> dict[str, Any]:
        """What the gate makes of the version on kept prompts; the person says which of two answers is better, where it asks."""
        from benchmarks._choosing import decided
        from clawback.gate.evidence import Drawing, GateRatings, measure
        from clawback.gate.fresh import VersionPair

        evidence, shown = measure(
            self.policy,
            VersionPair(version, None),
            GateRatings(samples, held),
            self.kept(),
            Drawing(ROOM, seed),
        )
        # All that it is asked on are kept prompts.
        evidence = dataclasses.replace(evidence, unlearned=evidence.prompts)
        pairs = [(shown.candidate[one.candidate].text, shown.live[one.live].text) for one in shown.questions]
        decision, questions = decided(evidence, pairs, taste.likes, random.Random(500 + seed), WRONG)
        return {
            "accepted": decision.accepted,
            "questions": questions,
            "why": decision.reasons[:2],
            "base_text": evidence.perplexity_ratio,
        }

    def _measured(self, taste: Any, asked: list[Any], kept: bool) -> dict[str, Any]:
        """``kept``: the base answers the same whoever asks, so it is measured once."""
        if not kept:
            made, found = self._answers(asked)
        else:
            self.of_base = self.of_base or self._answers(asked)
            made, found = self.of_base
        return {"liked": mean(taste.likes(one.text) for one in made), **found}

    def _answers(self, asked: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        made = [one for [one] in self.policy.generate(asked, max_tokens=ROOM, seed=77)]
        texts = [one.text for one in made]
        ids = [one.ids for one in made]
        with self.policy.base():
            base = self.policy.logprobs([user(p) for p in self.held], ids)
            odd = self.policy.logprobs([user(p) for p in self.held[1:] + self.held[:1]], ids)
        return made, {
            "words": mean(len(t.split()) for t in texts),
            "ended": mean(one.finished for one in made),
            "relevance": mean(float((a - b).mean()) for a, b in zip(base, odd, strict=True) if len(a)),
            "kl_a_token": mean(sum(one.logprobs) - float(b.sum()) for one, b in zip(made, base, strict=True))
            / max(1.0, mean(len(i) for i in ids)),
            "perplexity": math.exp(-self._gained(self.neutral)[0]),
            "sums": math.exp(-self._gained(self.sums)[0]),
            "knowledge": mean(self._gained(texts)[1] for texts in (self.neutral, self.solved)),
        }

    def _gained(self, texts: list[tuple[str, str]]) -> tuple[float, float]:
        """Log-prob of answers to prompts, less that under the base: nats a token, and as a share of the base's. At temperature 1, whatever is drawn at."""
        from clawback.models.types import Sampling

        if not texts:
            return math.nan, math.nan
        drawn_at, self.policy.sampling = self.policy.sampling, Sampling(1.0)
        try:
            asked, answers = [user(p) for p, _ in texts], [t for _, t in texts]
            ours = self.policy.logprobs(asked, answers)
            with self.policy.base():
                base = self.policy.logprobs(asked, answers)
        finally:
            self.policy.sampling = drawn_at
        gained = sum(float((a - b).sum()) for a, b in zip(ours, base, strict=True))
        return gained / sum(map(len, ours)), gained / -sum(float(b.sum()) for b in base)


class Took:
    """Wall seconds of each phase of a run, as its progress tells them, under the names of the estimate's phases."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.phase, self.since = "read", time.perf_counter()

    def __call__(self, progress: Mapping[str, Any]) -> None:
        now = time.perf_counter()
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self.since
        self.phase, self.since = self._next(progress), now

    def _next(self, progress: Mapping[str, Any]) -> str:
        told = progress.get("phase")
        if self.phase == "refine" or (self.phase == "train" and told == "draw"):
            return "refine"
        if told in ("choose", "train") or (told == "draw" and "sentence" in progress):
            return str(told)
        return self.phase


@contextmanager
def drawn_by(address: str) -> Iterator[Any]:
    """A sampler by the vLLM at an address; None without one."""
    if not address:
        yield None
        return
    from clawback.extensions.vllm.vllm_sampler import VllmSampler

    with tempfile.TemporaryDirectory() as folder, VllmSampler(address, Path(folder)) as sampler:
        yield sampler


def sums(path: Path) -> list[tuple[str, str]]:
    """32 sums in words, as answers; none where no such file lies beside the prompts."""
    if not path.is_file():
        return []
    asked = "Write a sum in words, of several steps."
    return [(asked, one["question"]) for one in json.loads(path.read_text("utf-8"))[:32]]


def solved(path: Path) -> list[tuple[str, str]]:
    """128 questions of GSM8K with their results; none where no such file lies beside the prompts."""
    if not path.is_file():
        return []
    return [
        (one["question"], one["ground_truth_answer"]) for one in json.loads(path.read_text("utf-8"))[:128]
    ]


def user(text: str) -> tuple[dict[str, str], ...]:
    return ({"role": "user", "content": text},)


def algorithm_of(recipe: str) -> str:
    return recipe.partition(":")[0]


def shots(samples: list[Any]) -> list[dict[str, str]]:
    """Three liked answers as a conversation before."""
    liked = [one for one in samples if one.reward > 0][:3]
    return [m for one in liked for m in (*one.messages, {"role": "assistant", "content": one.response})]


def mean(values: Any) -> float:
    found = [float(value) for value in values]
    return round(sum(found) / max(1, len(found)), 3)


def table(rows: list[dict[str, Any]]) -> str:
    """Means over persons, by taste and recipe."""
    columns = (
        "liked",
        "words",
        "ended",
        "relevance",
        "kl_a_token",
        "perplexity",
        "sums",
        "knowledge",
        "cpu_seconds",
    )
    lines = ["| taste | recipe | " + " | ".join(columns) + " | gate |", "| --- " * (len(columns) + 3) + "|"]
    for key in dict.fromkeys((row["taste"], row["recipe"]) for row in rows):
        same = [row for row in rows if (row["taste"], row["recipe"]) == key]
        judged = ["yes" if row["accepted"] else "no" for row in same if "accepted" in row]
        cells = [f"{mean(row[name] for row in same):.3g}" for name in columns]
        lines.append(f"| {key[0]} | {key[1]} | " + " | ".join(cells) + f" | {', '.join(judged)} |")
    return "\n".join(lines)
