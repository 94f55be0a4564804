"""How often the gate is right about versions of a real model: those that ``python -m benchmarks real --keep FOLDER`` has made.

Each version has learned one person's taste from 32 taps. It is judged by the ratings of many: of others who have the same taste (*good*, where more of its
fresh answers are liked by ten points), of people with other tastes, by which it is no better (*other taste*), of people who tap good three times in ten whatever
they see (*noise*); and spoilt copies, their weights many times too large, by those of the right taste (*collapsed*). One tap in ten is wrong. Where
the gate asks which of two answers is better, they say it. What is drawn from a version is drawn once, so that a hundred persons cost little more than one.

    python -m benchmarks real --tastes test --keep bench-results/real/kept
    python -m benchmarks gate_real --kept bench-results/real/kept
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from clawback.release.rule import Sampled

from benchmarks._choosing import decided
from benchmarks.real import DATA, ROOM, World, user
from clawback.engine.types import Completion
from clawback.records import Sample
from clawback.release import evidence, fresh

RATED, HELD, FRESH, IMPROVED, WRONG, TAPPED_GOOD = 32, 8, 48, 0.10, 0.1, 0.3
SPOILT = 6.0
RESULTS = Path("bench-results/real/gate.jsonl")


@dataclasses.dataclass(frozen=True)
class Judge:
    """What all persons share: the base's answers that they rate, as the reader looks at them."""

    world: World
    samples: list[Sample]  # without ratings
    looked: Any
    liked: dict[str, Sampled | None]

    @classmethod
    def of(cls, world: World, tastes: dict[str, Any]) -> Judge:
        samples = [
            Sample(i + 1, user(prompt), made["text"], 0.0, response_ids=tuple(made["ids"]))
            for i, (prompt, made) in enumerate(zip(world.own, world.captured, strict=True))
        ]
        world.policy.put(None)
        looked = evidence.looked(world.policy, samples, [list(s.response_ids or ()) for s in samples])
        made = [Completion(s.response, tuple(s.response_ids or ()), (), True) for s in samples]
        asked = [s.messages for s in samples]
        own, other = (
            fresh.totals(world.policy, asked, made, base=True),
            fresh.elsewhere(world.policy, asked, made) or [],
        )

        def how(name: str) -> Sampled | None:
            rows = [i for i, one in enumerate(made) if tastes[name].likes(one.text)][-evidence.MOST_LIKED :]
            of = ([all_[i] for i in rows] for all_ in (asked, made, own, other))
            return evidence.sampled(*of) if len(rows) >= evidence.FEWEST_LIKED else None  # type: ignore[arg-type]

        liked = {name: how(name) for name in tastes}
        return cls(world, samples, looked, liked)

    def draw(self, folder: Path) -> fresh.Fresh:
        """Both versions' answers, and how every answer that may be rated shifts."""
        asked = [user(prompt) for prompt in self.world.own[-FRESH:]]
        return fresh.draw(
            self.world.policy, folder, None, self.samples, asked, {"max_tokens": ROOM, "seed": 5}
        )

    def judged(
        self,
        drawn: fresh.Fresh,
        taste: str | None,
        likes: Any,
        seed: int,
        rated: Sequence[Sample] | None = None,
    ) -> dict[str, Any]:
        """One person's ratings, and what the gate makes of the version by them. What it asks is answered: which of two answers is better.

        Args:
            rated: what they have rated so far, every eighth held out of training; without it 32 answers.
        """
        rng = random.Random(seed)
        places = [one.turn_id - 1 for one in rated or ()] or rng.sample(range(len(self.samples)), RATED)
        ratings = [one.reward for one in rated or ()] or [
            self._tap(self.samples[i].response, likes, rng) for i in places
        ]
        samples = [
            dataclasses.replace(self.samples[i], reward=r) for i, r in zip(places, ratings, strict=True)
        ]
        held = range(0, len(samples), HELD)
        mine = dataclasses.replace(drawn, shifts=[drawn.shifts[places[n]] for n in held])
        asked: list[tuple[str, str]] = []

        def witness(_: Any, ours: Any, theirs: Any, pairs: Any) -> None:
            asked.extend((ours[pair.candidate].text, theirs[pair.live].text) for pair in pairs)

        found = evidence.weigh(
            mine,
            samples,
            [samples[n] for n in held],
            self._rows(places),
            self.liked.get(taste or ""),
            seed,
            witness=witness,
        )
        decision, count = decided(found, asked, likes or (lambda _: False), rng, WRONG)
        return {
            "accepted": decision.accepted,
            "questions": count,
            "better": round(found.better, 3),
            "read_p": found.read_p,
            "why": decision.reasons[0],
        }

    def _tap(self, answer: str, likes: Any, rng: random.Random) -> float:
        good = rng.random() < TAPPED_GOOD if likes is None else likes(answer) != (rng.random() < WRONG)
        return 1.0 if good else -1.0

    def _rows(self, places: Sequence[int]) -> Any:
        one = self.looked
        return dataclasses.replace(
            one,
            ids=[one.ids[i] for i in places],
            texts=[one.texts[i] for i in places],
            hidden=one.hidden[list(places)],
            prompts=[one.prompts[i] for i in places],
        )


def spoil(folder: Path, out: Path) -> Path:
    """A copy whose weights are many times too large."""
    from safetensors.torch import load_file, save_file

    out.mkdir()
    for file in folder.iterdir():
        if file.suffix == ".safetensors":
            weights = load_file(file)
            save_file({n: SPOILT * w if "lora_B" in n else w for n, w in weights.items()}, out / file.name, metadata={"format": "pt"})  # fmt: skip
        elif file.is_file():
            (out / file.name).write_bytes(file.read_bytes())
    return out


def cases(
    judge: Judge, tastes: dict[str, Any], folder: Path, taste: str, persons: int
) -> Iterator[dict[str, Any]]:
    """Everybody's verdict on one version."""

    def share(made: fresh.Answers, name: str) -> float:
        return sum(tastes[name].likes(one.text) for one in made.completions) / FRESH

    drawn = judge.draw(folder)
    gained = {name: share(drawn.ours, name) - share(drawn.before, name) for name in tastes}
    for number in range(persons):
        if gained[taste] >= IMPROVED:
            yield {"kind": "good", "by": taste} | judge.judged(
                drawn, taste, tastes[taste].likes, 100 + number
            )
        yield {"kind": "noise", "by": "nobody"} | judge.judged(drawn, None, None, 200 + number)
    for name in tastes:
        if gained[name] < IMPROVED:
            yield {"kind": "other taste", "by": name} | judge.judged(drawn, name, tastes[name].likes, 300)
    with tempfile.TemporaryDirectory() as place:
        drawn = judge.draw(spoil(folder, Path(place) / "spoilt"))
    # What it says may well meet the taste: that is what the guards are for.
    yield {"kind": "collapsed", "by": taste} | judge.judged(drawn, taste, tastes[taste].likes, 400)


def main(argv: list[str]) -> int:
    from benchmarks._real_tastes import DEVELOPMENT, TEST

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks gate_real", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL with `prompt` and `response`")
    parser.add_argument(
        "--kept", type=Path, required=True, help="folder of versions, by `benchmarks real --keep`"
    )
    parser.add_argument(
        "--persons", type=int, default=5, help="of the version's own taste, and as many who tap at random"
    )
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args(argv)
    tastes = {**DEVELOPMENT, **TEST}
    found = sorted(one.parent for one in options.kept.glob("*-auto-*/**/adapter_config.json"))
    if not found:
        print(
            f"There is no version in {options.kept}: python -m benchmarks real --keep {options.kept}",
            file=sys.stderr,
        )
        return 2
    judge = Judge.of(World(options), tastes)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with RESULTS.open("w", encoding="utf-8") as out:
        for folder in found:
            taste = folder.relative_to(options.kept).parts[0].rsplit("-", 2)[0]
            for row in cases(judge, tastes, folder, taste, options.persons):
                rows.append({"version": taste, **row})
                print(json.dumps(rows[-1]), file=out, flush=True)
    print(table(rows))
    return 0


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| candidates | cases | accepted | questions |", "| --- " * 4 + "|"]
    for kind in dict.fromkeys(row["kind"] for row in rows):
        of = [row for row in rows if row["kind"] == kind]
        asked = sum(row["questions"] for row in of) / len(of)
        lines.append(f"| {kind} | {len(of)} | {sum(row['accepted'] for row in of)} | {asked:.1f} |")
    return "\n".join(lines)
