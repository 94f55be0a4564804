-- Whether whoever a turn is from agreed that it is learned from ('yes', 'no', '' where nobody asked), and under which licence it came.
ALTER TABLE turns ADD COLUMN consent TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN licence TEXT NOT NULL DEFAULT '';
-- What was deleted on somebody's wish: numbers alone, nothing of what was said.
CREATE TABLE forgotten (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    at          REAL NOT NULL,
    kind        TEXT NOT NULL,
    turns       TEXT NOT NULL,
    feedback    TEXT NOT NULL,
    versions    TEXT NOT NULL
);
