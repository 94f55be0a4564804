-- Sessions and turns. Turns are small rows; what was said is in `bodies`, so that scans stay fast with 100,000 turns.
CREATE TABLE sessions (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    agent       TEXT NOT NULL,
    cwd         TEXT NOT NULL DEFAULT '',
    created_at  REAL NOT NULL
);
CREATE TABLE turns (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id  INTEGER NOT NULL REFERENCES sessions(id),
    agent       TEXT NOT NULL,
    kind        TEXT NOT NULL CHECK (kind IN ('main', 'side')),
    model       TEXT NOT NULL DEFAULT '',
    version     INTEGER,
    cwd         TEXT NOT NULL DEFAULT '',
    event_id    TEXT UNIQUE,
    created_at  REAL NOT NULL
);
CREATE INDEX turns_by_session ON turns(session_id, id);
CREATE INDEX turns_by_cwd ON turns(cwd, id) WHERE kind = 'main';
CREATE TABLE bodies (
    turn_id           INTEGER PRIMARY KEY REFERENCES turns(id) ON DELETE CASCADE,
    messages          TEXT NOT NULL,
    prompt            TEXT NOT NULL,
    response          TEXT NOT NULL,
    response_ids      BLOB,
    response_logprobs BLOB
);

-- A prompt waits here for its answer: hooks bring the two apart.
CREATE TABLE prompts (
    agent       TEXT NOT NULL,
    session     TEXT NOT NULL,
    prompt_id   TEXT NOT NULL,
    text        TEXT NOT NULL,
    created_at  REAL NOT NULL,
    PRIMARY KEY (agent, session, prompt_id)
);

CREATE TABLE feedback (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    turn_id       INTEGER NOT NULL REFERENCES turns(id),
    other_turn_id INTEGER REFERENCES turns(id),
    kind          TEXT NOT NULL CHECK (kind IN ('rating','preference','edit','critique','implicit','judge','reward')),
    value         REAL NOT NULL CHECK (value BETWEEN -1 AND 1),
    text          TEXT NOT NULL DEFAULT '',
    source        TEXT NOT NULL,
    event_id      TEXT UNIQUE,
    created_at    REAL NOT NULL,
    undone_at     REAL
);
CREATE INDEX feedback_by_turn ON feedback(turn_id);
CREATE INDEX feedback_by_other_turn ON feedback(other_turn_id) WHERE other_turn_id IS NOT NULL;

CREATE TABLE runs (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    status        TEXT NOT NULL CHECK (status IN ('running','done','failed','stopped')),
    base          TEXT NOT NULL,
    base_revision TEXT NOT NULL,
    algorithm     TEXT NOT NULL,
    recipe        TEXT NOT NULL,
    seed          INTEGER NOT NULL,
    parent        INTEGER NOT NULL REFERENCES versions(number),
    created_at    REAL NOT NULL,
    finished_at   REAL,
    pid           INTEGER,
    progress      TEXT NOT NULL DEFAULT '{}',
    version       INTEGER REFERENCES versions(number),
    error         TEXT NOT NULL DEFAULT ''
);
-- One at a time, whatever becomes of locks.
CREATE UNIQUE INDEX one_running ON runs(status) WHERE status = 'running';
CREATE TABLE run_feedback (
    run_id      INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    feedback_id INTEGER NOT NULL REFERENCES feedback(id),
    split       TEXT NOT NULL CHECK (split IN ('train', 'held_out')),
    PRIMARY KEY (run_id, feedback_id)
) WITHOUT ROWID;
CREATE INDEX run_feedback_by_feedback ON run_feedback(feedback_id);

CREATE TABLE versions (
    number        INTEGER PRIMARY KEY,
    status        TEXT NOT NULL CHECK (status IN ('candidate','live','retired','rejected')),
    base          TEXT NOT NULL,
    base_revision TEXT NOT NULL DEFAULT '',
    parent        INTEGER REFERENCES versions(number),
    run_id        INTEGER REFERENCES runs(id),
    path          TEXT NOT NULL DEFAULT '',
    created_at    REAL NOT NULL,
    promoted_at   REAL,
    report        TEXT,
    stale         INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX one_live ON versions(status) WHERE status = 'live';
INSERT INTO versions (number, status, base, created_at, promoted_at)
VALUES (0, 'live', '', (julianday('now') - 2440587.5) * 86400.0, (julianday('now') - 2440587.5) * 86400.0);
CREATE TRIGGER base_stays BEFORE DELETE ON versions WHEN OLD.number = 0
BEGIN SELECT RAISE(ABORT, 'version 0 is the base model and cannot be deleted'); END;
CREATE TRIGGER base_is_not_rejected BEFORE UPDATE OF status ON versions
WHEN NEW.number = 0 AND NEW.status NOT IN ('live', 'retired')
BEGIN SELECT RAISE(ABORT, 'version 0 is the base model and cannot be rejected'); END;

CREATE TABLE state (key TEXT PRIMARY KEY, value TEXT NOT NULL);
