"""GEPA itself (``pip install gepa``), run on our examples, our evaluation and our proposals: ``--engine gepa``.

The prompt is one component of a GEPA candidate. Every call goes through the same account as our own search:
the budget holds at every call (GEPA itself checks it only between iterations), the journal records what was
paid, and locked sections and the checks of a proposal's text apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from clawback import installed
from clawback.errors import ClawbackError, MissingExtra
from clawback.prompts.prompt import Prompt
from clawback.prompts.search import racing
from clawback.prompts.search.ledger import Budget, Ledger, Over, split_up
from clawback.prompts.search.optimize import EngineOptions, PromptSearchResult
from clawback.prompts.search_types import Case, Evaluate, Example, ProposalRequest, Propose, mean

if TYPE_CHECKING:
    from clawback.records import JsonObject

COMPONENT = "system"
_T = TypeVar("_T")
MOST = 1_000_000
"""Calls that GEPA is told it has: the account ends it."""


def optimize(
    prompt: Prompt,
    examples: Sequence[Example],
    evaluate: Evaluate,
    propose: Propose,
    budget: Budget,
    **options: Any,
) -> PromptSearchResult:
    """As ``search.optimize``; ``options`` that are no ``EngineOptions`` go to ``gepa.optimize``. Raises ``MissingExtra`` where gepa is not installed."""
    try:
        from gepa.api import optimize as run
    except ImportError as error:
        raise MissingExtra(f"The engine gepa is not installed. Run: {installed.add('gepa')}") from error
    shared = {field.name for field in fields(EngineOptions)} & options.keys()
    chosen = EngineOptions(**{name: options.pop(name) for name in shared})
    train, validation, note = split_up(examples, chosen.seed)
    ledger = Ledger(evaluate, propose, budget, chosen.journal)
    adapter = _Adapter(prompt, examples, ledger, chosen)
    settings: JsonObject = {
        "max_metric_calls": MOST,
        "seed": chosen.seed,
        "display_progress_bar": False,
        "raise_on_exception": True,
        "logger": _Quiet(),
        "stop_callbacks": adapter.stop,
    }
    try:
        run({COMPONENT: prompt.text}, train, validation, cast("Any", adapter), **(settings | options))
    except Over as over:
        adapter.stopped = adapter.stopped or str(over)
    return adapter.result(validation, [note] if note else [])


class _Quiet:
    def log(self, message: str) -> None:
        """GEPA's own account of it is not ours to print."""


class _Adapter:
    """GEPA's adapter: candidates are texts to it, prompts to us."""

    def __init__(
        self, prompt: Prompt, examples: Sequence[Example], ledger: Ledger, options: EngineOptions
    ) -> None:
        self.prompt, self.examples, self.ledger = prompt, examples, ledger
        self.remarks, self.screen = tuple(options.remarks), options.screen
        self.tell = options.on_progress or (lambda _: None)
        self.prompts: dict[str, Prompt] = {prompt.text: prompt}
        self.notes: dict[str, None] = {}
        self.stopped = ""

    def evaluate(self, batch: list[Example], candidate: dict[str, str], capture_traces: bool = False) -> Any:
        from gepa.core.adapter import EvaluationBatch

        prompt = self._known(candidate[COMPONENT])
        # GEPA looks again at what it has scored before; so it pays again, as it would by itself.
        outcomes = [self._paid(partial(self.ledger.try_, prompt, one, again=True)) for one in batch]
        cases = [Case(example, outcome) for example, outcome in zip(batch, outcomes, strict=True)]
        self.tell({"phase": "search", "step": self.ledger.spent.calls, "steps": self.ledger.budget.calls or self.ledger.spent.calls})  # fmt: skip
        return EvaluationBatch([o.response for o in outcomes], [o.score for o in outcomes], cases if capture_traces else None)  # fmt: skip

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],  # noqa: ARG002
        eval_batch: Any,
        components: list[str],
    ) -> dict[str, list[dict[str, Case]]]:
        return {one: [{"case": case} for case in eval_batch.trajectories or ()] for one in components}

    def propose_new_texts(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Any]],
        components: list[str],
    ) -> dict[str, str]:
        """One request for each component (there is one). What may not be used is not proposed."""
        prompt = self._known(candidate[COMPONENT])
        cases = tuple(one["case"] for one in reflective_dataset[components[0]])
        request = ProposalRequest(prompt, cases, self.remarks, number=self.ledger.spent.proposals)
        made = self._paid(lambda: self.ledger.propose(request))
        if made.prompt is None:
            self.notes[f"A proposal could not be read: {made.problem}"] = None
            if self.ledger.unparsable >= _UNPARSABLE:
                self.stopped = (
                    f"{self.ledger.unparsable} proposals in a row could not be read ({made.problem})"
                )
            return dict(candidate)
        child = prompt.with_refinement(made.prompt.text, **made.prompt.metadata)
        if against := self.screen(child, prompt, self.examples):
            self.notes[f"A proposal was refused: {'; '.join(against)}."] = None
            return dict(candidate)
        self.prompts.setdefault(child.text, child)
        return {COMPONENT: child.text}

    def stop(self, _: object) -> bool:
        return bool(self.stopped)

    def _paid(self, call: Callable[[], _T]) -> _T:
        """GEPA goes on after an exception, whatever it is told; so what ends the search is remembered until it asks."""
        try:
            return call()
        except ClawbackError as error:
            self.stopped = str(error)
            raise

    def _known(self, text: str) -> Prompt:
        return self.prompts.setdefault(text, self.prompt.with_refinement(text, author="gepa"))

    def result(self, validation: Sequence[Example], notes: Sequence[str]) -> PromptSearchResult:
        """GEPA's own choice: the best mean over the whole validation set, among those that were tried on all of it."""
        whole = [p for p in self.prompts.values() if all(self.ledger.looks(p, e) for e in validation)]
        ranked = sorted(whole, key=lambda p: -mean([self.ledger.score(p, e) or 0.0 for e in validation]))
        best = ranked[0] if ranked else self.prompt
        seen = [e for e in validation if self.ledger.looks(best, e) and self.ledger.looks(self.prompt, e)]
        before, after = (mean([self.ledger.score(p, e) or 0.0 for e in seen]) for p in (self.prompt, best))
        gaps = [
            (self.ledger.score(best, e) or 0.0) - (self.ledger.score(self.prompt, e) or 0.0) for e in seen
        ]
        if best.id != self.prompt.id and (worse := _regressed(self.ledger, best, self.prompt, self.examples)):
            self.notes[f"GEPA's best gets worse on the anchor {worse}, so the prompt stays as it was."] = None
            best, after = self.prompt, before
        return PromptSearchResult(
            best,
            best.id != self.prompt.id,
            before,
            after,
            racing.error(gaps) if gaps else 0.0,
            len(seen),
            tuple({**p.to_dict(), "id": p.id, "tried": len(self.ledger.scores(p))} for p in whole),
            (),
            self.ledger.spent,
            self.stopped or "GEPA ended by itself",
            (*notes, *self.notes),
        )


_UNPARSABLE = 5


def _regressed(ledger: Ledger, best: Prompt, first: Prompt, examples: Sequence[Example]) -> str:
    """The first anchor that the best prompt does worse on, "" for none. Tries that the budget no longer pays for count as worse."""
    for anchor in (one for one in examples if one.anchor):
        try:
            before, after = (ledger.try_(p, anchor).score for p in (first, best))
        except ClawbackError:
            return anchor.id
        if after < before - 1e-9:
            return anchor.id
    return ""
