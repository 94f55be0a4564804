"""Rules, and which answers keep them."""

# No `from __future__ import annotations`: named tuples would compile each of theirs, in every hook (capture/events.py).

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from clawback.errors import NotFound
from clawback.store.base import Base, now
from clawback.store.driver import sqlite3

if TYPE_CHECKING:
    from clawback.records import Rule, RuleStatus


class Checked(NamedTuple):
    """Whether one answer keeps a rule: 1 kept, 0 broken, between them how sure the judge is."""

    rule_id: int
    turn_id: int
    kept: float
    judge: str = ""
    """The model that judged; "" for a check by code."""


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
        self, number: int, status: "RuleStatus", evidence: Mapping[str, Any] | None = None
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
                [(one.rule_id, one.turn_id, one.judge, one.kept) for one in checks],
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
