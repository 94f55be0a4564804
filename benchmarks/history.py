"""What a history gives in one evening: 2,000 conversations with 150 answers drawn again are imported, fifteen questions answered, and what is then read of the person.

The person has one wish of form that the product has no words for (``_wishes.py``). Of two answers to a message they keep the one that they like in four
cases of five where they like exactly one, any else; a question is answered in the same way, nine times in ten, and "the same" where they like both or neither. The answers are those of ten chat models
to AlpacaEval's prompts; the AUC is over answers to prompts that are not in the history.

    python -m benchmarks history                              # every wish, what is read before and after the questions; text alone
    python -m benchmarks history --ask random,informative     # the same by pairs that are drawn at random
    python -m benchmarks history --train                      # the embedded model's own answers, by the commands, up to a live version
    python -m benchmarks history --train --model smollm2 --wishes plain  # the same from a history of other models' answers
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CONVERSATIONS, REGENERATED, QUESTIONS = 2_000, 150, 15
HELD_OUT = 100
"""Prompts that are not in the history."""
KEEPS, RIGHT = 0.8, 0.9
DATA = Path(__file__).parent.parent.parent / "shared" / "data" / "alpaca-eval-rated.jsonl"
Likes = Callable[[str, str], bool]
Row = tuple[str, str]
"""A prompt and an answer."""


class World:
    """Answers of several models to many prompts; those to the last ``HELD_OUT`` prompts are not in the history."""

    def __init__(self, data: Path) -> None:
        by: dict[str, list[str]] = {}
        for line in data.read_text("utf-8").splitlines():
            one = json.loads(line)
            by.setdefault(one["prompt"], []).append(one["response"])
        prompts = sorted(by)
        random.Random(0).shuffle(prompts)
        self.answers = {prompt: by[prompt] for prompt in prompts[:-HELD_OUT]}
        self.held = [(prompt, answer) for prompt in prompts[-HELD_OUT:] for answer in by[prompt][:5]]


def conversations(answers: dict[str, list[str]], likes: Likes, seed: int) -> list[dict[str, Any]]:
    """A history as ChatGPT exports it. The branch that was kept is the one that is shown and goes on."""
    chance = random.Random(seed)
    prompts = list(answers)
    made = []
    for number in range(CONVERSATIONS):
        prompt = prompts[number % len(prompts)]
        one, other = chance.sample(answers[prompt], 2)
        texts = [one, other] if number % (CONVERSATIONS // REGENERATED) == 0 and number // (CONVERSATIONS // REGENERATED) < REGENERATED else [one]  # fmt: skip
        made.append(_conversation(number, prompt, texts, chosen(prompt, texts, likes, KEEPS, chance)))
    return made


def chosen(prompt: str, texts: Sequence[str], likes: Likes, right: float, chance: random.Random) -> int:
    """Which of the answers the person takes: the one that they like, if it is one of two, as often as they are right."""
    liked = [likes(prompt, text) for text in texts]
    if len(texts) < 2 or liked[0] == liked[1]:
        return chance.randrange(len(texts))
    return liked.index(True) if chance.random() < right else liked.index(False)


def _conversation(number: int, prompt: str, texts: Sequence[str], kept: int) -> dict[str, Any]:
    name, at = f"c{number}", 1.7e9 + 600 * number
    nodes: dict[str, Any] = {
        f"{name}-root": {"id": f"{name}-root", "parent": None, "children": [f"{name}-q"], "message": None},
        f"{name}-q": _node(f"{name}-q", f"{name}-root", "user", prompt, at),
    }
    for place, text in enumerate(texts):
        nodes[f"{name}-a{place}"] = _node(f"{name}-a{place}", f"{name}-q", "assistant", text, at + 5 + place)
    last = f"{name}-a{kept}"
    if len(texts) > 1:
        nodes[f"{name}-t"] = _node(f"{name}-t", last, "user", "Thanks, that is all.", at + 60)
        last = f"{name}-t"
    return {"conversation_id": name, "id": name, "title": prompt[:30], "create_time": at, "update_time": at + 60, "current_node": last, "mapping": nodes}  # fmt: skip


def _node(name: str, parent: str, role: str, text: str, at: float) -> dict[str, Any]:
    message = {
        "id": name, "author": {"role": role}, "create_time": at, "status": "finished_successfully", "recipient": "all",
        "content": {"content_type": "text", "parts": [text]}, "metadata": {"model_slug": "another-model"} if role == "assistant" else {},
    }  # fmt: skip
    return {"id": name, "parent": parent, "children": [], "message": message}


# ------------------------------------------------------------------------------------------------------- the evening


def command(root: Path, *words: str) -> tuple[str, float]:
    """A command of the product in this home: what it prints, and its seconds."""
    began = time.perf_counter()
    environment = os.environ | {"CLAWBACK_HOME": str(root), "HOME": str(root.parent)}
    done = subprocess.run([sys.executable, "-m", "clawback", *words], env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(f"clawback {' '.join(words)}: {done.stderr}")
    return done.stdout + done.stderr, time.perf_counter() - began


def ask(root: Path, likes: Likes, how: str, chance: random.Random) -> list[float]:
    """Fifteen questions and their answers; the seconds that each was waited for."""
    from clawback.admin.rating_inbox import Inbox
    from clawback.paths import Home

    inbox, waits = Inbox(Home(root)), []
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        pairs = inbox.pairs(1 if how == "informative" else 300)
        waits.append(time.perf_counter() - began)
        reply(root, pairs[0] if how == "informative" else chance.choice(pairs), likes, chance)
    return waits


def reply(root: Path, pair: Any, likes: Likes, chance: random.Random) -> None:
    """Say which of two answers is better, or that neither is."""
    from clawback import feedback, store
    from clawback.paths import Home

    sides = [pair.first, pair.second]
    texts = [turn.response for turn in sides]
    better = chosen(pair.first.prompt, texts, likes, RIGHT, chance)
    with store.connect(Home(root).database) as db:
        if len({likes(pair.first.prompt, text) for text in texts}) == 1:
            feedback.tie(db, sides[0].id, sides[1].id, source="demo")
        else:
            feedback.prefer(db, sides[better].id, sides[1 - better].id, source="demo")


def answer_gate(root: Path, likes: Likes, chance: random.Random) -> int:
    """Answer what the gate asks until it asks no more; how many questions that were."""
    from clawback import jobs
    from clawback.admin.rating_inbox import Inbox
    from clawback.paths import Home

    home, count = Home(root), 0
    while pair := next(iter(Inbox(home).questions()), None):
        reply(root, pair, likes, chance)
        jobs.judge_waiting(home)
        count += 1
    return count


def read(root: Path, world: World, likes: Likes, seed: int) -> dict[str, Any]:
    """AUC of the reader of a run on answers to prompts that are not in the history, and whether a run would trust it."""
    from benchmarks.reading import _ids, auc
    from clawback import feedback, store
    from clawback.paths import Home
    from clawback.records import Turn
    from clawback.rewards.rating_likelihood import feedback_kinds
    from clawback.rewards.reward_ensemble import RULES, Ratings, ReadingSettings, fit
    from clawback.rewards.rule_posterior import Space
    from clawback.rewards.views import Answers, Views

    with store.connect(Home(root).database) as db:
        samples = feedback.samples(db)
        decided = sum(one.kind == "preference" and one.value > 0 for one in db.feedback(outright=True))
    rated = [(Turn("", one.messages, "").prompt, one.response) for one in samples]
    ground = random.Random(seed).sample([(p, a) for p, some in world.answers.items() for a in some], 96)
    rows = [*ground, *rated, *world.held]
    texts = [text for _, text in rows]
    every = Answers(_ids(texts), texts, np.zeros((len(rows), 0)), [prompt for prompt, _ in rows])
    size = len(ground) + len(rated)

    def part(start: int, end: int) -> Answers:
        return Answers(every.ids[start:end], texts[start:end], np.zeros((end - start, 0)), every.prompts[start:end])  # fmt: skip

    views = Views.ground(part(0, size))
    space = Space.of(views.signs(part(0, size)), views.layout)
    seen = views.view(part(len(ground), size))
    made = fit(views, space, seen, Ratings(np.array([one.reward for one in samples]), kinds=feedback_kinds(samples)), settings=ReadingSettings(seed=seed))  # fmt: skip
    grades = made.score(views.view(part(size, len(rows))), RULES, 0.0)
    liked = np.array([likes(*row) for row in world.held])
    return {
        "samples": len(samples),
        "decided": decided,
        "auc": round(auc(grades, liked), 3),
        "trusted": made.trust.trusted,
        "p": round(made.trust.p, 3),
        "belief": believed(root, world, liked),
    }


def believed(root: Path, world: World, liked: Any) -> float:
    """AUC, on the same answers, of the belief by which the questions are chosen: it takes a comparison as one."""
    from benchmarks.reading import auc
    from clawback import store
    from clawback.admin.pair_questions import Feedbacks, observations
    from clawback.paths import Home
    from clawback.rewards.acquisition import Comparable

    with store.connect(Home(root).database) as db:
        said = Feedbacks.of(db)
        turns = db.turns_by_id({n for one in (*said.words, *said.guesses) for n in (one.turn_id, one.other_turn_id) if n})  # fmt: skip
    prompts = [turn.prompt for turn in turns.values()] + [prompt for prompt, _ in world.held]
    texts = [turn.response for turn in turns.values()] + [answer for _, answer in world.held]
    place = {number: index for index, number in enumerate(turns)}
    belief = Comparable(prompts, texts).belief(observations(said, place, set()))
    assert belief is not None
    return round(auc(belief.mean[len(turns) :], liked), 3)


def evening(world: World, wish: Any, seed: int, ways: Sequence[str]) -> list[dict[str, Any]]:
    """What is read of one person from the history alone, and after the questions."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "home"
        file = Path(folder) / "conversations.json"
        file.write_text(json.dumps(conversations(world.answers, wish.holds, seed)))
        command(root, "init", "--yes", "--model", "embedded", "--agent", "none")
        _shown, seconds = command(root, "import", "--yes", str(file))
        question, asked = command(root, "inbox", "--pairs", "--limit", "1", "--json")
        assert json.loads(question), "no question"
        first = read(root, world, wish.holds, seed)
        liked = round(float(np.mean([wish.holds(*row) for row in world.held])), 2)
        for way in ways:
            copy = Path(folder) / way
            subprocess.run(["cp", "-r", str(root), str(copy)], check=True)
            waits = ask(copy, wish.holds, way, random.Random(f"{seed} {way}"))
            after = read(copy, world, wish.holds, seed)
            row = {"wish": wish.name, "seed": seed, "ask": way, "import_seconds": round(seconds, 1), "first_question_seconds": round(asked, 1), "longest_wait": round(max(waits), 2)}  # fmt: skip
            rows.append(row | {"belief_before": first["belief"], "belief_after": after["belief"], "before": first["auc"], "after": after["auc"], "trusted_before": first["trusted"], "trusted_after": after["trusted"], "samples": after["samples"], "decided": after["decided"], "liked": liked})  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    names = ("wish", "liked", "ask", "decided", "belief_before", "belief_after", "before", "after", "trusted_before", "trusted_after", "import_seconds", "first_question_seconds", "longest_wait")  # fmt: skip
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    lines += ["| " + " | ".join(str(row[name]) for name in names) + " |" for row in rows]
    for way, some in itertools.groupby(
        sorted(rows, key=lambda row: str(row["ask"])), key=lambda row: row["ask"]
    ):
        few = list(some)
        for start, what in (("", "a run's reader"), ("belief_", "belief")):
            before, after = (np.array([row[f"{start}{name}"] for row in few]) for name in ("before", "after"))
            gain = after - before
            error = np.std(gain, ddof=1) / len(few) ** 0.5 if len(few) > 1 else 0.0
            lines.append(f"\n{way}, {what}: AUC {before.mean():.3f} → {after.mean():.3f} ({gain.mean():+.3f} ± {error:.3f}, {len(few)} people)")  # fmt: skip
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    from benchmarks._wishes import DEVELOPMENT, TEST

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks history", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--data", type=Path, default=DATA, help="JSONL with `prompt`, `response`, `model`")
    parser.add_argument("--wishes", default="test", help="test, development, or names, comma-separated")
    parser.add_argument("--ask", default="informative", help="informative, random, or both")
    parser.add_argument("--seeds", type=int, default=1, help="people for each wish")
    parser.add_argument("--train", action="store_true", help="up to a live version")
    parser.add_argument("--model", default="embedded", help="with --train")
    options = parser.parse_args(argv)
    if options.train:
        from benchmarks._history_run import evening_with_a_run

        found = evening_with_a_run(options.wishes, model=options.model, data=options.data)
        print(json.dumps(found, indent=2))
        return 0
    if not options.data.is_file():
        print(f"Skipped: there is no {options.data}. Name the answers with --data.", file=sys.stderr)
        return 0
    sets = {
        "test": [one for one in TEST if one.form],
        "development": [one for one in DEVELOPMENT if one.form],
    }
    wishes = sets.get(options.wishes) or [one for one in (*TEST, *DEVELOPMENT) if one.name in options.wishes.split(",")]  # fmt: skip
    world = World(options.data)
    rows = [row for wish in wishes for seed in range(options.seeds) for row in evening(world, wish, seed, options.ask.split(","))]  # fmt: skip
    results = Path(__file__).parent.parent / "bench-results"
    results.mkdir(exist_ok=True)
    (results / "history.json").write_text(json.dumps(rows, indent=2))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
