"""SmolLM2-135M-Instruct under the system prompt that is tried, people's own prompts (AlpacaEval's), and a simulated person who reads what it answers.

A person has two wishes; the score is the share of them that an answer meets, and their words name what it misses. *direct* and *impersonal*: two each of the tastes that Clawback is
reported on (``_real_tastes.TEST``). An answer has at most 48 tokens, drawn as the model's own settings say.

The answer to a question under a prompt depends on both and on how often this run has asked for it: a second look is a new draw, and all engines and
seeds get the same answer to the same look. Answers are kept on disk. All runs go on side by side: when every one of them waits for an answer, all
that they wait for is drawn in one batch, which takes a tenth of the time that one answer after the other would.

No model that could reflect can be had at this size (the 135 M of this one are far below the 7 B where reflection begins to work), so the reflecting model is scripted as in
``_rule_world.py``: told what was missed, it adds one of a few sentences that ask for that, and not all of them work on this model; in 30 % of its answers it adds one that asks
for something else, and in 15 % it forgets a line.
"""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from benchmarks._real_tastes import TEST
from benchmarks._rule_world import Cases, Item, mended

T = TypeVar("T")
KEPT = Path("bench-results/real-prompt-draws.jsonl")
START = "You are a helpful assistant."
ITEMS, UNSEEN, LONGEST_PROMPT = 40, 40, 100
ROOM = 48
"""Tokens of an answer."""
_PARAGRAPH = (
    "Answer in one paragraph, without lists.",
    "Write plain text without line breaks.",
    "Use flowing prose.",
)
_DIRECT = (
    'Speak to me directly, as "you".',
    'Use the word "you".',
    "Tell me what I can do.",
    "Write as if you talk to me.",
)
_IMPERSONAL = (
    'Never say "I", "we" or "our".',
    "Do not speak about yourself.",
    "Write in an impersonal style.",
    "State facts only.",
)
OTHER = (
    "Write formally.",
    "Give numbers.",
    "Be enthusiastic and use exclamation marks.",
    "Use Markdown: headings and bold words.",
    "Give one example.",
    "Say what is uncertain.",
    "Begin with a friendly word.",
    "Write short sentences.",
)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants of an answer, what they say where they miss it, and what a model writes that reads this."""

    likes: Callable[[str], bool]
    words: str
    sentences: tuple[str, ...]


def _wish(taste: str, sentences: tuple[str, ...]) -> Wish:
    return Wish(TEST[taste].likes, TEST[taste].words, sentences)


PERSONS = {
    "direct": (_wish("says you", _DIRECT), _wish("one paragraph", _PARAGRAPH)),
    "impersonal": (_wish("no first person", _IMPERSONAL), _wish("one paragraph", _PARAGRAPH)),
}


@dataclass(frozen=True, slots=True)
class Look:
    """One try's answer: the ``number``-th time that a run asks this under this prompt."""

    prompt: str
    question: str
    number: int = 0

    def seed(self) -> int:
        said = json.dumps([self.prompt, self.question, self.number]).encode()
        return int.from_bytes(hashlib.sha256(said).digest()[:7])


def load(data: Path) -> Model | str:
    """The model with its questions, or why there is none. ``data``: JSON lines with ``prompt``."""
    from clawback import engine
    from clawback.errors import ClawbackError

    if not data.is_file():
        return f"there is no {data} (--prompts)"
    lines = [json.loads(line) for line in data.read_text("utf-8").splitlines()]
    prompts = list(dict.fromkeys(one["prompt"] for one in lines if len(one["prompt"]) < LONGEST_PROMPT and "\n" not in one["prompt"]))  # fmt: skip
    random.Random(0).shuffle(prompts)
    try:
        return Model(engine.load("smollm2"), prompts[:ITEMS], prompts[ITEMS : ITEMS + UNSEEN])
    except ClawbackError as error:
        return str(error)


class Model:
    """Model, questions, and the answers that were drawn so far; runs that go on side by side ask it together."""

    def __init__(
        self, policy: Any, questions: Sequence[str], unseen: Sequence[str], kept: Path = KEPT
    ) -> None:
        self.policy, self.kept = policy, kept
        self.items = [Item(f"q{i}", text, (0, 1)) for i, text in enumerate(questions)]
        self.test = [Item(f"t{i}", text, (0, 1)) for i, text in enumerate(unseen)]
        self.name = str(policy.info.revision)[-12:]
        self.answers: dict[Look, str] = {}
        self.drawn = self.batches = 0
        self._waits = threading.Condition()
        self._asked: list[Look] = []
        self._running = self._waiting = 0
        if kept.is_file():
            for line in kept.read_text("utf-8").splitlines():
                row = json.loads(line)
                if row["model"] == self.name:
                    self.answers[Look(row["prompt"], row["question"], row["look"])] = row["answer"]

    def world(self, person: str, seed: int, heeds: bool = True) -> World:
        """Half of the questions to propose from and half to decide by, dealt by the seed."""
        order = list(self.items)
        random.Random(f"real:{seed}").shuffle(order)
        half = len(order) // 2
        return World(self, PERSONS[person], seed, Cases(order[:half], order[half:], self.test), heeds)

    def said(self, looks: Sequence[Look]) -> list[str]:
        """The answers. Inside of ``together`` they are drawn when all runs wait for some."""
        if any(one not in self.answers for one in looks):
            if threading.current_thread() is threading.main_thread():
                self._draw(looks)
            else:
                with self._waits:
                    self._asked += looks
                    self._waiting += 1
                    self._waits.notify_all()
                    self._waits.wait_for(lambda: all(one in self.answers for one in looks))
        return [self.answers[one] for one in looks]

    def together(self, jobs: Sequence[Callable[[], T]], tell: Callable[[str], None] = print) -> list[T]:
        """What each of the jobs returns. They run side by side, in threads; answers are drawn here. Raises what the first of them raised."""
        made: dict[int, T] = {}
        failed: list[BaseException] = []

        def run(place: int) -> None:
            try:
                made[place] = jobs[place]()
            except BaseException as error:
                failed.append(error)
            finally:
                with self._waits:
                    self._running -= 1
                    self._waits.notify_all()

        self._running = len(jobs)
        for place in range(len(jobs)):
            threading.Thread(target=run, args=(place,), daemon=True).start()
        with self._waits:
            while True:
                self._waits.wait_for(lambda: self._waiting >= self._running or failed)
                if failed:
                    raise failed[0]
                if not self._running:
                    return [made[place] for place in range(len(jobs))]
                looks, self._asked, self._waiting = self._asked, [], 0
                self._draw(looks)
                if self.batches % 10 == 1:
                    tell(f"{self._running} of {len(jobs)} runs go on; {self.account()}")
                self._waits.notify_all()

    def _draw(self, looks: Sequence[Look]) -> None:
        import torch

        from clawback.sampling.batched_sampler import Chance, DrawSettings, completion

        new = [one for one in dict.fromkeys(looks) if one not in self.answers]
        if not new:
            return
        chat, truncates = self.policy.chat, self.policy.sampling.truncates
        asked = [chat.prompt(({"role": "system", "content": one.prompt}, {"role": "user", "content": one.question})) for one in new]  # fmt: skip
        each = [
            Chance.of_seed(1, 1, ROOM, truncates, torch.Generator().manual_seed(one.seed())) for one in new
        ]
        again = torch.cat([one.again for one in each if one.again is not None]) if truncates else None
        chance = Chance(torch.cat([one.first for one in each]), again)
        made = self.policy.sample(asked, DrawSettings(max_tokens=ROOM, seed=chance))
        self.kept.parent.mkdir(parents=True, exist_ok=True)
        with self.kept.open("a", encoding="utf-8") as file:
            for one, ids, [sampled] in zip(new, asked, made, strict=True):
                self.answers[one] = completion(chat, ids, sampled).text
                row = {"model": self.name, "prompt": one.prompt, "question": one.question, "look": one.number}
                print(json.dumps({**row, "answer": self.answers[one]}), file=file)
        self.drawn += len(new)
        self.batches += 1

    def account(self) -> str:
        return f"{self.drawn} answers drawn in {self.batches} batches, {len(self.answers)} known"


def judged(wishes: Sequence[Wish], answer: str) -> tuple[float, str]:
    """The person: score and words."""
    missed = [wish.words for wish in wishes if not wish.likes(answer)]
    return 1.0 - len(missed) / len(wishes), " ".join(missed) or "Just right."


@dataclass
class World:
    """One run of it; counts what is asked."""

    model: Model
    wishes: Sequence[Wish]
    seed: int
    cases: Cases
    heeds: bool = True
    tried: int = 0
    asked: int = 0
    start: str = START
    looks: Counter[tuple[str, str]] = field(default_factory=Counter)
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"world:{self.seed}")
        self.by_id = {one.id: one for one in (*self.cases.train, *self.cases.validation)}

    def try_(self, prompt: str, item: str) -> tuple[float, str, str]:
        return self.tries([(prompt, item)])[0]

    def tries(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[float, str, str]]:
        looks = []
        for prompt, item in pairs:
            question = self.by_id[item].question
            looks.append(Look(prompt, question, self.looks[prompt, question]))
            self.looks[prompt, question] += 1
        self.tried += len(looks)
        return [(*judged(self.wishes, said), said) for said in self.model.said(looks)]

    def measure(self, prompt: str) -> float:
        """Mean score on questions that no optimiser has."""
        said = self.model.said([Look(prompt, one.question) for one in self.cases.test])
        return sum(judged(self.wishes, text)[0] for text in said) / len(said)

    def reflect(self, asked: str) -> str:
        self.asked += 1
        right = [sentence for wish in self.wishes if wish.words in asked for sentence in wish.sentences]
        return mended(asked, self.rng, right, OTHER, self.heeds)

    def suggest(self) -> str:
        self.asked += 1
        every = (*(one for wish in self.wishes for one in wish.sentences), *OTHER)
        return "\n".join([START, *self.rng.sample(every, self.rng.randint(1, 4))])
