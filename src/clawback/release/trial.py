"""A/B tests in real use: a candidate answers a share of the sessions, until the feedback on both versions decides.

**One version per session.** Which version answers follows from a hash of the session's name, so it is the same for each request,
also after a restart, and no conversation is answered by two versions.

**An always-valid test.** People look at the figures whenever they like, and the trial ends the moment it can, so an ordinary test
would give false alarms. Two players bet against "the candidate is not better" and "the live version is not better" (testing by
betting; Shafer 2021, Waudby-Smith & Ramdas 2024). Each session of the candidate is set against the mean of the
live version's sessions since the one before, and the wealth of the first player is

    K_t = Π_i (1 + λ_i g_i),    g_i = (candidate_i − live_i) / 2  ∈ [−1, 1],

λ_i ∈ [0, ½] being chosen from what came before (aGRAPA: mean over second moment of the g's so far). If the candidate is not
better, K is a supermartingale, so the chance that it *ever* reaches 1/α is at most α (Ville 1939), however often one looks.
The other player bets on −g in the same way.

A session counts once, when it is over (done, or silent for ``SETTLED`` seconds), with the mean reward of its turns.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from clawback import feedback
from clawback.errors import ModelError, UsageError
from clawback.paths import Home
from clawback.records import Version
from clawback.release import version_registry

if TYPE_CHECKING:
    from clawback.store import Store

KEY = "trial"
SETTLED = 30 * 60.0
"""Seconds of silence after which a session is over."""
LARGEST_BET = 0.5
PRIOR = 0.25
"""Second moment of a difference, before there are any: so the first bets are small."""


@dataclass(frozen=True, slots=True)
class Trial:
    """``share`` of sessions go to ``candidate``, the others to ``live``; ``began`` in seconds since 1970."""

    candidate: int
    live: int
    share: float
    alpha: float
    began: float


@dataclass(frozen=True, slots=True)
class Score:
    """How a trial stands. ``better`` and ``worse``: wealth of the two players; 1/α ends it."""

    candidate_sessions: int
    live_sessions: int
    candidate_mean: float | None
    live_mean: float | None
    better: float
    worse: float
    verdict: Literal["", "better", "worse"]


def begin(store: Store, candidate: int, share: float, alpha: float, now: float) -> Trial:
    """Raises ``UsageError`` where a trial is on, or the gate has turned the version away. One that it is undecided about has passed the guards: the trial decides."""
    if running(store):
        raise UsageError("A trial is running already. `clawback versions trial --stop` ends it.")
    if not 0 < share <= 0.5 or not 0 < alpha < 0.5:
        raise UsageError("The share is above 0 and at most 0.5; alpha above 0 and under 0.5.")
    version, live = store.version(candidate), store.live()
    if version.number == live.number:
        raise UsageError(f"Version {candidate} is live already.")
    undecided = version.status == "candidate" and (version.report or {}).get("again_at")
    if not undecided:
        version_registry.passed(version)
    version_registry.seen(store, version)
    version_registry.check(version)
    trial = Trial(version.number, live.number, share, alpha, now)
    store.set(KEY, asdict(trial))
    return trial


def running(store: Store) -> Trial | None:
    """The trial that is on; None where there is none, the live version has changed since, or the candidate was turned away."""
    kept = store.get(KEY)
    trial = Trial(**kept) if kept else None
    if trial is None or trial.live != store.live().number:
        return None
    return trial if store.version(trial.candidate).status != "rejected" else None


def stop(store: Store) -> None:
    store.set(KEY, None)


def side(trial: Trial, session: str) -> int:
    """The version that answers this session."""
    word = hashlib.blake2b(f"{trial.candidate}:{trial.began}:{session}".encode(), digest_size=8).digest()
    return trial.candidate if int.from_bytes(word) / 2**64 < trial.share else trial.live


def version_for(
    store: Store, session: str, check: Callable[[Version], None] = version_registry.check
) -> Version:
    """Who answers a session: by the trial, where one is on; a candidate that ``check`` finds damaged never does."""
    trial = running(store)
    if trial and side(trial, session) == trial.candidate:
        version = store.version(trial.candidate)
        try:
            check(version)
        except ModelError:
            return store.live()
        return version
    return store.live()


def score(store: Store, trial: Trial, now: float) -> Score:
    """From the store alone, in the order in which sessions ended."""
    ours: list[float] = []
    theirs: list[float] = []
    order: list[tuple[bool, float]] = []
    for session in sessions(store, trial, now):
        order.append(session)
        (ours if session[0] else theirs).append(session[1])
    better = wealth(differences(order))
    worse = wealth([-g for g in differences(order)])
    verdict: Literal["", "better", "worse"] = (
        "better"
        if max(better, default=1.0) >= 1 / trial.alpha
        else "worse"
        if max(worse, default=1.0) >= 1 / trial.alpha
        else ""
    )
    return Score(
        len(ours),
        len(theirs),
        sum(ours) / len(ours) if ours else None,
        sum(theirs) / len(theirs) if theirs else None,
        better[-1] if better else 1.0,
        worse[-1] if worse else 1.0,
        verdict,
    )


def sessions(store: Store, trial: Trial, now: float) -> Iterable[tuple[bool, float]]:
    """(of the candidate?, mean reward) of each session that is over, in the order in which they ended."""
    usual = store.middles()
    for version, turns in store.ended_sessions(since=trial.began, until=now - SETTLED):
        if version not in (trial.candidate, trial.live):
            continue
        rewards = []
        for turn in turns:
            said = [f for f in store.feedback(turn_id=turn) if f.kind != "judge"]
            reward, parts = feedback.reward(turn, said, middles=usual)
            if parts:
                rewards.append(reward)
        if rewards:
            yield version == trial.candidate, sum(rewards) / len(rewards)


def differences(order: Sequence[tuple[bool, float]]) -> list[float]:
    """g_i in [-1, 1]: each session of the candidate against the mean of the live version's since the last one used."""
    made: list[float] = []
    waiting: list[float] = []
    others: list[float] = []
    for is_candidate, reward in order:
        (waiting if is_candidate else others).append(reward)
        if waiting and others:
            made.append((waiting.pop(0) - sum(others) / len(others)) / 2)
            others.clear()
    return made


def wealth(gains: Sequence[float]) -> list[float]:
    """K after each bet. Each λ is chosen before its g is seen."""
    total, log_wealth, path = 0.0, 0.0, []
    squares = PRIOR
    for count, gain in enumerate(gains):
        bet = min(max(total / (count + 1) / (squares / (count + 1)), 0.0), LARGEST_BET) if total > 0 else 0.0
        bet = max(bet, LARGEST_BET / 4)  # somebody who never bets learns nothing
        log_wealth += math.log1p(bet * gain)
        path.append(math.exp(min(log_wealth, 700.0)))
        total += gain
        squares += gain * gain
    return path


def _decided(store: Store, home: Home, trial: Trial, score: Score) -> Version:
    """The candidate live. Where the gate was undecided, its report says that real use has decided."""
    report = store.version(trial.candidate).report
    if report and not report.get("accepted"):
        why = f"better in real use: {score.candidate_sessions} sessions of its own, {score.live_sessions} of the live version's (odds {score.better:.0f} to 1)"
        reasons = [why, *report.get("reasons", ())]
        store.set_report(trial.candidate, {**report, "accepted": True, "again_at": 0, "reasons": reasons})
    return version_registry.promote(store, home, trial.candidate)


def settle(store: Store, home: Home, now: float) -> tuple[Score, Version] | None:
    """End the trial if it has decided: the better version goes live. None while it is open, or none is on."""
    trial = running(store)
    if trial is None:
        return None
    found = score(store, trial, now)
    if not found.verdict:
        return None
    if found.verdict == "better":
        live = _decided(store, home, trial, found)
    else:
        live = store.live()
        if store.version(trial.candidate).status == "candidate":
            store.reject(trial.candidate)
    stop(store)
    return found, live
