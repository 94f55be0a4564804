"""What a run brought since the person last looked, in one sentence from what the store has: for the terminal, the page, a chat and the status line."""

# No `from __future__ import annotations`: a named tuple would compile each of its own, in every status line.

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from clawback.records import Version
    from clawback.store import Store

SEEN = "news_seen"
"""The newest version that the person kept, undid, or saw being made."""
DAYS = 7
"""Older news are none."""
CHANGED = 0.1
"""Share by which a length, or the answers that keep a rule, have to differ to be told of (the gate's own bound for rules)."""
NUMBERS = (
    "no",
    *["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
)


class News(NamedTuple):
    """The newest version that a run made without the person looking on."""

    version: int
    live: bool
    """Whether it answers already; else it waits for comparisons."""
    when: str
    ratings: int
    """New ones that it learned from."""
    changes: tuple[str, ...] = ()
    """What the gate measured that differs from the version before."""
    pairs: int = 0
    """Comparisons that are needed to decide about it."""

    @property
    def facts(self) -> str:
        """``last night: 4 ratings, version 7, answers 23 % shorter``."""
        ratings = f"{self.ratings} rating{'' if self.ratings == 1 else 's'}"
        return f"{self.when}: {', '.join((ratings, f'version {self.version}', *self.changes))}"

    @property
    def sentence(self) -> str:
        """The facts, and what is wanted of the person."""
        facts = self.facts[:1].upper() + self.facts[1:]
        if self.live:
            return f"{facts}. Keep it?"
        count = NUMBERS[self.pairs] if self.pairs < len(NUMBERS) else str(self.pairs)
        return f"{facts}; {count} pair{'' if self.pairs == 1 else 's'} to compare before it answers (`clawback inbox --rate`)."

    @property
    def command_sentence(self) -> str:
        """The sentence where the person answers by a command."""
        if not self.live:
            return self.sentence.replace("`clawback inbox --rate`", "`/rl ab`")
        return f"{self.sentence} `/rl y` keeps it, `/rl n` goes back."


def news(store: "Store", now: datetime | None = None) -> News | None:
    """What is new; None where the person has seen it all."""
    now, seen = now or datetime.now(), store.get(SEEN, 0)
    waiting = store.waiting()
    for version in reversed(store.versions(5)):
        if version.number <= seen or version.run_id is None:
            return None
        waits = waiting is not None and waiting[0] == version.number
        if version.status != "live" and not waits:
            continue
        made = datetime.fromtimestamp(version.promoted_at or version.created_at)
        if now - made > timedelta(days=DAYS):
            return None
        pairs = max(waiting[1] - store.count_gate_answers(version.number), 1) if waits and waiting else 0
        return News(
            version=version.number,
            live=version.status == "live",
            when=when(made, now),
            ratings=store.count_new_feedback(version.run_id),
            changes=tuple(changes(version)),
            pairs=pairs,
        )
    return None


def mark_seen(store: "Store", version: int) -> None:
    """The person knows of this version, and of all before it."""
    store.set(SEEN, max(version, store.get(SEEN, 0)))


def when(moment: datetime, now: datetime) -> str:
    """``last night``, ``today``, ``yesterday``, ``on Sunday``.

    >>> when(datetime(2026, 5, 3, 2), datetime(2026, 5, 3, 8)), when(datetime(2026, 5, 2, 13), datetime(2026, 5, 3, 8))
    ('last night', 'yesterday')
    """
    evening = datetime(now.year, now.month, now.day) - timedelta(hours=4)  # 20:00 of the day before
    if (
        evening <= moment < evening + timedelta(hours=10)
        and now.date() >= moment.date()
        and now >= evening + timedelta(hours=10)
    ):
        return "last night"
    if moment.date() == now.date():
        return "today"
    if moment.date() == now.date() - timedelta(days=1):
        return "yesterday"
    return f"on {moment:%A}"


def changes(version: "Version") -> list[str]:
    """What the gate measured of the version's answers beside those of the version before: their length, and the rule whose keeping changed most."""
    evidence: Mapping[str, Any] = (version.report or {}).get("evidence") or {}
    found = []
    lengths = [float((evidence.get(name) or {}).get("length") or 0) for name in ("candidate", "live")]
    if all(lengths) and abs(share := lengths[0] / lengths[1] - 1) >= CHANGED:
        found.append(f"answers {abs(share):.0%} {'shorter' if share < 0 else 'longer'}".replace("%", " %"))
    rules = [rule for rule in evidence.get("rules") or () if abs(rule["candidate"] - rule["live"]) >= CHANGED]
    if rules:
        rule = max(rules, key=lambda rule: abs(rule["candidate"] - rule["live"]))
        kept = f"{rule['candidate']:.0%} of answers (before {rule['live']:.0%})".replace("%", " %")
        found.append(f"“{rule['rule'].rstrip('.')}” kept in {kept}")
    return found
