-- Who said something is apart from the surface it came through: a person who changes their mind in another place is still one person.
-- What somebody wrote on a scale is kept as written; its worth depends on the other scores of that person.
DROP TRIGGER rating_before_insert;
DROP TRIGGER rating_after_insert;
DROP TRIGGER rating_before_update;
DROP TRIGGER rating_after_update;
DROP TRIGGER rating_before_delete;
DROP TRIGGER rating_after_delete;
DROP VIEW standing_ratings;

ALTER TABLE feedback ADD COLUMN person TEXT NOT NULL DEFAULT 'owner';
ALTER TABLE feedback ADD COLUMN score REAL;
ALTER TABLE feedback ADD COLUMN scale TEXT NOT NULL DEFAULT '';
UPDATE feedback SET person = source WHERE instr(source, ':') > 0 OR kind IN ('judge', 'implicit', 'reward');
-- A rating that is neither +1 nor -1 but one of the ten steps was a score from 1 to 10.
UPDATE feedback SET score = round((9 * value + 11) / 2), scale = '1-10'
WHERE kind = 'rating' AND abs(value) < 1 AND abs(9 * value + 11 - 2 * round((9 * value + 11) / 2)) < 1e-9;
ALTER TABLE early ADD COLUMN person TEXT NOT NULL DEFAULT '';
ALTER TABLE early ADD COLUMN score REAL;
ALTER TABLE early ADD COLUMN scale TEXT NOT NULL DEFAULT '';
-- Sources that are known to be one person's: ``slack:U012`` is the owner, say.
CREATE TABLE identities (source TEXT PRIMARY KEY, person TEXT NOT NULL) WITHOUT ROWID;

CREATE INDEX feedback_by_person ON feedback(person);
CREATE INDEX feedback_scores ON feedback(id) WHERE scale != '' AND undone_at IS NULL;

-- Ratings that count: of one person's of a turn the newest that was not taken back, wherever it was given.
CREATE VIEW standing_ratings AS
SELECT f.id, f.turn_id, f.person, f.value, f.scale, coalesce(t.version, -1) AS version
FROM feedback f JOIN turns t ON t.id = f.turn_id
WHERE f.kind = 'rating' AND f.undone_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM feedback n WHERE n.turn_id = f.turn_id AND n.person = f.person AND n.kind = 'rating' AND n.undone_at IS NULL
        AND (n.created_at, n.id) > (f.created_at, f.id)
);
DELETE FROM rating_counts;
INSERT INTO rating_counts SELECT version, total(value > 0), total(value < 0), count(*) FROM standing_ratings GROUP BY version;

-- Whatever becomes of a row, the groups that it is in are taken out before and put in after. A turn has one version.
CREATE TRIGGER rating_before_insert BEFORE INSERT ON feedback WHEN NEW.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good - s.liked, bad = bad - s.disliked, number = number - s.rated
    FROM (SELECT version, total(value > 0) AS liked, total(value < 0) AS disliked, count(*) AS rated FROM standing_ratings
          WHERE turn_id = NEW.turn_id AND person = NEW.person GROUP BY version) s WHERE rating_counts.version = s.version;
END;
CREATE TRIGGER rating_after_insert AFTER INSERT ON feedback WHEN NEW.kind = 'rating' BEGIN
    INSERT OR IGNORE INTO rating_counts SELECT coalesce(version, -1), 0, 0, 0 FROM turns WHERE id = NEW.turn_id;
    UPDATE rating_counts SET good = good + s.liked, bad = bad + s.disliked, number = number + s.rated
    FROM (SELECT version, total(value > 0) AS liked, total(value < 0) AS disliked, count(*) AS rated FROM standing_ratings
          WHERE turn_id = NEW.turn_id AND person = NEW.person GROUP BY version) s WHERE rating_counts.version = s.version;
END;
CREATE TRIGGER rating_before_update BEFORE UPDATE ON feedback WHEN OLD.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good - s.liked, bad = bad - s.disliked, number = number - s.rated
    FROM (SELECT version, total(value > 0) AS liked, total(value < 0) AS disliked, count(*) AS rated FROM standing_ratings
          WHERE turn_id = OLD.turn_id AND person IN (OLD.person, NEW.person) GROUP BY version) s WHERE rating_counts.version = s.version;
END;
CREATE TRIGGER rating_after_update AFTER UPDATE ON feedback WHEN NEW.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good + s.liked, bad = bad + s.disliked, number = number + s.rated
    FROM (SELECT version, total(value > 0) AS liked, total(value < 0) AS disliked, count(*) AS rated FROM standing_ratings
          WHERE turn_id = NEW.turn_id AND person IN (OLD.person, NEW.person) GROUP BY version) s WHERE rating_counts.version = s.version;
END;
CREATE TRIGGER rating_before_delete BEFORE DELETE ON feedback WHEN OLD.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good - s.liked, bad = bad - s.disliked, number = number - s.rated
    FROM (SELECT version, total(value > 0) AS liked, total(value < 0) AS disliked, count(*) AS rated FROM standing_ratings
          WHERE turn_id = OLD.turn_id AND person = OLD.person GROUP BY version) s WHERE rating_counts.version = s.version;
END;
CREATE TRIGGER rating_after_delete AFTER DELETE ON feedback WHEN OLD.kind = 'rating' BEGIN
    UPDATE rating_counts SET good = good + s.liked, bad = bad + s.disliked, number = number + s.rated
    FROM (SELECT version, total(value > 0) AS liked, total(value < 0) AS disliked, count(*) AS rated FROM standing_ratings
          WHERE turn_id = OLD.turn_id AND person = OLD.person GROUP BY version) s WHERE rating_counts.version = s.version;
END;
