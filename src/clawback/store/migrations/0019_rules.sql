-- What a person wants of every answer, a sentence each (records.Rule), and whether each answer keeps it.
CREATE TABLE rules (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    text        TEXT NOT NULL UNIQUE,
    check_name  TEXT NOT NULL DEFAULT '',
    author      TEXT NOT NULL,
    status      TEXT NOT NULL DEFAULT 'proposed' CHECK (status IN ('proposed', 'believed', 'dropped', 'withdrawn')),
    created_at  REAL NOT NULL,
    evidence    TEXT NOT NULL DEFAULT '{}'
);
-- One judgement: 1 kept, 0 broken, between them how sure a model is. No row: the rule has not been asked about that answer.
CREATE TABLE rule_checks (
    rule_id     INTEGER NOT NULL REFERENCES rules (id) ON DELETE CASCADE,
    turn_id     INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    judge       TEXT NOT NULL DEFAULT '',
    kept        REAL NOT NULL CHECK (kept BETWEEN 0 AND 1),
    PRIMARY KEY (rule_id, turn_id, judge)
) WITHOUT ROWID;
CREATE INDEX rule_checks_by_turn ON rule_checks (turn_id);
