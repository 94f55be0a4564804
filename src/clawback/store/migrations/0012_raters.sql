-- People who were invited to rate. Of a token only its SHA-256 is kept: it is random and 256 bits long, so there is nothing to guess. '' once the person
-- was removed; what they said stays.
CREATE TABLE raters (
    name        TEXT PRIMARY KEY,
    role        TEXT NOT NULL CHECK (role IN ('owner', 'rater', 'viewer')),
    token       TEXT NOT NULL,
    created_at  REAL NOT NULL,
    removed_at  REAL
);
CREATE UNIQUE INDEX raters_by_token ON raters (token) WHERE token != '';
-- Who is asked about which turn.
CREATE TABLE assignments (
    rater       TEXT NOT NULL REFERENCES raters (name) ON DELETE CASCADE,
    turn_id     INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    created_at  REAL NOT NULL,
    PRIMARY KEY (rater, turn_id)
);
CREATE INDEX assignments_by_turn ON assignments (turn_id);
-- What somebody did with an answer: opened a link of it ('click'), copied it ('copy'), took it over ('accept').
CREATE TABLE uses (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id     INTEGER NOT NULL REFERENCES turns (id) ON DELETE CASCADE,
    kind        TEXT NOT NULL CHECK (kind IN ('click', 'copy', 'accept')),
    created_at  REAL NOT NULL
);
CREATE INDEX uses_by_turn ON uses (turn_id);
