"""A judge compares two versions' answers prompt by prompt, in both orders; the results are kept for the report.

A model's verdict is no evidence for the gate and is not used in training.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict

from clawback import config, store
from clawback.errors import JudgeError
from clawback.feedback.endpoint import Ask, BudgetExceeded, CallBudget, NoAnswer
from clawback.feedback.passes import readings
from clawback.feedback.verdict import PREFER, fenced
from clawback.feedback.win_rate import PairJudgement, WinRate, win_rate
from clawback.jobs.judge_pass import asker, name_of
from clawback.paths import Home
from clawback.progress import OnProgress

KEY = "win_rates"
KEPT = 20
_BOX = re.compile(r"\\boxed\s*\{\s*([12])\s*\}")


def prefer(ask: Ask, prompt: str, answer: str, other: str) -> PairJudgement:
    """What the judge says of two answers, each standing first once. Raises ``NoAnswer`` where it says nothing that can be read."""
    first = _first_is_better(ask, prompt, answer, other)
    second = not _first_is_better(ask, prompt, other, answer)
    return PairJudgement(first, second, float(len(answer.split()) - len(other.split())))


def judge(
    home: Home,
    versions: tuple[int, int],
    rows: Sequence[tuple[str, str, str]],
    on_progress: OnProgress | None = None,
) -> tuple[WinRate, str, int]:
    """(the first version's win rate over the second's, the judge's name, prompts about which it said nothing that could be read).

    ``rows``: (prompt, the first version's answer, the second's). Two answers that are the same are a tie, and nobody is asked. The budget is
    that of ``[judge]``. Raises ``JudgeError`` where the judge cannot be asked, or said nothing at all.
    """
    settings = config.load(home.config).judge
    budget = CallBudget(settings.max_calls, settings.max_seconds, settings.max_tokens)
    judged, failed = [], 0
    with store.connect(home.database) as db:
        ask = asker(home, db, settings, budget)
    for number, (prompt, one, other) in enumerate(rows):
        if on_progress:
            on_progress({"phase": "judging", "step": number, "steps": len(rows)})
        try:
            same = PairJudgement(True, False, 0.0)
            judged.append(same if one == other else prefer(ask, prompt, one, other))
        except NoAnswer:
            failed += 1
        except BudgetExceeded:
            break
    if not judged:
        raise JudgeError("The judge gave no verdict that could be read; a larger model may keep to the form.")
    rate, name = win_rate(judged), name_of(settings)
    with store.connect(home.database) as db:
        before = db.get(KEY, [])
        entry = {
            "at": time.time(),
            "judge": name,
            "first": versions[0],
            "second": versions[1],
            "unread": failed,
        }
        db.set(KEY, [*before, entry | asdict(rate)][-KEPT:])
    return rate, name, failed


def _first_is_better(ask: Ask, prompt: str, first: str, second: str) -> bool:
    material = fenced((("REQUEST", prompt), ("FIRST ANSWER", first), ("SECOND ANSWER", second)))
    return readings(ask, PREFER, material, 1, choice)[0] == 1


def choice(text: str) -> int | None:
    """1 or 2 of the last box of an answer."""
    boxes = _BOX.findall(text)
    return int(boxes[-1]) if boxes else None
