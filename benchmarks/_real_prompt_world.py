"""SmolLM2-135M-Instruct under the system prompt that is tried, people's own prompts (AlpacaEval's), and a simulated person who reads what it answers.

The person likes answers of at most 25 words, and in one paragraph; the score is the share of the two, and their words name what they miss. An answer has at most 64
tokens, drawn as the model's own settings say. It is drawn once for a prompt and a question and kept, on disk too, so that all optimisers and seeds meet
the same answers; each try counts, whether its answer was kept or not.

No model that could reflect can be had at this size (the 135 M of this one are far below the 7 B where reflection begins to work), so the reflecting model is scripted as in
``_rule_world.py``: told "Too long.", it adds one of four sentences that ask for that, and not all of them work on this model; in 30 % of its answers it adds one that asks
for something else, and in 15 % it forgets a line.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks._rule_world import Cases, Item, mended

KEPT = Path("bench-results/real-prompt-answers.jsonl")
START = "You are a helpful assistant."
ITEMS, TEST, LONGEST_PROMPT = 40, 32, 200
ROOM, TOGETHER = 64, 8
"""Tokens of an answer; questions that are answered at once, asked for or not yet: it takes hardly longer than one."""
WORDS = 25
HELPS = {
    "Too long.": (
        "Answer in at most two short sentences.",
        "Reply with one short sentence.",
        "Keep it very brief.",
        "Be concise.",
    ),
    "One paragraph, please.": (
        "Answer in one paragraph, without lists.",
        "Write plain text without line breaks.",
        "Use flowing prose.",
    ),
}
OTHER = (
    "Write formally.",
    "Give numbers.",
    "Be enthusiastic and use exclamation marks.",
    "Use Markdown: headings and bold words.",
    "Give one example.",
    "Say what is uncertain.",
    "Begin with a friendly word.",
    "Speak to me directly.",
)


def load(data: Path) -> Person | str:
    """The person with their model, or why there is none. ``data``: JSON lines with ``prompt``."""
    from clawback import engine
    from clawback.errors import ClawbackError

    if not data.is_file():
        return f"there is no {data} (--prompts)"
    lines = [json.loads(line) for line in data.read_text("utf-8").splitlines()]
    prompts = list(dict.fromkeys(one["prompt"] for one in lines if len(one["prompt"]) < LONGEST_PROMPT))
    random.Random(0).shuffle(prompts)
    try:
        return Person(engine.load("smollm2"), prompts[:ITEMS], prompts[ITEMS : ITEMS + TEST])
    except ClawbackError as error:
        return str(error)


class Person:
    """Model, questions, and the answers that were drawn so far."""

    start = START

    def __init__(self, policy: Any, questions: list[str], unseen: list[str]) -> None:
        self.policy = policy
        self.items = [Item(f"q{i}", text, (0, 1)) for i, text in enumerate(questions)]
        self.test = [Item(f"t{i}", text, (0, 1)) for i, text in enumerate(unseen)]
        self.model = str(policy.info.revision)[-12:]
        self.answers: dict[tuple[str, str], str] = {}
        self.drawn = 0
        if KEPT.is_file():
            for line in KEPT.read_text("utf-8").splitlines():
                kept = json.loads(line)
                if kept["model"] == self.model:
                    self.answers[kept["prompt"], kept["question"]] = kept["answer"]

    def world(self, seed: int, heeds: bool) -> World:
        """Half of the questions to propose from and half to decide by, dealt by the seed."""
        order = list(self.items)
        random.Random(f"real:{seed}").shuffle(order)
        half = len(order) // 2
        return World(self, seed, Cases(order[:half], order[half:], self.test), heeds)

    def answer(self, prompt: str, item: Item, beside: list[Item]) -> str:
        """What the model says; with it, what it says to some others that are likely to be asked next."""
        if (prompt, item.question) not in self.answers:
            new = [one for one in beside if (prompt, one.question) not in self.answers and one is not item]
            self._draw(prompt, [item, *new[: TOGETHER - 1]])
        return self.answers[prompt, item.question]

    def _draw(self, prompt: str, items: list[Item]) -> None:
        asked = [({"role": "system", "content": prompt}, {"role": "user", "content": one.question}) for one in items]  # fmt: skip
        made = self.policy.generate(asked, max_tokens=ROOM, seed=int(items[0].id[1:]))
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        with KEPT.open("a", encoding="utf-8") as file:
            for one, [said] in zip(items, made, strict=True):
                self.answers[prompt, one.question] = said.text
                print(json.dumps({"model": self.model, "prompt": prompt, "question": one.question, "answer": said.text}), file=file)  # fmt: skip
        self.drawn += len(items)

    def measure(self, prompt: str) -> tuple[float, float]:
        """Mean score, and share of answers that are liked whole, on questions that no optimiser has."""
        new = [one for one in self.test if (prompt, one.question) not in self.answers]
        if new:
            self._draw(prompt, new)
        scores = [judged(self.answers[prompt, one.question])[0] for one in self.test]
        return sum(scores) / len(scores), sum(score == 1.0 for score in scores) / len(scores)

    def account(self) -> str:
        return f"{self.drawn} answers drawn, {len(self.answers)} known"


def judged(answer: str) -> tuple[float, str]:
    """The person: score and words."""
    missed = []
    if len(answer.split()) > WORDS or not answer.strip():
        missed.append("Too long.")
    if "\n" in answer.strip():
        missed.append("One paragraph, please.")
    return 1.0 - len(missed) / 2, " ".join(missed) or "Just right."


@dataclass
class World:
    """One run of it; counts what is asked."""

    person: Person
    seed: int
    cases: Cases
    heeds: bool = True
    tried: int = 0
    asked: int = 0
    start: str = START
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"world:{self.seed}")
        self.by_id = {one.id: one for one in (*self.cases.train, *self.cases.validation)}

    def try_(self, prompt: str, item: str) -> tuple[float, str, str]:
        self.tried += 1
        one = self.by_id[item]
        beside = self.cases.train if one in self.cases.train else self.cases.validation
        said = self.person.answer(prompt, one, beside)
        return *judged(said), said

    def measure(self, prompt: str) -> float:
        return self.person.measure(prompt)[0]

    def reflect(self, asked: str) -> str:
        self.asked += 1
        told = [remark for remark in HELPS if remark in asked]
        right = [sentence for remark in told for sentence in HELPS[remark]]
        return mended(asked, self.rng, right, OTHER, self.heeds)

    def suggest(self) -> str:
        self.asked += 1
        every = (*(one for some in HELPS.values() for one in some), *OTHER)
        return "\n".join([START, *self.rng.sample(every, self.rng.randint(1, 4))])
