-- Tries at the tasks of an environment, each entered when it was over. The number is its place in its run: an interrupted run does not play it again.
CREATE TABLE episodes (
    id           INTEGER PRIMARY KEY,
    run_id       INTEGER REFERENCES runs(id) ON DELETE CASCADE,
    number       INTEGER NOT NULL,
    environment  TEXT NOT NULL,
    task         TEXT NOT NULL,
    seed         INTEGER NOT NULL,
    split        TEXT NOT NULL,
    together     INTEGER NOT NULL,
    status       TEXT NOT NULL,
    stop_reason  TEXT NOT NULL,
    total        REAL NOT NULL,
    unparsable   INTEGER NOT NULL,
    messages     TEXT NOT NULL,
    steps        TEXT NOT NULL,
    created_at   REAL NOT NULL,
    UNIQUE (run_id, number)
);
-- What the policy read and wrote, token by token: ids as 32-bit integers, the mask as bytes, log-probs as 32-bit floats.
CREATE TABLE episode_branches (
    episode_id  INTEGER NOT NULL REFERENCES episodes(id) ON DELETE CASCADE,
    place       INTEGER NOT NULL,
    ids         BLOB NOT NULL,
    mask        BLOB NOT NULL,
    logprobs    BLOB NOT NULL,
    PRIMARY KEY (episode_id, place)
) WITHOUT ROWID;
