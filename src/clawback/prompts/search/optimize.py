"""Prompt search: reflect on failures, race the proposals, keep a Pareto front, check the winner on held-out cases.

The scheme is GEPA's (Agrawal et al. 2025, arXiv 2507.19457), reflection on failures with a Pareto front over examples, with fewer calls:

1. **Failures first.** A request for a new prompt shows examples that the parent fails on, with what was said about them.
2. **Races.** A child is tried on just these, one at a time, against what its parent is known to have got there (cached, never
   paid again). It is dropped as soon as it cannot win. One that wins is tried on cases that the parent did well on.
3. **Estimates instead of full passes.** What a candidate would get where it was not tried is taken from its parent, plus what it
   was seen to gain. The front is of these estimates, so accepting a candidate costs nothing further.
4. **Merges** join the rules that two candidates won by apart, without asking a model.
5. **Rules that won stay.** A proposal that leaves out a rule that won a race gets it back.
6. **A last check** on validation examples, which nobody proposed from, between the best candidates and the prompt as it was,
   from calls set aside for it. Where nothing is better, the prompt stays.

``optimize`` is one ``Optimizer``; ``gepa_engine`` and ``evolution`` are others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from clawback.errors import UsageError
from clawback.progress import OnProgress
from clawback.prompts.prompt import Prompt, added, merged, with_earned
from clawback.prompts.prompt_guards import Screen, objections
from clawback.prompts.search import racing
from clawback.prompts.search.ledger import Budget, Journal, Ledger, Over, SearchCost, reserve, split_up
from clawback.prompts.search.racing import Candidate, Pool
from clawback.prompts.search_types import Evaluate, Example, ProposalRequest, Propose, mean

if TYPE_CHECKING:
    from clawback.records import JsonObject

ENGINES = {"reflect": "optimize", "evolve": "evolution", "gepa": "gepa_engine"}


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search goes about it.

    Attributes:
        batch: failing examples shown with a request, and raced on.
        guard: examples that the parent did well on, that a winner is tried on too.
        perfect: a score that leaves nothing to be wished for.
        patience: proposals in a row without a winner after which it ends.
        unparsable: proposals in a row without a readable prompt after which it ends.
        finalists: candidates in the last check, beside the prompt as it was.
        fresh: chance that a request looks for a failure on an example that the parent was not tried on yet.
    """

    batch: int = 3
    guard: int = 2
    perfect: float = 1.0
    patience: int = 150
    unparsable: int = 5
    finalists: int = 2
    fresh: float = 0.25
    merge: bool = True


@dataclass(frozen=True, slots=True)
class PromptSearchResult:
    """What a search found.

    Attributes:
        best: the prompt to use; the one it began with where nothing was better.
        improved: whether ``best`` won the last check.
        first_score, best_score: mean scores of the first prompt and of ``best`` on the ``checked`` validation examples that both were tried on.
        error: standard error of their difference.
        candidates: all that won a race, as JSON values, with how many examples they were tried on.
        trace: (calls, id) of the candidate that was expected to be best, each time it changed.
        spent: calls, proposals, tokens and money.
        stopped: why it ended.
        notes: what a person should know: a small budget, unreadable proposals, anchors that held candidates back.
    """

    best: Prompt
    improved: bool
    first_score: float
    best_score: float
    error: float
    checked: int
    candidates: tuple[JsonObject, ...]
    trace: tuple[tuple[int, str], ...]
    spent: SearchCost
    stopped: str
    notes: tuple[str, ...] = ()

    def to_dict(self) -> JsonObject:
        return {
            "best": self.best.to_dict(),
            "improved": self.improved,
            "before": self.first_score,
            "after": self.best_score,
            "error": self.error,
            "checked": self.checked,
            "candidates": list(self.candidates),
            "trace": [list(one) for one in self.trace],
            "spent": self.spent.to_dict(),
            "stopped": self.stopped,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What every engine takes by name beside the search itself.

    Attributes:
        journal: has what was paid for already, and takes what is paid now; with a path, a search that was stopped goes on from there.
        remarks: what the person said that belongs to no one example.
        seed: the same seed and the same outcomes of calls give the same search.
        screen: looks at each proposal before anything is paid for it.
        settings: how a search by reflection goes about it.
        strategy: what goes about it; None: reflection.
    """

    journal: Journal | None = None
    remarks: Sequence[str] = ()
    seed: int = 0
    on_progress: OnProgress | None = None
    screen: Screen = objections
    settings: SearchSettings = SearchSettings()
    strategy: type[SearchRun] | None = None


class Optimizer(Protocol):
    """What every engine is: the same call, the same result. ``options``: fields of ``EngineOptions``."""

    def __call__(
        self,
        prompt: Prompt,
        examples: Sequence[Example],
        evaluate: Evaluate,
        propose: Propose,
        budget: Budget,
        **options: object,
    ) -> PromptSearchResult: ...


def optimize(
    prompt: Prompt,
    examples: Sequence[Example],
    evaluate: Evaluate,
    propose: Propose,
    budget: Budget,
    **options: Any,
) -> PromptSearchResult:
    """Search for a prompt that does better on the examples.

    Args:
        prompt: where to begin. Its locked sections stay.
        examples: with ids that differ. Where none is for validation, two fifths of them are kept for it.
        evaluate: tries a prompt on an example.
        propose: makes a new prompt of what went wrong.
        budget: what may be spent; ``ledger.plan`` says beforehand what that buys.
        options: fields of ``EngineOptions``, by name.

    Raises:
        UsageError: no examples, or two with one id.
    """
    chosen = EngineOptions(**options)
    run = (chosen.strategy or SearchRun)(
        prompt,
        examples,
        Ledger(evaluate, propose, budget, chosen.journal),
        chosen.settings,
        tuple(chosen.remarks),
        chosen.seed,
        chosen.screen,
    )
    tell = chosen.on_progress or (lambda _: None)
    try:
        while not (stopped := run.step()):
            tell({"phase": run.phase, "step": run.ledger.spent.calls, "steps": budget.calls or run.ledger.spent.calls, "proposals": run.ledger.spent.proposals, "candidates": len(run.pool.all)})  # fmt: skip
    except Over as over:
        stopped = str(over)
    return run.finish(stopped)


@dataclass
class SearchRun:
    """One search under way."""

    phase: ClassVar[str] = "search"
    prompt: Prompt
    examples: Sequence[Example]
    ledger: Ledger
    settings: SearchSettings
    remarks: tuple[str, ...]
    seed: int
    screen: Screen
    number: int = 0
    since: int = 0  # proposals since one won
    notes: dict[str, None] = field(default_factory=dict)
    trace: list[tuple[int, str]] = field(default_factory=list)
    merges: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.train, self.validation, note = split_up(self.examples, self.seed)
        self.anchors = [one for one in self.examples if one.anchor]
        self.pool = Pool(self.prompt, self.ledger, self.settings.perfect)
        self.ledger.reserved = reserve(self.ledger.budget, len(self.validation), self.settings.finalists + 1)
        if note:
            self.notes[note] = None

    def rng(self, what: str) -> random.Random:
        return random.Random(f"{self.seed}:{self.number}:{what}")

    def step(self) -> str:
        """One request and its race. Why the search is over, or ""."""
        self.number += 1
        parent = self.pool.choose(self.train, self.rng("parent"))
        failing = self.failing(parent)
        if not failing:
            return "the best prompt fails on no training example any more"
        others = self.others(parent, failing)
        cases = [self.ledger.case(parent.prompt, one) for one in (*failing, *others)]
        request = ProposalRequest(
            parent.prompt, tuple(cases), self.remarks, lost=tuple(parent.lost[-12:]), number=self.number
        )
        made = self.ledger.propose(request)
        self.since += 1
        if made.prompt is None:
            self.notes[f"A proposal could not be read: {made.problem}"] = None
            if self.ledger.unparsable >= self.settings.unparsable:
                return f"{self.ledger.unparsable} proposals in a row could not be read ({made.problem}); take a larger model to propose, or templates"
        else:
            child = with_earned(
                parent.prompt.with_refinement(made.prompt.text, **made.prompt.metadata), parent.earned
            )
            self.enter(child, parent, failing, others)
        if self.since >= self.settings.patience:
            return f"{self.since} proposals in a row were no better"
        return ""

    def enter(
        self, child: Prompt, parent: Candidate, failing: Sequence[Example], others: Sequence[Example]
    ) -> None:
        """Race a child; what wins joins the pool, and is merged with the others of the front."""
        if self.pool.knows(child):
            return
        new = added(parent.prompt, child)
        if against := self.screen(child, parent.prompt, self.examples):
            parent.lost.extend(line for _, line in new if line not in parent.lost)
            self.notes[f"A proposal was refused: {'; '.join(against)}."] = None
            return
        course = racing.Course(failing, others, self.anchors)
        ran = racing.race(self.ledger, child, parent.prompt, course, self.settings.perfect)
        if not ran.won:
            parent.lost.extend(line for _, line in new if line not in parent.lost)
            if "anchor" in ran.why:
                self.notes[f"A candidate was dropped: {ran.why}."] = None
            return
        self.accept(Candidate(child, parent, (*parent.earned, *new), calls=self.ledger.spent.calls))
        if self.settings.merge:
            self.merge(self.pool.all[-1])

    def accept(self, candidate: Candidate) -> None:
        self.pool.add(candidate)
        self.since = 0
        best = self.pool.ranked(self.train)[0][1].prompt.id
        if not self.trace or self.trace[-1][1] != best:
            self.trace.append((self.ledger.spent.calls, best))

    def merge(self, new: Candidate) -> None:
        """Try ``new`` together with one candidate of another branch that is still on the front."""
        for _, other in self.pool.front(self.train):
            line = new.ancestors()
            if other in line or new in other.ancestors() or (new.prompt.id, other.prompt.id) in self.merges:
                continue
            self.merges.add((new.prompt.id, other.prompt.id))
            base = next(one for one in other.ancestors() if one in line)
            child = merged(new.prompt, other.prompt, base.prompt)
            failing = self.failing(new)
            if self.pool.knows(child) or not failing:
                continue
            course = racing.Course(failing, self.others(new, failing), self.anchors)
            ran = racing.race(self.ledger, child, new.prompt, course, self.settings.perfect)
            if ran.won:
                earned = dict.fromkeys((*new.earned, *other.earned))
                self.accept(Candidate(child, new, tuple(earned), calls=self.ledger.spent.calls))
            return

    def failing(self, candidate: Candidate) -> list[Example]:
        """Up to ``batch`` examples that it fails on, in random order; untried ones are tried until enough are found."""
        rng, perfect = self.rng("failing"), self.settings.perfect
        known = [e for e in self.train if self.fails(candidate, e)]
        untried = [e for e in self.train if self.ledger.score(candidate.prompt, e) is None]
        rng.shuffle(known)
        rng.shuffle(untried)
        found = known[: self.settings.batch]
        wanted = self.settings.batch
        if len(found) == wanted and untried and rng.random() < self.settings.fresh:
            found = found[:-1]
        for example in untried:
            if len(found) >= wanted:
                break
            if self.ledger.try_(candidate.prompt, example).score < perfect - 1e-9:
                found.append(example)
        return found or known[:wanted]

    def fails(self, candidate: Candidate, example: Example) -> bool:
        score = self.ledger.score(candidate.prompt, example)
        return score is not None and score < self.settings.perfect - 1e-9

    def others(self, candidate: Candidate, failing: Sequence[Example]) -> list[Example]:
        """What it is known to do best on, beside those."""
        known = [(score, e) for e in self.train if e not in failing and (score := self.ledger.score(candidate.prompt, e)) is not None]  # fmt: skip
        self.rng("others").shuffle(known)
        return [e for _, e in sorted(known, key=lambda pair: -pair[0])][: self.settings.guard]

    def finish(self, stopped: str) -> PromptSearchResult:
        """The last check, from the calls that were set aside."""
        self.ledger.reserved = 0
        ranked = [one for _, one in self.pool.ranked(self.train)]
        finalists = [one.prompt for one in ranked if one.parent is not None][: self.settings.finalists]
        order = list(self.validation)
        random.Random(f"{self.seed}:validation").shuffle(order)
        best, used = (
            racing.finals(self.ledger, [*finalists, self.prompt], order) if finalists else (self.prompt, 0)
        )
        seen = [e for e in order if self.ledger.score(best, e) is not None and self.ledger.score(self.prompt, e) is not None]  # fmt: skip
        before, after = (mean([self.ledger.score(p, e) or 0.0 for e in seen]) for p in (self.prompt, best))
        gaps = [
            (self.ledger.score(best, e) or 0.0) - (self.ledger.score(self.prompt, e) or 0.0) for e in seen
        ]
        if finalists and not used:
            self.notes["The budget left nothing for the last check, so the prompt stays as it was."] = None
            best = self.prompt
        return PromptSearchResult(
            best,
            best.id != self.prompt.id,
            before,
            after,
            racing.error(gaps) if gaps else 0.0,
            len(seen),
            tuple(one.to_dict(self.ledger) for one in self.pool.all),
            tuple(self.trace),
            self.ledger.spent,
            stopped,
            tuple(self.notes),
        )


def engine(name: str) -> Optimizer:
    """The optimizer of that name. Raises ``UsageError`` for another, ``MissingExtra`` when it is called and not installed."""
    if name not in ENGINES:
        raise UsageError(f"There is no engine {name!r}. There is: {', '.join(ENGINES)}.")
    return cast("Optimizer", import_module(f"clawback.prompts.search.{ENGINES[name]}").optimize)
