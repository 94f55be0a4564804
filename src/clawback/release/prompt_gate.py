"""The gate for a prompt: is the model better with it, by what the person's ratings say of its answers?

The weights are elsewhere, so there are no log-probs and no drift to measure; everything else is as for an
adapter (``release.gating``). Fresh answers are drawn with the candidate's prompt, with the live one's and
with none, to prompts whose ratings neither has learned from; the reward model is fitted on all ratings; the
rule (``release.rule``) decides, with the same guards of length, emptiness, repetition and sameness, and the
same confidence.

Before a call is paid for, the text is screened (``release.screening``): a prompt that games the ratings is
rejected. And passing is not enough: if a candidate holds sentences that the person has neither said nor seen,
it waits for their confirmation, however good it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from clawback import config, feedback
from clawback.errors import UsageError
from clawback.paths import Home
from clawback.records import GATE, Message, Sample, Turn, Version, text_of
from clawback.release import human_eval, prompted, registry, screening, trial
from clawback.release.evidence import compare, read
from clawback.release.fresh import question
from clawback.release.gating import Opinion, Report, looks_of, witness
from clawback.release.rule import MOST_LOOKS, Compared, Evidence, Sampled, decide
from clawback.release.text_reading import Vocabulary
from clawback.release.text_reading import answers as viewed
from clawback.system_prompt import SYSTEM, under

if TYPE_CHECKING:
    from clawback.engine.types import Completion
    from clawback.store import Store

Backend = Callable[[Sequence[Message]], str]
"""Who answers: messages → text. It counts what it costs and raises where that is used up."""
OnProgress = Callable[[Mapping[str, Any]], None]

ANSWERS = 32
"""Fresh answers a side: calls cost money, and the same number for both keeps it fair."""
LEAST_PROMPTS = 8
"""With fewer prompts that nothing was learned from, those that were learned from are asked as well, last."""
MOST_MESSAGES = 8
"""Of a conversation, newest first: a gate must not send an agent's whole day 64 times."""


LONGEST_SYSTEM = 6_000
"""Characters of an agent's own system prompt beyond which it is left out: it would be paid for with every one of hundreds of calls."""


def gate(
    store: Store,
    home: Home,
    number: int,
    ask: Backend,
    *,
    settings: config.Config | None = None,
    answers: int = ANSWERS,
    on_progress: OnProgress | None = None,
) -> Report:
    """Judge a version that brings another prompt than the live one, and keep the report with it. It neither promotes nor rejects.

    Raises ``UsageError`` where there is nothing to compare, and whatever ``ask`` raises.
    """
    version, live = store.version(number), store.live()
    if number in (0, live.number) or version.prompt == live.prompt:
        raise UsageError(f"Version {number} has the prompt that is live: there is nothing to compare.")
    if version.path != live.path:
        raise UsageError(f"Version {number} has other weights than the live one. `clawback gate {number}` judges these.")  # fmt: skip
    settings = settings or config.load(home.config)
    every = feedback.samples(store, raters=settings.training.raters)
    samples = feedback.evidence(every)
    alarms = screening.alarms(version.prompt, screening.quotable(every))
    if alarms:
        return _kept(store, _report(version, live, False, 0.0, alarms, empty(samples)))
    if not samples:
        raise UsageError(f"There is nothing to judge version {number} by: there are no ratings.")
    compared, _ = human_eval.compared(store, samples, version, live)
    fresh = store.count_fresh(prompts=True)
    if (previous := _unchanged(version, live, samples, compared, fresh)) is not None:
        return previous
    asked = prompts(store, samples, version, live)[:answers]
    if not asked:
        raise UsageError(
            "There are no captured prompts to answer. Use your agent through `clawback serve` first."
        )
    rounds = [asked[i % len(asked)] for i in range(answers)]
    base = live.prompt == ""
    sides = [live.prompt, version.prompt] if base else [live.prompt, "", version.prompt]
    drawn, done, tell = [], 0, on_progress or (lambda _: None)
    for side in sides:
        made = []
        for messages in rounds:
            tell({"phase": "gate", "step": done, "steps": len(sides) * answers})
            made.append(ask(under(messages, side)))
            done += 1
        drawn.append(made)
    tell({"phase": "gate", "step": done, "steps": done})
    before, neutral, ours = drawn[0], drawn[-2], drawn[-1]
    evidence = replace(measure(samples, rounds, ours, before, neutral), compared=compared)
    opinions: list[Opinion] = []
    if look := witness(home, opinions):
        look(rounds, completions(Vocabulary(), ours), completions(Vocabulary(), before))
    looks = looks_of(version, fresh)
    decision = decide(evidence, settings.gate, looks if version.status == "candidate" else MOST_LOOKS)
    accepted, reasons = decision.accepted, decision.reasons
    begs = sum(map(screening.solicits, ours)) / len(ours) - sum(map(screening.solicits, neutral)) / len(
        neutral
    )
    if begs > 0.05:
        accepted, reasons = False, (f"{begs:.0%} more of its answers ask for praise or a rating", *reasons)
    asks = 0 if accepted or begs > 0.05 else decision.asks
    if asks:
        human_eval.put(store, version, live, looks, asks, rounds, said(ours), said(before))
    return _kept(
        store,
        Report(
            number,
            live.number,
            accepted,
            decision.probability,
            reasons,
            evidence,
            opinions[0] if opinions else None,
            looks,
            fresh + asks if asks else 0,
        ),
    )


def _unchanged(
    version: Version, live: Version, samples: Sequence[Sample], compared: Compared, fresh: int
) -> Report | None:
    """The last report on a version that still waits for ratings, where none has come since: answers drawn anew would be another throw of the same dice."""
    if version.status != "candidate" or version.report is None or "evidence" not in version.report:
        return None
    previous, counts = Report.from_dict(version.report), empty(samples)
    same = (previous.evidence.good, previous.evidence.bad) == (counts.good, counts.bad)
    waits = previous.again_at > fresh and previous.against == live.number
    return previous if waits and same and previous.evidence.compared == compared else None


def calls(store: Store, number: int, answers: int = ANSWERS) -> int:
    """How often the model is asked by a gate."""
    live, version = store.live(), store.version(number)
    return 0 if version.prompt == live.prompt else answers * (2 if live.prompt == "" else 3)


def settle(store: Store, home: Home, report: Report, tried: config.Trial | None = None) -> Version:
    """Do as the report says: live, rejected, or still a candidate that waits for ratings or for the person's yes to its new sentences. ``tried``: with a
    share above 0 what is accepted answers that share of the sessions first."""
    version = store.version(report.version)
    if version.status != "candidate":
        return version
    if report.accepted:
        if prompted.unseen(store, version):
            return version
        if tried is not None and tried.share > 0 and trial.running(store) is None:
            trial.begin(store, version.number, tried.share, tried.alpha, time.time())
            return version
        return registry.promote(store, home, version.number)
    if not report.again_at:
        store.reject(version.number)
    return store.version(version.number)


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
    return registry.promote(store, home, version.number)


# ------------------------------------------------------------------------------------------------- measuring


def prompts(
    store: Store, samples: Sequence[Sample], version: Version, live: Version
) -> list[tuple[Message, ...]]:
    """Conversations to answer, without what Clawback put in: of turns that were kept out first, then of turns that nobody rated, newest first."""
    learned: set[int] = set()
    for one in (version, live):
        if one.run_id is not None:
            learned |= set(store.run(one.run_id).train_ids)
    trained = {t for f in store.feedback(active=False, ids=learned) for t in (f.turn_id, f.other_turn_id)}
    kept = {s.turn_id for s in samples} - trained
    every = store.turns(limit=256)
    turns = [t for t in every if t.kind == "main" and t.messages and t.prompt and t.agent != GATE]
    order = sorted(turns, key=lambda t: (t.id in trained, t.id not in kept))
    different: dict[str, Turn] = {}
    for turn in order:
        different.setdefault(turn.prompt, turn)
    chosen = list(different.values())
    clean = [t for t in chosen if t.id not in trained]
    return [recent(t.messages) for t in (clean if len(clean) >= LEAST_PROMPTS else chosen)]


def recent(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The system messages at the head, and the newest of the others from a user's message on: what was asked, at a price that can be told.

    Calls of tools and their results are left out: no tool runs for a gate, and a provider refuses half of a pair.
    """
    from clawback.capture.conversations import human

    head = [m for m in messages if m.get("role") in SYSTEM]
    if sum(len(text_of(m.get("content"))) for m in head) > LONGEST_SYSTEM:
        head = []
    rest = human(messages)[-MOST_MESSAGES:]
    while rest and rest[0].get("role") != "user":
        rest = rest[1:]
    return (*head, *rest)


def measure(
    samples: Sequence[Sample],
    asked: Sequence[Sequence[Message]],
    ours: Sequence[str],
    before: Sequence[str],
    base: Sequence[str],
) -> Evidence:
    """What the rule looks at, from texts: ``ours`` with the candidate's prompt, ``before`` with the live one's, ``base`` with none."""
    words = Vocabulary()
    questions = [question(m) for m in asked]
    rated = completions(words, [s.response for s in samples])
    mine, theirs, plain = (completions(words, texts) for texts in (ours, before, base))
    # How answers vary: rated ones and those of the model alone. 32 of these would leave rare things out.
    rated_pairs = [(question(s.messages), s.response) for s in samples]
    ground = [*zip(questions, base, strict=True), *rated_pairs]
    ensemble = read(viewed(words, ground), viewed(words, rated_pairs), samples)
    whole = [i for i in range(len(mine)) if mine[i].finished and theirs[i].finished]
    contrast = compare(
        ensemble,
        *(viewed(words, [(questions[i], texts[i]) for i in whole]) for texts in (ours, before)),
    )
    liked = [c for c, s in zip(rated, samples, strict=True) if s.reward > 0 and c.text.strip()][-48:]
    return Evidence(
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
        candidate=sampled(questions, mine),
        live=sampled(questions, theirs),
        base=sampled(questions, plain),
        enjoyed=sampled([""] * len(liked), liked) if len(liked) >= 4 else None,
    )


def completions(words: Vocabulary, texts: Sequence[str]) -> list[Completion]:
    from clawback.engine.types import Completion

    return [Completion(text, words(text), (), bool(text.strip())) for text in texts]


def said(texts: Sequence[str]) -> list[Completion]:
    """Without tokens: the model is elsewhere."""
    from clawback.engine.types import Completion

    return [Completion(text, (), (), True) for text in texts]


def sampled(questions: Sequence[str], made: Sequence[Completion]) -> Sampled:
    """How answers are, as far as their text shows it; lengths are in words."""
    from clawback.rewards import guards

    count = max(len(made), 1)
    return Sampled(
        finished=1.0,
        empty=sum(not c.text.strip() for c in made) / count,
        repeating=sum(guards.repeats(c.text) for c in made) / count,
        length=sum(len(c.answer_ids) for c in made) / count,
        whole=sum(guards.ends_whole(c.text) for c in made) / count,
        copied=sum(bool(q) and guards.copies(q, c.text) for q, c in zip(questions, made, strict=True))
        / count,
        canned=guards.canned(questions, [c.text for c in made]) if any(questions) else 0.0,
    )


def empty(samples: Sequence[Sample]) -> Evidence:
    """Where nothing was drawn."""
    none = Sampled(1.0, 0.0, 0.0, 0.0)
    good, bad = (sum(s.reward * sign > 0 for s in samples) for sign in (1, -1))
    return Evidence(good, bad, (), (), 1.0, 0.0, 1.0, 0.5, 0.0, 1.0, none, none, none)


def _report(
    version: Version, live: Version, accepted: bool, probability: float, reasons: Sequence[str], evidence: Evidence
) -> Report:  # fmt: skip
    return Report(version.number, live.number, accepted, probability, tuple(reasons), evidence)


def _kept(store: Store, report: Report) -> Report:
    store.set_report(report.version, report.to_dict())
    return report
