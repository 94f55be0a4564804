"""``/rl`` commands in ``clawback chat``: the same words as in agents and chat programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawback.cli.common import current_home
from clawback.feedback import command

if TYPE_CHECKING:
    from clawback.store import Store

SOURCE = "chat"


def reply(store: Store, session: str, text: str, turn: int | None) -> str | None:
    """What a line of the person's comes to if it is a command; None for anything else, which is for the model.

    Args:
        turn: the last answer, which a rating is about; None before the first.
    """
    words = command.parse(text)
    if words is None:
        return None
    if words[0] in command.COMPARES:
        from clawback.jobs import comparing

        return comparing.reply(current_home(), comparing.Surface(SOURCE, session), words[0])
    if words[0] in command.NEWS:
        from clawback.jobs import news

        return news.decide(store, current_home(), command.NEWS[words[0]])
    if words[0] in command.ADMIN:
        return f"That is a command of its own: `clawback {words[0]}`."
    return command.run(store, words, turn, source=SOURCE).text
