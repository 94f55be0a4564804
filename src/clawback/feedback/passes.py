"""Goes over many turns with a slow model: several at a time, each result stored as soon as it is there, interruptible at any time.

The store belongs to the calling thread; the others only call the model. They are daemons, so that Ctrl-C need
not wait for a call in progress, and everything answered by then is in the store.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from clawback.feedback.endpoint import Ask, BudgetExceeded, CallBudget, NoAnswer, unreadable
from clawback.progress import OnProgress
from clawback.records import Turn

T = TypeVar("T")
FAILURES = 5
"""Turns in a row without any answer after which the rest of a pass is not tried."""


def readings(
    ask: Ask,
    task: str,
    material: str,
    votes: int,
    read: Callable[[str], T | None],
    enough: Callable[[Sequence[T], int], bool] = lambda got, left: False,  # noqa: ARG005
) -> list[T]:
    """What could be read out of up to ``votes`` answers to the same question.

    Args:
        read: an answer's text → what it says, None where that cannot be made out.
        enough: told what there is and how many votes are left, before each; True ends it.

    Raises ``NoAnswer`` where nothing could be read at all, and what ``ask`` raises beyond that.
    """
    got: list[T] = []
    trouble = NoAnswer("")
    for asked in range(votes):
        if enough(got, votes - asked):
            break
        try:
            answer = ask(task, material)
        except NoAnswer as error:
            trouble = error
            continue
        value = read(answer.text)
        if value is None:
            trouble = unreadable(answer)
        else:
            got.append(value)
    if not got:
        raise trouble
    return got


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of going over turns. ``failed``: turns without a result; ``stopped``: why it ended early, or ""."""

    done: int
    failed: tuple[int, ...]
    stopped: str


@dataclass(frozen=True, slots=True)
class PassPlan:
    """How a judge model goes over turns."""

    model: str
    budget: CallBudget
    votes: int = 3
    """Votes on one turn at most."""
    limit: int = -1
    """Turns at most; -1: all that wait."""
    parallel: int = 1
    """Threads that ask; 1: the one that enters the answers."""
    tell: OnProgress = lambda _: None


def go_over(
    turns: Sequence[Turn],
    work: Callable[[Turn], T],
    keep: Callable[[Turn, T], None],
    phase: str,
    plan: PassPlan,
) -> Ended:
    """``work`` on each turn, in the plan's threads, and ``keep`` what came of it in this one.

    A turn that brings no answer is left as it was, for another pass. Errors other than that, and Ctrl-C, are raised
    when what is finished has been kept.
    """
    done = in_a_row = 0
    failed: list[int] = []
    stopped = ""
    plan.tell({"phase": phase, "step": 0, "steps": len(turns)})
    try:
        for turn, came in _results(turns, work, plan.parallel):
            if isinstance(came, BudgetExceeded):
                stopped = stopped or str(came)
            elif isinstance(came, NoAnswer):
                failed.append(turn.id)
                in_a_row += 1
                if in_a_row >= FAILURES:
                    stopped = f"{FAILURES} turns in a row brought nothing: {came}"
            elif isinstance(came, BaseException):
                raise came
            else:
                in_a_row, done = 0, done + 1
                keep(turn, came)
            plan.tell({"phase": phase, "step": done + len(failed), "steps": len(turns)})
            if in_a_row >= FAILURES:
                break
    finally:
        if stopped or done + len(failed) < len(turns):
            plan.budget.stopped.set()
    return Ended(done, tuple(failed), stopped)


def _results(
    turns: Sequence[Turn], work: Callable[[Turn], T], parallel: int
) -> Iterator[tuple[Turn, T | BaseException]]:
    if parallel <= 1:
        for turn in turns:
            try:
                came: T | BaseException = work(turn)
            except Exception as error:
                came = error
            yield turn, came
            if isinstance(came, BudgetExceeded):
                return
        return
    waiting: queue.SimpleQueue[Turn] = queue.SimpleQueue()
    ready: queue.SimpleQueue[tuple[Turn, T | BaseException] | None] = queue.SimpleQueue()
    for turn in turns:
        waiting.put(turn)

    def ask() -> None:
        came: T | BaseException | None = None
        while not isinstance(came, BudgetExceeded):
            try:
                turn = waiting.get_nowait()
            except queue.Empty:
                break
            try:
                came = work(turn)
            except Exception as error:  # handed to the thread that knows what to do about it
                came = error
            ready.put((turn, came))
        ready.put(None)  # this thread has ended

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(parallel, len(turns)))]
    for thread in threads:
        thread.start()
    ended = 0
    # When one finds the budget spent, the others' calls that are under way are waited for: they are paid for.
    while ended < len(threads):
        if (result := ready.get()) is None:
            ended += 1
        else:
            yield result
