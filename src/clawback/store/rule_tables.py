"""Rules, which answers keep them, how often they were kept, and which answers were checked already.

Side turns, and answers that the gate asked for, are no part of it: they are nobody's conversation.
"""

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from clawback.errors import NotFound
from clawback.store.connection import sqlite3
from clawback.store.database import Base, now

if TYPE_CHECKING:
    from clawback.records import Rule, RuleStatus


RANGES = "rules_checked"
"""The state that holds, for each rule, the lowest and the highest turn between which every answer was checked."""
_BY_JUDGES = """
    SELECT c.rule_id, c.turn_id, avg(c.kept) AS kept FROM rule_checks c JOIN rules r ON r.id = c.rule_id
    WHERE c.judge != '' AND r.check_name = '' AND c.rule_id = coalesce(?1, c.rule_id) GROUP BY c.rule_id, c.turn_id
"""
_BY_CODE = """
    SELECT c.rule_id, c.turn_id, c.kept FROM rule_checks c JOIN rules r ON r.id = c.rule_id
    WHERE c.judge = '' AND r.check_name != '' AND c.rule_id = ?1
"""
"""A rule with a check by code counts by that check, any other by the mean of its judges."""


class Checked(NamedTuple):
    """Whether one answer keeps a rule: 1 kept, 0 broken, between them how sure the judge is."""

    rule_id: int
    turn_id: int
    verdict: float
    judge: str = ""
    """The model that judged; "" for a check by code."""


class TurnText(NamedTuple):
    """What a check reads of a turn."""

    id: int
    question: str
    response: str


class ObedienceCount(NamedTuple):
    """Of the answers of a model in a week (the date of its Monday): how many a rule was checked on, and how many keep it."""

    rule_id: int
    model: str
    week: str
    checked: int
    passes: int


class RuleVerdict(NamedTuple):
    """One checked answer."""

    turn_id: int
    created_at: float
    agent: str
    model: str
    verdict: float


class RuleTable(Base):
    def add_rule(self, rule: "Rule") -> "Rule":
        """The stored rule. One with the same text stands already: it is returned as it is."""
        with self._write() as db:
            db.execute(
                "INSERT OR IGNORE INTO rules (text, check_name, author, status, created_at, evidence) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    rule.text,
                    rule.check,
                    rule.author,
                    rule.status,
                    rule.created_at or now(),
                    json.dumps(dict(rule.evidence), ensure_ascii=False),
                ),
            )
        return _rule(self._read("SELECT * FROM rules WHERE text = ?", rule.text)[0])

    def rule(self, number: int) -> "Rule":
        """Raises ``NotFound``."""
        rows = self._read("SELECT * FROM rules WHERE id = ?", number)
        if not rows:
            raise NotFound(f"There is no rule {number}. `clawback rules` lists them.")
        return _rule(rows[0])

    def rules(self, *statuses: "RuleStatus") -> list["Rule"]:
        """Rules of those statuses (of all, where none is given), oldest first."""
        rows = self._read(
            "SELECT * FROM rules WHERE ? = '[]' OR status IN (SELECT value FROM json_each(?)) ORDER BY id",
            *[json.dumps(statuses)] * 2,
        )
        return [_rule(row) for row in rows]

    def update_rule(
        self, number: int, status: "RuleStatus", evidence: Mapping[str, object] | None = None
    ) -> "Rule":
        """Enter what a test, or the owner, made of it. ``evidence`` None: as it was. Raises ``NotFound``."""
        known = self.rule(number)
        with self._write() as db:
            db.execute(
                "UPDATE rules SET status = ?, evidence = ? WHERE id = ?",
                (
                    status,
                    json.dumps(dict(known.evidence if evidence is None else evidence), ensure_ascii=False),
                    number,
                ),
            )
        return self.rule(number)

    def add_rule_checks(self, checks: Iterable[Checked]) -> None:
        """Enter judgements; a newer one of the same judge takes the place of the older."""
        with self._write() as db:
            db.executemany(
                "INSERT INTO rule_checks (rule_id, turn_id, judge, kept) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET kept = excluded.kept",
                [(one.rule_id, one.turn_id, one.judge, one.verdict) for one in checks],
            )

    def rule_checks(self, rule_id: int | None = None, turn_id: int | None = None) -> list[Checked]:
        """Judgements, by rule and turn."""
        rows = self._read(
            "SELECT rule_id, turn_id, kept, judge FROM rule_checks WHERE (? IS NULL OR rule_id = ?) AND (? IS NULL OR turn_id = ?)"
            " ORDER BY rule_id, turn_id, judge",
            rule_id,
            rule_id,
            turn_id,
            turn_id,
        )
        return [Checked(*row) for row in rows]

    # --------------------------------------------------------------------------------------- how often they are kept

    def newest_main(self) -> int:
        """The number of the newest main turn; 0 where there is none."""
        return int(self._read("SELECT coalesce(max(id), 0) FROM turns WHERE kind = 'main'")[0][0])

    def answers(
        self, start_id: int, end_id: int, limit: int, *, newest_first: bool = False
    ) -> list[TurnText]:
        """Main turns with ``after < id < before``."""
        order = "DESC" if newest_first else "ASC"
        rows = self._read(
            "SELECT a.turn_id, b.prompt, b.response FROM answered a CROSS JOIN bodies b ON b.turn_id = a.turn_id"
            f" WHERE a.turn_id > ? AND a.turn_id < ? ORDER BY a.turn_id {order} LIMIT ?",
            start_id,
            end_id,
            limit,
        )
        return [TurnText(*row) for row in rows]

    def answers_by_id(self, numbers: Iterable[int]) -> list[TurnText]:
        """Those main turns, oldest first."""
        rows = self._read(
            "SELECT a.turn_id, b.prompt, b.response FROM answered a CROSS JOIN bodies b ON b.turn_id = a.turn_id"
            " WHERE a.turn_id IN (SELECT value FROM json_each(?)) ORDER BY a.turn_id",
            json.dumps(sorted(set(numbers))),
        )
        return [TurnText(*row) for row in rows]

    def checked_ranges(self) -> dict[int, tuple[int, int]]:
        """Rule → the turns (first, last) between which every answer was checked."""
        return {int(rule): (low, high) for rule, (low, high) in self.get(RANGES, {}).items()}

    def set_checked_ranges(self, ranges: Mapping[int, tuple[int, int]]) -> None:
        """Enter how far the checks have come."""
        self.set(RANGES, {str(rule): list(limits) for rule, limits in ranges.items()})

    def rechecks(self, limit: int) -> list[int]:
        """Turns whose answer changed after it was checked."""
        return [row[0] for row in self._read("SELECT turn_id FROM rule_rechecks LIMIT ?", limit)]

    def drop_rechecks(self, turns: Sequence[int]) -> None:
        """Those have been checked again."""
        with self._write() as db:
            db.execute(
                "DELETE FROM rule_rechecks WHERE turn_id IN (SELECT value FROM json_each(?))",
                (json.dumps(list(turns)),),
            )

    def obedience(self, rule_id: int | None = None) -> list[ObedienceCount]:
        """Counts by rule, model and week, oldest week first."""
        rows = self._read(
            "SELECT n.rule_id, n.model, n.week, n.checked, n.kept FROM rule_counts n JOIN rules r ON r.id = n.rule_id"
            " WHERE r.check_name != '' AND n.checked > 0 AND n.rule_id = coalesce(?1, n.rule_id)"
            " UNION ALL SELECT v.rule_id, a.model, a.week, count(*), sum(v.kept >= 0.5)"
            f" FROM ({_BY_JUDGES}) v JOIN answered a ON a.turn_id = v.turn_id GROUP BY v.rule_id, a.model, a.week"
            " ORDER BY 1, 3, 2",
            rule_id,
        )
        return [ObedienceCount(*row) for row in rows]

    def breaches(self, rule: "Rule", limit: int, end_id: int | None = None) -> list[RuleVerdict]:
        """Answers that break a rule, newest first; ``end_id``: only turns under that number."""
        rows = self._read(
            f"SELECT v.turn_id, a.created_at, a.agent, a.model, v.kept FROM ({_BY_CODE if rule.check else _BY_JUDGES}) v"
            " CROSS JOIN answered a ON a.turn_id = v.turn_id WHERE v.kept < 0.5 AND v.turn_id < ?2"
            " ORDER BY v.turn_id DESC LIMIT ?3",
            rule.id,
            2**62 if end_id is None else end_id,
            limit,
        )
        return [RuleVerdict(*row) for row in rows]

    def verdicts_of(self, rule: "Rule", turns: Iterable[int]) -> dict[int, float]:
        """Turn → how far it keeps the rule, for those of these turns that were checked."""
        rows = self._read(
            f"SELECT v.turn_id, v.kept FROM ({_BY_CODE if rule.check else _BY_JUDGES}) v"
            " WHERE v.turn_id IN (SELECT value FROM json_each(?2))",
            rule.id,
            json.dumps(sorted(set(turns))),
        )
        return {row[0]: row[1] for row in rows}

    def recent_verdicts(self, rule_id: int, agent: str, count: int, look: int = 2_000) -> list[float]:
        """Of the newest ``count`` checked answers of an agent's present model: how far each keeps the rule, newest first.

        Only the newest ``look`` turns are searched: an agent that is hardly used must not cost a scan.
        """
        rows = self._read(
            """
            SELECT c.kept FROM rule_checks c CROSS JOIN answered a ON a.turn_id = c.turn_id
            WHERE c.rule_id = ? AND c.turn_id > (SELECT coalesce(max(id), 0) FROM turns) - ? AND a.agent = ?
              AND a.model = (SELECT model FROM answered WHERE agent = ? ORDER BY turn_id DESC LIMIT 1)
            ORDER BY c.turn_id DESC LIMIT ?
            """,
            rule_id,
            look,
            agent,
            agent,
            count,
        )
        return [row[0] for row in rows]

    def recent_agents(self, count: int) -> list[str]:
        """Agents of the newest ``count`` main turns."""
        rows = self._read(
            "SELECT DISTINCT agent FROM (SELECT agent FROM answered ORDER BY turn_id DESC LIMIT ?) ORDER BY agent",
            count,
        )
        return [row[0] for row in rows]


def _rule(row: sqlite3.Row) -> "Rule":
    from clawback.records import Rule  # hooks that read none need not load it

    return Rule(
        text=row["text"],
        check=row["check_name"],
        author=row["author"],
        id=row["id"],
        status=row["status"],
        created_at=row["created_at"],
        evidence=json.loads(row["evidence"]),
    )
