"""Right and wrong on GSM8K, for ``benchmarks.meaning gsm8k``: taps, worked solutions as edits, and how many sums a version solves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._meaning_run import Said, home, train
from benchmarks._meaning_world import Room
from benchmarks._people import Person, Sum
from benchmarks.real import RESULTS, mean, user

TAPPED, SOLUTIONS, ASKED = 64, 16, 400
"""Taps; worked solutions, as edits; sums that a version is asked."""
DRAWS = 4
"""Answers to a sum among which a right one is looked for, where the first was wrong."""
LONGEST = 256
SHOWN = "{} Think step by step, and end with the result as a number."


def learned(room: Room, person: Person, every: Sequence[Sum]) -> dict[str, Any]:
    """A run on taps and edits, and the sums that its version solves beside the base's.

    The file has results and no worked solutions. A solution is therefore the base's own: of ``DRAWS`` further answers to a sum that it got wrong, the
    shortest right one. Nothing comes from outside but whether a result is right.
    """
    mine, new = every[: 2 * TAPPED], every[-ASKED:]
    first = drawn(room, "first", mine, 1)
    again = drawn(room, "again", mine, DRAWS)
    said, edits = [], 0
    for one, [answer], more in zip(mine, first, again, strict=True):
        is_right = one.right(answer)
        solved = [text for text in more if one.right(text)]
        if not is_right and solved and edits < SOLUTIONS:
            edits += 1
            said.append(Said(SHOWN.format(one.question), answer, edit=min(solved, key=len)))
        elif len(said) - edits < TAPPED:
            said.append(Said(SHOWN.format(one.question), answer, tap=1.0 if is_right else -1.0))
    base = [answer for [answer] in drawn(room, "asked", new, 1)]
    with home(room, said, person.number, LONGEST) as root:
        line = train(root)
        version = line.pop("version")
        now = answered(room, new, Path(version)) if version else base
    return line | {"edits": edits} | compared(new, base, now)


def compared(asked: Sequence[Sum], base: Sequence[str], now: Sequence[str]) -> dict[str, Any]:
    """Shares of right answers; ``p`` of a gain by McNemar's exact test, one-sided."""
    from scipy.stats import binomtest

    before, after = right(asked, base), right(asked, now)
    won = sum(b > a for a, b in zip(before, after, strict=True))
    lost = sum(a > b for a, b in zip(before, after, strict=True))
    p = binomtest(won, won + lost, alternative="greater").pvalue if won + lost else 1.0
    shares = {"base": mean(before), "liked": mean(after)}
    gain = round(shares["liked"] - shares["base"], 3)
    return shares | {"gain": gain, "p": round(float(p), 4), "asked": len(asked)}


def drawn(room: Room, name: str, asked: Sequence[Sum], each: int) -> list[list[str]]:
    """The base's answers, kept."""
    path = RESULTS / f"sums-{name}-{len(asked)}-{room.key}.json"
    if not path.is_file():
        room.policy.put(None)
        made = room.policy.generate([user(SHOWN.format(one.question)) for one in asked], max_tokens=LONGEST, samples=each, seed=len(name))  # fmt: skip
        path.write_text(json.dumps([[one.text for one in some] for some in made]))
    return list(json.loads(path.read_text()))


def answered(room: Room, asked: Sequence[Sum], version: Path) -> list[str]:
    room.policy.put(version)
    made = room.policy.generate([user(SHOWN.format(one.question)) for one in asked], max_tokens=LONGEST, seed=len("asked"))  # fmt: skip
    return [one.text for [one] in made]


def right(asked: Sequence[Sum], answers: Sequence[str]) -> list[bool]:
    return [one.right(text) for one, text in zip(asked, answers, strict=True)]
