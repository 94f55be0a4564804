"""Draws two answers of the live version to prompts of the person's own, where the store holds no two answers to one prompt to ask about."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawback import config, release, store
from clawback.errors import UsageError
from clawback.paths import Home
from clawback.progress import OnProgress
from clawback.records import GATE, PICTURE, Turn

if TYPE_CHECKING:
    from clawback.models import Completion
    from clawback.store import Store

LOOKED_AT = 400
"""Newest turns among which prompts are chosen."""
LONGEST_CONVERSATION = 4_000
"""Characters up to which a conversation is answered: a longer one takes long to read."""
LONGEST_ANSWER = 400
"""Tokens of an answer, unless the settings allow fewer."""
AT_ONCE = 4
"""Prompts that are answered together; their answers are stored before the next ones are drawn."""


def prompts(db: Store, count: int) -> list[Turn]:
    """Turns of the person's own with different short prompts, drawn from the newest; prompts with a single answer first."""
    turns: dict[str, Turn] = {}
    answers: dict[str, set[str]] = {}
    for turn in db.turns(limit=LOOKED_AT, kind="main"):
        length = sum(len(str(message.get("content"))) for message in turn.messages)
        own = turn.trainable and turn.agent != GATE and turn.prompt and PICTURE not in turn.prompt
        if own and length <= LONGEST_CONVERSATION:
            turns.setdefault(turn.prompt, turn)
            answers.setdefault(turn.prompt, set()).add(turn.response.strip())
    shuffled = random.Random(len(turns)).sample(list(turns.values()), len(turns))
    return sorted(shuffled, key=lambda turn: len(answers[turn.prompt]) > 1)[:count]


def draw(home: Home, count: int, on_progress: OnProgress = lambda _: None) -> int:
    """Draw and store two answers to each of up to ``count`` prompts; how many pairs differ. Ctrl-C leaves what is there.

    Raises ``UsageError`` without a prompt, ``ModelError``, ``MissingExtra``.
    """
    settings = config.load(home.config)
    with store.connect(home.database) as db:
        asked, live = prompts(db, count), db.live()
        if not asked:
            raise UsageError(
                "No prompt is recorded yet that could be answered twice. `clawback import FILE` brings some."
            )
        on_progress({"phase": "load", "step": 0, "steps": len(asked)})
        policy = release.load(home, live, settings)
        seed = max(turn.id for turn in asked)  # a second draw draws other answers
        limit = min(settings.generation.max_tokens or LONGEST_ANSWER, LONGEST_ANSWER)
        pairs = 0
        for start in range(0, len(asked), AT_ONCE):
            on_progress({"phase": "draw", "step": start, "steps": len(asked)})
            part = asked[start : start + AT_ONCE]
            conversations = [turn.messages for turn in part]
            groups = policy.generate(conversations, samples=2, max_tokens=limit, seed=seed + start)
            pairs += sum(
                _keep(db, turn, answers, live.number) for turn, answers in zip(part, groups, strict=True)
            )
        return pairs


def _keep(db: Store, like: Turn, answers: Sequence[Completion], version: int) -> bool:
    """Store both answers to the prompt of a turn, unless they say the same; whether they were stored."""
    if len({answer.text.strip() for answer in answers}) < len(answers):
        return False
    with db.together():
        for side, answer in enumerate(answers):
            turn = Turn(
                session=f"questions:{like.id}:{time.time_ns()}:{side}",
                messages=like.messages,
                response=answer.text,
                agent="clawback",
                version=version,
                response_ids=answer.ids or None,
                response_logprobs=answer.logprobs or None,
                thinking=answer.thinking,
                ending=answer.ending,
            )
            db.add_turn(turn, seen_at=0.0)  # nobody has seen it yet
    return True
