"""The background process of a move to another base: ``python -m clawback.extensions.moving.move_worker HOME`` learns, then compares both models.

It holds the training lock of the person's own home, so that no run competes with it for the machine. Killed at any point it is taken up by
``clawback move --to MODEL``: the run from its checkpoint, the comparison from its beginning.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from clawback import config, feedback, jobs, store
from clawback.admin import model_proof
from clawback.errors import Busy, ClawbackError, ModelError, Stopped
from clawback.extensions.moving import moving
from clawback.extensions.moving.moving import Move
from clawback.gate import fresh, guards, prompt_gate
from clawback.gate.fresh import question
from clawback.gate.report import Report
from clawback.jobs.worker import say, write_to_log
from clawback.paths import Home
from clawback.progress import Progress
from clawback.records import GATE_ANSWERS, JsonObject, Message, Version
from clawback.release import version_registry

EXAMPLES = 3
"""Prompts of which both answers are shown."""
Conversations = Sequence[Sequence[Message]]


def main(arguments: list[str]) -> int:
    home = Home(Path(arguments[0]))
    os.environ["CLAWBACK_HOME"] = str(home.root)
    write_to_log(home)
    os.nice(config.load(home.config).schedule.nice)
    try:
        return say(f"move: {work(home).phase}")
    except Busy as error:
        if (move := moving.current(home)) is not None:
            moving.save(home, replace(move, error=str(error), pid=0))
        return say(str(error))


def work(home: Home) -> Move:
    """Learn and compare, as far as that is not done; what came of it is in the state. Raises ``Busy`` while something else trains."""
    move = moving.current(home)
    if move is None:
        raise Busy("No move is open.")
    with version_registry.alone(home):
        move = moving.save(home, moving.entered(move, os.getpid()))
        try:
            if move.phase == "learn":
                learn(home, move)
                move = _go_on(home, phase="compare", progress={"phase": "compare"})
            if move.phase == "compare":
                comparison = compare(home, move)
                move = _go_on(home, phase="ready", comparison=comparison, progress={"phase": "done"})
        except Stopped:
            moving.remove(home)
            return replace(move, phase="stop")
        except Exception as error:
            if not isinstance(error, ClawbackError):
                traceback.print_exc()
            why = str(error) if isinstance(error, ClawbackError) else f"{type(error).__name__}: {error}"
            return moving.save(home, replace(move, phase="failed", error=why, pid=0))
    return move


def _go_on(home: Home, **changes: Any) -> Move:
    """Note how far it is. Raises ``Stopped`` where the person has ended the move meanwhile."""
    held = moving.current(home)
    if held is None or held.phase == "stop":
        raise Stopped("The move was ended.")
    return moving.save(home, replace(held, **changes))


def learn(home: Home, move: Move) -> None:
    """A run on the new base, in the copy, with its gate. Nothing where its version is there already."""
    copy = moving.copy_of(home)

    def tell(_: Progress) -> None:
        held = moving.current(home)
        if held is None or held.phase == "stop":
            raise Stopped("The move was ended.")

    settings = config.load(copy.config).model
    model_proof.prove(home, move.to, settings)
    with store.connect(copy.database) as db:
        ended = next(iter(db.runs(limit=1, ids=False)), None)
    if ended is None or ended.status != "done":
        jobs.train_once(copy, anyway=True, on_progress=tell)


def compare(home: Home, move: Move) -> JsonObject:
    """Both answer the same prompts, those first that the gate keeps back: how often each keeps each rule, and what the ratings say of the answers."""
    copy = moving.copy_of(home)
    settings = config.load(home.config)
    with store.connect(copy.database) as db:
        new = moving.candidate(db)
        samples = feedback.evidence(feedback.samples(db, raters=settings.training.raters))
        conversations, held_back = fresh.prompts(db, settings.gate.held_out)
        run = next(iter(db.runs(limit=1)), None)
        checks = guards.checked(db)
        judged = db.version(run.version).report if run is not None and run.version is not None else None
    with store.connect(home.database) as db:
        old = db.version(move.live)
    rounds = _repeated(conversations, _count(run.recipe if run else {}))
    sides = []
    for number, (owner, version) in enumerate(((home, old), (copy, new))):
        _go_on(home, progress={"phase": "compare", "step": number, "steps": 2})
        sides.append(answers_of(owner, version, rounds, samples))
    old_answers, new_answers = sides
    evidence, chosen = prompt_gate.measure(samples, rounds, new_answers, old_answers, old_answers)
    questions = [question(messages) for messages in rounds]
    rules = guards.measure(checks, questions, new_answers, old_answers)
    examples = [
        {
            "prompt": questions[pair.candidate],
            "new": new_answers[pair.candidate],
            "old": old_answers[pair.live],
        }
        for pair in chosen[:EXAMPLES]
    ]
    return {
        "version": new.number,
        "gate": Report.from_dict(judged).summary() if judged and "evidence" in judged else "",
        "learned": bool(new.path),
        "answers": len(rounds),
        "prompts": len(set(questions)),
        "held_back": held_back,
        "rules": [asdict(rule) for rule in rules],
        "gain": evidence.gain,
        "gain_sd": evidence.gain_sd,
        "better": evidence.better,
        "new": evidence.candidate.to_dict(),
        "old": evidence.live.to_dict(),
        "examples": examples,
    }


def _count(recipe: Any) -> int:
    from clawback.engine import recipe_from
    from clawback.learning import gate_answers

    return gate_answers(recipe_from(recipe)) if recipe else GATE_ANSWERS


def _repeated(conversations: Conversations, count: int) -> list[Sequence[Message]]:
    if not conversations:
        raise ModelError(
            "There are no captured prompts that both models could answer, so they cannot be compared."
        )
    return [conversations[number % len(conversations)] for number in range(count)]


def answers_of(home: Home, version: Version, rounds: Conversations, samples: Sequence[Any]) -> list[str]:
    """One answer to each prompt, by one model in memory at a time, as long as rated answers are."""
    policy = version_registry.load(home, version)
    rated = [policy.encode(sample).response for sample in samples]
    limit = policy.room(rated) if rated else policy.max_tokens
    texts = [answer.text for [answer] in policy.generate(rounds, max_tokens=limit, seed=0)]
    del policy
    gc.collect()
    return texts


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
