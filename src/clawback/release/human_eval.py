"""Answers of an undecided candidate and of the live version, for the person to rate without knowing whose they are.

What the ratings so far cannot settle is asked directly. The gate has drawn answers of both versions to the person's own prompts; some of each are stored
as turns, and the inbox asks about them first. Their ratings count in two ways (``rule``): the reward model is fitted on them as on any others, and the shares of
good ones are compared. That uses them twice, but it errs less often than without either: docs/gate.md.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawback.records import GATE, Message, Sample, Turn, Version
from clawback.release.fresh import question
from clawback.release.rule import Compared

if TYPE_CHECKING:
    from clawback.engine.types import Completion
    from clawback.store import Store

OF_CANDIDATE = 0.625
"""Share of the answers that are the candidate's: of the live version's, more have been rated already."""


def session(version: int, look: int, place: int) -> str:
    """Each answer is a conversation of its own: nothing that is said of one is about another."""
    return f"{GATE}:{version}:{look}:{place}"


def asks_about(turn: Turn, version: int) -> bool:
    """Whether the gate put this turn there to decide about the version."""
    return turn.agent == GATE and turn.session.startswith(session(version, 0, 0).removesuffix("0:0"))


def put(
    store: Store,
    candidate: Version,
    live: Version,
    look: int,
    count: int,
    asked: Sequence[Sequence[Message]],
    ours: Sequence[Completion],
    theirs: Sequence[Completion],
) -> int:
    """Store ``count`` answers of both versions in random order, each to another prompt. Returns how many; the same look again adds nothing.

    Args:
        look: how often the candidate has been judged; later looks take other prompts.
        ours, theirs: the candidate's and the live version's answers to ``asked``, without tokens where the model is elsewhere.
    """
    distinct = list({question(messages): i for i, messages in enumerate(asked)}.values())
    start = (look - 1) * count % max(len(distinct), 1)
    chosen = (distinct[start:] + distinct[:start])[:count]
    sides = [(candidate, ours)] * round(OF_CANDIDATE * len(chosen))
    sides += [(live, theirs)] * (len(chosen) - len(sides))
    random.Random(f"{candidate.number}:{look}").shuffle(sides)
    with store.together():
        for place, (i, (version, made)) in enumerate(zip(chosen, sides, strict=True)):
            name = session(candidate.number, look, place)
            turn = Turn(
                session=name,
                messages=tuple(asked[i]),
                response=made[i].text,
                agent=GATE,
                version=version.number,
                event_id=name,
                response_ids=made[i].ids or None,
                response_logprobs=made[i].logprobs or None,
                thinking=made[i].thinking,
                ending=made[i].ending,
            )
            # Nobody has seen it yet: what is said of "the last answer" is not about it.
            store.add_turn(turn, seen_at=0.0)
    return len(chosen)


def compared(
    store: Store, samples: Sequence[Sample], candidate: Version, live: Version
) -> tuple[Compared, set[int]]:
    """The ratings of both versions' answers, and the turns in which the candidate answered."""
    authors = store.authors(s.turn_id for s in samples)
    counts, own = {"candidate": [0, 0], "live": [0, 0], "before": [0, 0]}, set()
    for sample in samples:
        agent, version = authors.get(sample.turn_id, ("", None))
        bad = sample.reward <= 0
        if version == candidate.number:
            own.add(sample.turn_id)
        if any(part.kind == "edit" and part.value > 0 for part in sample.parts):
            continue  # what somebody wrote in its place is no answer of any version
        if version == candidate.number:
            counts["candidate"][bad] += 1
        elif version == live.number:
            counts["live" if agent == GATE else "before"][bad] += 1
    return Compared(**{name: (good, bad) for name, (good, bad) in counts.items()}), own
