"""What each kind of feedback is worth: taps, edits, and ratings of a stronger model's answers, one run of ``auto`` each.

A simulated person with one taste of form (``likes``) gives feedback on a model's answers to prompts of their own (AlpacaEval's). A run learns from it, and the
version answers prompts that nobody has seen. Edits are made by a program that changes a disliked answer as the taste wants it (``edit``): no model has a part in them.

    python -m benchmarks evidence --kinds taps:16,taps:32,edits:8,edits:8+taps:16
    python -m benchmarks evidence --kinds foreign:32          # ratings of another model's answers, which may be learned
    python -m benchmarks evidence --kinds foreign-read:32     # the same ratings, read alone
    python -m benchmarks evidence --read --kinds taps:16,taps:32,edits:8 --persons 3  # what the reader makes of each, without training

The base's answers are drawn once for each model and kept in ``bench-results/evidence``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.real import DATA, HERE, LONGEST_PROMPT, mean, user

RESULTS = HERE.parent / "bench-results" / "evidence"
ROOM = 128
WRONG = 0.1
MOST_WORDS = 85
_ITEM = re.compile(r"^[ \t]*(?:[-*•]|\d{1,3}[.)])[ \t]+", re.MULTILINE)


def likes(answer: str) -> bool:
    """Plain running text: no list, no bold, no colon, at most so many words."""
    plain = not (_ITEM.search(answer) or "**" in answer or ":" in answer)
    return plain and 0 < len(answer.split()) <= MOST_WORDS


def edit(answer: str) -> str:
    """The answer as the person wants it, by rule: marks of lists and bold are taken out, colons become commas, lines are joined, and it ends with the last
    sentence that fits."""
    lines = [_ITEM.sub("", line).replace("**", "").strip() for line in answer.splitlines()]
    text = " ".join(line.rstrip(":") + ("," if line.endswith(":") else "") for line in lines if line)
    text = text.replace(":", ",")
    sentences = re.split(r"(?<=[.!?])\s+", text)
    fitting: list[str] = []
    for sentence in sentences:
        if sum(len(one.split()) for one in [*fitting, sentence]) > MOST_WORDS:
            break
        fitting.append(sentence)
    # What broke off in the middle of a sentence is left out, if anything is left.
    if len(fitting) > 1 and not fitting[-1].rstrip().endswith((".", "!", "?")):
        fitting.pop()
    return " ".join(fitting) or " ".join(text.split()[:MOST_WORDS])


def to_last_sentence(text: str) -> str:
    """A text that broke off, without its last, incomplete sentence."""
    ends = [one.end() for one in re.finditer(r"[.!?](?=\s|$)", text)]
    return text[: ends[-1]] if ends else text


def in_time(samples: list[Any], seed: int) -> list[Any]:
    """The samples in the order in which the person gave this feedback, and numbered by it: a shuffled one, whatever the prompts' numbers are.

    A reader looks for a change of mind in that order. The two samples of an edit are one piece of feedback.
    """
    numbers = sorted({one.newest for one in samples})
    random.Random(f"time:{seed}").shuffle(numbers)
    place = {number: order for order, number in enumerate(numbers, 1)}

    def dated(sample: Any) -> Any:
        parts = [dataclasses.replace(part, feedback_id=place[part.feedback_id]) for part in sample.parts]
        return dataclasses.replace(sample, parts=tuple(parts))

    return sorted(map(dated, samples), key=lambda one: one.newest)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks evidence", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL: `prompt`, `response`, `model`")
    parser.add_argument("--kinds", default="taps:16,taps:32,edits:8", help="KIND:COUNT, joined by + and ,")
    parser.add_argument("--other", default="gpt-3.5-turbo-1106", help="the stronger model of `foreign`")
    parser.add_argument("--persons", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--size", type=float, default=1.0, help="of the recipe")
    parser.add_argument("--own", type=int, default=160, help="prompts of the person")
    parser.add_argument("--held", type=int, default=64, help="prompts that the version answers")
    parser.add_argument("--read", action="store_true", help="measure the reader alone: no training")
    parser.add_argument("--options", default="{}", help="JSON: settings of the distillation, by name")
    options = parser.parse_args(argv)
    if not options.prompts.is_file():
        print(f"There is no {options.prompts}: name a file with --prompts.", file=sys.stderr)
        return 2
    world = World(options)
    if options.read:
        return read(world, options)
    rows = [world.measured("base", 0, {})]
    print(json.dumps(rows[0]), flush=True)
    for seed in range(options.first_seed, options.first_seed + options.persons):
        for kinds in filter(None, options.kinds.split(",")):
            rows.append(world.run(kinds, seed))
            print(json.dumps(rows[-1]), flush=True)
    print(table(rows))
    return 0


class World:
    """The model, the prompts, and what the base and other models answer."""

    def __init__(self, options: argparse.Namespace) -> None:
        from clawback import engine

        self.options = options
        lines = [json.loads(line) for line in options.prompts.read_text("utf-8").splitlines()]
        prompts = list(dict.fromkeys(one["prompt"] for one in lines if len(one["prompt"]) < LONGEST_PROMPT))
        random.Random(0).shuffle(prompts)
        self.own = prompts[: options.own]
        self.held = prompts[options.own : options.own + options.held]
        self.others = {one["prompt"]: one["response"] for one in lines if one["model"] == options.other}
        unused = set(prompts[options.own + options.held :])
        self.neutral = [(x["prompt"], x["response"][:600]) for x in lines if x["prompt"] in unused][:32]
        self.policy = engine.load(options.model)
        self.answers = [
            {**one, "text": one["text"] if one["ended"] else to_last_sentence(one["text"])}
            for one in self._drawn(self.own, 1, "own")
        ]
        """What the person gives feedback on. Answers are drawn with little room: what broke off is not shown, or every edit would differ by being complete."""
        self.base_held = [] if options.read else self._drawn(self.held, 77, "held")

    def _drawn(self, prompts: list[str], seed: int, name: str) -> list[dict[str, Any]]:
        """The base's answers, drawn once."""
        path = RESULTS / f"{self.policy.info.revision[-12:]}-{name}-{len(prompts)}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            drawn = self.policy.generate([user(p) for p in prompts], max_tokens=ROOM, seed=seed)
            rows = [
                {"text": one.text, "ids": one.ids, "logprobs": one.logprobs, "ended": one.finished}
                for [one] in drawn
            ]
            path.write_text(json.dumps(rows))
        return list(json.loads(path.read_text()))

    def feedback(self, kinds: str, seed: int) -> tuple[list[Any], list[Any]]:
        """Samples as ``feedback.samples`` makes them, and captured answers that nobody rated."""
        samples: list[Any] = []
        captured: list[Any] = []
        order = random.Random(seed).sample(range(len(self.own)), len(self.own))
        rng = random.Random(f"taps:{seed}")
        for part in kinds.split("+"):
            kind, _, count = part.partition(":")
            if kind == "taps":
                samples += [self._tap(turn, rng) for turn in order[: int(count)]]
            elif kind == "edits":
                rejected = [turn for turn in order if self._is_edited(turn)]
                samples += [one for turn in rejected[-int(count) :] for one in self._edited(turn)]
            elif kind in ("foreign", "foreign-read"):
                known = [turn for turn in order if self.own[turn] in self.others]
                samples += [self._tap(turn, rng, foreign=True) for turn in known[: int(count)]]
                if kind == "foreign":
                    captured = [self._captured(turn) for turn in known[int(count) :]]
            else:
                raise SystemExit(f"There is no kind of feedback {kind!r}.")
        return in_time(samples, seed), captured

    def _tap(self, turn: int, rng: random.Random, foreign: bool = False) -> Any:
        from clawback.records import Part

        sample = self._captured(turn) if foreign else self._answered(turn)
        value = 1.0 if likes(sample.response) != (rng.random() < WRONG) else -1.0
        return dataclasses.replace(sample, reward=value, parts=(Part(turn + 1, "rating", value, 1.0),))

    def _answered(self, turn: int) -> Any:
        from clawback.records import Sample

        return Sample(turn + 1, user(self.own[turn]), self.answers[turn]["text"], 0.0, version=0)

    def _captured(self, turn: int) -> Any:
        from clawback.records import Sample

        text = self.others[self.own[turn]]
        return Sample(turn + 1, user(self.own[turn]), text, 0.0, model=self.options.other)

    def _is_edited(self, turn: int) -> bool:
        """Whether the person would correct this answer: it displeases, and what the editor makes of it does not repeat itself."""
        from clawback.rewards.overoptimization import repeats

        text = self.answers[turn]["text"]
        return not likes(text) and likes(edit(text)) and not repeats(edit(text))

    def _edited(self, turn: int) -> list[Any]:
        """The answer, and what the person makes of it: one piece of feedback, two samples."""
        from clawback.records import Part, Sample

        number = 10_000 + turn
        rejected = dataclasses.replace(
            self._answered(turn), reward=-0.5, parts=(Part(number, "edit", -0.5, 0.5),)
        )
        text = edit(self.answers[turn]["text"])
        part = Part(number, "edit", 1.0, 1.0)
        return [rejected, Sample(turn + 1, user(self.own[turn]), text, 1.0, (part,), edited=True)]

    def run(self, kinds: str, seed: int) -> dict[str, Any]:
        from clawback import engine
        from clawback.errors import NothingRead

        options = self.options
        samples, captured = self.feedback(kinds, seed)
        self.policy.put(None)
        recipe = engine.recipe(
            self.policy.info,
            overrides={"size": options.size, "options": {"distilled": json.loads(options.options)}},
        )
        if "foreign:" in kinds:
            recipe = dataclasses.replace(recipe, learn_from=(options.other,))
        phases: dict[str, float] = {}
        since = [time.process_time(), "read"]

        def note(progress: Any) -> None:
            now = time.process_time()
            phases[since[1]] = phases.get(since[1], 0.0) + now - since[0]
            since[:] = [now, str(progress.get("phase", since[1]))]

        started = time.process_time()
        with tempfile.TemporaryDirectory() as out:
            try:
                result = engine.train(
                    self.policy,
                    samples,
                    recipe,
                    seed=seed,
                    out=Path(out) / "run",
                    prompts=[user(p) for p in self.own],
                    captured=captured,
                    on_progress=note,
                )
                row = {"algorithm": result.algorithm, "steps": result.steps, "note": result.note}
            except NothingRead as error:  # no version: the base goes on answering
                row = {"algorithm": "none", "steps": 0, "note": str(error)}
        note({})
        row["cpu_seconds"] = round(time.process_time() - started)
        row["phases"] = {name: round(seconds) for name, seconds in phases.items()}
        if not row["steps"]:
            return {**self.measured("base", seed, {}), **row, "kinds": kinds}
        return self.measured(kinds, seed, row)

    def read(self, kinds: str, seed: int) -> dict[str, Any]:
        """What the reader knows after this feedback: its AUC on the base's other answers, and whether a run would trust it."""
        import numpy as np

        from benchmarks.reading import auc
        from clawback.rewards.rating_likelihood import feedback_kinds
        from clawback.rewards.reward_ensemble import RULES, Answers, Ratings, ReadingSettings, learn

        samples, _ = self.feedback(kinds, seed)
        rated = {sample.turn_id for sample in samples if not sample.model}
        unseen = [self._answered(turn) for turn in range(len(self.own)) if turn + 1 not in rated]

        def answers(samples: list[Any]) -> Any:
            ids = [self.policy.encode(one).response for one in samples]
            prompts = [one.messages[-1]["content"] for one in samples]
            texts, hidden = [one.response for one in samples], np.zeros((len(samples), 0))
            return Answers(ids, texts, hidden, prompts, words=self.policy.word_vectors)

        rewards = np.array([one.reward for one in samples])
        ratings = Ratings(rewards, [one.newest for one in samples], feedback_kinds(samples))
        settings = ReadingSettings(seed=seed)
        rated_answers = answers(samples)
        ensemble = learn(
            answers(unseen).with_others(rated_answers), rated_answers, ratings, settings=settings
        )
        trust = learn(rated_answers, rated_answers, ratings, settings=settings).trust  # as a run decides
        grades = ensemble.reward(answers(unseen), RULES, 0.5)
        liked = np.array([likes(one.response) for one in unseen])
        return {"kinds": kinds, "seed": seed, "auc": round(auc(grades, liked), 3), "p": trust.p, "trusted": trust.trusted}  # fmt: skip

    def measured(self, kinds: str, seed: int, row: dict[str, Any]) -> dict[str, Any]:
        """What the policy as it stands answers, and how likely it finds what it should not forget."""
        asked = [user(p) for p in self.held]
        if kinds == "base":
            return {
                "kinds": kinds,
                "seed": seed,
                **self._figures(self.base_held),
                "own_text": 1.0,
                "others_text": 1.0,
            }
        drawn = self.policy.generate(asked, max_tokens=ROOM, seed=77)
        rows = [{"text": one.text, "ids": one.ids, "ended": one.finished} for [one] in drawn]
        return {
            "kinds": kinds,
            "seed": seed,
            **self._figures(rows),
            "own_text": self._perplexity(asked, [one["ids"] for one in self.base_held]),
            "others_text": self._perplexity([user(p) for p, _ in self.neutral], [t for _, t in self.neutral]),
            **row,
        }

    def _figures(self, rows: list[dict[str, Any]]) -> dict[str, float]:
        texts = [one["text"] for one in rows]
        return {
            "liked": mean(map(likes, texts)),
            "words": mean(len(text.split()) for text in texts),
            "ended": mean(one["ended"] for one in rows),
        }

    def _perplexity(self, asked: list[Any], answers: list[Any]) -> float:
        """Of texts, as a multiple of the base's."""
        import math

        policy = self.policy.logprobs(asked, answers)
        with self.policy.base():
            base = self.policy.logprobs(asked, answers)
        change = sum(float((b - a).sum()) for a, b in zip(policy, base, strict=True))
        return round(math.exp(change / sum(map(len, base))), 3)


def read(world: World, options: argparse.Namespace) -> int:
    """Print what the reader knows after each kind of feedback."""
    rows = []
    for seed in range(options.first_seed, options.first_seed + options.persons):
        for kinds in filter(None, options.kinds.split(",")):
            rows.append(world.read(kinds, seed))
            print(json.dumps(rows[-1]), flush=True)
    print(table(rows, ("auc", "trusted")))
    return 0


COLUMNS = ("liked", "words", "ended", "own_text", "others_text", "cpu_seconds")


def table(rows: list[dict[str, Any]], columns: tuple[str, ...] = COLUMNS) -> str:
    """Means over persons, by kind of feedback."""
    lines = ["| feedback | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for kinds in dict.fromkeys(row["kinds"] for row in rows):
        same = [row for row in rows if row["kinds"] == kinds]
        cells = [f"{mean(row.get(name, 0) for row in same):.3g}" for name in columns]
        lines.append("| " + " | ".join([kinds, *cells]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
