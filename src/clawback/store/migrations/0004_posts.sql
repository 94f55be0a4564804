-- Names under which a turn is known outside: a message of a chat channel, a prompt of an agent.
CREATE TABLE posts (
    place    TEXT PRIMARY KEY,
    turn_id  INTEGER NOT NULL REFERENCES turns(id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX posts_by_turn ON posts(turn_id);
-- Feedback that overtook what it is about: it waits until its place is known.
CREATE TABLE early (
    event_id    TEXT PRIMARY KEY,
    place       TEXT NOT NULL,
    kind        TEXT NOT NULL,
    value       REAL NOT NULL,
    text        TEXT NOT NULL,
    source      TEXT NOT NULL,
    created_at  REAL NOT NULL
);
CREATE INDEX early_by_place ON early(place);
