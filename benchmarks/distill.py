"""A live prompt folded into the adapter by ``clawback prompts distill``: what is kept without it, and what the gate says, by both of its questions.

A person has rated 32 answers, one tap in ten wrong. The figure is the share of answers that they like, to questions that nobody rated: of the model alone,
under the prompt, and of the version that comes of it, without the prompt. The embedded model: "Answer with a bulleted list.", and a person who likes lists.
SmolLM2: a test taste of ``benchmarks real`` and its sentence, real prompts.

    python -m benchmarks distill --seeds 3
    python -m benchmarks distill --model smollm2 --taste "one paragraph" --seeds 2
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.real import DATA, ROOM, WRONG, World, chosen, user

TURNS, RATINGS, UNSEEN = 64, 32, 48


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks distill", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--taste", default="one paragraph", help="a taste of `benchmarks real`; not for the embedded model")  # fmt: skip
    parser.add_argument("--prompts", type=Path, default=DATA, help="JSONL with `prompt` and `response`")
    options = parser.parse_args(argv)
    columns = ("alone", "prompted", "folded", "accepted", "ratings", "probability", "better", "cpu_seconds")
    print(f"| seed | {' | '.join(columns)} |\n{'| --- ' * (len(columns) + 1)}|")
    world = None if options.model == "embedded" else World(argparse.Namespace(model=options.model, dtype="auto", prompts=options.prompts))  # fmt: skip
    for seed in range(options.seeds):
        person = embedded_person(seed) if world is None else real_person(world, options.taste)
        with tempfile.TemporaryDirectory() as folder:
            row = measure(Path(folder), options.model, person, seed)
        print(f"| {seed} | " + " | ".join(str(row[name]) for name in columns) + " |", flush=True)
    return 0


@dataclass(frozen=True)
class Person:
    """Conversations with answers, of which the first 32 are rated after a shuffle; questions that nobody rated; what is liked; the prompt that asks for it."""

    turns: list[tuple[tuple[Any, ...], str]]
    unseen: list[tuple[Any, ...]]
    likes: Callable[[str], bool]
    prompt: str
    room: int | None


def embedded_person(seed: int) -> Person:
    from clawback.extensions.demo import corpus

    rng = random.Random(seed)
    asked = corpus.prompts("rated", TURNS, seed)
    answers = [corpus.answer(corpus.BY_NAME[one.topic], corpus.random_style(rng), rng) for one in asked]
    return Person(
        [(tuple(one.messages), text) for one, text in zip(asked, answers, strict=True)],
        [tuple(one.messages) for one in corpus.prompts("test", UNSEEN, seed)],
        lambda text: "\n-" in text or text.startswith("-"),
        "Answer with a bulleted list.",
        None,
    )


def real_person(world: World, name: str) -> Person:
    taste = chosen(name)[name]
    turns = [(user(p), one["text"]) for p, one in zip(world.own, world.captured, strict=True)]
    return Person(turns, [user(p) for p in world.held], taste.likes, taste.prompt, ROOM)


def measure(folder: Path, model: str, person: Person, seed: int) -> dict[str, Any]:
    from clawback import engine, jobs, store
    from clawback.paths import Home

    home = Home(folder / "home")
    filled(home, model, person, seed)
    started = time.process_time()
    made = jobs.train_once(home, fold=True, seed=seed)
    report = made.report
    seconds = time.process_time() - started
    policy = engine.load(model)

    def liked(adapter: Path | None, prompt: str = "") -> float:
        policy.put(adapter)
        policy.chat.system = prompt
        answers = policy.generate(person.unseen, max_tokens=person.room, seed=seed)
        return round(sum(person.likes(one.text) for [one] in answers) / len(answers), 2)

    found = {
        "alone": liked(None),
        "prompted": liked(None, person.prompt),
        "folded": liked(Path(made.version.path)),
        "accepted": "yes" if report.accepted else "no",
        "ratings": RATINGS,
        "probability": round(report.probability, 2),
        "cpu_seconds": round(seconds),
    }
    with store.connect(home.database) as db:
        return found | {"better": round(better_than_the_prompt(db, made.version, policy, person.prompt), 2)}


def filled(home: Any, model: str, person: Person, seed: int) -> None:
    """Turns, the first ratings, and the prompt live."""
    from clawback import feedback, store
    from clawback.gate import prompt_gate as prompt_gate
    from clawback.records import Turn
    from clawback.release import prompted

    home.create()
    home.config.write_text(f'[model]\nbase = "{model}"\n[training]\nbackground = false\n')
    rng = random.Random(seed)
    turns = rng.sample(person.turns, len(person.turns))

    def rate(numbers: range) -> None:
        with store.connect(home.database) as db:
            for number in numbers:
                good = person.likes(turns[number][1]) != (rng.random() < WRONG)
                feedback.rate(db, number + 1, 1 if good else -1)

    with store.connect(home.database) as db:
        for number, (messages, text) in enumerate(turns):
            assert db.add_turn(Turn(f"s{number}", messages, text)).id == number + 1
        version = prompted.propose(db, person.prompt, origin={"author": "hand"})
        prompt_gate.by_hand(db, home, version)
    rate(range(RATINGS))


def better_than_the_prompt(db: Any, version: Any, policy: Any, prompt: str) -> float:
    """Probability that the version is better than the model under the prompt, by the reader of the gate, on prompts that the run was denied."""
    from clawback import feedback
    from clawback.config import GateSection
    from clawback.gate import adapter_gate, evidence, fresh
    from clawback.gate.fresh import VersionPair

    samples = feedback.evidence(feedback.samples(db))
    unseen = adapter_gate.unseen(db, samples, db.run(version.run_id), db.version(1))
    held = [one for one in samples if one.turn_id in unseen]
    prompts, _ = fresh.prompts(db, GateSection().held_out)
    policy.chat.system = ""
    pair = VersionPair(Path(version.path), None, live_prompt=prompt)
    ratings = evidence.GateRatings(samples, held)
    found, _ = evidence.measure(policy, pair, ratings, prompts, evidence.Drawing(None, 0))
    return found.better
