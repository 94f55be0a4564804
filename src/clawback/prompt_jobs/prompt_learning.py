"""Prompt learning as a job: feedback → a search → a candidate version → the gate → live; one at a time.

The three phases follow from the store alone, so a restart changes nothing: **initialisation**, until there
are enough ratings for a first search; **online**, while the live prompt answers and is rated (with a trial,
two of them are); **refinement**, once ``[prompts] every`` more ratings are there.

An interrupted search is resumed: its plan (which feedback, which prompt, which seed) is in
``$CLAWBACK_HOME/prompts/search.json`` and every answer that was paid for in ``journal.jsonl`` beside it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from clawback import config, store
from clawback.errors import Busy
from clawback.gate.report import Report, answered, settle
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.prompt_jobs.prompt_models import LOCAL, Meter, backend_of, model_of
from clawback.prompt_jobs.prompt_search import DEFAULTS, SEARCH, Search, SearchOptions, SearchResult, judge
from clawback.release import prompted

if TYPE_CHECKING:
    from clawback.prompts import LLMBackend

Phase = Literal["initialisation", "online", "refinement"]


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a search would do and cost at most, before anything is asked."""

    model: str
    url: str
    proposer: str
    live: int
    ratings: int
    held_out: int
    examples: int
    calls: int
    gate_calls: int
    tokens: int
    money: float
    cycles: int
    warning: str
    resumed: bool

    def text(self) -> str:
        cost = f", {self.money:g} of money" if self.money else ""
        asked = f"{self.model or 'a model that is not named'} ({self.url or 'no address'})"
        lines = [
            f"{'Going on with a search' if self.resumed else 'A search'} for a prompt for {'your own live version' if self.model == LOCAL else asked}: {self.ratings} ratings, "
            f"{self.held_out} kept for the gate; at most {self.calls} calls and {self.gate_calls} for the gate, about {self.tokens:,} tokens{cost}."
        ]
        return "\n".join([*lines, *filter(None, (self.obstacle, self.warning))])

    @property
    def obstacle(self) -> str:
        """Why it cannot begin; "" where it can."""
        if self.model == LOCAL or (self.model and self.url):
            return ""
        return "It cannot begin yet: set `prompts.url` and `prompts.model` (`clawback config set …`), or `prompts.api local` to ask your own live version."


def phase(home: Home) -> Phase:
    """Where the loop is."""
    settings = config.load(home.config).prompts
    with store.connect(home.database) as db:
        if (home.prompts / SEARCH).exists() or db.count_fresh(settings.every, prompts=True) >= settings.every:
            return "refinement"
        known = any(r.kind == "prompt" for r in db.runs(limit=1000, ids=False)) or bool(db.live().prompt)
        return "online" if known else "initialisation"


def plan(home: Home, options: SearchOptions = DEFAULTS, **values: Any) -> SearchPlan:
    """``values``: changes of ``options`` by name. Raises ``TrainingError`` where there is too little to learn from."""
    from clawback.prompts import Price
    from clawback.prompts import plan as planned

    settings = config.load(home.config)
    with store.connect(home.database) as db:
        job = Search(home, db, settings, replace(options, **values))
        job.begin()
        section = settings.prompts
        price = Price(section.price_sent, section.price_received)
        bought = planned(job.start, job.examples, job.budget(), task=price, reflection=price)
        gate = job.gate_calls()
        each = bought.tokens / max(bought.calls, 1)
        return SearchPlan(
            model_of(db, section),
            "" if section.api == "local" else section.url or settings.serve.upstream,
            job.proposer,
            job.live.number,
            len(job.train) + len(job.held),
            len(job.held),
            len(job.examples),
            bought.calls,
            gate,
            round(bought.tokens + gate * each),
            bought.money * (1 + gate / max(bought.calls, 1)),
            bought.cycles,
            bought.warning,
            job.resumed,
        )


def optimize(
    home: Home,
    options: SearchOptions = DEFAULTS,
    *,
    backend: LLMBackend | None = None,
    on_progress: OnProgress | None = None,
    **values: Any,
) -> SearchResult:
    """Search, judge, and put live what is better and holds no sentence that the person has not seen.

    Args:
        backend: who answers and, where asked to, proposes; from the settings where not given.
        values: changes of ``options`` by name.

    Raises ``Busy`` while another process does the same, ``TrainingError`` where there is too little to learn from or nothing can be read from the
    ratings, and what the backend raises; what was paid for is kept, and the next call goes on from there.
    """
    from filelock import FileLock, Timeout

    home.create()
    settings = config.load(home.config)
    try:
        with FileLock(home.prompts_lock, timeout=0), store.connect(home.database) as db:
            prompted.edited(db, home)
            job = Search(home, db, settings, replace(options, **values))
            job.begin()
            meter = Meter(backend or backend_of(home, db, settings), settings.prompts)
            result = job.run(meter, on_progress or (lambda _: None))
            shutil.rmtree(home.prompts, ignore_errors=True)
            return result
    except Timeout:
        raise Busy("A search for a prompt is running already in another process.") from None


def judge_waiting(
    home: Home, *, backend: LLMBackend | None = None, on_progress: OnProgress | None = None
) -> Report | None:
    """Judge the candidate anew that the gate asks about, if enough of its questions are answered by now. None: there is none, or too few."""
    settings = config.load(home.config)
    with store.connect(home.database) as db:
        waits = db.waiting(prompts=True)
        if waits is None or db.count_gate_answers(waits[0]) < waits[1]:
            return None
        report = answered(db, db.version(waits[0]), settings.gate)
        if report is None:
            meter = Meter(backend or backend_of(home, db, settings), settings.prompts)
            report = judge(home, db, waits[0], meter, on_progress)
        settle(db, home, report, settings.trial)
        return report


def judge_one(
    home: Home, number: int, *, backend: LLMBackend | None = None, on_progress: OnProgress | None = None
) -> Report:
    """Judge a version's prompt, and keep the report. It neither promotes nor rejects."""
    settings = config.load(home.config)
    with store.connect(home.database) as db:
        meter = Meter(backend or backend_of(home, db, settings), settings.prompts)
        return judge(home, db, number, meter, on_progress)


def forget(home: Home) -> bool:
    """Throw an interrupted search away. Says whether there was one."""
    there = (home.prompts / SEARCH).exists()
    shutil.rmtree(home.prompts, ignore_errors=True)
    return there
