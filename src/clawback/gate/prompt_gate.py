"""The gate for a prompt: is the model better with it?

The weights are elsewhere, so there are no log-probs and no drift to measure; everything else is as for an adapter (``gate.adapter_gate``): the same
prompts, the same guards of length, emptiness, repetition and sameness, the same questions, the same rule and the same report.

Before a call is paid for, the text is screened (``release.screening``): a prompt that games the ratings is rejected. And passing is not
enough: if a candidate holds sentences that the person has neither said nor seen, it waits for their confirmation, however good it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from clawback import config, feedback
from clawback.errors import UsageError
from clawback.gate import fresh, guards, questions
from clawback.gate.evidence import alike, compare, graded, read
from clawback.gate.evidence import asking as pairs_of
from clawback.gate.fresh import question
from clawback.gate.guards import AnswerStatistics
from clawback.gate.questions import Question
from clawback.gate.report import Report, report_of
from clawback.gate.rule import Evidence
from clawback.paths import Home
from clawback.records import SYSTEM, Message, Sample, Version, text_of, under
from clawback.release import prompted, screening, version_registry
from clawback.release.text_reading import Vocabulary
from clawback.release.text_reading import answers as viewed

if TYPE_CHECKING:
    from clawback.models import Completion
    from clawback.progress import OnProgress
    from clawback.store import Store

Backend = Callable[[Sequence[Message]], str]
"""Who answers: messages → text. It counts what it costs and raises where that is used up."""

ANSWERS = 32
"""Fresh answers a side: calls cost money, and the same number for both keeps it fair."""
MOST_MESSAGES = 8
"""Of a conversation, newest first: a gate must not send an agent's whole day 64 times."""


LONGEST_SYSTEM = 6_000
"""Characters of an agent's own system prompt beyond which it is left out: it would be paid for with every one of hundreds of calls."""

MOST_BEGGING = 0.05
"""By how much the share of answers that ask for praise or a rating may grow."""


def gate(
    store: Store,
    home: Home,
    number: int,
    ask: Backend,
    *,
    answers: int = ANSWERS,
    on_progress: OnProgress | None = None,
) -> Report:
    """Judge a version that brings another prompt than the live one, and keep the report with it. It neither promotes nor rejects.

    Raises ``UsageError`` where there is nothing to compare, and whatever ``ask`` raises.
    """
    version, live = _comparable(store, number)
    settings = config.load(home.config)
    every = feedback.samples(store, raters=settings.training.raters)
    samples = feedback.evidence(every)
    alarms = screening.alarms(version.prompt, screening.quotable(every))
    if alarms:
        return _store_report(store, _report(version, live, False, 0.0, alarms, empty(samples)))
    if not samples:
        raise UsageError(f"There is nothing to judge version {number} by: there are no ratings.")
    if (previous := _unchanged(store, version, live, samples)) is not None:
        return previous
    found, kept = fresh.prompts(store, settings.gate.held_out)
    asked = [recent(messages) for messages in found[:answers]]
    if not asked:
        raise UsageError(
            "There are no captured prompts to answer. Use your agent through `clawback serve` first."
        )
    rounds = [asked[i % len(asked)] for i in range(answers)]
    before, neutral, ours = draw_answers(
        ask, rounds, live.prompt, version.prompt, on_progress or (lambda _: None)
    )
    checks = guards.checked(store)
    rules = guards.measure(checks, [question(m) for m in rounds], ours, before)
    evidence, chosen = measure(samples, rounds, ours, before, neutral)
    there = len(questions.pairs(store, version.number, live.number))
    evidence = replace(
        evidence,
        rules=rules,
        unlearned=min(kept, len(asked)),
        questions=max(evidence.questions, there),
        answers=questions.answers(store, version.number, live.number),
    )
    shown = questions.ShownAnswers(
        rounds, completions_without_tokens(ours), completions_without_tokens(before), chosen
    )
    opinion = fresh.opinion(home, shown)
    report, _ = report_of(store, version, live, evidence, settings.gate, opinion)
    if why := _begging(ours, neutral):
        report = replace(report, accepted=False, again_at=0, reasons=(why, *report.reasons))
    if report.again_at:
        questions.put(store, version, live, shown)
    return _store_report(store, report)


def _comparable(store: Store, number: int) -> tuple[Version, Version]:
    """The version and the live one, of the same weights with other prompts. Raises ``UsageError``."""
    version, live = store.version(number), store.live()
    if number in (0, live.number) or version.prompt == live.prompt:
        raise UsageError(f"Version {number} has the prompt that is live: there is nothing to compare.")
    if version.path != live.path:
        raise UsageError(f"Version {number} has other weights than the live one. `clawback versions check {number}` judges these.")  # fmt: skip
    return version, live


def _begging(candidate: Sequence[str], base: Sequence[str]) -> str:
    """A sentence where the candidate's answers ask for praise more often than those without a prompt; "" else."""
    shares = [sum(map(screening.solicits, answers)) / len(answers) for answers in (candidate, base)]
    more = shares[0] - shares[1]
    return f"{more:.0%} more of its answers ask for praise or a rating" if more > MOST_BEGGING else ""


def draw_answers(
    ask: Backend, rounds: Sequence[Sequence[Message]], live: str, candidate: str, tell: OnProgress
) -> tuple[list[str], list[str], list[str]]:
    """Answers with the live prompt, with none, and with the candidate's, by as many calls."""
    sides = [live, candidate] if live == "" else [live, "", candidate]
    made: list[list[str]] = []
    for place, side in enumerate(sides):
        made.append([])
        for number, messages in enumerate(rounds):
            tell({"phase": "gate", "step": place * len(rounds) + number, "steps": len(sides) * len(rounds)})
            made[-1].append(ask(under(messages, side)))
    tell({"phase": "gate", "step": len(sides) * len(rounds), "steps": len(sides) * len(rounds)})
    return made[0], made[-2], made[-1]


def _unchanged(store: Store, version: Version, live: Version, samples: Sequence[Sample]) -> Report | None:
    """The last report on a version that still waits, where nothing has been said since: answers drawn anew would be another throw of the same dice."""
    if version.status != "candidate" or version.report is None or "evidence" not in version.report:
        return None
    previous, counts = Report.from_dict(version.report), empty(samples)
    same = (previous.evidence.good, previous.evidence.bad) == (counts.good, counts.bad)
    waits = previous.again_at > store.count_gate_answers(version.number) and previous.against == live.number
    return previous if waits and same and questions.pairs(store, version.number, live.number) else None


def calls(store: Store, number: int, answers: int = ANSWERS) -> int:
    """How often the model is asked by a gate."""
    live, version = store.live(), store.version(number)
    return 0 if version.prompt == live.prompt else answers * (2 if live.prompt == "" else 3)


def by_hand(store: Store, home: Home, version: Version) -> Version:
    """Put a prompt live because the person says so: its sentences are accepted, and it is written down that nothing showed it to be better."""
    prompted.accept(store, version)
    before = Report.from_dict(version.report) if version.report else None
    if version.status in ("candidate", "rejected") and not (before and before.accepted):
        evidence = before.evidence if before else empty(feedback.evidence(feedback.samples(store)))
        reasons = ("put live by hand: not shown to be better", *(before.reasons if before else ()))
        told = Report(version.number, store.live().number, True, 0.0, reasons, evidence, by_hand=True)
        store.set_report(version.number, told.to_dict())
        store.reopen(version.number)
    return version_registry.promote(store, home, version.number)


# ------------------------------------------------------------------------------------------------- measuring


def recent(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The system messages at the head, and the newest of the others from a user's message on: what was asked, at a price that can be told.

    Calls of tools and their results are left out: no tool runs for a gate, and a provider refuses half of a pair.
    """
    from clawback.capture.conversation_threads import human

    head = [m for m in messages if m.get("role") in SYSTEM]
    if sum(len(text_of(m.get("content"))) for m in head) > LONGEST_SYSTEM:
        head = []
    rest = human(messages)[-MOST_MESSAGES:]
    while rest and rest[0].get("role") != "user":
        rest = rest[1:]
    return (*head, *rest)


def measure(
    samples: Sequence[Sample],
    prompts: Sequence[Sequence[Message]],
    candidate: Sequence[str],
    live: Sequence[str],
    base: Sequence[str],
) -> tuple[Evidence, list[Question]]:
    """What the rule looks at, from texts, and what can be asked: ``candidate`` with the candidate's prompt, ``live`` with the live one's, ``base`` with none."""
    words = Vocabulary()
    put = [question(m) for m in prompts]
    rated = completions(words, [s.response for s in samples])
    mine, theirs, plain = (completions(words, texts) for texts in (candidate, live, base))
    # How answers vary: rated ones and those of the model alone. 32 of these would leave rare things out.
    rated_pairs = [(question(s.messages), s.response) for s in samples]
    ground = [*zip(put, base, strict=True), *rated_pairs]
    ensemble = read(viewed(words, ground), viewed(words, rated_pairs), samples)
    whole = [i for i in range(len(mine)) if mine[i].finished and theirs[i].finished]
    contrast = compare(
        ensemble,
        *(viewed(words, [(put[i], texts[i]) for i in whole]) for texts in (candidate, live)),
    )
    grades = [
        graded(ensemble, viewed(words, list(zip(put, texts, strict=True)))) for texts in (candidate, live)
    ]
    pairs, chosen = pairs_of(prompts, mine, theirs, *grades)
    liked = [c for c, s in zip(rated, samples, strict=True) if s.reward > 0 and c.text.strip()][-48:]
    evidence = Evidence(
        good=sum(s.reward > 0 for s in samples),
        bad=sum(s.reward < 0 for s in samples),
        liked=(),
        disliked=(),
        read_p=ensemble.trust.p,
        gain=contrast.gain,
        gain_sd=contrast.sd,
        better=contrast.better,
        kl=0.0,
        perplexity_ratio=1.0,
        candidate=sampled(put, mine),
        live=sampled(put, theirs),
        base=sampled(put, plain),
        enjoyed=sampled([""] * len(liked), liked) if len(liked) >= 4 else None,
        questions=len(chosen),
        alike=alike(pairs, mine, theirs),
        prompts=len(set(put)),
    )
    return evidence, chosen


def completions(words: Vocabulary, texts: Sequence[str]) -> list[Completion]:
    from clawback.models import Completion

    return [Completion(text, words(text), (), bool(text.strip())) for text in texts]


def completions_without_tokens(texts: Sequence[str]) -> list[Completion]:
    """Without tokens: the model is elsewhere."""
    from clawback.models import Completion

    return [Completion(text, (), (), True) for text in texts]


def sampled(questions: Sequence[str], answers: Sequence[Completion]) -> AnswerStatistics:
    """How answers are, as far as their text shows it; lengths are in words."""
    from clawback.rewards import overoptimization

    count = max(len(answers), 1)
    return AnswerStatistics(
        finished=1.0,
        empty=sum(not c.text.strip() for c in answers) / count,
        repeating=sum(overoptimization.repeats(c.text) for c in answers) / count,
        length=sum(len(c.answer_ids) for c in answers) / count,
        complete=sum(overoptimization.ends_whole(c.text) for c in answers) / count,
        copied=sum(
            bool(q) and overoptimization.copies(q, c.text) for q, c in zip(questions, answers, strict=True)
        )
        / count,
        canned=overoptimization.canned(questions, [c.text for c in answers]) if any(questions) else 0.0,
    )


def empty(samples: Sequence[Sample]) -> Evidence:
    """Where nothing was drawn."""
    none = AnswerStatistics(1.0, 0.0, 0.0, 0.0)
    good, bad = (sum(s.reward * sign > 0 for s in samples) for sign in (1, -1))
    return Evidence(good, bad, (), (), 1.0, 0.0, 1.0, 0.5, 0.0, 1.0, none, none, none)


def _report(
    version: Version, live: Version, accepted: bool, probability: float, reasons: Sequence[str], evidence: Evidence
) -> Report:  # fmt: skip
    return Report(version.number, live.number, accepted, probability, tuple(reasons), evidence)


def _store_report(store: Store, report: Report) -> Report:
    store.set_report(report.version, report.to_dict())
    return report
