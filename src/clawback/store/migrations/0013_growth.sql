-- What is asked for often must not cost more with every turn that was ever captured.
-- Numbers that would else be counted anew each time, kept by the database itself.
CREATE TABLE counts (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counts SELECT 'turns', count(*) FROM turns;
CREATE TRIGGER turn_came AFTER INSERT ON turns BEGIN UPDATE counts SET number = number + 1 WHERE name = 'turns'; END;
CREATE TRIGGER turn_went AFTER DELETE ON turns BEGIN UPDATE counts SET number = number - 1 WHERE name = 'turns'; END;

-- Ratings that count, by the version that answered (-1: none of ours): of one source's of a turn the newest that was not taken back.
-- Whatever becomes of a row, its group is taken out before and put in after.
CREATE TABLE rating_counts (version INTEGER PRIMARY KEY, good INTEGER NOT NULL, bad INTEGER NOT NULL, number INTEGER NOT NULL);
CREATE VIEW standing_ratings AS
SELECT f.turn_id, f.source, f.value, coalesce(t.version, -1) AS version
FROM feedback f JOIN turns t ON t.id = f.turn_id
WHERE f.kind = 'rating' AND f.undone_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM feedback n WHERE n.turn_id = f.turn_id AND n.source = f.source AND n.kind = 'rating' AND n.undone_at IS NULL AND n.id > f.id
);
INSERT INTO rating_counts SELECT version, total(value > 0), total(value < 0), count(*) FROM standing_ratings GROUP BY version;
CREATE TRIGGER rating_before_insert BEFORE INSERT ON feedback WHEN NEW.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good - (s.value > 0), bad = bad - (s.value < 0), number = number - 1
    FROM standing_ratings s WHERE s.turn_id = NEW.turn_id AND s.source = NEW.source AND rating_counts.version = s.version;
END;
CREATE TRIGGER rating_after_insert AFTER INSERT ON feedback WHEN NEW.kind = 'rating' BEGIN
    INSERT OR IGNORE INTO rating_counts SELECT coalesce(version, -1), 0, 0, 0 FROM turns WHERE id = NEW.turn_id;
    UPDATE rating_counts SET good = good + (s.value > 0), bad = bad + (s.value < 0), number = number + 1
    FROM standing_ratings s WHERE s.turn_id = NEW.turn_id AND s.source = NEW.source AND rating_counts.version = s.version;
END;
CREATE TRIGGER rating_before_update BEFORE UPDATE ON feedback WHEN OLD.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good - (s.value > 0), bad = bad - (s.value < 0), number = number - 1
    FROM standing_ratings s WHERE s.turn_id = OLD.turn_id AND s.source = OLD.source AND rating_counts.version = s.version;
END;
CREATE TRIGGER rating_after_update AFTER UPDATE ON feedback WHEN NEW.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good + (s.value > 0), bad = bad + (s.value < 0), number = number + 1
    FROM standing_ratings s WHERE s.turn_id = NEW.turn_id AND s.source = NEW.source AND rating_counts.version = s.version;
END;
CREATE TRIGGER rating_before_delete BEFORE DELETE ON feedback WHEN OLD.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good - (s.value > 0), bad = bad - (s.value < 0), number = number - 1
    FROM standing_ratings s WHERE s.turn_id = OLD.turn_id AND s.source = OLD.source AND rating_counts.version = s.version;
END;
CREATE TRIGGER rating_after_delete AFTER DELETE ON feedback WHEN OLD.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good + (s.value > 0), bad = bad + (s.value < 0), number = number + 1
    FROM standing_ratings s WHERE s.turn_id = OLD.turn_id AND s.source = OLD.source AND rating_counts.version = s.version;
END;

-- The newest that was said outright, however many guesses and votes came since.
CREATE INDEX feedback_said ON feedback(id) WHERE undone_at IS NULL AND kind NOT IN ('judge', 'implicit');
CREATE INDEX feedback_guessed ON feedback(id) WHERE undone_at IS NULL AND kind IN ('judge', 'implicit');
-- The newest of a kind, where nearly all are of the other; those of a time.
CREATE INDEX turns_main ON turns(id) WHERE kind = 'main';
CREATE INDEX turns_side ON turns(id) WHERE kind = 'side';
CREATE INDEX turns_by_time ON turns(created_at);
CREATE INDEX sessions_by_time ON sessions(created_at);
