"""``/rl`` commands that need more than the store: ``train``, ``rollback``, ``reset`` (disabled unless the settings list them), the gate's questions, and what becomes of the news.

``python -m clawback.admin.remote_commands HOME AGENT TEXT SESSION BY EVENT`` is for a hook that finds no server: the modules
that hooks import know nothing of runs and gates.
"""

from __future__ import annotations

import sys
from pathlib import Path

from clawback import config
from clawback.errors import ClawbackError
from clawback.feedback import command
from clawback.feedback.due import PREPARED
from clawback.paths import Home


def order(
    home: Home, agent: str, text: str, *, session: str = "", by: str = "", event_id: str = ""
) -> str | None:
    """Do it where it is allowed, and say so in a sentence. None: the text is no such order.

    ``[capture] admin`` lists what may be ordered from outside the terminal. Everyone who can speak to us at ``agent`` may then do it: who
    that is, is for the agent's own settings (owners, allow lists). The gate asks the owner alone, and the owner alone decides about the news, whatever the settings say.

    Args:
        session: the conversation in which it was said.
        by: who said it, where more than one person may.
        event_id: the name of the event: one that is brought twice is acted on once.
    """
    words = command.parse(text)
    if words is None or words[0] not in command.ORDERS:
        return None
    if words[0] in command.COMPARES:
        from clawback.jobs import comparing

        source = f"{agent}:{by}" if by else agent
        name = f"{agent}:compare:{session}:{event_id}" if event_id else ""
        return "Clawback: " + comparing.reply(home, comparing.Surface(source, session, name), words[0])
    if words[0] in command.NEWS:
        from clawback.jobs import news_answer

        source = f"{agent}:{by}" if by else agent
        name = f"{agent}:news:{session}:{event_id}" if event_id else ""
        return "Clawback: " + news_answer.reply(home, source, command.NEWS[words[0]], name)
    what = words[0]
    if what not in config.load(home.config).capture.admin:
        return f"Clawback: `{what}` is not allowed from {agent}. Run `clawback {command.ADMIN[what]}` in a terminal, or list it under [capture] admin."
    try:
        return "Clawback: " + _done(home, what)
    except ClawbackError as error:
        return f"Clawback: {error}"


def _done(home: Home, what: str) -> str:
    from clawback import jobs, release, store

    if what == "train":
        begun = PREPARED.format(status="status")
        return begun[:1].lower() + begun[1:] if jobs.start(home) else "a run is under way already."
    with store.connect(home.database) as db:
        if what == "rollback":
            return f"version {release.rollback(db, home).number} is live again."
        release.reset(db, home)
    return "the base model is live again; ratings are kept."


if __name__ == "__main__":
    session, by, event_id = sys.argv[4:7]
    print(order(Home(Path(sys.argv[1])), *sys.argv[2:4], session=session, by=by, event_id=event_id) or "")
