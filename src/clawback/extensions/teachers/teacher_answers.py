"""Teacher answers: a stronger model answers a file of prompts. Each answer is stored as it arrives, and none is paid for twice."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clawback import feedback, store
from clawback.errors import ClawbackError, UsageError
from clawback.feedback.endpoint import guess
from clawback.files import replace
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.prompts import LLMBackend, LLMResponse, Price, Usage
from clawback.records import TEACHER, JsonObject, Turn, with_keys

if TYPE_CHECKING:
    from clawback.store import Store

Use = Literal["rate", "prefer", "distil"]
AGENT = "baseline"
SETTINGS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "BASELINE_MODEL")
"""What is read from a ``.env``; anything else in it is passed over."""
FAILURES = 5
"""Calls in a row that may fail before it gives up."""


@dataclass(frozen=True, slots=True)
class TeacherPlan:
    """What a run would ask for: ``left`` of ``prompts`` have no answer of this model yet. Tokens and money are estimates, on the high side."""

    prompts: int
    left: int
    sent: int
    received: int
    money: float

    def text(self) -> str:
        money = f", at most {self.money:.2f} by the prices given" if self.money else ""
        return (
            f"{self.left} of {self.prompts} prompts have no answer of this model yet: {self.left} calls, about {self.sent:,} tokens sent, "
            f"at most {self.received:,} received{money}."
        )


@dataclass(frozen=True, slots=True)
class BaselineProgress:
    """The number of answers there are now and of those requested in this run, their cost, and errors (the prompt's number and why)."""

    answers: int
    requests: int
    usage: Usage
    problems: tuple[str, ...]
    stopped: str = ""

    def to_dict(self) -> JsonObject:
        return with_keys(asdict(self), {"requests": "asked"})


@dataclass(frozen=True, slots=True)
class TeacherTerms:
    """On which terms a teacher model is asked."""

    parallel: int = 4
    """Requests at once."""
    per_minute: float = 0.0
    """Requests a minute at most; 0: any number."""
    max_tokens: int = 1024
    """Of one answer."""
    max_money: float = 0.0
    """By the prices given; 0: any sum."""
    licence: str = ""
    """That of the answers, which is stored with them."""


def environment(path: Path | None) -> dict[str, str]:
    """The settings above, from a ``.env`` file and, above it, the environment. Nothing of it is stored, logged or handed to other processes."""
    found: dict[str, str] = {}
    if path is not None and path.is_file():
        for line in path.read_text("utf-8").splitlines():
            name, equals, value = line.strip().removeprefix("export ").partition("=")
            if equals and name.strip() in SETTINGS:
                found[name.strip()] = value.strip().strip("'\"")
    return found | {name: os.environ[name] for name in SETTINGS if os.environ.get(name)}


@dataclass(frozen=True, slots=True)
class Teacher:
    """Which model answers, and what it costs."""

    api: str
    """``openai``, ``anthropic``, or ``local``: the live version."""
    model: str = ""
    url: str = ""
    env_file: Path | None = None
    """Holds keys and addresses (``environment``)."""
    price_sent: float = 0.0
    """Of a million tokens, as is ``price_received``."""
    price_received: float = 0.0
    seed: int = 0

    @property
    def name(self) -> str:
        """The model's. Raises ``UsageError`` where nothing names it."""
        name = self.model or ("local" if self.api == "local" else self.variables.get("BASELINE_MODEL", ""))
        if not name:
            raise UsageError("Name the teacher with --model, or BASELINE_MODEL in .env.")
        return name

    @property
    def variables(self) -> dict[str, str]:
        return environment(self.env_file)

    @property
    def price(self) -> Price:
        return Price(self.price_sent, self.price_received)


def backend_of(home: Home, teacher: Teacher) -> LLMBackend:
    """What asks the teacher. Raises ``UsageError`` as ``Teacher.name``."""
    from clawback.prompts import AnthropicBackend, OpenAIBackend, VersionBackend

    variables = teacher.variables
    if teacher.api == "local":
        from clawback import release

        with store.connect(home.database) as db:
            return VersionBackend(release.load(home, db.live()), seed=teacher.seed)
    if teacher.api == "anthropic":
        url = teacher.url or variables.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        return AnthropicBackend(
            teacher.name, variables.get("ANTHROPIC_API_KEY", ""), url, price=teacher.price
        )
    key, url = variables.get("OPENAI_API_KEY", ""), teacher.url or variables.get("OPENAI_BASE_URL", "")
    return OpenAIBackend(teacher.name, key, url or None, price=teacher.price)


def name_of(model: str, prompt: str) -> str:
    """The event id of an answer: the same prompt is sent to the same model once."""
    return f"{AGENT}:{model}:{hashlib.sha256(prompt.encode()).hexdigest()[:24]}"


def plan(db: Store, prompts: Sequence[str], model: str, price: Price, max_tokens: int) -> TeacherPlan:
    """What is left, and what it costs at most."""
    left = [prompt for prompt in prompts if db.turn_of_event(name_of(model, prompt)) is None]
    sent, received = sum(map(guess, left)), max_tokens * len(left)
    return TeacherPlan(len(prompts), len(left), sent, received, price.of(sent, received))


class _Pace:
    """At most so many calls a minute, evenly; all wait while a server asks for it."""

    def __init__(self, per_minute: float) -> None:
        self.every = 60.0 / per_minute if per_minute else 0.0
        self.next, self.lock = time.monotonic(), threading.Lock()

    def wait(self) -> None:
        with self.lock:
            pause = self.next - time.monotonic()
            self.next = max(self.next, time.monotonic()) + self.every
        if pause > 0:
            time.sleep(pause)


def ask(
    home: Home,
    prompts: Sequence[str],
    backend: LLMBackend,
    model: str,
    terms: TeacherTerms = TeacherTerms(),
    on_progress: OnProgress | None = None,
) -> BaselineProgress:
    """Ask for what is left, several at a time. Stopped or killed, the same call goes on: what was answered is in the store.

    Raises what the backend raises where ``FAILURES`` calls in a row fail: a wrong key is not tried a thousand times.
    """
    pace, tell, began = _Pace(terms.per_minute), on_progress or (lambda _: None), backend.usage

    def some(questions: Sequence[tuple[int, str]]) -> list[LLMResponse]:
        pace.wait()
        return backend.complete_all([prompt for _, prompt in questions], max_tokens=terms.max_tokens)

    problems: list[str] = []
    stopped, in_a_row, done = "", 0, 0
    with store.connect(home.database) as db, ThreadPoolExecutor(terms.parallel) as pool:
        left = [
            (n, p)
            for n, p in enumerate(dict.fromkeys(prompts), 1)
            if db.turn_of_event(name_of(model, p)) is None
        ]
        size = backend.together
        waiting = iter([left[i : i + size] for i in range(0, len(left), size)])
        under_way = {pool.submit(some, asked): asked for asked in itertools.islice(waiting, terms.parallel)}
        while under_way:
            finished = next(as_completed(under_way))
            asked = under_way.pop(finished)
            try:
                for (number, prompt), made in zip(asked, finished.result(), strict=True):
                    if not made.text.strip():
                        problems.append(f"prompt {number}: the answer is empty")
                        continue
                    _enter(db, prompt, made.text, model, terms.licence)
                    in_a_row, done = 0, done + 1
                    if not made.complete:
                        problems.append(
                            f"prompt {number}: the answer was cut off at {terms.max_tokens} tokens"
                        )
            except ClawbackError as error:
                problems.append(f"prompt {asked[0][0]}: {error}")
                in_a_row += 1
                if in_a_row >= FAILURES:
                    for other in under_way:
                        other.cancel()
                    raise
            tell({"phase": "ask", "step": done, "steps": len(left)})
            if terms.max_money and (backend.usage - began).money >= terms.max_money:
                stopped = f"{terms.max_money:g} is spent"
            if not stopped:
                under_way |= {pool.submit(some, asked): asked for asked in itertools.islice(waiting, 1)}
        answers = sum(db.turn_of_event(name_of(model, p)) is not None for p in dict.fromkeys(prompts))
    return BaselineProgress(answers, done, backend.usage - began, tuple(problems), stopped)


def _enter(db: Store, prompt: str, text: str, model: str, licence: str) -> None:
    turn = Turn(
        f"{AGENT}:{model}",
        ({"role": "user", "content": prompt},),
        text,
        agent=AGENT,
        model=model,
        event_id=name_of(model, prompt),
        licence=licence,
    )
    db.add_turn(turn, seen_at=0.0)  # nobody has seen it: "the last answer" is another


def live_answers(
    home: Home, prompts: Sequence[str], model: str, use: Use, *, seed: int = 0,
    tell: OnProgress | None = None,
) -> int:  # fmt: skip
    """The live version's own answers to the prompts that the teacher has answered; how many.

    ``prefer``: the teacher's is entered as the better of the two; ``distil``: as what the own one should have been (an edit), which is what
    training imitates. ``rate``: nothing is said about either: `clawback inbox --pairs` shows them beside each other.
    """
    from clawback import release

    check_use(home, model, use)
    with store.connect(home.database) as db:
        live = db.live()
        pairs = [(p, db.turn_of_event(name_of(model, p))) for p in dict.fromkeys(prompts)]
        both = [(p, t) for p, t in pairs if t is not None]
        if not both:
            raise UsageError(
                f"No prompt has an answer of {model} yet, so there is nothing to put yours beside."
            )
        if tell:
            tell({"phase": "answer"})
        asked = [[{"role": "user", "content": p}] for p, _ in both]
        answers = release.load(home, live).generate(asked, seed=seed)
        for (prompt, teacher), [own] in zip(both, answers, strict=True):
            name = f"{AGENT}:own:{live.number}:{seed}:{name_of(model, prompt)}"
            turn = Turn(
                f"{AGENT}:own",
                teacher.messages,
                own.text or "…",
                agent=AGENT,
                model=f"clawback/{live.number}",
                version=live.number,
                event_id=name,
                response_ids=tuple(own.ids) if own.text else None,
                response_logprobs=tuple(own.logprobs) if own.text else None,
            )
            mine = db.add_turn(turn, seen_at=0.0)
            if use == "prefer" and mine.response != teacher.response:
                feedback.prefer(
                    db, teacher.id, mine.id, source=f"{TEACHER}{model}", event_id=f"{name}:prefer"
                )
            elif use == "distil" and mine.response != teacher.response:
                feedback.edit(
                    db, mine.id, teacher.response, source=f"{TEACHER}{model}", event_id=f"{name}:edit"
                )
    return len(both)


def check_use(home: Home, model: str, use: Use | None) -> None:
    """Raises ``UsageError`` where the teacher's answers are to be trained towards and the person has not said that they may be."""
    from clawback import config
    from clawback.sources import is_named, is_other

    settings = config.load(home.config)
    if use in (None, "rate") or not is_other(model, settings.model.base):
        return
    if not is_named(model, settings.training.learn_from):
        raise UsageError(
            f"--own {use} has your model learn the answers of {model}, and [training] learn_from does not name it. If its terms allow that: "
            f"`clawback config set training.learn_from '[\"{model}\"]'`. `--own rate` only puts them beside your model's."
        )


def write(home: Home, prompts: Sequence[str], model: str, path: Path) -> int:
    """The answers that there are, in the order of the prompts; how many. ``.json``: ``{"prompt_1": {"prompt", "response", "timestamp"}}``,
    else a line each."""
    rows = []
    with store.connect(home.database) as db:
        for number, prompt in enumerate(dict.fromkeys(prompts), 1):
            turn = db.turn_of_event(name_of(model, prompt))
            if turn is not None:
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(turn.created_at))
                said = {"prompt": turn.prompt, "response": turn.response, "model": model, "timestamp": at}
                rows.append((f"prompt_{number}", said))
    if path.suffix == ".json":
        text = json.dumps(dict(rows), ensure_ascii=False, indent=2) + "\n"
    else:
        text = "".join(json.dumps(said, ensure_ascii=False) + "\n" for _, said in rows)
    replace(path, text.encode())
    return len(rows)
