"""One search for a prompt: its inputs, the library's two functions (evaluate, propose) filled in, and what is stored of it.

All inputs are fixed before the first call and written down, so a resumed search sees the same ones.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clawback import config, feedback
from clawback.errors import TrainingError, UsageError
from clawback.feedback import turn_reward
from clawback.feedback.provenance import in_own_words
from clawback.files import replace
from clawback.gate import prompt_gate as prompt_gate
from clawback.gate.report import Report, settle
from clawback.jobs import inputs
from clawback.jobs.inputs import feedback_of, newest
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.prompt_jobs.prompt_models import Meter, StoredMeter, model_of
from clawback.records import BETTER, JsonObject, Run, Sample, Turn, Version, under, with_keys
from clawback.release import prompted, screening, text_reading

if TYPE_CHECKING:
    from clawback.prompts import (
        Example,
        Outcome,
        Prompt,
        PromptSearchResult,
        Proposal,
        ProposalRequest,
        Propose,
    )
    from clawback.prompts.prompt_guards import Screen
    from clawback.store import Store

SEARCH, JOURNAL, GATE = "search.json", "journal.jsonl", "gate.jsonl"
MOST_EXAMPLES = 64
"""Newest questions that a search asks."""
MACHINES = ("judge:", "hint:")
UNRATED = 16
"""Of them at most, questions whose answers nobody rated."""
LEAST_CALLS = 24
"""Calls under which a search is none."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What came of a search. ``version`` is None where nothing was better than the prompt as it is."""

    version: Version | None
    report: Report | None
    unseen: tuple[str, ...]
    first_score: float
    best_score: float
    calls: int
    tokens: int
    money: float
    stopped: str
    notes: tuple[str, ...]

    @property
    def live(self) -> bool:
        return self.version is not None and self.version.status == "live"

    def to_dict(self) -> JsonObject:
        values = with_keys(asdict(self), {"first_score": "before", "best_score": "after"})
        return values | {"live": self.live, "report": self.report.to_dict() if self.report else None}


def judge(
    home: Home, db: Store, number: int, ask: prompt_gate.Backend, on_progress: OnProgress | None = None
) -> Report:
    """The gate for a prompt, within what is left of the meter."""
    answers = config.load(home.config).prompts.gate_answers
    return prompt_gate.gate(db, home, number, ask, answers=answers, on_progress=on_progress)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Options of one search. None: as the settings say."""

    calls: int | None = None
    """Answers that may be asked for, the gate's among them."""
    proposer: str | None = None
    seed: int | None = None
    engine: str = "reflect"
    """``reflect``, ``evolve`` or ``gepa`` (``clawback.prompts.search.engines``)."""


DEFAULTS = SearchOptions()


class Search:
    """One search: what goes into it, all of it decided before the first call."""

    def __init__(
        self,
        home: Home,
        db: Store,
        settings: config.Config,
        options: SearchOptions = DEFAULTS,
    ) -> None:
        from clawback.prompts import Prompt

        self.home, self.db, self.settings = home, db, settings
        self.calls = settings.prompts.max_calls if options.calls is None else options.calls
        wanted = options.proposer or settings.prompts.proposer
        self.proposer = "templates" if wanted == "auto" else wanted
        self.engine = options.engine
        self.seed = settings.training.seed if options.seed is None else options.seed
        self.live = db.live()
        self.start = Prompt(prompted.source(self.live))
        self.train: list[Sample] = []
        self.held: list[Sample] = []
        self.examples: list[Example] = []
        self.remarks: tuple[str, ...] = ()
        self.resumed = False

    def begin(self) -> None:
        """The feedback that it learns from: what an interrupted search began with, where that still stands."""
        opinions = newest(self.db, self.settings)
        state = self._interrupted_state({f.id for f in opinions})
        ids = state["feedback"] if state else [f.id for f in opinions]
        every = feedback.samples(
            self.db, ids, feedback.SampleQuery(words=True), raters=self.settings.training.raters
        )
        samples = [sample for sample in every if not sample.cut]
        inputs.enough(samples)
        before = self.db.splits(s.turn_id for s in samples)
        self.train, self.held = feedback.split(samples, self.settings.gate.held_out, splits=before)
        self.ids = tuple(ids)
        if state:
            self.resumed, self.seed, self.proposer = True, state["seed"], state["proposer"]
            self.engine = state.get("engine", self.engine)
            self.calls = max(self.calls, state["calls"])
        self.reader = self._reader()
        self.examples = self._examples()
        self.remarks = self._remarks()

    def budget(self) -> Any:
        from clawback.prompts import Budget

        limits = self.settings.prompts
        calls = self.calls - self.gate_calls()
        if calls < LEAST_CALLS:
            raise UsageError(
                f"{self.calls} calls are too few: the gate takes {self.gate_calls()} of them ([prompts] gate_answers) and a search at least {LEAST_CALLS}. "
                f"Allow {self.gate_calls() + LEAST_CALLS} (`--calls`, [prompts] max_calls)."
            )
        return Budget(calls=calls, tokens=limits.max_tokens, money=limits.max_money or None)

    def gate_calls(self) -> int:
        return self.settings.prompts.gate_answers * (3 if self.live.prompt else 2)

    def run(self, meter: Meter, tell: OnProgress) -> SearchResult:
        from clawback.prompts import Journal
        from clawback.prompts.search.optimize import engine

        self._keep()
        journal = Journal(self.home.prompts / JOURNAL)
        judging = StoredMeter(self.home.prompts / GATE, meter)
        meter.spent_before(journal.paid + judging.usage)
        result = engine(self.engine)(
            self.start,
            self.examples,
            self._evaluate(meter),
            self._propose(meter),
            self.budget(),
            journal=journal,
            remarks=self.remarks,
            seed=self.seed,
            on_progress=tell,
            screen=self._screen(),
        )
        version = self.enter(result) if result.improved else None
        report: Report | None = None
        unseen: tuple[str, ...] = ()
        if version is not None:
            report = judge(self.home, self.db, version.number, judging, tell)
            version = settle(self.db, self.home, report, self.settings.trial)
            unseen = tuple(prompted.unseen(self.db, version)) if version.status == "candidate" else ()
        else:
            self.db.add_ended_run(self._run(result))
        spent = meter.usage
        return SearchResult(
            version, report, unseen, result.first_score, result.best_score, spent.calls, spent.tokens, spent.money, result.stopped, result.notes
        )  # fmt: skip

    def enter(self, result: PromptSearchResult) -> Version:
        """The prompt that was found, as a candidate version. Called again after a crash between this and the end, it finds the same one."""
        text, spoken = result.best.text, result.best.system
        for version in reversed(self.db.versions()):
            if version.status == "candidate" and version.parent == self.live.number and version.prompt == spoken.strip():  # fmt: skip
                return version
        origin = {
            "author": "search",
            "proposer": self.proposer,
            "engine": self.engine,
            "seed": self.seed,
            "before": result.first_score,
            "after": result.best_score,
            "spent": result.spent.to_dict(),
            "stopped": result.stopped,
            "lines": [dict(result.best.metadata)],
            "templates": self.templates(),
        }
        return prompted.propose(
            self.db, text, spoken=spoken, parent=self.live, run=self._run(result), origin=origin
        )

    def templates(self) -> list[str]:
        """Sentences that our own templates make of phrases which the owner quoted: known like the others."""
        from clawback.features.style_features import SAYS, wishes
        from clawback.prompts.search.remark_templates import sentence

        owners = [text for sample in self.train for text in self._written(sample, by_owner=True)]
        quoted = {name for text in owners for wish in wishes(text) for name in wish if name.startswith(SAYS)}
        return sorted(sentence(name, more)[1] for name in quoted for more in (True, False))

    # --------------------------------------------------------------------------------------------- what goes in

    def _reader(self) -> text_reading.TextReward:
        turns = self._turns()
        reader = text_reading.learn(self.train, [(t.prompt, t.response) for t in turns], self.seed)
        if not reader.trusted:
            raise TrainingError(
                f"These ratings show no pattern yet ({reader.why}), so a search would waste calls. Rate more answers, or say in words what was wrong "
                "(`clawback turns remark`)."
            )
        return reader

    def _examples(self) -> list[Example]:
        from clawback.prompts import Example

        examples: dict[str, Example] = {}
        for sample in reversed(self.train):
            asked = text_reading.question(sample)
            if asked and asked not in examples:
                hint = next((h for h in sample.hints if h.startswith(BETTER)), "")
                examples[asked] = Example(
                    str(sample.turn_id),
                    prompt_gate.recent(sample.messages),
                    sample.response,
                    self._written(sample),
                    hint.removeprefix(BETTER).strip(),
                )
        rated = {s.turn_id for s in (*self.train, *self.held)}
        others = [t for t in self._turns() if t.prompt and t.id not in rated]
        room = min(UNRATED, MOST_EXAMPLES - len(examples))
        for turn in others:
            if room > 0 and turn.prompt not in examples:
                examples[turn.prompt] = Example(
                    str(turn.id), prompt_gate.recent(turn.messages), turn.response
                )
                room -= 1
        return sorted(list(examples.values())[:MOST_EXAMPLES], key=lambda one: int(one.id))

    def _turns(self) -> list[Turn]:
        """The newest whole answers to prompts that are not kept for the gate."""
        newest = [t for t in self.db.turns(limit=256) if t.trainable and t.response and not t.cut]
        held, share = {s.turn_id for s in self.held}, self.settings.gate.held_out
        turn_reward.note_share(self.db, share)
        asked = {turn_reward.prompt_key(s.messages) for s in self.held} - {""}
        keyed = ((turn, turn_reward.prompt_key(turn.messages)) for turn in newest if turn.id not in held)
        return [turn for turn, key in keyed if key not in asked and not turn_reward.keeps(key, share)]

    def _written(self, sample: Sample, *, by_owner: bool = False) -> tuple[str, ...]:
        """What people wrote about an answer, not what a judge read out of it. A search may try words of others; they go live with the owner's yes alone."""
        ids = set(self.ids)
        remarks = [f for f in self.db.feedback(turn_id=sample.turn_id) if f.id in ids and f.kind in ("critique", "rating", "preference")]  # fmt: skip
        texts = [
            f.text.strip()
            for f in remarks
            if f.text.strip() and (in_own_words(f) if by_owner else not f.author.startswith(MACHINES))
        ]
        return tuple(dict.fromkeys(texts))

    def _remarks(self) -> tuple[str, ...]:
        """What the ratings say in the templates' words, then what the person said in their own."""
        import numpy as np

        from clawback.rewards.instructions import candidates

        turns = self._turns()
        pairs = [(text_reading.question(s), s.response) for s in self.train if s.rated]
        pairs += [(t.prompt, t.response) for t in turns]
        scores = np.array(self.reader(pairs))
        read = [one.text for one in candidates([text for _, text in pairs], scores, (), 6)]
        single = [piece for text in read for piece in screening.sentences(text)]
        written = [text for sample in self.train for text in self._written(sample)]
        return tuple(dict.fromkeys([*single, *written]))

    # --------------------------------------------------------------------------------------------- the two seams

    def _evaluate(self, meter: Meter) -> Any:
        def evaluate(prompt: Prompt, example: Example) -> Outcome:
            from clawback.prompts import Outcome

            before = meter.usage
            answer = meter(under(example.messages, prompt.system))
            [score] = self.reader([(example.question, answer)])
            if screening.solicits(answer):
                score = 0.0
            return Outcome(score, "", answer, usage=meter.usage - before)

        return evaluate

    def _propose(self, meter: Meter) -> Propose:
        """By templates, or by the model."""
        from clawback.prompts.search.reflection import reflector
        from clawback.prompts.search.remark_templates import from_remarks

        make = from_remarks if self.proposer == "templates" else reflector(meter.backend)

        def propose(request: ProposalRequest) -> Proposal:
            meter.check()
            return make(request)

        return propose

    def _screen(self) -> Screen:
        """What games is never tried: by the release's screen, which the gate asks again, and by the library's own."""
        from clawback.prompts.prompt_guards import objections

        quotable = screening.quotable([*self.train, *self.held])

        def screen(new: Prompt, previous: Prompt, examples: Sequence[Example]) -> list[str]:
            return [*screening.alarms(new.system, quotable), *objections(new, previous, examples)]

        return screen

    # --------------------------------------------------------------------------------------------- what is kept

    def _run(self, result: PromptSearchResult) -> Run:
        opinions = newest(self.db, self.settings)
        return Run(
            base=self.live.base or model_of(self.db, self.settings.prompts),
            base_revision=self.live.base_revision,
            algorithm=prompted.ALGORITHM,
            recipe={"calls": self.calls, "proposer": self.proposer, "spent": result.spent.to_dict()},
            seed=self.seed,
            parent=self.live.number,
            train_ids=feedback_of(self.train, opinions),
            held_out_ids=feedback_of(self.held, opinions),
            progress={"phase": "done"},
            kind="prompt",
        )

    def _keep(self) -> None:
        state = {"live": self.live.number, "seed": self.seed, "proposer": self.proposer, "engine": self.engine, "calls": self.calls, "feedback": list(self.ids)}  # fmt: skip
        replace(self.home.prompts / SEARCH, json.dumps(state).encode(), mode=0o600)

    def _interrupted_state(self, standing: set[int]) -> JsonObject | None:
        """What an interrupted search began with; None where there is none, or it can no longer be resumed."""
        path = Path(self.home.prompts / SEARCH)
        state = None
        with suppress(FileNotFoundError, ValueError, UnicodeDecodeError):
            state = json.loads(path.read_text("utf-8"))
        fits = (
            isinstance(state, dict)
            and state.get("live") == self.live.number
            and isinstance(state.get("feedback"), list)
            and standing.issuperset(state["feedback"])
        )
        if fits:
            return state
        if path.exists():
            shutil.rmtree(self.home.prompts, ignore_errors=True)
        return None
