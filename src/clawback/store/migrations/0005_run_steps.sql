-- The curves of a run, step by step, and whether somebody wants it to stop.
CREATE TABLE run_steps (
    id       INTEGER PRIMARY KEY,
    run_id   INTEGER NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    phase    TEXT NOT NULL,
    step     INTEGER NOT NULL,
    figures  TEXT NOT NULL,
    UNIQUE (run_id, phase, step)
);
ALTER TABLE runs ADD COLUMN stop_at REAL;
