-- Where conversations stand, so that a request that goes on with one is known for it, and what came after a response.
ALTER TABLE sessions ADD COLUMN done_at REAL;
ALTER TABLE bodies ADD COLUMN calls TEXT;
ALTER TABLE bodies ADD COLUMN next_state TEXT;
CREATE TABLE places (
    place    BLOB PRIMARY KEY,
    turn_id  INTEGER NOT NULL REFERENCES turns(id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX places_by_turn ON places(turn_id);
