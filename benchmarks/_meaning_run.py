"""One person's turns and feedback in a home of their own, ``clawback train`` on them, and what the version is like; for ``benchmarks.meaning``."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._meaning_world import ROOM, Room
from benchmarks._people import Graded, Person, graded
from benchmarks.half_year import answer
from benchmarks.real import mean, user

GIGA = 1024 * 1024
"""Kilobytes of ``ru_maxrss``."""
GUARDS = {"perplexity": 1.05, "knowledge": -0.02}
"""The perplexity of other models' answers at most times this; of what the base knows at most this share lost."""
BUDGET = "8h"
"""Time that a run may take: as much as its full size needs, whatever else the machine does."""


@dataclasses.dataclass(frozen=True)
class Said:
    """A turn and what is said about it: a tap (0: none), a remark, an edit."""

    prompt: str
    response: str
    tap: float = 0.0
    remark: str = ""
    edit: str = ""
    model: str = ""
    ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None


def own(room: Room, place: int, **said: Any) -> Said:
    """Said about the base's own answer to a prompt."""
    one = room.captured[place]
    return Said(room.own[place], one["text"], ids=tuple(one["ids"]), logprobs=tuple(one["logprobs"]), **said)


def turns(room: Room, rated: Mapping[int, Said]) -> list[Said]:
    """All turns of the person: what was rated last, before it the base's answers to the other prompts."""
    others = [own(room, i) for i in range(room.count) if i not in rated]
    return [*others, *rated.values()]


@contextmanager
def home(
    room: Room, said: Sequence[Said], seed: int, longest: int = ROOM, learn_from: Sequence[str] = ()
) -> Iterator[Path]:
    """A home in which the person has said all that, with answers of ``longest`` tokens at most; the models are those of the surrounding home.

    ``learn_from``: the models whose answers may be learned.
    """
    from clawback import config, feedback, store
    from clawback.paths import Home
    from clawback.records import Turn

    with tempfile.TemporaryDirectory() as folder:
        made = Home(Path(folder))
        made.create()
        models = Path(os.environ.get("CLAWBACK_HOME", "~/.clawback")).expanduser() / "models"
        if models.is_dir() and not made.models.exists():
            made.models.symlink_to(models)
        training = {"background": False, "seed": seed, "budget": BUDGET, "learn_from": list(learn_from)}
        config.save(made.config, {"model": {"base": room.model}, "training": training, "generation": {"max_tokens": longest}})  # fmt: skip
        with store.connect(made.database) as db, db.together():
            for number, one in enumerate(said):
                turn = Turn(f"{number}", user(one.prompt), one.response, model=one.model or room.model, version=None if one.model else 0, response_ids=one.ids, response_logprobs=one.logprobs)  # fmt: skip
                place = db.add_turn(turn).id
                if one.tap:
                    feedback.rate(db, place, one.tap)
                if one.remark:
                    feedback.critique(db, place, one.remark)
                if one.edit:
                    feedback.edit(db, place, one.edit)
        yield made.root


def train(root: Path) -> dict[str, Any]:
    """``clawback train`` in that home: what came of it, its CPU seconds and its largest memory."""
    command = [sys.executable, "-m", "clawback", "train"]
    environment = os.environ | {"CLAWBACK_HOME": str(root)}
    with (root / "train.out").open("w+") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        shown = out.read().strip().splitlines()
    found = {"cpu_seconds": round(used.ru_utime + used.ru_stime), "gigabytes": round(used.ru_maxrss / GIGA, 2)}  # fmt: skip
    return found | outcome(root, shown[-1] if shown else "")


def answered(root: Path, person: Person) -> dict[str, Any]:
    """What the gate decides once the person has said which of two answers is better, as often as it asks; and how often that was."""
    from clawback import store
    from clawback.gate.report import Report
    from clawback.paths import Home

    home = Home(root)
    with store.connect(home.database) as db:
        # A sentence that waits as a prompt, in place of a version that was refused, is not what is measured.
        waiting = db.waiting()
        version = db.version(waiting[0]) if waiting else None
        report = Report.from_dict(version.report) if version and version.path else None
    report, asked = answer(home, report, person.wish.holds, random.Random(person.name), person.wrong)
    return {"questions": asked} | ({"accepted": report.verdict == "accepted"} if asked else {})


def outcome(root: Path, last: str) -> dict[str, Any]:
    """The run's version and the gate's verdict, from the store; where there is no version, the command's last line."""
    from clawback import store
    from clawback.paths import Home

    with store.connect(Home(root).database) as db:
        runs, made = db.runs(limit=1, ids=False), db.versions()[1:]
        live = db.live().number
    if not made:
        return {"version": "", "note": last}
    version = next((one for one in reversed(made) if one.path), made[-1])
    report: Mapping[str, Any] = version.report or {}
    folder = Path(version.path)
    return {
        "version": str(root / folder) if version.path else "",
        "algorithm": runs[0].algorithm if runs else "",
        "status": version.status,
        "live": live,
        "accepted": bool(report.get("accepted", live == version.number)),
        "note": str(next(iter(report.get("reasons", ())), "")),
        "plan": plan_note(root / folder) if version.path else "",
    }


def plan_note(version: Path) -> str:
    """How the run that made a version in this folder chose what it learned, in its own words."""
    provenance = json.loads((version / "provenance.json").read_text("utf-8"))
    return str(provenance["algorithm_note"])


def measured(room: Room, version: str, likes: Callable[[str, str], bool]) -> dict[str, Any]:
    """What a version's answers to prompts that nobody rated are like, beside the base's."""
    base = room.base
    found = {"base": mean(likes(q, a) for q, a in zip(room.held, base["texts"], strict=True))}
    if not version:  # the base stays what answers
        return found | {"liked": found["base"], "gain": 0.0}
    room.policy.put(Path(version))
    made, figures = room._answers([user(prompt) for prompt in room.held])
    found |= {"liked": mean(likes(q, one.text) for q, one in zip(room.held, made, strict=True))}
    found |= {"gain": round(found["liked"] - found["base"], 3)} | figures
    for name in ("ended", "relevance", "words"):
        found[f"base_{name}"] = base["figures"][name]
    return found


def compared(room: Room, version: str) -> dict[str, Any]:
    """Of two graded answers to a prompt that nobody rated, how often the version has become likelier, a token, to give the better one."""
    prompts = set(room.held)
    by: dict[str, list[Graded]] = {}
    for one in graded(room.data):
        if one.prompt in prompts:
            by.setdefault(one.prompt, []).append(one)
    pairs = [(max(of, key=lambda a: a.grade), min(of, key=lambda a: a.grade)) for of in by.values()]
    pairs = [(better, worse) for better, worse in pairs if better.grade > worse.grade]
    if not version:
        return {"pairs": len(pairs), "accuracy": 0.5}
    asked = [user(better.prompt) for better, _ in pairs]
    room.policy.put(Path(version))
    gains = []
    for texts in ([one.response for one, _ in pairs], [one.response for _, one in pairs]):
        ours = room.policy.logprobs(asked, texts)
        with room.policy.base():
            base = room.policy.logprobs(asked, texts)
        gains.append(np.array([float((a - b).mean()) for a, b in zip(ours, base, strict=True)]))
    return {"pairs": len(pairs), "accuracy": round(float((gains[0] > gains[1]).mean()), 3)}


def kept(row: Mapping[str, Any]) -> list[str]:
    """The guards that a version breaks."""
    broken = []
    if row.get("perplexity", 1.0) > GUARDS["perplexity"]:
        broken.append("perplexity")
    if row.get("knowledge", 0.0) < GUARDS["knowledge"]:
        broken.append("knowledge")
    broken += [name for name in ("ended", "relevance") if row.get(name, 0.0) < row.get(f"base_{name}", 0.0) - 0.05]  # fmt: skip
    return broken
