-- How often each rule was kept, counted as checks by code come and go: a list of rules must not read every check (store/receipts.py).
CREATE TABLE rule_counts (
    id          INTEGER PRIMARY KEY,
    rule_id     INTEGER NOT NULL REFERENCES rules (id) ON DELETE CASCADE,
    model       TEXT NOT NULL,
    week        TEXT NOT NULL,
    checked     INTEGER NOT NULL DEFAULT 0,
    kept        INTEGER NOT NULL DEFAULT 0,
    UNIQUE (rule_id, model, week)
);
-- The row of rule_counts that a check is counted in. A turn that is deleted can no longer say which that was.
ALTER TABLE rule_checks ADD COLUMN counted INTEGER;
CREATE INDEX rule_checks_judged ON rule_checks (rule_id, turn_id, kept) WHERE judge != '';
-- Who answered, and in the week of which Monday. Our own server repeats whatever model an agent asked for; answers sampled here have token ids.
CREATE VIEW answered AS
    SELECT t.id AS turn_id,
           CASE WHEN t.version IS NULL THEN coalesce(nullif(t.model, ''), 'unknown')
                WHEN t.model IN ('', 'clawback', 'clawback-base')
                  OR EXISTS (SELECT 1 FROM bodies own WHERE own.turn_id = t.id AND own.response_ids IS NOT NULL)
                THEN 'version ' || t.version
                ELSE t.model || ' with version ' || t.version END AS model,
           date(t.created_at, 'unixepoch', 'localtime', 'weekday 0', '-6 days') AS week,
           t.created_at, t.agent
    FROM turns t WHERE t.kind = 'main' AND t.agent != 'gate';
CREATE TRIGGER rule_check_came AFTER INSERT ON rule_checks WHEN NEW.judge = ''
BEGIN
    INSERT INTO rule_counts (rule_id, model, week) SELECT NEW.rule_id, model, week FROM answered WHERE turn_id = NEW.turn_id
        ON CONFLICT DO NOTHING;
    UPDATE rule_checks SET counted = (
        SELECT c.id FROM answered a JOIN rule_counts c ON c.rule_id = NEW.rule_id AND c.model = a.model AND c.week = a.week
        WHERE a.turn_id = NEW.turn_id
    ) WHERE rule_id = NEW.rule_id AND turn_id = NEW.turn_id AND judge = '';
    UPDATE rule_counts SET checked = checked + 1, kept = kept + (NEW.kept >= 0.5) WHERE id = (
        SELECT counted FROM rule_checks WHERE rule_id = NEW.rule_id AND turn_id = NEW.turn_id AND judge = ''
    );
END;
CREATE TRIGGER rule_check_changed AFTER UPDATE OF kept ON rule_checks WHEN OLD.counted IS NOT NULL
BEGIN
    UPDATE rule_counts SET kept = kept - (OLD.kept >= 0.5) + (NEW.kept >= 0.5) WHERE id = OLD.counted;
END;
CREATE TRIGGER rule_check_went AFTER DELETE ON rule_checks WHEN OLD.counted IS NOT NULL
BEGIN
    UPDATE rule_counts SET checked = checked - 1, kept = kept - (OLD.kept >= 0.5) WHERE id = OLD.counted;
END;
-- Answers of which something changed after they were checked: they are checked, and counted, again.
CREATE TABLE rule_rechecks (turn_id INTEGER PRIMARY KEY REFERENCES turns (id) ON DELETE CASCADE);
CREATE TRIGGER recheck_changed_response AFTER UPDATE OF response ON bodies
WHEN OLD.response IS NOT NEW.response AND EXISTS (SELECT 1 FROM rules)
BEGIN
    DELETE FROM rule_checks WHERE turn_id = NEW.turn_id;
    INSERT INTO rule_rechecks VALUES (NEW.turn_id) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER recheck_changed_turn AFTER UPDATE OF kind, model, version ON turns
WHEN (OLD.kind != NEW.kind OR OLD.model != NEW.model OR OLD.version IS NOT NEW.version) AND EXISTS (SELECT 1 FROM rules)
BEGIN
    DELETE FROM rule_checks WHERE turn_id = NEW.id AND judge = '';
    INSERT INTO rule_rechecks VALUES (NEW.id) ON CONFLICT DO NOTHING;
END;
